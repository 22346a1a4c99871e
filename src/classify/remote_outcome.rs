//! What comes of asking the remote service, and how it is counted.

use std::time::Duration;

use crate::meter::{Count, Distribution};

/// Longest time that is counted; a longer one is no time of an attempt.
pub const REMOTE_SECONDS_MAX: Duration = Duration::from_secs(90);

/// What came of one attempt, or why there was none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteOutcome {
    /// An answer below the threshold.
    BelowThreshold,
    /// No attempt was left.
    BudgetExhausted,
    /// Another attempt runs.
    LeaseBusy,
    /// An answer that is none.
    Malformed,
    /// No connection, or one that broke.
    NetworkError,
    /// The session is identified.
    Positive,
    /// 429.
    RateLimited,
    /// 500 or more.
    ServerError,
    /// Not asked, or not answered in a way that can be asked again.
    Skipped,
    /// The time of an attempt was over.
    Timeout,
}

impl RemoteOutcome {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::BelowThreshold,
        Self::BudgetExhausted,
        Self::LeaseBusy,
        Self::Malformed,
        Self::NetworkError,
        Self::Positive,
        Self::RateLimited,
        Self::ServerError,
        Self::Skipped,
        Self::Timeout,
    ];

    /// Its word in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BelowThreshold => "below_threshold",
            Self::BudgetExhausted => "budget_exhausted",
            Self::LeaseBusy => "lease_busy",
            Self::Malformed => "malformed",
            Self::NetworkError => "network_error",
            Self::Positive => "positive",
            Self::RateLimited => "rate_limited",
            Self::ServerError => "server_error",
            Self::Skipped => "skipped",
            Self::Timeout => "timeout",
        }
    }

    /// The outcome of an answer with this status; none for 200, whose body says it.
    #[must_use]
    pub const fn of_status(status: u16) -> Option<Self> {
        match status {
            200 => None,
            429 => Some(Self::RateLimited),
            500.. => Some(Self::ServerError),
            // Redirects, credentials that are refused, and requests that will be refused again.
            _ => Some(Self::Skipped),
        }
    }

    /// Whether another attempt may come to something else.
    #[must_use]
    pub const fn is_transient(self) -> bool {
        match self {
            Self::NetworkError | Self::RateLimited | Self::ServerError | Self::Timeout => true,
            Self::BelowThreshold
            | Self::BudgetExhausted
            | Self::LeaseBusy
            | Self::Malformed
            | Self::Positive
            | Self::Skipped => false,
        }
    }
}

/// The numbers, written by the one thread that asks.
#[derive(Debug, Default)]
pub struct RemoteTally {
    seen: [(Count, Distribution); RemoteOutcome::ALL.len()],
}

impl RemoteTally {
    /// Counts what came of asking. Of one thread only.
    pub fn observe(&self, outcome: RemoteOutcome, took: Duration) {
        if let Some((count, times)) = self.seen.get(outcome as usize) {
            count.add(1);
            if took <= REMOTE_SECONDS_MAX {
                times.record(took);
            }
        }
    }

    /// How often this came of it, and how long that took.
    #[must_use]
    pub fn of(&self, outcome: RemoteOutcome) -> Option<(u64, &Distribution)> {
        let (count, times) = self.seen.get(outcome as usize)?;
        Some((count.get(), times))
    }
}
