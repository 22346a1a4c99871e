//! What one generation of the configuration makes of the evidence of a turn.

use std::fmt;
use std::time::Duration;

use crate::classify::{Evidence, Family, ToolSet, UserAgent};

/// Prefixes of User-Agents that may be ignored.
pub const AGENT_PREFIXES_MAX: usize = 16;

/// Bytes of such a prefix, in lower case.
pub const AGENT_PREFIX_BYTES_MAX: usize = 128;

/// How much longer than an attempt its lease must last, so that no lease ends before its attempt.
pub const LEASE_MARGIN: Duration = Duration::from_millis(100);

/// Who may identify a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The rules here, and nobody is asked.
    #[default]
    Heuristic,
    /// Only the remote service; the rules here are evidence for it.
    Jev,
    /// The rules here, and the remote service where they say nothing.
    Hybrid,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Heuristic, Self::Hybrid, Self::Jev];

    /// Its word in the configuration and in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Heuristic => "heuristic",
            Self::Jev => "jev",
            Self::Hybrid => "hybrid",
        }
    }
}

/// A literal beginning of User-Agents whose name is no evidence, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnoredPrefix(Box<str>);

/// Why a text is no such prefix. Never shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixError {
    /// Nothing, or white space.
    Blank,
    /// A control character.
    Control,
    /// Its length in lower case, bytes.
    TooLong(usize),
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blank => f.write_str("expected a text that is not blank"),
            Self::Control => f.write_str("expected a text without control characters"),
            Self::TooLong(bytes) => write!(
                f,
                "expected at most {AGENT_PREFIX_BYTES_MAX} bytes in lower case, got {bytes}"
            ),
        }
    }
}

impl IgnoredPrefix {
    /// A prefix of this text, trimmed and in lower case.
    ///
    /// # Errors
    /// See [`PrefixError`].
    pub fn new(text: &str) -> Result<Self, PrefixError> {
        if text.chars().any(char::is_control) {
            return Err(PrefixError::Control);
        }
        let lower = text.trim().to_lowercase();
        if lower.is_empty() {
            return Err(PrefixError::Blank);
        }
        if lower.len() > AGENT_PREFIX_BYTES_MAX {
            return Err(PrefixError::TooLong(lower.len()));
        }
        Ok(Self(lower.into()))
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn begins(&self, agent: UserAgent<'_>) -> bool {
        let mut lower = agent.as_str().chars().flat_map(char::to_lowercase);
        self.0.chars().all(|wanted| lower.next() == Some(wanted))
    }
}

/// The least probability that identifies a session: above 0 and at most 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold(f64);

// A number from that range equals itself.
impl Eq for Threshold {}

impl Threshold {
    /// A threshold of this height; none if it is out of range or no number.
    #[must_use]
    pub fn new(height: f64) -> Option<Self> {
        (height > 0.0 && height <= 1.0).then_some(Self(height))
    }

    /// Its height.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }

    /// Whether a probability reaches it.
    #[must_use]
    pub fn is_reached(self, probability: f64) -> bool {
        probability >= self.0
    }
}

/// How the remote service is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemotePolicy {
    /// The environment variable that holds the credential; its value is read for each attempt.
    pub api_key_env: Box<str>,
    /// Longest time of one attempt, from 1 ms to 30 s.
    pub timeout: Duration,
    /// Attempts for one session, 1 to 5.
    pub attempts_max: u32,
    /// How long one asker keeps the others from asking; at least [`LEASE_MARGIN`] more than the timeout, at
    /// most 2 m.
    pub lease: Duration,
    /// Pause before the next attempt, at most 30 s.
    pub backoff: Duration,
    /// The least probability that identifies a session.
    pub threshold: Threshold,
}

/// The part of a [`RemotePolicy`] that the state of a session depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteTerms {
    /// Attempts for one session.
    pub attempts_max: u32,
    /// How long one asker keeps the others from asking.
    pub lease: Duration,
    /// Pause before the next attempt.
    pub backoff: Duration,
}

impl RemotePolicy {
    /// What the state of a session depends on.
    #[must_use]
    pub const fn terms(&self) -> RemoteTerms {
        RemoteTerms {
            attempts_max: self.attempts_max,
            lease: self.lease,
            backoff: self.backoff,
        }
    }
}

/// The feature `session-classification` in one generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Who may identify a session.
    pub mode: Mode,
    /// User-Agents whose name is no evidence; at most [`AGENT_PREFIXES_MAX`].
    pub ignored: Vec<IgnoredPrefix>,
    /// How the remote service is asked, in the modes that do.
    pub remote: Option<RemotePolicy>,
}

/// What one request shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn<'a> {
    /// Who the client says it is.
    pub agent: Option<UserAgent<'a>>,
    /// What its tools can do.
    pub tools: ToolSet,
    /// Whether its workspace has a project's marker.
    pub marked: bool,
}

/// What the rules make of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Local {
    /// The first rule that holds.
    pub evidence: Option<Evidence>,
    /// The client's name would have been evidence, but is to be ignored, and no other rule holds. Nobody is
    /// asked about such a session.
    pub excluded: bool,
}

impl Policy {
    /// The rules in their order: the client's name, what its tools can do, what they can do in a project. Of
    /// this turn alone: weak turns do not add up.
    #[must_use]
    pub fn evaluate(&self, turn: Turn<'_>) -> Local {
        let family = turn.agent.and_then(Family::of);
        let ignored = self.ignores(turn.agent);
        if let Some(family) = family.filter(|_| !ignored) {
            return Local {
                evidence: Some(family.evidence()),
                excluded: false,
            };
        }
        let evidence = if turn.tools.is_coding_cluster() {
            Some(Evidence::CodingCluster)
        } else if turn.marked && turn.tools.is_half_cluster() {
            Some(Evidence::ProjectMarkerCluster)
        } else {
            None
        };
        Local {
            evidence,
            excluded: family.is_some() && evidence.is_none(),
        }
    }

    /// The evidence that identifies the session.
    #[must_use]
    pub fn promotes(&self, local: Local) -> Option<Evidence> {
        match self.mode {
            Mode::Heuristic | Mode::Hybrid => local.evidence,
            Mode::Jev => None,
        }
    }

    /// How the remote service is to be asked about a session that is still unknown after this.
    #[must_use]
    pub fn asks(&self, local: Local) -> Option<&RemotePolicy> {
        let open = !local.excluded && self.promotes(local).is_none();
        self.remote.as_ref().filter(|_| open)
    }

    fn ignores(&self, agent: Option<UserAgent<'_>>) -> bool {
        agent.is_some_and(|agent| self.ignored.iter().any(|prefix| prefix.begins(agent)))
    }
}
