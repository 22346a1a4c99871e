//! The sum of a conversation and of those that it began.
//!
//! The tree is walked here, a bounded number of nodes and generations, because what parents are is what
//! clients say: rings and forests of thousands are one header away.

use std::collections::HashSet;

use serde::Serialize;

use crate::ledger::store::{Store, StoreError};
use crate::limits::{CONVERSATION_DEPTH_MAX, CONVERSATION_GROUPS_MAX, CONVERSATION_NODES_MAX};

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
}

/// A conversation with those below it, or a list of conversations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tree {
    /// The sums.
    pub total: Total,
    /// Parents before children.
    pub conversations: Vec<Node>,
    /// There is more than was looked at.
    pub truncated: bool,
}

/// Sums up what is asked for.
pub(super) fn sum(store: &mut dyn Store, asked: &Asked) -> Result<Tree, StoreError> {
    let principal = asked.principal.as_str();
    match &asked.session {
        Some(session) => subtree(store, principal, session),
        None => newest(store, principal),
    }
}

fn newest(store: &mut dyn Store, principal: &str) -> Result<Tree, StoreError> {
    let mut tree = Tree::default();
    let most = CONVERSATION_GROUPS_MAX;
    let mut keys = store.newest_conversations(principal, most.saturating_add(1))?;
    tree.truncated = keys.len() > most;
    keys.truncate(most);
    for key in keys {
        tree.add(store, principal, (key, None, 0))?;
    }
    Ok(tree)
}

fn subtree(store: &mut dyn Store, principal: &str, session: &str) -> Result<Tree, StoreError> {
    let mut tree = Tree::default();
    let mut seen = HashSet::from([session.to_owned()]);
    let mut generation = vec![(session.to_owned(), None)];
    for depth in 0..=CONVERSATION_DEPTH_MAX {
        let mut next = Vec::new();
        for (key, parent) in generation {
            tree.add(store, principal, (key.clone(), parent, depth))?;
            let children = store.children(principal, &key, CONVERSATION_NODES_MAX)?;
            for child in children {
                if seen.contains(&child) {
                    continue;
                }
                if depth == CONVERSATION_DEPTH_MAX || seen.len() >= CONVERSATION_NODES_MAX {
                    tree.truncated = true;
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
    Ok(tree)
}

impl Tree {
    fn add(
        &mut self,
        store: &mut dyn Store,
        principal: &str,
        (key, parent, depth): (String, Option<String>, usize),
    ) -> Result<(), StoreError> {
        let mut groups = store.groups(principal, &key)?;
        self.truncated |= groups.len() > CONVERSATION_GROUPS_MAX;
        groups.truncate(CONVERSATION_GROUPS_MAX);
        for group in &groups {
            let total = &mut self.total;
            let add = |sum: &mut i64, more: i64| *sum = sum.saturating_add(more);
            add(&mut total.requests, group.requests);
            if !(1..400).contains(&group.status) {
                add(&mut total.failed, group.requests);
            }
            add(&mut total.request_bytes, group.request_bytes);
            add(&mut total.response_bytes, group.response_bytes);
            add(&mut total.answered, group.answered);
            add(&mut total.first_byte_us, group.first_byte_us);
        }
        self.conversations.push(Node {
            session_key: key,
            parent_key: parent,
            depth,
            groups,
        });
        Ok(())
    }
}
