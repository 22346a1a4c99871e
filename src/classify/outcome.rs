//! What came of looking at one turn.

/// What came of it, in the order of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The client's name is to be ignored, and nothing else was evidence.
    Excluded,
    /// The turn belongs to no session that the gateway vouches for.
    NoAuthority,
    /// The session was identified, as this connection knew.
    Preserved,
    /// This turn identified it.
    Promoted,
    /// The remote service failed. Not of a turn while the service is asked aside.
    RemoteError,
    /// The remote service could not be asked.
    RemoteSkipped,
    /// The remote service took too long. Not of a turn while the service is asked aside.
    RemoteTimeout,
    /// The session was identified before, on another connection or by another process.
    Restored,
    /// What is kept of sessions cannot be reached.
    StateUnavailable,
    /// Nothing is known of it.
    Unknown,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Excluded,
        Self::NoAuthority,
        Self::Preserved,
        Self::Promoted,
        Self::RemoteError,
        Self::RemoteSkipped,
        Self::RemoteTimeout,
        Self::Restored,
        Self::StateUnavailable,
        Self::Unknown,
    ];

    /// Its word in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Excluded => "excluded",
            Self::NoAuthority => "no_authority",
            Self::Preserved => "preserved",
            Self::Promoted => "promoted",
            Self::RemoteError => "remote_error",
            Self::RemoteSkipped => "remote_skipped",
            Self::RemoteTimeout => "remote_timeout",
            Self::Restored => "restored",
            Self::StateUnavailable => "state_unavailable",
            Self::Unknown => "unknown",
        }
    }
}
