//! What is known of one exchange once it is over. Holds no text of a message, no credential and no
//! address; every word in it comes from a closed set or from the configuration.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::classify::{AgentEvidence, SessionView};
use crate::clock;
use crate::dialect::{Dialect, Family};
use crate::identity::session::Source;
use crate::identity::{Identity, Inline};
use crate::lane::Decline;
use crate::limits::ROW_MODEL_BYTES_MAX;
use crate::observe::EndReason;
use crate::peek::Seen;
use crate::switch::Switch;
use crate::usage::{Injection, Usage};

/// The id of one exchange, in its response head and in every record of it: `req_`, 16 hexadecimal
/// digits of its core's start, 8 or more that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RequestId {
    seed: u64,
    count: u64,
}

impl RequestId {
    /// The id that is spelled like this.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("req_")?;
        let (seed, count) = digits.split_at_checked(16)?;
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        let id = Self {
            seed: number(seed)?,
            count: number(count)?,
        };
        (id.spelled().as_str() == text).then_some(id)
    }

    /// Its text.
    #[must_use]
    pub fn spelled(self) -> Inline<REQUEST_ID_BYTES_MAX> {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let seed = (0..16).rev().map(|digit| self.seed >> (4 * digit));
        let digits = (u64::BITS - self.count.leading_zeros()).div_ceil(4).max(8);
        let count = (0..digits).rev().map(|digit| self.count >> (4 * digit));
        let mut text = [0; REQUEST_ID_BYTES_MAX];
        let (prefix, room) = text.split_at_mut(4);
        prefix.copy_from_slice(b"req_");
        let mut len = 4;
        for (to, number) in room.iter_mut().zip(seed.chain(count)) {
            *to = HEX[(number & 15) as usize];
            len += 1;
        }
        Inline::cut(std::str::from_utf8(text.get(..len).unwrap_or_default()).unwrap_or_default())
    }
}

/// Bytes of the longest request id.
const REQUEST_ID_BYTES_MAX: usize = 4 + 16 + 16;

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.spelled().as_str())
    }
}

/// Makes the request ids of one core.
#[derive(Debug)]
pub struct RequestIds {
    seed: u64,
    next: Cell<u64>,
}

impl RequestIds {
    /// Ids that begin with `seed`, a number that differs from core to core and start to start.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            next: Cell::new(0),
        }
    }

    /// The next id.
    #[must_use]
    pub fn next(&self) -> RequestId {
        let count = self.next.get();
        self.next.set(count.wrapping_add(1));
        RequestId {
            seed: self.seed,
            count,
        }
    }
}

/// How the body of an exchange travelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// Nowhere: the gateway answered itself.
    #[default]
    Local,
    /// As it came, save spans that were replaced.
    Wire,
    /// Decoded or parsed, or refused where this version cannot, because of this.
    Canonical(Decline),
}

impl Way {
    /// The lane's word in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Wire => "wire",
            Self::Canonical(_) => "canonical",
        }
    }

    /// Why the wire lane was declined, if it was.
    #[must_use]
    pub const fn decline(self) -> Option<Decline> {
        match self {
            Self::Canonical(decline) => Some(decline),
            Self::Local | Self::Wire => None,
        }
    }
}

/// Where an exchange was sent, in the words of the configuration.
#[derive(Clone, Debug)]
pub struct Destination {
    /// The provider's name.
    pub provider: Arc<str>,
    /// Its position in the table of the exchange's generation.
    pub index: usize,
    /// Whether a mapping hit, as opposed to the family's default.
    pub imposter: bool,
    /// Whose credential it got, as [`crate::auth::AuthToken`] spells it.
    pub auth: &'static str,
    /// The model that it was asked for, where that is another than the client's.
    pub model: Option<String>,
}

