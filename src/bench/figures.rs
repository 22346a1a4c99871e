//! From rounds to figures: one value a round, then median and range over the rounds, and the ratio to
//! the first target of the same round.

use std::time::Duration;

use crate::bench::round::Round;

/// Load that keeps its own threads busier than this may be what limits the figures.
pub(super) const BUSY_SHARE_MAX: f64 = 0.8;

/// One figure of a round; its name has the unit.
pub(super) struct Metric {
    pub(super) name: &'static str,
    /// `None` if the round has no such figure.
    pub(super) of: fn(&Round) -> Option<f64>,
}

const fn metric(name: &'static str, of: fn(&Round) -> Option<f64>) -> Metric {
    Metric { name, of }
}

/// All figures in the order of the report.
pub(super) const METRICS: [Metric; 25] = [
    metric("requests_per_second", |r| {
        ratio(count(r.tally.requests), r.tally.elapsed().as_secs_f64())
    }),
    metric("latency_p50_us", |r| r.tally.latency.quantile_us(0.5)),
    metric("latency_p90_us", |r| r.tally.latency.quantile_us(0.9)),
    metric("latency_p99_us", |r| r.tally.latency.quantile_us(0.99)),
    metric("latency_p999_us", |r| r.tally.latency.quantile_us(0.999)),
    metric("latency_max_us", |r| r.tally.latency.max_us()),
    metric("first_byte_p50_us", |r| r.tally.first_byte.quantile_us(0.5)),
    metric("first_byte_p90_us", |r| r.tally.first_byte.quantile_us(0.9)),
    metric("first_byte_p99_us", |r| {
        r.tally.first_byte.quantile_us(0.99)
    }),
    metric("first_byte_p999_us", |r| {
        r.tally.first_byte.quantile_us(0.999)
    }),
    metric("first_byte_max_us", |r| r.tally.first_byte.max_us()),
    metric("gap_p50_us", |r| r.tally.gaps.quantile_us(0.5)),
    metric("gap_p90_us", |r| r.tally.gaps.quantile_us(0.9)),
    metric("gap_p99_us", |r| r.tally.gaps.quantile_us(0.99)),
    metric("gap_p999_us", |r| r.tally.gaps.quantile_us(0.999)),
    metric("gap_max_us", |r| r.tally.gaps.max_us()),
    metric("cpu_per_request_us", |r| {
        cpu_us_per(r, r.cpu?.0, count(r.tally.requests))
    }),
    metric("cpu_per_event_us", |r| cpu_us_per(r, r.cpu?.0, events(r)?)),
    metric("cpu_cores", |r| {
        ratio(r.cpu?.0.as_secs_f64(), r.tally.elapsed().as_secs_f64())
    }),
    metric("rss_kib", |r| r.memory.map(|memory| count(memory.now_kib))),
    metric("rss_peak_kib", |r| {
        r.memory.map(|memory| count(memory.peak_kib))
    }),
    metric("own_cpu_per_request_us", |r| {
        cpu_us_per(r, r.tally.own_cpu, count(r.tally.requests))
    }),
    metric("own_cpu_per_event_us", |r| {
        cpu_us_per(r, r.tally.own_cpu, events(r)?)
    }),
    metric("own_busy_share", |r| {
        let threads = u32::try_from(r.threads).ok()?;
        let whole = r.tally.elapsed() * threads;
        ratio(r.tally.own_cpu.as_secs_f64(), whole.as_secs_f64())
    }),
    metric("reconnects", |r| Some(count(r.tally.reconnects))),
];

/// Events of all right answers; `None` where there are no events.
fn events(round: &Round) -> Option<f64> {
    let events = u64::try_from(round.events).ok()?;
    (events > 0).then(|| count(events * round.tally.requests))
}

/// Microseconds of CPU for one of `many`. Faults have cost CPU too, so a round with one has no such figure.
fn cpu_us_per(round: &Round, cpu: Duration, many: f64) -> Option<f64> {
    if round.tally.faults.total() > 0 {
        return None;
    }
    ratio(cpu.as_secs_f64() * 1e6, many)
}

/// `a` over `b`, unless that means nothing.
fn ratio(a: f64, b: f64) -> Option<f64> {
    (b > 0.0).then(|| a / b)
}

/// Exact up to 2^53, which no counter of a bounded run reaches.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of a run stay below 2^53"
)]
fn count(n: u64) -> f64 {
    n as f64
}

/// Median and range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    /// `None` if there are no values.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<_> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let upper = *sorted.get(sorted.len() / 2)?;
        let lower = *sorted.get((sorted.len() - 1) / 2)?;
        Some(Self {
            median: f64::midpoint(lower, upper),
            min: *sorted.first()?,
            max: *sorted.last()?,
        })
    }

    /// Of the ratios of one round each; rounds in which one side has no figure, or the first has zero,
    /// are left out.
    pub(super) fn of_ratios(values: &[Option<f64>], first: &[Option<f64>]) -> Option<Self> {
        let pairs = values.iter().zip(first);
        Self::of(pairs.filter_map(|(value, first)| ratio((*value)?, (*first)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_is_median_and_range_in_any_order() {
        for (values, median, min, max) in [
            (&[7.0][..], 7.0, 7.0, 7.0),
            (&[3.0, 1.0, 2.0], 2.0, 1.0, 3.0),
            (&[4.0, 1.0, 2.0, 3.0], 2.5, 1.0, 4.0),
            (&[0.0, 0.0, 9.0], 0.0, 0.0, 9.0),
        ] {
            let spread = Spread::of(values.iter().copied());
            assert_eq!(spread, Some(Spread { median, min, max }), "{values:?}");
        }
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn ratios_are_those_of_one_round_each() {
        let first = [Some(1.0), Some(2.0), Some(4.0), None, Some(0.0)];
        let other = [Some(3.0), Some(2.0), Some(2.0), Some(9.0), Some(9.0)];
        let expected = Spread {
            median: 1.0,
            min: 0.5,
            max: 3.0,
        };
        assert_eq!(Spread::of_ratios(&other, &first), Some(expected));
        assert_eq!(Spread::of_ratios(&other, &[None; 5]), None);
    }

    #[test]
    fn figures_of_an_empty_round_are_absent_and_not_zero() {
        let round = Round {
            tally: crate::bench::tally::Tally::new().unwrap(),
            cpu: None,
            memory: None,
            events: 0,
            threads: 1,
        };
        let present: Vec<_> = METRICS
            .iter()
            .filter(|metric| (metric.of)(&round).is_some())
            .map(|metric| metric.name)
            .collect();
        assert_eq!(present, ["reconnects"]);
    }
}
