//! The ledger: which request went where, what it cost, and what came of it.
//!
//! A core hands an answer to a queue of its own before the first byte of it is sent on, and forgets it; the
//! record of the exchange follows over the thread of the log when it is over. One thread takes both, keeps
//! the newest answers and counts conversations; a second one owns the store and is the only one that waits
//! for a disk. So an exchange costs two pushes and no lock, and `POST /outcome` finds an answer on whichever
//! core it comes in, from the moment its client has the last byte.
//!
//! It refuses to slow anything: a full queue loses rows, with a count. It never decides: nothing here is read
//! by a route. Which thread does what and why is in docs/decisions/0002-ledger.md.

mod adoption;
mod conversation;
mod keeper;
mod memory;
mod postgres;
mod question;
mod recent;
mod report;
mod row;
mod sessions;
mod shared;
mod sqlite;
mod store;
#[cfg(test)]
mod tests;
mod tokens;
mod writer;

pub use adoption::Adopted;
pub use conversation::{Asked, Group, Node, Total, Tree};
pub use postgres::{Database, DatabaseUrlError};
pub use question::{Found, Pending, Resolution, Target, Unavailable};
#[doc(hidden)]
pub use report::fuzz;
pub use report::{ReportError, parse};
pub use row::{Answer, NOTHING_READ, Outcome, Verdict, session};
pub use sessions::{Positives, SessionError, Sessions, minute_of};
pub use store::StoreError;
pub use tokens::TokenSums;
pub use writer::{Place, Storing};

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, bounded};

use crate::identity::KeyKind;
use crate::ledger::keeper::Keeper;
use crate::ledger::question::{Question, Reported, pending};
use crate::ledger::recent::Recent;
use crate::ledger::row::Decision;
use crate::ledger::sessions::Coordinator;
use crate::ledger::shared::Shared;
use crate::ledger::writer::Writer;
use crate::limits::{
    ANSWERS_QUEUED, CHANGES_QUEUED, DECISIONS_QUEUED, LEDGER_FLUSH_MS, QUESTIONS_QUEUED,
    RECENT_ANSWERS,
};
use crate::observe::{Follower, Record};

/// The threads, from whose start to whose end there is a ledger.
pub struct Ledger {
    desk: Desk,
    decisions: Sender<Box<Decision>>,
    sessions: Sessions,
    tellers: Vec<Teller>,
    stopped: Arc<AtomicBool>,
    ended: Receiver<()>,
}

impl Ledger {
    /// Starts the threads. That the store cannot be opened is no error: it is tried again, and until then
    /// nobody can report outcomes.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(storing: Storing, window: Duration, cores: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(window));
        let stopped = Arc::<AtomicBool>::default();
        let (questions, questions_asked) = bounded(QUESTIONS_QUEUED);
        let (asks, asked) = bounded(QUESTIONS_QUEUED);
        let (changes, changed) = bounded(CHANGES_QUEUED);
        let (decisions, decided) = bounded(DECISIONS_QUEUED);
        let (end, ended) = bounded::<()>(1);
        let (told, answers): (Vec<_>, Vec<_>) = (0..cores).map(|_| bounded(ANSWERS_QUEUED)).unzip();
        let keeper = Keeper {
            answers,
            decisions: decided,
            questions: questions_asked,
            stopped: Arc::clone(&stopped),
            changes,
            asks,
            shared: Arc::clone(&shared),
            recent: Recent::new(RECENT_ANSWERS.saturating_mul(cores)),
        };
        let is_durable = !matches!(storing.place, Place::Memory);
        let (sessions, sessions_asked, kept) = sessions::sessions(is_durable);
        let writer = Writer::new(storing, changed, asked, Arc::clone(&shared));
        let writer = writer.with_sessions(sessions_asked, Coordinator::new(kept));
        spawn("lanegate-ledger", move || keeper.run())?;
        spawn("lanegate-store", move || {
            writer.run();
            let _nobody_waits = end.try_send(());
        })?;
        let teller = |answers| Teller {
            answers,
            shared: Arc::clone(&shared),
        };
        Ok(Self {
            tellers: told.into_iter().map(teller).collect(),
            desk: Desk { questions, shared },
            decisions,
            sessions,
            stopped,
            ended,
        })
    }

    /// Where questions are asked.
    #[must_use]
    pub fn desk(&self) -> Desk {
        self.desk.clone()
    }

    /// The way to what is kept of sessions.
    #[must_use]
    pub fn sessions(&self) -> Sessions {
        self.sessions.clone()
    }

    /// A core's end of its queue.
    #[must_use]
    pub fn teller(&self, core: usize) -> Option<Teller> {
        self.tellers.get(core).cloned()
    }

    /// Who takes the records of exchanges that are over.
    #[must_use]
    pub fn follower(&self) -> Box<dyn Follower> {
        Box::new(Decisions {
            rows: self.decisions.clone(),
            shared: Arc::clone(&self.desk.shared),
        })
    }

    /// Stores what is queued and ends; gives up on a store that takes nothing for [`LEDGER_FLUSH_MS`].
    pub fn finish(self) {
        self.stopped.store(true, Ordering::Release);
        let _gave_up = self
            .ended
            .recv_timeout(Duration::from_millis(LEDGER_FLUSH_MS));
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(work)?;
    Ok(())
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").finish_non_exhaustive()
    }
}