/// One exchange. Durations count from the last byte of its head.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its id.
    pub id: RequestId,
    /// When its head was complete.
    pub began: Instant,
    /// The name of the client that authenticated, where clients do.
    pub client: Option<Arc<str>>,
    /// What its head says of its conversation.
    pub identity: Option<Arc<Identity>>,
    /// The fingerprint of its body, where no field named the conversation and the body was read.
    pub fingerprint: Option<u64>,
    /// The model that it asks for, where its body was read.
    pub model: Option<Inline<ROW_MODEL_BYTES_MAX>>,
    /// Whether its answer was told to the ledger.
    pub told: bool,
    /// The API family of its path.
    pub family: Option<Family>,
    /// The dialect, on a path that has one.
    pub dialect: Option<Dialect>,
    /// How its body travelled.
    pub way: Way,
    /// Where the session of which its provider is told came from, if there is one.
    pub session: Option<Source>,
    /// The switch that was answered.
    pub switch: Option<Switch>,
    /// Where it went, if anywhere.
    pub to: Option<Destination>,
    /// Status of the response that was begun; 0 if none was.
    pub status: u16,
    /// The gateway's own word for a failure that it answered, as in `x-lanegate-error`.
    pub error: Option<&'static str>,
    /// What was known of its body, where that was read.
    pub seen: Option<Seen>,
    /// Bytes of the request body that came, without framing.
    pub request_bytes: u64,
    /// Bytes that the client took of the response, head and framing included.
    pub response_bytes: u64,
    /// What the answer cost, where it was read for that: a 2xx one to a request in one of the dialects.
    pub usage: Option<Usage>,
    /// What became of asking for it, at a provider with `usage: inject`.
    pub injection: Option<Injection>,
    /// Connections that the request was tried on.
    pub attempts: u32,
    /// When the last byte came that was waited for before it could be sent on; zero if all of them
    /// came with the head.
    pub fed: Duration,
    /// How long connections to the provider were waited for.
    pub taking: Duration,
    /// When as much of the body was there as had to be before it could be sent on.
    pub gathered: Option<Duration>,
    /// When a connection to the provider was there.
    pub connected: Option<Duration>,
    /// When the head of the provider's response was there.
    pub first_byte: Option<Duration>,
    /// When it was over.
    pub duration: Duration,
    /// What is known of its session, where that is looked at.
    pub view: Option<SessionView>,
    /// Which agent it comes from, where that is looked at and known.
    pub agent: Option<AgentEvidence>,
    /// Why it ended.
    pub end: EndReason,
}

impl Record {
    /// The record of an exchange whose head is complete now.
    #[must_use]
    pub fn begin(id: RequestId) -> Self {
        Self::of(id, clock::now())
    }

    fn of(id: RequestId, began: Instant) -> Self {
        Self {
            id,
            began,
            client: None,
            identity: None,
            fingerprint: None,
            model: None,
            told: false,
            family: None,
            dialect: None,
            way: Way::Local,
            session: None,
            switch: None,
            to: None,
            status: 0,
            error: None,
            seen: None,
            request_bytes: 0,
            response_bytes: 0,
            usage: None,
            injection: None,
            attempts: 0,
            fed: Duration::ZERO,
            taking: Duration::ZERO,
            gathered: None,
            connected: None,
            first_byte: None,
            duration: Duration::ZERO,
            view: None,
            agent: None,
            end: EndReason::default(),
        }
    }

    /// Hands the record over; what stays is empty.
    #[must_use]
    pub fn take(&mut self) -> Self {
        let empty = Self::of(self.id, self.began);
        std::mem::replace(self, empty)
    }

    /// Whether the head names the conversation, so that its body is not needed for that.
    #[must_use]
    pub fn names_conversation(&self) -> bool {
        let identity = self.identity.as_ref();
        identity.is_some_and(|it| it.session.is_some())
    }

    /// Time since the head was complete.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        clock::now().saturating_duration_since(self.began)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_ids_of_one_core_differ_and_sort() {
        let ids = RequestIds::new(0xabc);
        let (first, second) = (ids.next().to_string(), ids.next().to_string());
        assert_eq!(first, "req_0000000000000abc00000000");
        assert!(first < second);
        for text in [first, second] {
            assert_eq!(RequestId::parse(&text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "req_",
            "req_0000000000000abc0000000",
            "req_0000000000000ABC00000000",
        ] {
            assert_eq!(RequestId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_request_id_is_spelled_as_its_two_numbers() {
        let numbers = [
            0,
            1,
            0xf,
            0x10,
            0xffff_ffff,
            0x1_0000_0000,
            u64::MAX / 3,
            u64::MAX,
        ];
        for seed in numbers {
            for count in numbers {
                let id = RequestId { seed, count };
                let text = format!("req_{seed:016x}{count:08x}");
                assert_eq!(id.spelled().as_str(), text);
                assert_eq!(RequestId::parse(&text), Some(id));
            }
        }
    }
}
