//! What is stored: an answer when it begins, a decision when its exchange is over, an outcome when a client
//! reports one. No text of a message, no credential and no address is in any of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::classify::{Evidence, SessionView};
use crate::dialect::Dialect;
use crate::identity::{Identity, Inline, Key, KeyKind};
use crate::limits::ROW_MODEL_BYTES_MAX;
use crate::observe::{EndReason, Record, RequestId};
use crate::usage::{State, StopReason, Tokens, Usage};

/// An answer of a provider, as its core knows it when the first byte is about to be sent on.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The exchange.
    pub id: RequestId,
    /// When the head of the answer was there.
    pub at: Instant,
    /// Whose request it is, where clients have names.
    pub principal: Option<Arc<str>>,
    /// What the head of the request said of its conversation.
    pub identity: Option<Arc<Identity>>,
    /// The fingerprint of its body, where that was read.
    pub fingerprint: Option<u64>,
    /// The provider that answered.
    pub source: Arc<str>,
    /// Whether that provider is on this machine.
    pub local: bool,
}

/// The key under which a request is filed. A request of which nothing is known has that of no text.
#[must_use]
pub fn session(identity: Option<&Identity>, fingerprint: Option<u64>) -> (KeyKind, Key) {
    let named = identity.and_then(|identity| identity.session);
    named.unwrap_or_else(|| {
        let value = fingerprint.unwrap_or(NOTHING_READ);
        (KeyKind::Fingerprint, Key::fingerprint(value))
    })
}

/// The fingerprint of a body without text, which is also that of one that was not read: the first eight
/// bytes of the SHA-256 of one zero byte.
pub const NOTHING_READ: u64 = 0x6e34_0b9c_ffb3_7a98;

/// A row of `energy_observations` or `local_energy_observations`.
#[derive(Clone, Debug)]
pub(super) struct Observation {
    /// Milliseconds since the Unix epoch.
    pub(super) at_ms: i64,
    pub(super) id: RequestId,
    pub(super) principal: Option<Arc<str>>,
    pub(super) session: Key,
    pub(super) source: Arc<str>,
    pub(super) local: bool,
}

/// A row of `route_decisions`.
#[derive(Clone, Debug)]
pub(super) struct Decision {
    /// Milliseconds since the Unix epoch, at the end of the exchange.
    pub(super) at_ms: i64,
    pub(super) id: RequestId,
    pub(super) principal: Option<Arc<str>>,
    pub(super) kind: KeyKind,
    pub(super) session: Key,
    pub(super) identity: Option<Arc<Identity>>,
    pub(super) dialect: Dialect,
    pub(super) imposter: bool,
    pub(super) provider: Arc<str>,
    pub(super) model: Option<Inline<ROW_MODEL_BYTES_MAX>>,
    pub(super) lane: &'static str,
    pub(super) status: u16,
    pub(super) request_bytes: u64,
    pub(super) response_bytes: u64,
    pub(super) first_byte: Option<Duration>,
    pub(super) duration: Duration,
    pub(super) end: EndReason,
    pub(super) usage: Option<Usage>,
    /// None without the feature.
    pub(super) view: Option<SessionView>,
}

impl Decision {
    /// The row of an exchange that was over at `time` since the Unix epoch; none if no provider was chosen
    /// for it, or its path is none of the three dialects'.
    pub(super) fn of(record: &Record, time: Duration) -> Option<Self> {
        let (to, dialect) = (record.to.as_ref()?, record.dialect?);
        let (kind, session) = session(record.identity.as_deref(), record.fingerprint);
        Some(Self {
            at_ms: milliseconds(time),
            id: record.id,
            principal: record.client.clone(),
            kind,
            session,
            identity: record.identity.clone(),
            dialect,
            imposter: to.imposter,
            provider: Arc::clone(&to.provider),
            model: record.model,
            lane: record.way.as_str(),
            status: record.status,
            request_bytes: record.request_bytes,
            response_bytes: record.response_bytes,
            first_byte: record.first_byte,
            duration: record.duration,
            end: record.end,
            usage: record.usage,
            view: record.view,
        })
    }

    pub(super) fn parent(&self) -> Option<&str> {
        let parent = self.identity.as_ref()?.parent.as_ref()?;
        Some(parent.as_str())
    }

    pub(super) fn agent(&self) -> Option<&str> {
        let agent = self.identity.as_ref()?.agent.as_ref()?;
        Some(agent.as_str())
    }

    /// How much of its cost is known; none if it was not looked for.
    pub(super) fn usage(&self) -> Option<&'static str> {
        self.usage.map(|usage| usage.state.as_str())
    }

    pub(super) fn stop_reason(&self) -> Option<&'static str> {
        self.usage?.stop.map(StopReason::as_str)
    }

    /// What its answer said of its cost.
    pub(super) fn known_usage(&self) -> Option<Usage> {
        self.usage.filter(|usage| usage.state != State::Absent)
    }

    /// Tokens as columns, in the order of [`Tokens::named`].
    pub(super) fn token_columns(&self) -> [Option<i64>; Tokens::KINDS] {
        let tokens = self.known_usage().unwrap_or_default().tokens.named();
        tokens.map(|(_, count)| count.map(column))
    }

    pub(super) fn session_kind(&self) -> Option<&'static str> {
        self.view.map(|view| view.classification().kind())
    }

    pub(super) fn session_evidence(&self) -> Option<&'static str> {
        self.view?.classification().evidence().map(Evidence::as_str)
    }

    pub(super) const fn route(&self) -> &'static str {
        if self.imposter {
            "imposter"
        } else {
            "passthrough"
        }
    }
}

/// A duration since the Unix epoch as a column.
pub(super) fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// A number as a column; what is beyond the range of one is at its end.
pub(super) fn column(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A duration as a column of microseconds.
pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// What came of something that an agent did with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It worked.
    Pass,
    /// It did not.
    Fail,
    /// It could not be tried.
    Error,
    /// Nobody can say.
    Unknown,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Pass, Self::Fail, Self::Error, Self::Unknown];

    /// The word in reports and columns.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Error => "error",
            Self::Unknown => "unknown",
        }
    }

    /// The one with this word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == word)
    }
}

/// What a client reports, without whom it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The result.
    pub verdict: Verdict,
    /// What was tried, a label.
    pub kind: Option<Box<str>>,
    /// The exit code of the process.
    pub exit_code: Option<i64>,
    /// How long it took, milliseconds.
    pub duration_ms: Option<i64>,
    /// When, as the client counts.
    pub at: Option<i64>,
}

/// One thing to store.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Observed(Box<Observation>),
    Decided(Box<Decision>),
}
