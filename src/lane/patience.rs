//! How long the two sides of a request may let each other wait.
//!
//! The clock of a client's progress runs only while the gateway waits for the client, so that a
//! provider who takes nothing is not laid at the client's door. While the gateway waits for the
//! provider instead, it looks whether the client is still there.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use crate::clock;
use crate::limits::{ACKNOWLEDGED_LOOK_MS, CLIENT_LOOK_MS, REQUEST_PROGRESS_BYTES};
use crate::runtime::sleep;
use crate::tls::Stream;

const CLIENT_LOOK: Duration = Duration::from_millis(CLIENT_LOOK_MS);

/// The clock of a body's progress: [`REQUEST_PROGRESS_BYTES`] within a limit, again and again.
#[derive(Debug)]
pub struct Progress {
    limit: Duration,
    waited: Duration,
    received: u64,
}

impl Progress {
    /// A clock that has not run yet.
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        Self {
            limit,
            waited: Duration::ZERO,
            received: 0,
        }
    }

    /// Waits for bytes. May be dropped while it waits.
    ///
    /// # Errors
    /// `TimedOut` when too few came for too long, or what the kernel says.
    pub async fn readable(&mut self, from: &Stream) -> io::Result<()> {
        let left = self.limit.saturating_sub(self.waited);
        from.set_read_patience(Some(left));
        let before = clock::now();
        let readable = from.readable().await;
        self.waited += before.elapsed();
        readable
    }

    /// Counts bytes that came.
    pub fn received(&mut self, bytes: usize) {
        self.received = self.received.saturating_add(bytes as u64);
        if self.received >= REQUEST_PROGRESS_BYTES {
            self.received = 0;
            self.waited = Duration::ZERO;
        }
    }
}

/// A client that must not have left while something is waited for on its behalf.
#[derive(Clone, Copy, Debug)]
pub struct Watched<'a> {
    /// Its connection.
    pub client: &'a Stream,
    /// Whether the end of its sending direction counts as leaving.
    pub half_close: bool,
}

impl Watched<'_> {
    /// Whether it has left, as far as the kernel knows. Bytes that nobody has read yet do not hide it.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.client.has_hung_up(self.half_close)
    }

    /// Waits until it has left; looks every [`CLIENT_LOOK_MS`].
    pub async fn left(&self) {
        while !self.has_left() {
            sleep(CLIENT_LOOK).await;
        }
    }

    /// Waits until `upstream` takes bytes, for `patience` at most. `left` is set and an error given when
    /// the client leaves meanwhile.
    pub(super) async fn writable(
        &self,
        upstream: &Stream,
        patience: Duration,
        left: &Cell<bool>,
    ) -> io::Result<()> {
        let mut rest = patience;
        loop {
            let look = rest.min(CLIENT_LOOK);
            upstream.set_write_patience(Some(look));
            match upstream.writable().await {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
                done => return done,
            }
            if self.has_left() {
                left.set(true);
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            rest = rest.saturating_sub(look);
            if rest.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// Waits until `done` says so, and looks at it and at the client less and less often. False if the
    /// client left or `limit` passed first.
    pub(super) async fn look_until(&self, done: impl Fn() -> bool, limit: Duration) -> Looked {
        let began = clock::now();
        let mut pause = Duration::from_millis(ACKNOWLEDGED_LOOK_MS);
        while !done() {
            if self.has_left() {
                return Looked::ClientLeft;
            }
            if began.elapsed() >= limit {
                return Looked::TooLong;
            }
            sleep(pause).await;
            pause = (pause * 2).min(CLIENT_LOOK);
        }
        Looked::Done
    }
}

/// What a wait that watches a client ended in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    Done,
    ClientLeft,
    TooLong,
}
