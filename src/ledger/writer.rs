//! The thread that owns the store. It alone waits for a disk, so that a disk which stops stops nothing else.
//!
//! Changes are stored together, once in `store.flush_interval` or when a batch is full, and before every
//! question. What cannot be stored is kept and tried again; meanwhile questions are refused at once and
//! further changes wait in their queue, whose bound is the bound of what a broken store costs.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, never};
use crossbeam::select;

use crate::clock;
use crate::ledger::conversation::sum;
use crate::ledger::memory::Memory;
use crate::ledger::postgres::{self, Database};
use crate::ledger::question::{Ask, Question, Unavailable};
use crate::ledger::row::{Change, milliseconds};
use crate::ledger::sessions::{Coordinator, SessionAsk};
use crate::ledger::shared::Shared;
use crate::ledger::sqlite;
use crate::ledger::store::{Keep, Store, StoreError, record};
use crate::limits::{
    LEDGER_BATCH_ROWS, PRUNE_LOOK_MS, PRUNE_PAUSE_MS, SESSION_ASKS_QUEUED, STORE_RETRY_MS,
};

/// Longest pause between two looks at the queue, which is never woken for a row.
const LOOK: Duration = Duration::from_millis(100);

/// Where rows are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the memory of this process.
    Memory,
    /// In this file.
    Sqlite(PathBuf),
    /// In this database.
    Postgres(Box<Database>),
}

/// How rows are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storing {
    /// Where.
    pub place: Place,
    /// How long rows stay.
    pub retention: Duration,
    /// The oldest rows go while the store is larger.
    pub bytes_max: u64,
    /// Longest time that a change is in memory only.
    pub flush_interval: Duration,
}

/// The state of the thread.
pub(super) struct Writer {
    storing: Storing,
    changes: Receiver<Change>,
    asks: Receiver<Ask>,
    sessions: Receiver<SessionAsk>,
    coordinator: Option<Coordinator>,
    shared: Arc<Shared>,
    store: Option<Box<dyn Store>>,
    batch: Vec<Change>,
    /// When the batch has to be stored.
    due: Instant,
    /// When a store that failed is tried again, and how long the pause after that is.
    retry: Option<Instant>,
    pause: Duration,
    prune: Instant,
}

impl Writer {
    pub(super) fn new(
        storing: Storing,
        changes: Receiver<Change>,
        asks: Receiver<Ask>,
        shared: Arc<Shared>,
    ) -> Self {
        let now = clock::now();
        Self {
            due: now + storing.flush_interval,
            prune: now,
            storing,
            changes,
            asks,
            sessions: never(),
            coordinator: None,
            shared,
            store: None,
            batch: Vec::new(),
            retry: None,
            pause: Duration::from_millis(STORE_RETRY_MS.0),
        }
    }

    /// The same, with what is kept of sessions.
    pub(super) fn with_sessions(
        self,
        sessions: Receiver<SessionAsk>,
        coordinator: Coordinator,
    ) -> Self {
        Self {
            sessions,
            coordinator: Some(coordinator),
            ..self
        }
    }

    /// Works until nobody can ask or change anything any more, and everything is stored that can be.
    pub(super) fn run(mut self) {
        let look = self.storing.flush_interval.min(LOOK);
        self.attempt(|_| Ok(()));
        loop {
            select! {
                recv(self.asks) -> ask => match ask {
                    Ok(ask) => {
                        // What came before the question.
                        let waiting = self.changes.len();
                        self.take(waiting);
                        self.flush();
                        self.answer(ask);
                    }
                    Err(_) => return self.finish(),
                },
                recv(self.sessions) -> ask => match ask {
                    Ok(ask) => self.session(ask),
                    Err(_) => self.sessions = never(),
                },
                default(look) => {}
            }
            self.take(usize::MAX);
            if clock::now() >= self.due {
                self.flush();
            }
            self.prune();
            self.shared
                .waiting
                .set((self.batch.len() + self.changes.len()) as u64);
        }
    }

    fn finish(mut self) {
        self.retry = None;
        self.take(usize::MAX);
        self.flush();
        for _ in 0..SESSION_ASKS_QUEUED {
            let Ok(ask) = self.sessions.try_recv() else {
                return;
            };
            self.session(ask);
        }
    }

    /// Takes up to `most` changes off the queue, and stores them batch by batch. A batch that cannot be
    /// stored stays, and the queue with it.
    fn take(&mut self, most: usize) {
        for _ in 0..most {
            if self.batch.len() >= LEDGER_BATCH_ROWS {
                self.flush();
                if !self.batch.is_empty() {
                    return;
                }
            }
            let Ok(change) = self.changes.try_recv() else {
                return;
            };
            if self.batch.is_empty() {
                self.due = clock::now() + self.storing.flush_interval;
            }
            self.batch.push(change);
        }
    }

