//! The end of the process, from the signal to the last exchange.
//!
//! Main moves the phases on, by the clock and no other way; each core sees a new phase with its next
//! beat. That nothing is left to serve is a fact of all cores together: one that still accepts may
//! hand a connection to one that has none.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::config::Timeouts;
use crate::limits::{BEAT_MS, DRAIN_REPORT_SECONDS};
use crate::observe::{EndReason, Metrics};
use crate::server::balance::Cores;

/// How far the end of the process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Connections are accepted, after the signal too until `timeouts.grace` is over.
    Serving,
    /// What was accepted is served to its end.
    Finishing,
    /// What still runs is ended.
    Ending,
}

/// The phase and the open listeners, as all threads see them.
#[derive(Debug)]
pub(super) struct Drain {
    finishing: AtomicBool,
    ending: AtomicBool,
    listeners: AtomicUsize,
}

impl Drain {
    /// Of a process that serves, with so many listeners on all cores together.
    pub(super) fn new(listeners: usize) -> Self {
        Self {
            finishing: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            listeners: AtomicUsize::new(listeners),
        }
    }

    pub(super) fn phase(&self) -> Phase {
        let finishing = self.finishing.load(Ordering::Relaxed);
        match (self.ending.load(Ordering::Relaxed), finishing) {
            (true, _) => Phase::Ending,
            (false, true) => Phase::Finishing,
            (false, false) => Phase::Serving,
        }
    }

    /// A listener accepts nothing more. What it accepted is counted among the open connections.
    pub(super) fn listener_closed(&self) {
        self.listeners.fetch_sub(1, Ordering::Release);
    }

    /// Whether there is nothing to serve on any core, and will be nothing more.
    pub(super) fn is_over(&self, cores: &Cores) -> bool {
        self.listeners.load(Ordering::Acquire) == 0 && !cores.any_open()
    }
}

/// Main's part: it moves the phases on and says how far they are.
pub(super) struct Course {
    drain: Arc<Drain>,
    metrics: Arc<Metrics>,
    times: Option<Times>,
}

/// When what happens, once the process was told to stop.
#[derive(Clone, Copy, Debug)]
struct Times {
    finishing: Instant,
    ending: Instant,
    over: Instant,
    report: Instant,
    limit: Duration,
}

impl Times {
    fn new(now: Instant, timeouts: Timeouts) -> Self {
        let ending = now + timeouts.drain;
        Self {
            finishing: now + timeouts.grace,
            ending,
            // Those that were ended with an answer are read on, so that they see it.
            over: ending + timeouts.linger + Duration::from_millis(BEAT_MS),
            report: now + REPORT,
            limit: timeouts.drain,
        }
    }
}

const REPORT: Duration = Duration::from_secs(DRAIN_REPORT_SECONDS);

impl Course {
    pub(super) fn new(drain: Arc<Drain>, metrics: Arc<Metrics>) -> Self {
        Self {
            drain,
            metrics,
            times: None,
        }
    }

    /// Moves on to the phase of this moment, after the process was told to stop; `timeouts` are those
    /// in force when it was. What the operator should hear of it, if anything.
    pub(super) fn look(&mut self, now: Instant, timeouts: Timeouts) -> Option<String> {
        let first = self.times.is_none();
        let times = self.times.get_or_insert_with(|| Times::new(now, timeouts));
        let flag = |flag: &AtomicBool, at| flag.store(now >= at, Ordering::Relaxed);
        flag(&self.drain.finishing, times.finishing);
        flag(&self.drain.ending, times.ending);
        let running = exchanges(self.metrics.running(), "runs", "run");
        if first {
            let limit = times.limit;
            let grace = times.finishing.saturating_duration_since(now);
            let accepts = if grace.is_zero() {
                String::new()
            } else {
                format!("; new connections are accepted for {grace:?}")
            };
            return Some(format!(
                "told to stop: {running}, with {limit:?} to finish{accepts}"
            ));
        }
        if now < times.report || now >= times.ending {
            return None;
        }
        times.report = now + REPORT;
        let left = times.ending.saturating_duration_since(now).as_secs();
        Some(format!("stopping: {running}, {left}s left"))
    }

    /// Whether nothing is waited for any more.
    pub(super) fn is_out_of_time(&self, now: Instant) -> bool {
        self.times.is_some_and(|times| now >= times.over)
    }

    /// What came of it.
    pub(super) fn outcome(&self) -> String {
        let still = self.metrics.running();
        match self.metrics.ended(EndReason::Drained) + still {
            0 => "stopped: all exchanges have finished".to_owned(),
            ended => {
                let limit = self.times.map_or(Duration::ZERO, |times| times.limit);
                let ended = exchanges(ended, "was", "were");
                format!("stopped: {ended} ended after {limit:?}")
            }
        }
    }
}

fn exchanges(count: u64, one: &str, more: &str) -> String {
    match count {
        1 => format!("1 exchange {one}"),
        _ => format!("{count} exchanges {more}"),
    }
}

impl fmt::Debug for Course {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Course")
            .field("times", &self.times)
            .finish_non_exhaustive()
    }
}
