//! What an answer cost, read from its bytes as they pass by: tokens and the reason for its end.
//!
//! A [`Tap`] is given the bytes of a response after they were sent. It keeps no byte of them and delays
//! none: an event stream is split by `sse`, each event goes through the push scanner of `json`, and what
//! is kept are four counts and a word. It reads the three dialects as their providers write them
//! (OpenAI and Anthropic API references, 2026-11) and is lenient where these differ from their own
//! documents: usage may stand on any chunk, totals may be repeated, fields may be null.
//!
//! Rules: a count is the last one given that is not zero, because what is repeated is a total and never
//! an increment, and some servers send a zero for what they said before; zero counts only where nothing
//! else was said. A number that is negative, broken or beyond 64 bits is not given. An event that is no
//! JSON object says nothing. What was not given is absent, which is not zero.
//!
//! Cost: one pass of the scanner over the body, no allocation per piece; a compressed body is decoded
//! once more, where the decoder needs at most [`TAP_DECODER_BYTES`], and given up otherwise.

mod count;
#[doc(hidden)]
pub mod fuzzing;
mod gather;
mod injection;
#[doc(hidden)]
pub mod naive;
mod place;
pub mod sieve;
mod stop;
mod tap;
#[cfg(test)]
mod tests;
mod wish;

pub use crate::limits::{EXTRA_CHUNK_BYTES, TAP_DECODER_BYTES, TAP_EVENT_BYTES};
pub use count::{Given, Tokens};
pub use injection::Injection;
pub use sieve::{Passage, Sieve};
pub use stop::StopReason;
pub use tap::{Form, Tap};
pub use wish::{ask_for_usage, is_for_no_stream};

/// What is known of an answer's cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Whether the counts are the whole of it.
    pub state: State,
    /// The counts, which do not overlap.
    pub tokens: Tokens,
    /// Why the model stopped, if the answer says so.
    pub stop: Option<StopReason>,
}

/// How much of the usage is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// The answer gave no count, or could not be read.
    #[default]
    Absent,
    /// It gave some and then broke off or failed.
    Partial,
    /// It came to its end.
    Complete,
}

impl State {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Absent, Self::Partial, Self::Complete];

    /// The state's word in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Partial => "partial",
            Self::Complete => "complete",
        }
    }
}
