//! What is kept of sessions, on the thread of the store.
//!
//! Cores ask and forget: what they ask is done in order by the one thread that waits for a disk, so that two
//! of them never do the same thing twice for one session. What they need to know at once, that a session is
//! identified, stands in a table that this thread writes and every core reads without a lock; only positives
//! stand there, so that what another gateway finds out is never hidden by what this one did not know.
//!
//! Nothing of it exists before the first feature asks: no table in the store, no memory for the positives.

mod memory;
mod positives;
mod sqlite;
mod table;
#[cfg(test)]
mod tests;

pub(super) use memory::SessionMemory;
pub use positives::Positives;
pub(super) use table::{SCHEMA, SessionDatabase, SessionTable, Stored, Value};

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, bounded};
use uuid::Uuid;

use crate::classify::{
    Claim, Classification, Completion, Evidence, Key, LeaseId, Record, Refused, RemoteTerms,
    SessionTally, StoreOperation, StoreOutcome,
};
use crate::ledger::question::{Pending, Reply, Unavailable, pending};
use crate::ledger::store::StoreError;
use crate::limits::SESSION_ASKS_QUEUED;

/// Why nothing can be said of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionError {
    /// As many sessions are kept as can be.
    Capacity,
    /// What is stored is not what this program stores.
    Refused,
    /// The store.
    Store(StoreError),
}

impl<E: Into<StoreError>> From<E> for SessionError {
    fn from(error: E) -> Self {
        Self::Store(error.into())
    }
}

/// A store of sessions: one guarded statement for each call, so that several gateways may share it.
pub(super) trait SessionStore {
    /// Makes the store ready. Called before anything else, and again after a failure.
    fn ensure(&mut self) -> Result<(), SessionError>;

    /// What is kept of a session; never makes a row.
    fn load(&mut self, key: &Key) -> Result<Option<Record>, SessionError>;

    /// Accepts local evidence. What the session is identified as now, and whether this did it.
    fn promote(
        &mut self,
        key: &Key,
        evidence: Evidence,
        now: Duration,
    ) -> Result<(Classification, bool), SessionError>;

    /// Gives a lease, or says why not.
    fn claim(
        &mut self,
        key: &Key,
        terms: &RemoteTerms,
        lease: LeaseId,
        now: Duration,
    ) -> Result<Result<Claim, Refused>, SessionError>;

    /// Ends an attempt.
    fn complete(
        &mut self,
        claim: &Claim,
        evidence: Option<Evidence>,
        now: Duration,
    ) -> Result<Completion, SessionError>;

    /// Deletes a bounded number of sessions that have not changed since `oldest`, where there is no end to them
    /// otherwise. Whether there may be more.
    fn prune(&mut self, oldest: Duration) -> Result<bool, SessionError>;
}

/// What the thread of the store is asked.
pub(super) enum SessionAsk {
    /// To make the store ready.
    Open,
    /// Whether a session was identified before.
    Load(Key),
    /// That a session is identified by local evidence.
    Promote(Key, Evidence),
    /// For a lease.
    Claim(Key, RemoteTerms, Reply<Result<Claim, Refused>>),
    /// To end an attempt.
    Complete(Claim, Option<Evidence>, Reply<Completion>),
    /// What is kept of a session, for who operates.
    Look(Key, Reply<Classification>),
}

/// What cores and the thread of the store share.
#[derive(Default)]
pub(super) struct SessionShared {
    positives: OnceLock<Positives>,
    /// The last thing asked of the store failed.
    refusing: AtomicBool,
    ready: AtomicBool,
    tally: Arc<SessionTally>,
}

/// The way of a core, and of who asks the remote service, to what is kept of sessions.
#[derive(Clone)]
pub struct Sessions {
    asks: Sender<SessionAsk>,
    shared: Arc<SessionShared>,
    is_durable: bool,
}

/// The ends of the queue.
pub(super) fn sessions(is_durable: bool) -> (Sessions, Receiver<SessionAsk>, Arc<SessionShared>) {
    let (asks, asked) = bounded(SESSION_ASKS_QUEUED);
    let shared = Arc::<SessionShared>::default();
    let sessions = Sessions {
        asks,
        shared: Arc::clone(&shared),
        is_durable,
    };
    (sessions, asked, shared)
}

impl Sessions {
    /// Has the store made ready, so that it is known whether it takes anything. Without room for that the first
    /// question does it.
    pub fn open(&self) {
        drop(self.asks.try_send(SessionAsk::Open));
    }

    /// Whether the store may know of a session what is not known here: a file outlives the process that identified
    /// one, and what nobody asked for has made room. Of a store that takes nothing it is not known.
    #[must_use]
    pub fn may_know(&self) -> bool {
        self.is_durable || self.shared.positives.get().is_some() || self.is_refusing()
    }

    /// Whether the store takes nothing at present; sessions that were identified stay so.
    #[must_use]
    pub fn is_refusing(&self) -> bool {
        self.shared.refusing.load(Ordering::Relaxed)
    }

