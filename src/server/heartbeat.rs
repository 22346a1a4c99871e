//! Whether the cores still run: each says so every 100 ms, and who asks compares.
//!
//! A core that a stage blocks, or that waits in the kernel for something else than its ring, still has its
//! share of the connections and answers none of them. Nothing inside can heal it, but a load balancer
//! can avoid it and a supervisor can start the process anew, if they are told.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam::utils::CachePadded;

use crate::clock;
use crate::limits::{ALIVE_MS, READY_MS};

/// A core that ended as it should. It is not missed.
const ENDED: u64 = u64::MAX;

/// How old the last beat of every core may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// For new work to be welcome.
    pub(super) ready: Duration,
    /// For the process to be worth keeping.
    pub(super) alive: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            ready: Duration::from_millis(READY_MS),
            alive: Duration::from_millis(ALIVE_MS),
        }
    }
}

/// The last beat of each core; clones see the same. A core writes to a cache line of its own.
#[derive(Clone, Debug)]
pub(super) struct Heartbeats {
    start: Instant,
    bounds: Bounds,
    /// Milliseconds from `start` to the last beat.
    last: Arc<[CachePadded<AtomicU64>]>,
}

impl Heartbeats {
    /// Of so many cores. That they are about to begin counts as a beat.
    pub(super) fn new(cores: usize, bounds: Bounds) -> Self {
        Self {
            start: clock::now(),
            bounds,
            last: (0..cores).map(|_| CachePadded::default()).collect(),
        }
    }

    /// A core runs.
    pub(super) fn beat(&self, core: usize) {
        self.store(core, self.now());
    }

    /// A core has nothing more to do.
    pub(super) fn end(&self, core: usize) {
        self.store(core, ENDED);
    }

    /// Whether every core beat lately enough for new work.
    pub(super) fn ready(&self) -> bool {
        self.silent(self.bounds.ready).next().is_none()
    }

    /// Whether every core beat lately enough to be believed alive.
    pub(super) fn alive(&self) -> bool {
        self.silent(self.bounds.alive).next().is_none()
    }

    /// The cores whose last beat is older than `bound`.
    fn silent(&self, bound: Duration) -> impl Iterator<Item = usize> {
        let now = self.now();
        let bound = millis(bound);
        let silent = move |last: u64| now.saturating_sub(last) > bound;
        let cores = self.last.iter().enumerate();
        cores.filter_map(move |(core, last)| silent(last.load(Ordering::Relaxed)).then_some(core))
    }

    fn store(&self, core: usize, at: u64) {
        if let Some(last) = self.last.get(core) {
            last.store(at, Ordering::Relaxed);
        }
    }

    fn now(&self) -> u64 {
        millis(clock::now().saturating_duration_since(self.start))
    }
}

/// What changed about a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It has not beaten for the time after which the process is not ready.
    Silent(usize),
    /// It beats again.
    Back(usize),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(core) => write!(f, "core {core} stopped beating: it serves nothing"),
            Self::Back(core) => write!(f, "core {core} beats again"),
        }
    }
}

/// Notices changes, each once.
#[derive(Debug)]
pub(super) struct Watch {
    heartbeats: Heartbeats,
    silent: Vec<usize>,
}

impl Watch {
    pub(super) fn new(heartbeats: Heartbeats) -> Self {
        Self {
            heartbeats,
            silent: Vec::new(),
        }
    }

    /// What changed since the last look.
    pub(super) fn look(&mut self) -> Vec<Change> {
        let silent: Vec<_> = self
            .heartbeats
            .silent(self.heartbeats.bounds.ready)
            .collect();
        let fell = silent.iter().filter(|core| !self.silent.contains(core));
        let rose = self.silent.iter().filter(|core| !silent.contains(core));
        let changes = fell
            .map(|core| Change::Silent(*core))
            .chain(rose.map(|core| Change::Back(*core)))
            .collect();
        self.silent = silent;
        changes
    }
}

/// Whole milliseconds; half a billion years are not passed.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
