//! The connections that one provider may have on one core.
//!
//! An exchange that finds none free waits in a line, strictly first come first served. A connection
//! that comes back is handed to the first one, and so is the place of one that was closed. The line
//! is bounded; who waits too long or leaves is out of it at once. A place is given up by the drop of
//! the connection that has it, on whatever path that is.

use std::cell::Cell;
use std::rc::{Rc, Weak};
use std::time::Duration;

use crate::runtime::Line;
use crate::upstream::Connection;
use crate::upstream::idle::Idle;

/// The bounds of one provider on one core.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Connections, idle ones included.
    pub(super) connections: usize,
    /// Exchanges that wait for one.
    pub(super) waiting: usize,
}

/// The connections of one core to one endpoint, and the line for them.
#[derive(Debug)]
pub(super) struct Places {
    bounds: Bounds,
    /// Connections that exist or are being opened; at most `bounds.connections`.
    open: Cell<usize>,
    pub(super) idle: Idle,
    pub(super) line: Line<Turn>,
    /// Set while the line is served: a connection that is dropped on the way gives up its place, and
    /// must not begin to serve in its turn.
    serving: Cell<bool>,
}

impl Places {
    pub(super) fn new(bounds: Bounds, idle: Duration) -> Rc<Self> {
        Rc::new(Self {
            bounds,
            open: Cell::new(0),
            idle: Idle::new(idle),
            line: Line::default(),
            serving: Cell::new(false),
        })
    }

    /// Connections that exist or are being opened.
    pub(super) fn open(&self) -> usize {
        self.open.get()
    }

    /// An idle connection that is still good, if nobody waits for one.
    pub(super) fn idle_now(&self) -> Option<Connection> {
        if self.line.is_empty() {
            self.idle.take()
        } else {
            None
        }
    }

    /// A place for one that comes now, if nobody is before it. Nobody is before one that comes
    /// `again`: it has had its turn.
    pub(super) fn place_now(self: &Rc<Self>, again: bool) -> Option<Place> {
        if again || self.line.is_empty() {
            self.place()
        } else {
            None
        }
    }

    fn turn(self: &Rc<Self>) -> Option<Turn> {
        match self.idle.take() {
            Some(connection) => Some(Turn::Idle(Box::new(connection))),
            None => self.place().map(Turn::Open),
        }
    }

    /// A place for one more connection. One that is idle makes way for it: who asks has no use for
    /// idle ones, or there would be none.
    fn place(self: &Rc<Self>) -> Option<Place> {
        if self.open.get() >= self.bounds.connections {
            drop(self.idle.oldest());
        }
        let open = self.open.get();
        (open < self.bounds.connections).then(|| {
            self.open.set(open + 1);
            Place {
                home: Rc::downgrade(self),
            }
        })
    }

    /// Whether one more may join the line.
    pub(super) fn may_wait(&self) -> bool {
        self.line.len() < self.bounds.waiting
    }

    /// Gives turns to the first in line for as long as there are any.
    pub(super) fn serve(self: &Rc<Self>) {
        if self.serving.replace(true) {
            return;
        }
        while !self.line.is_empty() {
            let Some(turn) = self.turn() else {
                break;
            };
            // Somebody is first in line, so that nothing comes back.
            drop(self.line.hand(turn));
        }
        self.serving.set(false);
    }
}

/// The permission to have a connection, and how it is come by.
#[derive(Debug)]
pub(super) enum Turn {
    /// It was idle. It closes if who asked is gone: rare, and its place goes to the next one.
    Idle(Box<Connection>),
    /// It is to be opened.
    Open(Place),
}

/// The place of one connection, for as long as it exists.
#[derive(Debug)]
pub(super) struct Place {
    home: Weak<Places>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade() {
            home.open.set(home.open.get().saturating_sub(1));
            home.serve();
        }
    }
}