    /// Whether the store of sessions is open.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.shared.ready.load(Ordering::Relaxed)
    }

    /// What is counted of the store.
    #[must_use]
    pub fn tally(&self) -> Arc<SessionTally> {
        Arc::clone(&self.shared.tally)
    }

    /// What a session was identified as, if that is known here. Never waits.
    #[must_use]
    pub fn known(&self, key: &Key, minute: u32) -> Option<Evidence> {
        self.shared.positives.get()?.find(key, minute)
    }

    /// Asks whether a session was identified before; what is found is known afterwards. Whether there was room
    /// for the question.
    #[must_use]
    pub fn load(&self, key: Key) -> bool {
        self.asks.try_send(SessionAsk::Load(key)).is_ok()
    }

    /// Says that local evidence identifies a session. Whether there was room for it.
    #[must_use]
    pub fn promote(&self, key: Key, evidence: Evidence) -> bool {
        let ask = SessionAsk::Promote(key, evidence);
        self.asks.try_send(ask).is_ok()
    }

    /// Asks for the right to ask the remote service.
    ///
    /// # Errors
    /// When too much is asked already.
    pub fn claim(
        &self,
        key: Key,
        terms: RemoteTerms,
    ) -> Result<Pending<Result<Claim, Refused>>, Unavailable> {
        self.ask(|reply| SessionAsk::Claim(key, terms, reply))
    }

    /// Ends an attempt.
    ///
    /// # Errors
    /// When too much is asked already.
    pub fn complete(
        &self,
        claim: Claim,
        evidence: Option<Evidence>,
    ) -> Result<Pending<Completion>, Unavailable> {
        self.ask(|reply| SessionAsk::Complete(claim, evidence, reply))
    }

    /// What is kept of a session.
    ///
    /// # Errors
    /// When too much is asked already.
    pub fn look(&self, key: Key) -> Result<Pending<Classification>, Unavailable> {
        self.ask(|reply| SessionAsk::Look(key, reply))
    }

    fn ask<T>(&self, ask: impl FnOnce(Reply<T>) -> SessionAsk) -> Result<Pending<T>, Unavailable> {
        let (reply, answer) = pending();
        self.asks.try_send(ask(reply)).map_err(|_| Unavailable)?;
        Ok(answer)
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

/// Does what is asked, with the store that it is given.
pub(super) struct Coordinator {
    shared: Arc<SessionShared>,
    is_ensured: bool,
}

impl Coordinator {
    pub(super) const fn new(shared: Arc<SessionShared>) -> Self {
        Self {
            shared,
            is_ensured: false,
        }
    }

    /// Answers one question, at the time `now` since the Unix epoch.
    ///
    /// # Errors
    /// What is wrong with the store; who asked was told that it is not available.
    pub(super) fn answer(
        &mut self,
        store: &mut dyn SessionStore,
        ask: SessionAsk,
        now: Duration,
    ) -> Result<(), StoreError> {
        if !self.is_ensured
            && let Err(error) = store.ensure()
        {
            refuse(ask);
            return self.judge(Err(error));
        }
        self.is_ensured = true;
        self.shared.ready.store(true, Ordering::Relaxed);
        let done = self.perform(store, ask, now);
        self.judge(done)
    }

    /// Whether there is anything to prune: a feature that nobody enabled deletes nothing.
    pub(super) const fn is_ensured(&self) -> bool {
        self.is_ensured
    }

    /// Deletes sessions that have not changed since `oldest`. Whether there may be more.
    ///
    /// # Errors
    /// What is wrong with the store.
    pub(super) fn prune(
        store: &mut dyn SessionStore,
        oldest: Duration,
    ) -> Result<bool, StoreError> {
        match store.prune(oldest) {
            Ok(more) => Ok(more),
            Err(SessionError::Store(error)) => Err(error),
            Err(SessionError::Capacity | SessionError::Refused) => Ok(false),
        }
    }

    /// Nobody can be answered.
    pub(super) fn refuse(&self, ask: SessionAsk) {
        self.shared.refusing.store(true, Ordering::Relaxed);
        refuse(ask);
    }

    fn judge(&mut self, done: Result<(), SessionError>) -> Result<(), StoreError> {
        // A row that is refused says nothing about the next one.
        let fails = !matches!(done, Ok(()) | Err(SessionError::Refused));
        self.shared.refusing.store(fails, Ordering::Relaxed);
        match done {
            Err(SessionError::Store(error)) => {
                self.is_ensured = false;
                self.shared.ready.store(false, Ordering::Relaxed);
                Err(error)
            }
            Ok(()) | Err(SessionError::Capacity | SessionError::Refused) => Ok(()),
        }
    }

    fn perform(
        &self,
        store: &mut dyn SessionStore,
        ask: SessionAsk,
        now: Duration,
    ) -> Result<(), SessionError> {
        let minute = minute_of(now);
        match ask {
            SessionAsk::Open => Ok(()),
            SessionAsk::Load(key) => self.load(store, &key, minute).map(drop),
            SessionAsk::Promote(key, evidence) => self.promote(store, &key, evidence, now),
            SessionAsk::Claim(key, terms, reply) => {
                let claimed =
                    match self.known(&key, minute) {
                        Some(known) => Ok(Err(Refused::Identified(Classification::by(known)))),
                        None => lease().ok_or(SessionError::Capacity).and_then(|lease| {
                            let claimed = store.claim(&key, &terms, lease, now);
                            self.count(StoreOperation::RemoteClaim, &claimed, |claimed| {
                                match claimed {
                                    Ok(_) => StoreOutcome::Applied,
                                    Err(_) => StoreOutcome::Denied,
                                }
                            })
                        }),
                    };
                if let Ok(Err(Refused::Identified(found))) = claimed {
                    self.remember(&key, found, minute);
                }
                answer(&reply, claimed)
            }
            SessionAsk::Complete(claim, evidence, reply) => {
                let completed = store.complete(&claim, evidence, now);
                let completed = self.count(StoreOperation::RemoteComplete, &completed, |it| {
                    if it.stale {
                        StoreOutcome::Denied
                    } else {
                        StoreOutcome::Applied
                    }
                });
                if let Ok(Completion {
                    classification,
                    stale,
                }) = completed
                {
                    self.remember(&claim.key, classification, minute);
                    if let (Some(evidence), false) = (classification.evidence(), stale) {
                        self.shared.tally.transition(evidence);
                    }
                }
                answer(&reply, completed)
            }
            SessionAsk::Look(key, reply) => answer(&reply, self.load(store, &key, minute)),
        }
    }

    fn known(&self, key: &Key, minute: u32) -> Option<Evidence> {
        self.shared.positives.get()?.find(key, minute)
    }

    fn remember(&self, key: &Key, found: Classification, minute: u32) {
        if let Some(evidence) = found.evidence() {
            let positives = self.shared.positives.get_or_init(Positives::default);
            positives.insert(key, evidence, minute);
        }
    }

    fn load(
        &self,
        store: &mut dyn SessionStore,
        key: &Key,
        minute: u32,
    ) -> Result<Classification, SessionError> {
        if let Some(known) = self.known(key, minute) {
            return Ok(Classification::by(known));
        }
        let loaded = store.load(key);
        let loaded = loaded.map(|record| record.unwrap_or_default().classification);
        let loaded = self.count(StoreOperation::Load, &loaded, |found| match found {
            Classification::Unknown => StoreOutcome::Miss,
            Classification::CodingAgent { .. } => StoreOutcome::Hit,
        })?;
        self.remember(key, loaded, minute);
        Ok(loaded)
    }

    /// Only who makes the first one of a session known counts as having identified it.
    fn promote(
        &self,
        store: &mut dyn SessionStore,
        key: &Key,
        evidence: Evidence,
        now: Duration,
    ) -> Result<(), SessionError> {
        let minute = minute_of(now);
        if self.load(store, key, minute)? != Classification::Unknown {
            return Ok(());
        }
        let promoted = store.promote(key, evidence, now);
        let (found, first) = self.count(StoreOperation::Promote, &promoted, |(_, first)| {
            if *first {
                StoreOutcome::Applied
            } else {
                StoreOutcome::Unchanged
            }
        })?;
        self.remember(key, found, minute);
        if first {
            self.shared.tally.transition(evidence);
        }
        Ok(())
    }

    fn count<T: Clone>(
        &self,
        operation: StoreOperation,
        done: &Result<T, SessionError>,
        outcome: impl FnOnce(&T) -> StoreOutcome,
    ) -> Result<T, SessionError> {
        let outcome = done.as_ref().map_or(StoreOutcome::Error, outcome);
        self.shared.tally.store(operation, outcome);
        done.clone()
    }
}

fn answer<T>(reply: &Reply<T>, done: Result<T, SessionError>) -> Result<(), SessionError> {
    match done {
        Ok(done) => {
            // Who asked may have given up.
            drop(reply.try_send(Ok(done)));
            Ok(())
        }
        Err(error) => {
            drop(reply.try_send(Err(Unavailable)));
            Err(error)
        }
    }
}

fn refuse(ask: SessionAsk) {
    match ask {
        SessionAsk::Open | SessionAsk::Load(_) | SessionAsk::Promote(..) => {}
        SessionAsk::Claim(.., reply) => drop(reply.try_send(Err(Unavailable))),
        SessionAsk::Complete(.., reply) => drop(reply.try_send(Err(Unavailable))),
        SessionAsk::Look(_, reply) => drop(reply.try_send(Err(Unavailable))),
    }
}

/// The name of a new lease.
fn lease() -> Option<LeaseId> {
    LeaseId::new(&Uuid::now_v7().simple().to_string())
}

/// Minutes since the Unix epoch.
#[must_use]
pub fn minute_of(now: Duration) -> u32 {
    u32::try_from(now.as_secs() / 60).unwrap_or(u32::MAX)
}
