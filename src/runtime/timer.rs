//! A deadline that is moved far more often than it fires.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::clock;

/// One timer of a connection. Moving the deadline later costs nothing: the entry in the timer
/// wheel is left where it is and put right when it fires.
pub struct Timer {
    sleep: Pin<Box<monoio::time::Sleep>>,
    entry: Instant,
    deadline: Option<Instant>,
}

impl Timer {
    /// A timer that is off. Must be made on a thread that runs a runtime.
    #[must_use]
    pub fn new() -> Self {
        let entry = clock::now();
        Self {
            sleep: Box::pin(monoio::time::sleep_until(entry.into())),
            entry,
            deadline: None,
        }
    }

    /// Sets the deadline, or turns the timer off.
    pub fn set(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// Ready when the deadline has passed; never while the timer is off.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = self.deadline else {
            return Poll::Pending;
        };
        loop {
            let fired = self.sleep.as_mut().poll(cx).is_ready();
            if fired && clock::now() >= deadline {
                return Poll::Ready(());
            }
            if !fired && self.entry <= deadline {
                return Poll::Pending;
            }
            self.entry = deadline;
            self.sleep.as_mut().reset(deadline.into());
        }
    }

    /// Waits for the deadline; for ever while the timer is off.
    pub async fn expired(&mut self) {
        std::future::poll_fn(|cx| self.poll(cx)).await;
    }
}

impl Default for Timer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer")
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
