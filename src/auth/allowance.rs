//! How much of the gateway one client may have at a time.
//!
//! Decides whether one more request of a client may run, so that a runaway agent stops at its own
//! limits and not at everybody's. What is counted belongs to the process: the counters of a client
//! are shared by all cores and outlive a reload. Refuses at once, because a queue of requests that
//! wait for a slot would hold what the limit is to keep free. Costs a client without limits
//! nothing; with one, two writes of a shared word for `concurrency` and one for the rate.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The window of the rate limit, nanoseconds.
const MINUTE: u64 = 60_000_000_000;

/// What one client may have; none means without limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientLimits {
    /// Exchanges that run at a time, each until the last byte of its answer.
    pub concurrency: Option<NonZeroU32>,
    /// Requests a minute. As many may also come at once after a minute of rest.
    pub requests_per_minute: Option<NonZeroU32>,
}

/// Which limit a request met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exceeded {
    /// As many exchanges run as may.
    Concurrency,
    /// The requests of the minute are used up.
    Rate {
        /// After this time there is one again.
        wait: Duration,
    },
}

/// The counters of one client, for the life of the process.
#[derive(Debug)]
pub struct Meter {
    running: AtomicU32,
    /// Since `since`, nanoseconds: when the requests of this client would be paid for if each cost
    /// an equal share of a minute.
    paid_at: AtomicU64,
    since: Instant,
}

impl Meter {
    fn new(since: Instant) -> Self {
        Self {
            running: AtomicU32::new(0),
            paid_at: AtomicU64::new(0),
            since,
        }
    }

    /// Takes one of `limit` slots.
    fn begin(self: &Arc<Self>, limit: NonZeroU32) -> Option<Slot> {
        let more = |running: u32| (running < limit.get()).then_some(running.saturating_add(1));
        let counted = self
            .running
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        counted.is_ok().then(|| Slot(Arc::clone(self)))
    }

    /// Takes one request out of a bucket that holds `limit` and fills up in a minute. The bucket is
    /// kept as the one instant at which it is full again, so that taking is one atomic exchange
    /// (the generic cell rate algorithm, ITU-T I.371).
    fn spend(&self, limit: NonZeroU32, now: Instant) -> Result<(), Duration> {
        let now = now.saturating_duration_since(self.since).as_nanos();
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        let share = MINUTE / u64::from(limit.get());
        let depth = share.saturating_mul(limit.get().into());
        let after = |paid_at: u64| paid_at.max(now).saturating_add(share);
        let more = |paid_at: u64| {
            let after = after(paid_at);
            (after.saturating_sub(now) <= depth).then_some(after)
        };
        match self
            .paid_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
        {
            Ok(_) => Ok(()),
            Err(paid_at) => {
                let wait = after(paid_at).saturating_sub(now).saturating_sub(depth);
                Err(Duration::from_nanos(wait))
            }
        }
    }
}