/// A core's end of its queue of answers.
#[derive(Clone, Debug)]
pub struct Teller {
    answers: Sender<Answer>,
    shared: Arc<Shared>,
}

impl Teller {
    /// Hands an answer over, or drops it if the queue is full.
    pub fn tell(&self, answer: Answer) {
        if self.answers.try_send(answer).is_err() {
            self.shared.lose(1);
        }
    }
}

/// Makes rows of records, on the thread of the log.
struct Decisions {
    rows: Sender<Box<Decision>>,
    shared: Arc<Shared>,
}

impl Follower for Decisions {
    fn follow(&mut self, record: &Record, time: Duration) {
        if let Some(row) = Decision::of(record, time)
            && self.rows.try_send(Box::new(row)).is_err()
        {
            self.shared.lose(1);
        }
    }
}

/// The state of the ledger at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Rows stored.
    pub written: u64,
    /// Rows lost because a queue was full.
    pub lost: u64,
    /// Rows that wait for the store.
    pub waiting: u64,
    /// Attempts at the store that failed.
    pub failures: u64,
    /// What is wrong with the store.
    pub trouble: Option<StoreError>,
    /// Conversations and decisions in the window, in the order of [`KeyKind::ALL`].
    pub adopted: [Adopted; KeyKind::ALL.len()],
}

/// Where questions are asked, from any thread.
#[derive(Clone)]
pub struct Desk {
    questions: Sender<Question>,
    shared: Arc<Shared>,
}

impl Desk {
    /// Reports an outcome.
    ///
    /// # Errors
    /// When too many questions wait already.
    pub fn report(
        &self,
        principal: Option<Arc<str>>,
        target: Target,
        outcome: Outcome,
    ) -> Result<Pending<Resolution>, Unavailable> {
        let (reply, answer) = pending();
        let question = Question::Record(Box::new(Reported {
            principal,
            target,
            outcome,
            reply,
        }));
        self.questions.try_send(question).map_err(|_| Unavailable)?;
        Ok(answer)
    }

    /// Sums up a conversation.
    ///
    /// # Errors
    /// When too many questions wait already.
    pub fn sum(&self, asked: Asked) -> Result<Pending<Tree>, Unavailable> {
        let (reply, answer) = pending();
        let question = Question::Sum(asked, reply);
        self.questions.try_send(question).map_err(|_| Unavailable)?;
        Ok(answer)
    }

    /// What is wrong with the store.
    #[must_use]
    pub fn trouble(&self) -> Option<StoreError> {
        self.shared.trouble()
    }

    /// What agents cost that named themselves: a bounded number of them, and the rest as one.
    #[must_use]
    pub fn agents(&self) -> Vec<(String, TokenSums)> {
        self.shared.agents()
    }

    /// Everything that is counted.
    #[must_use]
    pub fn state(&self) -> State {
        State {
            written: self.shared.written.get(),
            lost: self.shared.lost.load(Ordering::Relaxed),
            waiting: self.shared.waiting.get(),
            failures: self.shared.failures.get(),
            trouble: self.shared.trouble(),
            adopted: self.shared.adopted(),
        }
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}
