//! The sum of a conversation and of those that it began.
//!
//! The tree is walked here, a bounded number of nodes and generations, because what parents are is what
//! clients say: rings and forests of thousands are one header away. So are conversations of a million decisions,
//! where a fingerprint is that of all agents of a fleet: of decisions too a bounded number is added up.

use std::collections::HashSet;

use serde::Serialize;

use crate::ledger::store::{Store, StoreError};
use crate::ledger::tokens::TokenSums;
use crate::limits::{
    CONVERSATION_DEPTH_MAX, CONVERSATION_GROUPS_MAX, CONVERSATION_NODES_MAX, CONVERSATION_ROWS_MAX,
};

/// Which conversation is summed up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Whose it is; empty where clients have no names.
    pub principal: String,
    /// Its key; the newest conversations, each without those below it, if there is none.
    pub session: Option<String>,
}

/// The decisions of one conversation by one agent that ended with one status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// The agent, if it said.
    pub agent: Option<String>,
    /// The status that the client got; 0 if it got none.
    pub status: i64,
    /// Decisions.
    pub requests: i64,
    /// Bytes of their requests.
    pub request_bytes: i64,
    /// Bytes of their responses.
    pub response_bytes: i64,
    /// Decisions whose provider began to answer.
    pub answered: i64,
    /// The sum of the times to the first byte of these, microseconds.
    pub first_byte_us: i64,
    /// The longest of them.
    pub first_byte_us_max: i64,
    /// The first decision, milliseconds since the Unix epoch.
    pub first_at: i64,
    /// The last one.
    pub last_at: i64,
    /// What they cost.
    #[serde(flatten)]
    pub tokens: TokenSums,
}

impl Group {
    /// Reads the columns that [`Store::groups`] asks a database for; `number` gives one by its place, the first
    /// of which is the agent's.
    pub(super) fn read<E>(
        agent: Option<String>,
        number: impl Fn(usize) -> Result<i64, E>,
    ) -> Result<Self, E> {
        Ok(Self {
            agent,
            status: number(1)?,
            requests: number(2)?,
            request_bytes: number(3)?,
            response_bytes: number(4)?,
            answered: number(5)?,
            first_byte_us: number(6)?,
            first_byte_us_max: number(7)?,
            first_at: number(8)?,
            last_at: number(9)?,
            tokens: TokenSums {
                metered: number(11)?,
                input_tokens: number(12)?,
                output_tokens: number(13)?,
                cached_tokens: number(14)?,
                cache_write_tokens: number(15)?,
            },
        })
    }
}

/// One conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Its key.
    pub session_key: String,
    /// The node that led here; none for the first.
    pub parent_key: Option<String>,
    /// Generations below the first.
    pub depth: usize,
    /// By agent and status.
    pub groups: Vec<Group>,
}

/// The sums of all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Total {
    /// Decisions.
    pub requests: i64,
    /// Those with a status of 400 or more, or none.
    pub failed: i64,
    /// Bytes of their requests.
    pub request_bytes: i64,
    /// Bytes of their responses.
    pub response_bytes: i64,
    /// Decisions whose provider began to answer.
    pub answered: i64,
    /// The sum of the times to the first byte of these, microseconds.
    pub first_byte_us: i64,
    /// What they cost.
    #[serde(flatten)]
    pub tokens: TokenSums,
}

/// A conversation with those below it, or a list of conversations.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Tree {
    /// The sums.
    pub total: Total,
    /// The part of all input that was read from providers' caches; none where no answer gave a count of input.
    pub cache_share: Option<f64>,
    /// Parents before children.
    pub conversations: Vec<Node>,
    /// There is more than was looked at.
    pub truncated: bool,
}

/// Sums up what is asked for.
pub(super) fn sum(store: &mut dyn Store, asked: &Asked) -> Result<Tree, StoreError> {
    let mut walk = Walk {
        store,
        principal: &asked.principal,
        rows_left: CONVERSATION_ROWS_MAX,
        tree: Tree::default(),
    };
    match &asked.session {
        Some(session) => walk.subtree(session)?,
        None => walk.newest()?,
    }
    walk.tree.cache_share = walk.tree.total.tokens.cache_share();
    Ok(walk.tree)
}

/// A sum while it is being made.
struct Walk<'a> {
    store: &'a mut dyn Store,
    principal: &'a str,
    /// Decisions that may still be added up.
    rows_left: usize,
    tree: Tree,
}

impl Walk<'_> {
    fn newest(&mut self) -> Result<(), StoreError> {
        let most = CONVERSATION_GROUPS_MAX;
        let mut keys = self.store.newest_conversations(self.principal, most + 1)?;
        self.tree.truncated = keys.len() > most;
        keys.truncate(most);
        for key in keys {
            self.add(key, None, 0)?;
        }
        Ok(())
    }

    fn subtree(&mut self, session: &str) -> Result<(), StoreError> {
        let mut seen = HashSet::from([session.to_owned()]);
        let mut generation = vec![(session.to_owned(), None)];
        for depth in 0..=CONVERSATION_DEPTH_MAX {
            let mut next = Vec::new();
            for (key, parent) in generation {
                self.add(key.clone(), parent, depth)?;
                // One more than there may be.
                let most = CONVERSATION_NODES_MAX + 1;
                let children = self.store.children(self.principal, &key, most)?;
                for child in children {
                    if seen.contains(&child) {
                        continue;
                    }
                    if depth == CONVERSATION_DEPTH_MAX || seen.len() >= CONVERSATION_NODES_MAX {
                        self.tree.truncated = true;
                        continue;
                    }
                    seen.insert(child.clone());
                    next.push((child, Some(key.clone())));
                }
            }
            generation = next;
            if generation.is_empty() {
                break;
            }
        }
        Ok(())
    }

    fn add(&mut self, key: String, parent: Option<String>, depth: usize) -> Result<(), StoreError> {
        let (mut groups, rows) = self.store.groups(self.principal, &key, self.rows_left)?;
        self.rows_left = self.rows_left.saturating_sub(rows);
        self.tree.truncated |= groups.len() > CONVERSATION_GROUPS_MAX || self.rows_left == 0;
        groups.truncate(CONVERSATION_GROUPS_MAX);
        for group in &groups {
            self.tree.total.add(group);
        }
        self.tree.conversations.push(Node {
            session_key: key,
            parent_key: parent,
            depth,
            groups,
        });
        Ok(())
    }
}

impl Total {
    fn add(&mut self, group: &Group) {
        let add = |sum: &mut i64, more: i64| *sum = sum.saturating_add(more);
        add(&mut self.requests, group.requests);
        if !(1..400).contains(&group.status) {
            add(&mut self.failed, group.requests);
        }
        add(&mut self.request_bytes, group.request_bytes);
        add(&mut self.response_bytes, group.response_bytes);
        add(&mut self.answered, group.answered);
        add(&mut self.first_byte_us, group.first_byte_us);
        self.tokens.add(&group.tokens);
    }
}
