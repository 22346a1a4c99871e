//! Idle connections of one core to one endpoint, newest first.
//!
//! A server closes an idle connection when it likes, and a request that meets that close is lost.
//! So a connection is looked at before use, kept for less than the server keeps it, and kept for
//! less still once one died young.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::clock;
use crate::limits::IDLE_UPSTREAM_CONNECTIONS;
use crate::upstream::connect::open;
use crate::upstream::{ConnectError, Connection, Endpoint};

/// Deaths below this age do not shorten the idle limit further: a restart of the server kills
/// connections of any age, and a pool that keeps nothing would cost a handshake a request.
const LEARNED_LIMIT_MIN: Duration = Duration::from_millis(500);

/// The idle connections; the number of connections in use is bounded by the exchanges.
pub struct Pool {
    endpoint: Arc<Endpoint>,
    idle: RefCell<VecDeque<Connection>>,
    limit: Cell<Duration>,
    retired: Cell<bool>,
}

impl Pool {
    pub(super) fn new(endpoint: Arc<Endpoint>) -> Self {
        let limit = Cell::new(endpoint.settings.keepalive_idle);
        Self {
            endpoint,
            idle: RefCell::default(),
            limit,
            retired: Cell::new(false),
        }
    }

    /// Where this pool's connections lead.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The newest idle connection that is still good, or a new one.
    ///
    /// # Errors
    /// When none is idle and none can be opened.
    pub async fn take(&self) -> Result<Connection, ConnectError> {
        match self.take_idle() {
            Some(connection) => Ok(connection),
            // On the heap: a connect is rare and its state is large.
            None => Box::pin(open(&self.endpoint)).await,
        }
    }

    /// A new connection, whatever is idle.
    ///
    /// # Errors
    /// When none can be opened.
    pub async fn open(&self) -> Result<Connection, ConnectError> {
        Box::pin(open(&self.endpoint)).await
    }

    /// Gives a connection back after a complete exchange whose framing left nothing unread.
    pub fn give_back(&self, mut connection: Connection) {
        if self.retired.get() {
            return;
        }
        connection.idle_since = clock::now();
        let mut idle = self.idle.borrow_mut();
        if idle.len() >= IDLE_UPSTREAM_CONNECTIONS {
            idle.pop_front();
        }
        idle.push_back(connection);
    }

    /// Closes what is idle and keeps nothing any more: no exchange of a newer generation comes here.
    pub(super) fn retire(&self) {
        self.retired.set(true);
        self.idle.borrow_mut().clear();
    }

    /// Notes that an idle connection was found dead at this age.
    pub fn died(&self, age: Duration) {
        let learned = age.mul_f32(0.8).max(LEARNED_LIMIT_MIN);
        self.limit.set(self.limit.get().min(learned));
    }

    /// Number of idle connections.
    #[must_use]
    pub fn idle(&self) -> usize {
        self.idle.borrow().len()
    }

    fn take_idle(&self) -> Option<Connection> {
        // Bounded by the pool's cap.
        loop {
            let connection = self.idle.borrow_mut().pop_back()?;
            let age = connection.idle_since.elapsed();
            if age >= self.limit_of(&connection) {
                continue;
            }
            if !is_silent(&connection) {
                self.died(age);
                continue;
            }
            if let Ok(connection) = connection.taken_again() {
                return Some(connection);
            }
        }
    }

    fn limit_of(&self, connection: &Connection) -> Duration {
        connection.server_limit.unwrap_or_else(|| self.limit.get())
    }

    /// Closes connections past their time, and those that the server ended or spoke on.
    pub(super) async fn prune(&self) {
        let mut kept = std::mem::take(&mut *self.idle.borrow_mut());
        poll_fn(|cx| {
            kept.retain(|connection| {
                let age = connection.idle_since.elapsed();
                let spoke =
                    connection.stream.poll_readable(cx).is_ready() && !is_silent(connection);
                if spoke {
                    self.died(age);
                }
                !spoke && age < self.limit_of(connection)
            });
            Poll::Ready(())
        })
        .await;
        // Nothing ran between taking and putting back: the closure above never waits.
        *self.idle.borrow_mut() = kept;
    }
}

/// Whether nothing came on an idle connection. An end means dead; bytes mean that the server speaks
/// out of turn, and its next answer could be taken for the answer to another request (desync).
fn is_silent(connection: &Connection) -> bool {
    let looked = connection.stream.look();
    looked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("idle", &self.idle())
            .finish_non_exhaustive()
    }
}