/// One running exchange of a client; it is counted until this is dropped.
#[derive(Debug)]
pub struct Slot(Arc<Meter>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The counters of all clients of the process by name, whatever is configured at present. A client
/// that is taken out and put back finds its running exchanges again.
#[derive(Debug)]
pub struct Meters {
    since: Instant,
    by_name: BTreeMap<String, Weak<Meter>>,
}

impl Meters {
    /// None yet; no instant that is asked about later lies before `since`.
    #[must_use]
    pub const fn new(since: Instant) -> Self {
        Self {
            since,
            by_name: BTreeMap::new(),
        }
    }

    /// What a client may have. The counters of its name (letter case does not count) are the ones
    /// that are in use already, if any are.
    pub fn allowance(&mut self, name: &str, limits: ClientLimits) -> Allowance {
        let known = self.by_name.entry(name.to_ascii_lowercase()).or_default();
        let meter = known.upgrade().unwrap_or_else(|| {
            let meter = Arc::new(Meter::new(self.since));
            *known = Arc::downgrade(&meter);
            meter
        });
        Allowance { limits, meter }
    }

    /// Forgets the counters that nothing uses any more.
    pub fn prune(&mut self) {
        self.by_name.retain(|_, meter| meter.strong_count() > 0);
    }
}

/// The limits of one client, and what counts against them.
#[derive(Clone, Debug)]
pub struct Allowance {
    limits: ClientLimits,
    meter: Arc<Meter>,
}

impl Allowance {
    /// Lets one more request in; `now` is asked for only where a rate is limited. A request that
    /// finds no slot does not count against the rate.
    ///
    /// # Errors
    /// The limit that the request met.
    pub fn admit(&self, now: impl FnOnce() -> Instant) -> Result<Option<Slot>, Exceeded> {
        let slot = match self.limits.concurrency {
            Some(limit) => Some(self.meter.begin(limit).ok_or(Exceeded::Concurrency)?),
            None => None,
        };
        if let Some(limit) = self.limits.requests_per_minute {
            let spent = self.meter.spend(limit, now());
            spent.map_err(|wait| Exceeded::Rate { wait })?;
        }
        Ok(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn limits(concurrency: u32, requests_per_minute: u32) -> ClientLimits {
        ClientLimits {
            concurrency: NonZeroU32::new(concurrency),
            requests_per_minute: NonZeroU32::new(requests_per_minute),
        }
    }

    fn at(start: Instant, millis: u64) -> impl FnOnce() -> Instant {
        move || start + Duration::from_millis(millis)
    }

    #[test]
    fn without_limits_nothing_is_counted_and_no_clock_is_read() {
        let mut meters = Meters::new(clock::now());
        let allowance = meters.allowance("a", ClientLimits::default());
        for _ in 0..1000 {
            let slot = allowance.admit(|| panic!("nobody needs the time")).unwrap();
            assert!(slot.is_none());
        }
        assert_eq!(allowance.meter.running.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_slot_is_held_until_it_is_dropped() {
        let start = clock::now();
        let allowance = Meters::new(start).allowance("a", limits(2, 0));
        let admit = || allowance.admit(at(start, 0));
        let (first, second) = (admit().unwrap(), admit().unwrap());
        assert_eq!(admit().unwrap_err(), Exceeded::Concurrency);
        drop(first);
        let third = admit().unwrap();
        assert_eq!(admit().unwrap_err(), Exceeded::Concurrency);
        drop((second, third));
        assert_eq!(allowance.meter.running.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_bucket_holds_a_minute_and_fills_evenly() {
        let start = clock::now();
        let allowance = Meters::new(start).allowance("a", limits(0, 6));
        let refused = |wait| {
            Err(Exceeded::Rate {
                wait: Duration::from_millis(wait),
            })
        };
        let admit = |millis| {
            allowance
                .admit(at(start, millis))
                .map(|slot| slot.is_some())
        };
        for _ in 0..6 {
            assert_eq!(admit(0), Ok(false));
        }
        assert_eq!(admit(0), refused(10_000));
        assert_eq!(admit(9_999), refused(1));
        assert_eq!(admit(10_000), Ok(false));
        assert_eq!(admit(10_000), refused(10_000));
        // Rest beyond a minute saves up no more than a minute's worth.
        for _ in 0..6 {
            assert_eq!(admit(600_000), Ok(false));
        }
        assert_eq!(admit(600_000), refused(10_000));
    }

    #[test]
    fn no_minute_sees_more_than_twice_the_limit() {
        for per_minute in [1, 7, 60, 1000] {
            let start = clock::now();
            let allowance = Meters::new(start).allowance("a", limits(0, per_minute));
            let passed = (0..120_000)
                .step_by(20)
                .filter(|millis| allowance.admit(at(start, *millis)).is_ok())
                .collect::<Vec<u64>>();
            let within = |from: u64| {
                let in_minute = |at: &&u64| (from..from + 60_000).contains(*at);
                passed.iter().filter(in_minute).count()
            };
            let most = passed.iter().map(|at| within(*at)).max().unwrap();
            assert!(most <= 2 * per_minute as usize, "{per_minute}: {most}");
            assert!(passed.len() >= 2 * per_minute as usize, "{per_minute}");
        }
    }

    #[test]
    fn a_request_without_a_slot_costs_no_rate() {
        let start = clock::now();
        let allowance = Meters::new(start).allowance("a", limits(1, 2));
        let held = allowance.admit(at(start, 0)).unwrap();
        for _ in 0..5 {
            assert_eq!(
                allowance.admit(at(start, 0)).unwrap_err(),
                Exceeded::Concurrency
            );
        }
        drop(held);
        let slot = allowance.admit(at(start, 0)).unwrap();
        drop(slot);
        let refused = allowance.admit(at(start, 0)).unwrap_err();
        assert!(matches!(refused, Exceeded::Rate { .. }));
        assert_eq!(allowance.meter.running.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn counters_outlive_a_reload_and_are_forgotten_once_unused() {
        let start = clock::now();
        let mut meters = Meters::new(start);
        let before = meters.allowance("Fleet", limits(1, 0));
        let running = before.admit(at(start, 0)).unwrap();
        drop(before);
        meters.prune();
        let after = meters.allowance("fleet", limits(1, 0));
        assert_eq!(
            after.admit(at(start, 0)).unwrap_err(),
            Exceeded::Concurrency
        );
        drop(running);
        assert!(after.admit(at(start, 0)).unwrap().is_some());
        drop(after);
        meters.prune();
        assert!(meters.by_name.is_empty());
    }

    #[test]
    fn the_limit_holds_for_all_threads_together() {
        let start = clock::now();
        let allowance = Meters::new(start).allowance("a", limits(3, 500));
        let passed = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        if let Ok(slot) = allowance.admit(at(start, 0)) {
                            assert!(slot.unwrap().0.running.load(Ordering::Relaxed) <= 3);
                            passed.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert!(passed.load(Ordering::Relaxed) <= 500);
        assert_eq!(allowance.meter.running.load(Ordering::Relaxed), 0);
    }
}
