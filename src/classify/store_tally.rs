//! What is counted of the store of sessions, by the one thread that works with it.

use crate::classify::Evidence;
use crate::meter::Count;

/// What was done with the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOperation {
    /// A session was looked up.
    Load,
    /// Local evidence was accepted.
    Promote,
    /// A lease was asked for.
    RemoteClaim,
    /// An attempt ended.
    RemoteComplete,
}

impl StoreOperation {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Load,
        Self::Promote,
        Self::RemoteClaim,
        Self::RemoteComplete,
    ];

    /// Its word in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Promote => "promote",
            Self::RemoteClaim => "remote_claim",
            Self::RemoteComplete => "remote_complete",
        }
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOutcome {
    /// It changed the row.
    Applied,
    /// The row forbade it.
    Denied,
    /// The store did not do it.
    Error,
    /// The session is identified.
    Hit,
    /// It is not.
    Miss,
    /// The row was so already.
    Unchanged,
}

impl StoreOutcome {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Applied,
        Self::Denied,
        Self::Error,
        Self::Hit,
        Self::Miss,
        Self::Unchanged,
    ];

    /// Its word in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Denied => "denied",
            Self::Error => "error",
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Unchanged => "unchanged",
        }
    }
}

/// The numbers.
#[derive(Debug, Default)]
pub struct SessionTally {
    store: [[Count; StoreOutcome::ALL.len()]; StoreOperation::ALL.len()],
    transitions: [Count; Evidence::ALL.len()],
}

impl SessionTally {
    /// Counts what came of an operation. Of one thread only.
    pub fn store(&self, operation: StoreOperation, outcome: StoreOutcome) {
        let row = self.store.get(operation as usize);
        if let Some(count) = row.and_then(|row| row.get(outcome as usize)) {
            count.add(1);
        }
    }

    /// Counts a session that this evidence identified. Of one thread only.
    pub fn transition(&self, evidence: Evidence) {
        if let Some(count) = self.transitions.get(evidence as usize) {
            count.add(1);
        }
    }

    /// How often this came of that.
    #[must_use]
    pub fn stored(&self, operation: StoreOperation, outcome: StoreOutcome) -> u64 {
        let row = self.store.get(operation as usize);
        let count = row.and_then(|row| row.get(outcome as usize));
        count.map_or(0, Count::get)
    }

    /// How many sessions this evidence identified.
    #[must_use]
    pub fn transitions(&self, evidence: Evidence) -> u64 {
        self.transitions
            .get(evidence as usize)
            .map_or(0, Count::get)
    }
}
