//! Idle connections of one core to one endpoint, newest first.
//!
//! A server closes an idle connection when it likes, and a request that meets that close is lost.
//! So a connection is looked at before use, kept for less than the server keeps it, and kept for
//! less still once one died young.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use crate::limits::IDLE_UPSTREAM_CONNECTIONS;
use crate::upstream::Connection;

/// Deaths below this age do not shorten the idle limit further: a restart of the server kills
/// connections of any age, and a pool that keeps nothing would cost a handshake a request.
const LEARNED_LIMIT_MIN: Duration = Duration::from_millis(500);

/// At most [`IDLE_UPSTREAM_CONNECTIONS`]. Connections are dropped only while the list is not
/// borrowed, because their places are free then and may be given away at once.
#[derive(Debug)]
pub(super) struct Idle {
    kept: RefCell<VecDeque<Connection>>,
    limit: Cell<Duration>,
    /// Deaths since they were last asked for.
    deaths: Cell<u64>,
}

impl Idle {
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            kept: RefCell::default(),
            limit: Cell::new(limit),
            deaths: Cell::new(0),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.kept.borrow().len()
    }

    /// Takes a connection in; the oldest one goes where there are too many.
    pub(super) fn put(&self, connection: Connection) {
        let mut kept = self.kept.borrow_mut();
        let full = kept.len() >= IDLE_UPSTREAM_CONNECTIONS;
        let oldest = full.then(|| kept.pop_front());
        kept.push_back(connection);
        drop(kept);
        drop(oldest);
    }

    /// The newest one that is still good.
    pub(super) fn take(&self) -> Option<Connection> {
        // Bounded by the cap of the list.
        loop {
            let connection = self.kept.borrow_mut().pop_back()?;
            let age = connection.idle_since.elapsed();
            if age >= self.limit_of(&connection) {
                continue;
            }
            if !is_silent(&connection) {
                self.died(age);
                continue;
            }
            return Some(connection.taken_again());
        }
    }

    /// The oldest one, good or not, to be closed.
    pub(super) fn oldest(&self) -> Option<Connection> {
        self.kept.borrow_mut().pop_front()
    }

    /// Notes that an idle connection was found dead at this age.
    pub(super) fn died(&self, age: Duration) {
        self.deaths.set(self.deaths.get().saturating_add(1));
        let learned = age.mul_f32(0.8).max(LEARNED_LIMIT_MIN);
        self.limit.set(self.limit.get().min(learned));
    }

    /// Connections that were found dead since this was last asked.
    pub(super) fn take_deaths(&self) -> u64 {
        self.deaths.take()
    }

    fn limit_of(&self, connection: &Connection) -> Duration {
        connection.server_limit.unwrap_or_else(|| self.limit.get())
    }

    /// Closes connections past their time, and those that the server ended or spoke on.
    pub(super) async fn prune(&self) {
        let mut kept = std::mem::take(&mut *self.kept.borrow_mut());
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
        *self.kept.borrow_mut() = kept;
    }
}

/// Whether nothing came on an idle connection. An end means dead; bytes mean that the server speaks
/// out of turn, and its next answer could be taken for the answer to another request (desync).
fn is_silent(connection: &Connection) -> bool {
    let looked = connection.stream.look();
    looked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}
