//! What the threads of the ledger let others see.

#![expect(
    clippy::disallowed_types,
    reason = "the lock is between the thread of the ledger and who scrapes; no core takes it"
)]

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::clock;
use crate::identity::KeyKind;
use crate::ledger::adoption::{Adopted, Adoption};
use crate::ledger::row::Decision;
use crate::ledger::store::StoreError;
use crate::ledger::tokens::{AgentTokens, TokenSums};
use crate::meter::{Count, Level};

#[derive(Debug)]
pub(super) struct Shared {
    /// Changes stored, written by the store's thread.
    pub(super) written: Count,
    /// Attempts at the store that failed, written by its thread.
    pub(super) failures: Count,
    /// Changes that wait, written by the store's thread.
    pub(super) waiting: Level,
    /// Changes that found a queue full. Written by every core and by the ledger's threads, when it is so.
    pub(super) lost: AtomicU64,
    /// What is wrong with the store, counted from 1 in the order of [`StoreError::ALL`]; 0 if nothing is.
    trouble: AtomicU8,
    adoption: Mutex<Adoption>,
    agents: Mutex<AgentTokens>,
}

impl Shared {
    pub(super) fn new(window: Duration) -> Self {
        Self {
            written: Count::new(),
            failures: Count::new(),
            waiting: Level::new(),
            lost: AtomicU64::new(0),
            trouble: AtomicU8::new(0),
            adoption: Mutex::new(Adoption::new(window, clock::now())),
            agents: Mutex::default(),
        }
    }

    pub(super) fn lose(&self, changes: u64) {
        self.lost.fetch_add(changes, Ordering::Relaxed);
    }

    pub(super) fn set_trouble(&self, trouble: Option<StoreError>) {
        let place = trouble.and_then(|it| StoreError::ALL.iter().position(|error| *error == it));
        let word = place.map_or(0, |place| u8::try_from(place + 1).unwrap_or(u8::MAX));
        self.trouble.store(word, Ordering::Relaxed);
    }

    pub(super) fn trouble(&self) -> Option<StoreError> {
        let word = usize::from(self.trouble.load(Ordering::Relaxed));
        StoreError::ALL.get(word.checked_sub(1)?).copied()
    }

    pub(super) fn count(&self, decisions: &[Box<Decision>]) {
        if decisions.is_empty() {
            return;
        }
        let now = clock::now();
        let mut adoption = self.adoption.lock().unwrap_or_else(PoisonError::into_inner);
        for row in decisions {
            let principal = row.principal.as_deref().unwrap_or_default();
            adoption.count(row.kind, principal, row.session.as_str(), now);
        }
        drop(adoption);
        let mut agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        for row in decisions {
            agents.count(row);
        }
    }

    pub(super) fn agents(&self) -> Vec<(String, TokenSums)> {
        let agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        agents.sums()
    }

    pub(super) fn adopted(&self) -> [Adopted; KeyKind::ALL.len()] {
        let mut adoption = self.adoption.lock().unwrap_or_else(PoisonError::into_inner);
        adoption.now(clock::now())
    }
}
