//! Sessions in the memory of the process.
//!
//! A row is only made by evidence or by an attempt, and neither may be forgotten: the first would be a session
//! that is unknown again, the second one more attempt than allowed. So rows are kept until the process ends, and
//! where there are too many, further sessions stay unknown.

use std::collections::HashMap;
use std::time::Duration;

use crate::classify::{
    Claim, Classification, Completion, Evidence, Key, LeaseId, Record, Refused, RemoteTerms,
    promoted,
};
use crate::ledger::sessions::{SessionError, SessionStore};
use crate::limits::SESSIONS_KEPT;

/// Sessions by key.
#[derive(Debug)]
pub(in crate::ledger) struct SessionMemory {
    records: HashMap<Key, Record>,
    most: usize,
}

impl Default for SessionMemory {
    fn default() -> Self {
        Self::of(SESSIONS_KEPT)
    }
}

impl SessionMemory {
    pub(super) fn of(most: usize) -> Self {
        Self {
            records: HashMap::new(),
            most,
        }
    }

    fn has_room(&self) -> Result<(), SessionError> {
        if self.records.len() < self.most {
            Ok(())
        } else {
            Err(SessionError::Capacity)
        }
    }
}

impl SessionStore for &mut SessionMemory {
    fn ensure(&mut self) -> Result<(), SessionError> {
        Ok(())
    }

    fn load(&mut self, key: &Key) -> Result<Option<Record>, SessionError> {
        Ok(self.records.get(key).cloned())
    }

    fn promote(
        &mut self,
        key: &Key,
        evidence: Evidence,
        now: Duration,
    ) -> Result<(Classification, bool), SessionError> {
        if let Some(record) = self.records.get_mut(key) {
            let first = record.promote(evidence, now);
            return Ok((record.classification, first));
        }
        self.has_room()?;
        self.records.insert(*key, promoted(evidence, now));
        Ok((Classification::by(evidence), true))
    }

    fn claim(
        &mut self,
        key: &Key,
        terms: &RemoteTerms,
        lease: LeaseId,
        now: Duration,
    ) -> Result<Result<Claim, Refused>, SessionError> {
        if let Some(record) = self.records.get_mut(key) {
            return Ok(record.claim(*key, terms, lease, now));
        }
        self.has_room()?;
        let mut record = Record::default();
        let claimed = record.claim(*key, terms, lease, now);
        if claimed.is_ok() {
            self.records.insert(*key, record);
        }
        Ok(claimed)
    }

    fn complete(
        &mut self,
        claim: &Claim,
        evidence: Option<Evidence>,
        now: Duration,
    ) -> Result<Completion, SessionError> {
        let stale = Completion {
            classification: Classification::Unknown,
            stale: true,
        };
        let record = self.records.get_mut(&claim.key);
        Ok(record.map_or(stale, |record| record.complete(claim, evidence, now)))
    }

    fn prune(&mut self, _: Duration) -> Result<bool, SessionError> {
        Ok(false)
    }
}
