//! Whether a session was positively identified as that of a coding agent.
//!
//! One narrow fact, derived from what passes by anyway: the client's User-Agent, the categories of its
//! tools, and the markers of its workspace. It is advisory: it never authorises, bills, routes or selects
//! anything, and who needs one of those does not ask here. There are two answers, `coding_agent` and
//! `unknown`; the second means that evidence has not come, never that there is none. A session that was
//! identified stays so, with the evidence that came first.
//!
//! It refuses to read texts, arguments, schemas, models and routes, and to guess: a User-Agent that names
//! two families names none. Everything here is values in, values out; nothing of it is allocated for an exchange.
//! Who wants to know asks [`SessionView::is_coding_agent`] and nothing else.

mod agent_family;
mod catalogue;
mod client;
mod evidence;
#[doc(hidden)]
pub mod fuzzing;
mod key;
mod marker;
mod outcome;
mod policy;
mod remote;
mod remote_outcome;
mod state;
mod store_tally;
#[cfg(test)]
mod tests;
mod tools;
mod user_agent;

pub use agent_family::{AgentEvidence, AgentFamily};
pub use client::Family;
pub use evidence::{Classification, Evidence, Source};
pub use key::{Key, Scope};
pub use marker::{MARKER_BYTES_MAX, MARKERS_MAX, has_project_marker, is_project_marker};
pub use outcome::Outcome;
pub use policy::{
    AGENT_PREFIX_BYTES_MAX, AGENT_PREFIXES_MAX, IgnoredPrefix, LEASE_MARGIN, Local, Mode, Policy,
    PrefixError, RemotePolicy, RemoteTerms, Threshold, Turn,
};
pub use remote::{
    ANSWER_BYTES_MAX, AnswerError, DOCUMENT_BYTES_MAX, Operation, RemoteInput, read_answer,
};
pub use remote_outcome::{REMOTE_SECONDS_MAX, RemoteOutcome, RemoteTally};
pub use state::{Claim, Completion, LeaseId, Record, Refused, promoted};
pub(crate) use state::{deadline_micros, next_at, now_micros};
pub use store_tally::{SessionTally, StoreOperation, StoreOutcome};
pub use tools::{Tool, ToolEvidence, ToolSet};
pub use user_agent::{USER_AGENT_BYTES_MAX, UserAgent};

/// What a consumer may know of the session that an exchange belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionView {
    classification: Classification,
}

impl SessionView {
    /// A view of a session that is classified so.
    #[must_use]
    pub const fn new(classification: Classification) -> Self {
        Self { classification }
    }

    /// Whether the session was positively identified as that of a coding agent. False is no negative: evidence
    /// may come with a later turn. Not an authorisation of anything.
    #[must_use]
    pub const fn is_coding_agent(&self) -> bool {
        matches!(self.classification, Classification::CodingAgent { .. })
    }

    /// For what shows a classification and does not act on it: logs and pages of operators.
    #[must_use]
    pub const fn classification(&self) -> Classification {
        self.classification
    }
}
