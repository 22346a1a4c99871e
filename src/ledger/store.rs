//! What a store can do, whichever it is, and how a report finds its row.

use std::fmt;

use crate::ledger::conversation::Group;
use crate::ledger::question::{Found, Resolution, Target};
use crate::ledger::row::{Change, Observation, Outcome};
use crate::ledger::sessions::SessionStore;
use crate::limits::{OUTCOME_WINDOW_SECONDS, RECORD_TRIES};

/// Why a store did not do what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// No space is left.
    Full,
    /// Another process has it locked.
    Locked,
    /// What is there is no database of this program, or a damaged one.
    Corrupt,
    /// It cannot be opened or reached.
    Unreachable,
    /// It was made by a newer version.
    Newer,
    /// The user of the URL may not log in, or may not do what a ledger does.
    Refused,
    /// The certificate of its server is not to be believed.
    Untrusted,
    /// It does not answer in time.
    Slow,
    /// Anything else.
    Other,
}

impl StoreError {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Full,
        Self::Locked,
        Self::Corrupt,
        Self::Unreachable,
        Self::Newer,
        Self::Refused,
        Self::Untrusted,
        Self::Slow,
        Self::Other,
    ];
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "no space is left",
            Self::Locked => "another process has the database locked",
            Self::Corrupt => "what is there is no ledger, or a damaged one",
            Self::Unreachable => "the database cannot be opened or reached",
            Self::Newer => "the database was made by a newer version",
            Self::Refused => "the database refuses its user",
            Self::Untrusted => "the certificate of the database is not to be believed",
            Self::Slow => "the database does not answer in time",
            Self::Other => "the database reports an error",
        })
    }
}

/// One of the two tables of observations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Remote,
    Local,
}

impl Table {
    pub(super) const ALL: [Self; 2] = [Self::Remote, Self::Local];

    pub(super) const fn of(local: bool) -> Self {
        if local { Self::Local } else { Self::Remote }
    }

    /// Its name in databases.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Remote => "energy_observations",
            Self::Local => "local_energy_observations",
        }
    }
}

/// The answers that a report without ids may mean.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidates {
    /// The newest of them.
    pub(super) newest: Option<Found>,
    /// Whether they belong to more than one conversation.
    pub(super) several: bool,
}

/// How long rows stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keep {
    /// Rows from before this moment go, milliseconds since the Unix epoch.
    pub(super) since_ms: i64,
    /// The oldest rows go while the store is larger.
    pub(super) bytes_max: u64,
}

/// A store of the three tables. Every call is bounded in rows. `principal` is empty where clients have no
/// names; rows of one principal are never seen by another.
pub(super) trait Store: Send {
    /// Stores all of these or none.
    fn apply(&mut self, changes: &[Change]) -> Result<(), StoreError>;

    /// The answer of an exchange.
    fn by_request(&mut self, principal: &str, id: &str) -> Result<Option<Found>, StoreError>;

    /// The newest answer in a conversation.
    fn newest(
        &mut self,
        table: Table,
        principal: &str,
        session: &str,
    ) -> Result<Option<Found>, StoreError>;

    /// The answers since a moment, of one source if that is given.
    fn candidates(
        &mut self,
        principal: &str,
        source: Option<&str>,
        since_ms: i64,
    ) -> Result<Candidates, StoreError>;

    /// Writes an outcome into the row of an answer, unless another one stands there by now than it says. Whether
    /// it did.
    fn set_outcome(
        &mut self,
        found: &Found,
        outcome: &Outcome,
        at_ms: i64,
    ) -> Result<bool, StoreError>;

    /// What is kept of sessions.
    fn sessions(&mut self) -> Box<dyn SessionStore + '_>;

    /// Deletes a bounded number of rows that need not be kept. Whether there may be more.
    fn prune(&mut self, keep: Keep) -> Result<bool, StoreError>;

    /// The sums of the newest decisions of one conversation, at most `most` of them, without those below it.
    /// How many these were comes with it: groups beyond
    /// [`CONVERSATION_GROUPS_MAX`](crate::limits::CONVERSATION_GROUPS_MAX) are left out, save one.
    fn groups(
        &mut self,
        principal: &str,
        session: &str,
        most: usize,
    ) -> Result<(Vec<Group>, usize), StoreError>;

