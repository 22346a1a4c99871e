//! Which core serves a connection.
//!
//! The kernel spreads new connections over the listeners of all cores by a hash of their addresses,
//! which leaves cores idle where there are few agents with long connections. So each core counts
//! its connections where the others can read it, at accept and nowhere else, and one that has too
//! many hands the next one to the core with the fewest, before a byte of it is read.
//!
//! The limit of connections is shared out to the cores, so that none of them has to ask the others:
//! a core that is full hands over too.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use crossbeam::utils::CachePadded;

use crate::limits::{HANDED_MAX, Part, UNEVEN_MIN};
use crate::runtime::{Accepted, Clapper, Ringer, bell};

/// The connections of all cores.
pub(super) struct Cores {
    all: Box<[Entry]>,
}

struct Entry {
    /// Open client connections, those on their way to the core included. Written by every core.
    open: CachePadded<AtomicUsize>,
    /// At most so many.
    limit: usize,
    door: Sender<Handed>,
    ringer: Ringer,
}

/// Where a core finds the connections that others hand to it.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) handed: Receiver<Handed>,
    pub(super) clapper: Clapper,
}

/// A connection on its way from one core to another.
#[derive(Debug)]
pub(super) struct Handed {
    pub(super) socket: Accepted,
    pub(super) seat: Seat,
}

impl Cores {
    /// `count` cores with room for `connections` in all, and a door for each.
    pub(super) fn new(count: usize, connections: usize) -> io::Result<(Arc<Self>, Vec<Door>)> {
        let mut all = Vec::with_capacity(count);
        let mut doors = Vec::with_capacity(count);
        for index in 0..count {
            let (ringer, clapper) = bell()?;
            let (door, handed) = bounded(HANDED_MAX);
            let part = Part { index, of: count };
            all.push(Entry {
                open: CachePadded::default(),
                limit: part.share(connections),
                door,
                ringer,
            });
            doors.push(Door { handed, clapper });
        }
        let all = all.into_boxed_slice();
        Ok((Arc::new(Self { all }), doors))
    }

    /// Open connections of a core.
    pub(super) fn open(&self, core: usize) -> usize {
        self.all.get(core).map_or(0, Entry::open)
    }

    /// Whether any core has an open connection.
    pub(super) fn any_open(&self) -> bool {
        self.all.iter().any(|core| core.open() > 0)
    }

    /// A seat for the next connection that `core` accepts, on the core that is to serve it; none
    /// while there is no room.
    pub(super) fn seat(self: &Arc<Self>, core: usize) -> Option<Seat> {
        let target = self.target(core);
        self.enter(target).or_else(|| self.enter(core))
    }

    /// The core with the fewest connections, where `core` has too many.
    fn target(&self, core: usize) -> usize {
        let own = self.all.get(core);
        let fewest = self.all.iter().enumerate().min_by_key(|(_, it)| it.open());
        let (Some(own), Some((least, other))) = (own, fewest) else {
            return core;
        };
        let (mine, min) = (own.open(), other.open());
        let uneven = mine >= min.saturating_add(UNEVEN_MIN.max(min / 4));
        if (uneven || mine >= own.limit) && !other.door.is_full() {
            least
        } else {
            core
        }
    }

    fn enter(self: &Arc<Self>, core: usize) -> Option<Seat> {
        let entry = self.all.get(core)?;
        let below = |open| (open < entry.limit).then_some(open + 1);
        let entered = entry
            .open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, below);
        entered.ok().map(|_| Seat {
            cores: Arc::clone(self),
            core,
        })
    }

    /// Hands a connection to the core of its seat; gives it back if that one has too many to take.
    pub(super) fn hand(&self, handed: Handed) -> Option<Handed> {
        let Some(entry) = self.all.get(handed.seat.core) else {
            return Some(handed);
        };
        match entry.door.try_send(handed) {
            Ok(()) => {
                entry.ringer.ring();
                None
            }
            Err(TrySendError::Full(handed) | TrySendError::Disconnected(handed)) => Some(handed),
        }
    }
}

impl Entry {
    fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.all.iter().map(Entry::open);
        f.debug_list().entries(open).finish()
    }
}

/// Counts one client connection while it exists, at the core that serves it.
#[derive(Debug)]
pub(super) struct Seat {
    cores: Arc<Cores>,
    core: usize,
}

impl Seat {
    /// The core that serves the connection.
    pub(super) fn core(&self) -> usize {
        self.core
    }

    /// Moves to another core, which may be full: the sum stays what it was.
    pub(super) fn moved(mut self, core: usize) -> Self {
        if let Some(entry) = self.cores.all.get(core) {
            entry.open.fetch_add(1, Ordering::Relaxed);
            self.leave();
            self.core = core;
        }
        self
    }

    fn leave(&self) {
        if let Some(entry) = self.cores.all.get(self.core) {
            entry.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(count: usize, connections: usize) -> Arc<Cores> {
        Cores::new(count, connections).unwrap().0
    }

    fn open(cores: &Cores) -> Vec<usize> {
        cores.all.iter().map(Entry::open).collect()
    }

    #[test]
    fn all_connections_of_one_listener_are_spread_until_even() {
        let cores = cores(4, 1000);
        let seats: Vec<_> = (0..100).map(|_| cores.seat(0).unwrap()).collect();
        let counts = open(&cores);
        assert_eq!(counts.iter().sum::<usize>(), 100);
        let (most, fewest) = (counts.iter().max(), counts.iter().min());
        let (most, fewest) = (*most.unwrap(), *fewest.unwrap());
        assert!(most <= fewest + UNEVEN_MIN.max(fewest / 4), "{counts:?}");
        drop(seats);
        assert_eq!(open(&cores), [0; 4]);
    }

    #[test]
    fn few_connections_stay_where_they_came() {
        let cores = cores(2, 1000);
        let seats: Vec<_> = (0..UNEVEN_MIN).map(|_| cores.seat(1).unwrap()).collect();
        assert!(seats.iter().all(|seat| seat.core() == 1));
        assert_eq!(cores.seat(1).unwrap().core(), 0);
    }

    #[test]
    fn a_full_core_hands_over_until_all_are_full() {
        let cores = cores(3, 7);
        let seats: Vec<_> = (0..7).map(|_| cores.seat(2).unwrap()).collect();
        assert_eq!(open(&cores), [3, 2, 2]);
        assert!(cores.seat(0).is_none() && cores.seat(2).is_none());
        drop(seats);
        assert!(cores.seat(2).is_some());
    }

    #[test]
    fn a_connection_that_comes_back_is_counted_once() {
        let cores = cores(2, 10);
        let seat = cores.seat(0).unwrap().moved(1);
        assert_eq!((seat.core(), open(&cores)), (1, vec![0, 1]));
        drop(seat);
        assert_eq!(open(&cores), [0, 0]);
    }
}
