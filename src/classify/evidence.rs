//! The closed vocabulary of what may be said of a session, and that it is said once.

use std::fmt;
use std::num::NonZeroU64;

/// The rule that identified a session: its name, never what it matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evidence {
    /// The User-Agent names Codex.
    Codex,
    /// The User-Agent names Roo Code.
    Roo,
    /// The User-Agent names opencode.
    OpenCode,
    /// The User-Agent names Pi.
    Pi,
    /// The User-Agent names Droid.
    Droid,
    /// The User-Agent names Hermes.
    Hermes,
    /// The tools read, change and execute.
    CodingCluster,
    /// The tools read and change, and the workspace has a project's marker.
    ProjectMarkerCluster,
    /// The remote decision reached the threshold.
    AboveThreshold,
}

/// Where evidence came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The client's name for itself.
    LocalIdentity,
    /// What its tools can do.
    LocalTooling,
    /// A service that was asked.
    RemoteClassifier,
}

impl Source {
    /// All of them.
    pub const ALL: [Self; 3] = [
        Self::LocalIdentity,
        Self::LocalTooling,
        Self::RemoteClassifier,
    ];

    /// Its word in logs, metrics and stores.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LocalIdentity => "local_identity",
            Self::LocalTooling => "local_tooling",
            Self::RemoteClassifier => "remote_classifier",
        }
    }
}

impl Evidence {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Codex,
        Self::Roo,
        Self::OpenCode,
        Self::Pi,
        Self::Droid,
        Self::Hermes,
        Self::CodingCluster,
        Self::ProjectMarkerCluster,
        Self::AboveThreshold,
    ];

    /// Its code: at most 64 bytes of ASCII letters, digits, `.`, `_` and `-`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Codex => "client_family.codex",
            Self::Roo => "client_family.roo",
            Self::OpenCode => "client_family.opencode",
            Self::Pi => "client_family.pi",
            Self::Droid => "client_family.droid",
            Self::Hermes => "client_family.hermes",
            Self::CodingCluster => "tooling.distinct_coding_cluster",
            Self::ProjectMarkerCluster => "tooling.project_marker_cluster",
            Self::AboveThreshold => "remote.above_threshold",
        }
    }

    /// The evidence with this code.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == code)
    }

    /// Where it comes from. A code has one source.
    #[must_use]
    pub const fn source(self) -> Source {
        match self {
            Self::Codex | Self::Roo | Self::OpenCode | Self::Pi | Self::Droid | Self::Hermes => {
                Source::LocalIdentity
            }
            Self::CodingCluster | Self::ProjectMarkerCluster => Source::LocalTooling,
            Self::AboveThreshold => Source::RemoteClassifier,
        }
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is known of a session. The confidence of what is known is always high; there is no negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Classification {
    /// No evidence was accepted yet.
    #[default]
    Unknown,
    /// Evidence was accepted.
    CodingAgent {
        /// The first that was.
        evidence: Evidence,
        /// How often the classification changed, from 1 on. It changes once.
        revision: NonZeroU64,
    },
}

impl Classification {
    /// The word for the only confidence there is.
    pub const CONFIDENCE: &'static str = "high";

    /// A session that this evidence identified.
    #[must_use]
    pub const fn by(evidence: Evidence) -> Self {
        Self::CodingAgent {
            evidence,
            revision: NonZeroU64::MIN,
        }
    }

    /// The classification that a store holds in these words, if they are ones that this program writes.
    /// Empty words and revision 0 are an unknown session; a positive of revision 0 is nothing.
    #[must_use]
    pub fn stored(
        (kind, source, confidence): (&str, &str, &str),
        code: &str,
        revision: i64,
    ) -> Option<Self> {
        if kind.is_empty() {
            let empty = source.is_empty() && confidence.is_empty() && code.is_empty();
            return (empty && revision == 0).then_some(Self::Unknown);
        }
        let evidence = Evidence::from_code(code)?;
        let known = kind == Self::by(evidence).kind()
            && source == evidence.source().as_str()
            && confidence == Self::CONFIDENCE;
        let revision = NonZeroU64::new(u64::try_from(revision).ok()?)?;
        known.then_some(Self::CodingAgent { evidence, revision })
    }

    /// Accepts evidence if none was accepted before. Whether this changed anything.
    pub fn accept(&mut self, evidence: Evidence) -> bool {
        let first = *self == Self::Unknown;
        if first {
            *self = Self::by(evidence);
        }
        first
    }

    /// Its word in logs; a store has nothing in place of `unknown`.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::CodingAgent { .. } => "coding_agent",
        }
    }

    /// The evidence that was accepted.
    #[must_use]
    pub const fn evidence(self) -> Option<Evidence> {
        match self {
            Self::Unknown => None,
            Self::CodingAgent { evidence, .. } => Some(evidence),
        }
    }

    /// Its revision; 0 of an unknown session.
    #[must_use]
    pub const fn revision(self) -> u64 {
        match self {
            Self::Unknown => 0,
            Self::CodingAgent { revision, .. } => revision.get(),
        }
    }
}
