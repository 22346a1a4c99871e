//! The only reader of time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Monotonic time of this moment.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the monotonic clock"
)]
pub fn now() -> Instant {
    Instant::now()
}

/// Time since the Unix epoch; zero if the system clock stands before it.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the wall clock"
)]
pub fn unix_time() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
