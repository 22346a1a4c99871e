//! The connections of one core to one endpoint: taken, waited for, given back.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::buf::{Input, Share, Tally};
use crate::clock;
use crate::limits::Part;
use crate::runtime::{Either, Gate, race, sleep};
use crate::upstream::connect::open;
use crate::upstream::places::{Bounds, Places, Turn};
use crate::upstream::{ConnectError, Connection, Endpoint};

/// What the pools of one core have of the process.
#[derive(Clone, Debug)]
pub struct Quota {
    /// Which of the cores it is.
    pub part: Part,
    /// Bytes of the core's request pool; each pool has half of it.
    pub request_bytes: usize,
    /// TLS handshakes with providers at a time.
    pub handshakes: Gate,
}

/// The pool.
pub struct Pool {
    endpoint: Arc<Endpoint>,
    places: Rc<Places>,
    requests: Rc<Tally>,
    handshakes: Gate,
    retired: Cell<bool>,
}

impl Pool {
    pub(super) fn new(endpoint: Arc<Endpoint>, quota: &Quota) -> Self {
        let settings = &endpoint.settings;
        let bounds = Bounds {
            connections: quota.part.share(settings.connections),
            waiting: quota.part.share(settings.waiting),
        };
        Self {
            places: Places::new(bounds, settings.keepalive_idle),
            requests: Tally::new(quota.request_bytes / 2),
            handshakes: quota.handshakes.clone(),
            retired: Cell::new(false),
            endpoint,
        }
    }

    /// Where this pool's connections lead.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Counts a request, whose body is in `input`, among those on their way to this provider: at most
    /// half of the core's request pool may be held by them, waiting or being sent, so that a
    /// provider which does not read leaves memory for the others.
    ///
    /// # Errors
    /// `Busy` at once beyond that: to wait would be to hold the memory that is short.
    pub fn admit(&self, input: &mut Input) -> Result<Share, ConnectError> {
        let share = self.requests.admit(input.held_bytes());
        let share = share.ok_or(ConnectError::Busy)?;
        input.count_in(&share);
        Ok(share)
    }

    /// The newest idle connection that is still good, if nobody waits for one.
    pub(super) fn take_idle(&self) -> Option<Connection> {
        self.places.idle_now()
    }

    /// A new connection, or one that comes back meanwhile; waits for its turn where the provider has
    /// as many as it may. `again` for a request whose idle connection turned out to be dead: it gets
    /// a new one, and is the first in line, because it has had its turn. May be dropped while it
    /// waits.
    ///
    /// # Errors
    /// `Busy` when its turn did not come in time or the line is full, or when none can be opened.
    pub(super) async fn take(&self, again: bool) -> Result<Connection, ConnectError> {
        let turn = match self.places.place_now(again) {
            Some(place) => Turn::Open(place),
            None => self.wait(again).await?,
        };
        let place = match turn {
            Turn::Idle(connection) if !again => return Ok(*connection),
            // It came back while this one waited, and may be as dead as the other.
            Turn::Idle(connection) => connection.into_place(),
            Turn::Open(place) => place,
        };
        open(&self.endpoint, place, &self.handshakes).await
    }

    async fn wait(&self, again: bool) -> Result<Turn, ConnectError> {
        if !self.places.may_wait() {
            return Err(ConnectError::Busy);
        }
        let line = &self.places.line;
        let seat = if again { line.rejoin() } else { line.join() };
        match race(seat, sleep(self.endpoint.settings.connection_wait)).await {
            Either::First(turn) => Ok(turn),
            Either::Second(()) => Err(ConnectError::Busy),
        }
    }

    /// Gives a connection back after a complete exchange whose framing left nothing unread.
    pub fn give_back(&self, mut connection: Connection) {
        if self.retired.get() {
            return;
        }
        connection.idle_since = clock::now();
        self.places.idle.put(connection);
        self.places.serve();
    }

    /// Closes what is idle and keeps nothing any more: no exchange of a newer generation comes here.
    /// Those of this one that wait are served to the end.
    pub(super) fn retire(&self) {
        self.retired.set(true);
        self.close_idle();
    }

    /// Notes that an idle connection was found dead at this age.
    pub fn died(&self, age: Duration) {
        self.places.idle.died(age);
    }

    /// Connections that were found dead since this was last asked.
    #[must_use]
    pub fn take_deaths(&self) -> u64 {
        self.places.idle.take_deaths()
    }

    /// Exchanges that wait for a connection.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.places.line.len()
    }

    /// Number of idle connections.
    #[must_use]
    pub fn idle(&self) -> usize {
        self.places.idle.len()
    }

    /// Closes all idle connections, for want of descriptors; how many there were.
    pub(super) fn close_idle(&self) -> usize {
        let mut closed = 0;
        while let Some(connection) = self.places.idle.oldest() {
            drop(connection);
            closed += 1;
        }
        closed
    }

    /// Closes connections past their time, and those that the server ended or spoke on.
    pub(super) async fn prune(&self) {
        self.places.idle.prune().await;
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("open", &self.places.open())
            .field("idle", &self.idle())
            .field("waiting", &self.places.line.len())
            .finish_non_exhaustive()
    }
}