    /// Stores the batch.
    fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut self.batch);
        if self.attempt(|store| store.apply(&batch)).is_some() {
            self.shared.written.add(batch.len() as u64);
        } else {
            self.batch = batch;
        }
    }

    /// Answers what is asked of a session. Rows of the ledger that wait have nothing to do with it.
    fn session(&mut self, ask: SessionAsk) {
        let Some(mut coordinator) = self.coordinator.take() else {
            return;
        };
        let now = clock::unix_time();
        let mut asked = Some(ask);
        self.attempt(|store| match asked.take() {
            Some(ask) => coordinator.answer(store.sessions().as_mut(), ask, now),
            None => Ok(()),
        });
        // The store was not even tried.
        if let Some(ask) = asked {
            coordinator.refuse(ask);
        }
        self.coordinator = Some(coordinator);
    }

    fn answer(&mut self, ask: Ask) {
        let now = milliseconds(clock::unix_time());
        match ask.question {
            Question::Record(it) => {
                let principal = it.principal.as_deref().unwrap_or_default();
                let whom = (principal, &it.target, ask.hint.as_ref());
                let recorded = self.asked(|store| record(store, whom, &it.outcome, now));
                // Who asked may have given up.
                drop(it.reply.try_send(recorded.ok_or(Unavailable)));
            }
            Question::Sum(asked, reply) => {
                let sum = self.asked(|store| sum(store, &asked));
                drop(reply.try_send(sum.ok_or(Unavailable)));
            }
        }
    }

    /// As [`Self::attempt`], of a store in which everything is that came before.
    fn asked<T>(
        &mut self,
        work: impl FnOnce(&mut dyn Store) -> Result<T, StoreError>,
    ) -> Option<T> {
        if !self.batch.is_empty() {
            return None;
        }
        self.attempt(work)
    }

    /// Does something with the store, opening it first where it is not open. None where that failed, or a
    /// failure was too short ago.
    fn attempt<T>(
        &mut self,
        work: impl FnOnce(&mut dyn Store) -> Result<T, StoreError>,
    ) -> Option<T> {
        let now = clock::now();
        if self.retry.is_some_and(|retry| now < retry) {
            return None;
        }
        let worked = match &mut self.store {
            Some(store) => work(store.as_mut()),
            None => open(&self.storing).and_then(|mut store| {
                let worked = work(store.as_mut());
                self.store = Some(store);
                worked
            }),
        };
        match worked {
            Ok(done) => {
                self.retry = None;
                self.pause = Duration::from_millis(STORE_RETRY_MS.0);
                self.shared.set_trouble(None);
                Some(done)
            }
            Err(error) => {
                // A handle of a file that is damaged or was replaced stays damaged.
                if !matches!(error, StoreError::Full | StoreError::Locked) {
                    self.store = None;
                }
                self.retry = Some(now + self.pause);
                self.pause = (self.pause * 2).min(Duration::from_millis(STORE_RETRY_MS.1));
                self.shared.failures.add(1);
                self.shared.set_trouble(Some(error));
                None
            }
        }
    }

    fn prune(&mut self) {
        let now = clock::now();
        if now < self.prune {
            return;
        }
        let oldest = clock::unix_time().saturating_sub(self.storing.retention);
        let keep = Keep {
            since_ms: milliseconds(oldest),
            bytes_max: self.storing.bytes_max,
        };
        let rows = self.attempt(|store| store.prune(keep)) == Some(true);
        let more = self.prune_sessions(oldest) || rows;
        let pause = if more { PRUNE_PAUSE_MS } else { PRUNE_LOOK_MS };
        self.prune = clock::now() + Duration::from_millis(pause);
    }

    fn prune_sessions(&mut self, oldest: Duration) -> bool {
        if !self
            .coordinator
            .as_ref()
            .is_some_and(Coordinator::is_ensured)
        {
            return false;
        }
        let pruned = self.attempt(|store| Coordinator::prune(store.sessions().as_mut(), oldest));
        pruned == Some(true)
    }
}

fn open(storing: &Storing) -> Result<Box<dyn Store>, StoreError> {
    match &storing.place {
        Place::Memory => Ok(Box::new(Memory::new(storing.bytes_max))),
        Place::Sqlite(path) => sqlite::open(path).map(|it| Box::new(it) as Box<dyn Store>),
        Place::Postgres(database) => {
            postgres::open(database).map(|it| Box::new(it) as Box<dyn Store>)
        }
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("storing", &self.storing)
            .finish_non_exhaustive()
    }
}