    /// The conversations that have this one as a parent, at most `most`, each once. It costs as many steps, however
    /// many decisions they have.
    fn children(
        &mut self,
        principal: &str,
        session: &str,
        most: usize,
    ) -> Result<Vec<String>, StoreError>;

    /// The conversations of the newest decisions, at most `most`, newest first. It looks at
    /// [`CONVERSATION_ROWS_MAX`](crate::limits::CONVERSATION_ROWS_MAX) decisions of all principals.
    fn newest_conversations(
        &mut self,
        principal: &str,
        most: usize,
    ) -> Result<Vec<String>, StoreError>;
}

/// Puts a report down to a row, in the order of the contract: exchange, conversation, source, the only
/// conversation there is. `hint` is what the newest answers in memory said already, and is stored if the
/// store does not know it.
pub(super) fn record(
    store: &mut dyn Store,
    whom: (&str, &Target, Option<&Observation>),
    outcome: &Outcome,
    now_ms: i64,
) -> Result<Resolution, StoreError> {
    // Another gateway may report of the same row in between.
    for _ in 0..RECORD_TRIES {
        if let Some(resolution) = record_unless_changed(store, whom, outcome, now_ms)? {
            return Ok(resolution);
        }
    }
    Err(StoreError::Locked)
}

/// None if the row changed after it was found.
fn record_unless_changed(
    store: &mut dyn Store,
    (principal, target, hint): (&str, &Target, Option<&Observation>),
    outcome: &Outcome,
    now_ms: i64,
) -> Result<Option<Resolution>, StoreError> {
    let (found, by_id) = match hint {
        Some(hint) if target.names(hint) => (known(store, principal, hint)?, true),
        Some(hint) => {
            let known = known(store, principal, hint)?;
            // Another gateway may have a newer answer.
            let newest = store.newest(Table::Remote, principal, &known.session)?;
            (newest.unwrap_or(known), false)
        }
        None => match find(store, principal, target, now_ms)? {
            Sought::Row(found, by_id) => (found, by_id),
            Sought::Nothing => return Ok(Some(Resolution::NotFound)),
            Sought::Several => return Ok(Some(Resolution::Ambiguous)),
        },
    };
    let conflict = by_id && target.contradicts(&found.session);
    let duplicate = by_id && found.outcome == Some(outcome.verdict);
    if !duplicate {
        if by_id && found.outcome.is_some() {
            return Ok(Some(Resolution::Conflict));
        }
        if !store.set_outcome(&found, outcome, now_ms)? {
            return Ok(None);
        }
    }
    Ok(Some(Resolution::Recorded {
        found,
        duplicate,
        conflict,
    }))
}

/// A row of which the memory knows, stored if it was not.
fn known(store: &mut dyn Store, principal: &str, hint: &Observation) -> Result<Found, StoreError> {
    let id = hint.id.to_string();
    if let Some(found) = store.by_request(principal, &id)? {
        return Ok(found);
    }
    store.apply(&[Change::Observed(Box::new(hint.clone()))])?;
    let found = store.by_request(principal, &id)?;
    found.ok_or(StoreError::Other)
}

enum Sought {
    /// A row, and whether the id of its exchange led to it.
    Row(Found, bool),
    Nothing,
    Several,
}

fn find(
    store: &mut dyn Store,
    principal: &str,
    target: &Target,
    now_ms: i64,
) -> Result<Sought, StoreError> {
    let row = |found: Option<Found>| found.map_or(Sought::Nothing, |it| Sought::Row(it, false));
    if let Some(id) = &target.request_id {
        if let Some(found) = store.by_request(principal, id)? {
            return Ok(Sought::Row(found, true));
        }
        if target.conversation.is_none() {
            return Ok(Sought::Nothing);
        }
    }
    if let Some(conversation) = &target.conversation {
        let session = conversation.as_str();
        // By table first: an older answer of a remote provider goes before a newer local one.
        for table in Table::ALL {
            let found = store.newest(table, principal, session)?;
            if found.is_some() {
                return Ok(row(found));
            }
        }
        return Ok(Sought::Nothing);
    }
    let window = i64::try_from(OUTCOME_WINDOW_SECONDS).unwrap_or(i64::MAX);
    let since_ms = now_ms.saturating_sub(window.saturating_mul(1000));
    let candidates = store.candidates(principal, target.source.as_deref(), since_ms)?;
    if candidates.several {
        return Ok(Sought::Several);
    }
    Ok(row(candidates.newest))
}
