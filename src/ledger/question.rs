//! Questions to the ledger, and how a core waits for the answer to one without blocking.

use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, TryRecvError, bounded};

use crate::identity::Key;
use crate::ledger::conversation::{Asked, Tree};
use crate::ledger::row::{Observation, Outcome, Verdict};

/// Whom a report concerns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The exchange.
    pub request_id: Option<Box<str>>,
    /// The conversation.
    pub conversation: Option<Key>,
    /// The provider that answered.
    pub source: Option<Box<str>>,
}

impl Target {
    /// Whether the exchange that is named is this answer's.
    pub(super) fn names(&self, answer: &Observation) -> bool {
        let id = answer.id.to_string();
        self.request_id.as_deref() == Some(id.as_str())
    }

    /// Whether another conversation than this is named.
    pub(super) fn contradicts(&self, session: &str) -> bool {
        let named = self.conversation.as_ref();
        named.is_some_and(|named| named.as_str() != session)
    }
}

/// The row of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The id of its exchange.
    pub id: String,
    /// The key of its conversation.
    pub session: String,
    /// Whether its provider is on this machine.
    pub local: bool,
    /// What was reported of it before.
    pub outcome: Option<Verdict>,
}

/// What came of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// It stands in this row.
    Recorded {
        /// The row.
        found: Found,
        /// It stood there before.
        duplicate: bool,
        /// The conversation that was named is another one than the exchange's.
        conflict: bool,
    },
    /// There is no such answer.
    NotFound,
    /// It could be about several conversations.
    Ambiguous,
    /// Another outcome was reported of this exchange.
    Conflict,
}

/// The store cannot say, or not in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable;

pub(super) type Reply<T> = Sender<Result<T, Unavailable>>;

/// A report, and who waits to hear of it.
pub(super) struct Reported {
    pub(super) principal: Option<Arc<str>>,
    pub(super) target: Target,
    pub(super) outcome: Outcome,
    pub(super) reply: Reply<Resolution>,
}

/// What is asked.
pub(super) enum Question {
    Record(Box<Reported>),
    Sum(Asked, Reply<Tree>),
}

/// What the store is asked, with what the memory knows.
pub(super) struct Ask {
    pub(super) question: Question,
    pub(super) hint: Option<Observation>,
}

impl Question {
    pub(super) fn refuse(self) {
        // Who asked may have given up.
        match self {
            Self::Record(reported) => drop(reported.reply.try_send(Err(Unavailable))),
            Self::Sum(_, reply) => drop(reply.try_send(Err(Unavailable))),
        }
    }
}

/// An answer that is waited for.
#[derive(Debug)]
pub struct Pending<T>(Receiver<Result<T, Unavailable>>);

pub(super) fn pending<T>() -> (Reply<T>, Pending<T>) {
    let (reply, answer) = bounded(1);
    (reply, Pending(answer))
}

impl<T> Pending<T> {
    /// The answer, if it is there; never waits. A core looks again after
    /// [`QUESTION_LOOK_MS`](crate::limits::QUESTION_LOOK_MS): reports are rare, and a bell for each core would
    /// cost every process two descriptors a core for them.
    #[must_use]
    pub fn poll(&self) -> Option<Result<T, Unavailable>> {
        match self.0.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(Unavailable)),
        }
    }

    /// Waits for the answer, on a thread that may.
    ///
    /// # Errors
    /// When there is none within `limit`.
    pub fn wait(&self, limit: Duration) -> Result<T, Unavailable> {
        self.0.recv_timeout(limit).unwrap_or(Err(Unavailable))
    }
}
