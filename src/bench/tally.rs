//! What a round counts.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// Longest time that a histogram holds, nanoseconds: the longest timeout of a plan, and the drive's look.
const TIME_NS_MAX: u64 = 602_000_000_000;
/// Digits that a histogram keeps: a value is at most a thousandth off.
const DIGITS: u8 = 3;

/// Why a request has no right answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// No connection.
    Connect,
    /// The connection ended before the answer did.
    Closed,
    /// The connection was reset, or failed otherwise.
    Io,
    /// Nothing was taken or sent for the time of the plan.
    Timeout,
    /// A status other than 200.
    Status,
    /// No response of HTTP/1.1.
    Malformed,
    /// Not the bytes of the first answer, or not all of them.
    Answer,
    /// Answered before it was sent completely.
    Early,
}

impl Fault {
    pub(super) const ALL: [Self; 8] = [
        Self::Connect,
        Self::Closed,
        Self::Io,
        Self::Timeout,
        Self::Status,
        Self::Malformed,
        Self::Answer,
        Self::Early,
    ];

    /// The name in the report.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Closed => "closed",
            Self::Io => "io",
            Self::Timeout => "timeout",
            Self::Status => "status",
            Self::Malformed => "malformed",
            Self::Answer => "answer",
            Self::Early => "early",
        }
    }
}

/// Requests without a right answer, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Faults([u64; Fault::ALL.len()]);

impl Faults {
    pub(super) fn add(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Fault, u64)> {
        Fault::ALL.into_iter().zip(self.0)
    }
}

/// Times of one kind, in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Times(Histogram<u64>);

impl Times {
    fn new() -> Result<Self, hdrhistogram::CreationError> {
        Histogram::new_with_max(TIME_NS_MAX, DIGITS).map(Self)
    }

    pub(super) fn record(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(TIME_NS_MAX);
        self.0.saturating_record(ns);
    }

    /// The time in microseconds that this share of all was not above; `None` if there are none.
    pub(super) fn quantile_us(&self, share: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| us(self.0.value_at_quantile(share)))
    }

    pub(super) fn max_us(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| us(self.0.max()))
    }
}

/// Nanoseconds as microseconds.
fn us(ns: u64) -> f64 {
    Duration::from_nanos(ns).as_secs_f64() * 1e6
}

/// What one thread, or a whole round, saw. Times are those of requests with a right answer; gaps are
/// taken as they come.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    /// Requests with a right answer.
    pub(super) requests: u64,
    pub(super) faults: Faults,
    /// Connections that the target ended between two requests.
    pub(super) reconnects: u64,
    /// From the first byte out to the last one in.
    pub(super) latency: Times,
    /// From the first byte out to the first one in.
    pub(super) first_byte: Times,
    /// Between two events of a stream.
    pub(super) gaps: Times,
    /// CPU of the threads that made the load.
    pub(super) own_cpu: Duration,
    /// When the first request began.
    pub(super) begun: Option<Instant>,
    /// When the last right answer was whole.
    pub(super) ended: Option<Instant>,
}

impl Tally {
    /// Empty; the error is one of the constants above.
    pub(super) fn new() -> Result<Self, hdrhistogram::CreationError> {
        Ok(Self {
            requests: 0,
            faults: Faults::default(),
            reconnects: 0,
            latency: Times::new()?,
            first_byte: Times::new()?,
            gaps: Times::new()?,
            own_cpu: Duration::ZERO,
            begun: None,
            ended: None,
        })
    }

    /// Counts nothing yet.
    pub(super) fn clear(&mut self) {
        self.requests = 0;
        self.faults = Faults::default();
        self.reconnects = 0;
        for times in [&mut self.latency, &mut self.first_byte, &mut self.gaps] {
            times.0.reset();
        }
        self.own_cpu = Duration::ZERO;
        (self.begun, self.ended) = (None, None);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.faults.merge(&other.faults);
        self.reconnects += other.reconnects;
        for (mine, theirs) in [
            (&mut self.latency, &other.latency),
            (&mut self.first_byte, &other.first_byte),
            (&mut self.gaps, &other.gaps),
        ] {
            // All histograms have the same bounds, so that nothing is out of range.
            let _same_bounds = mine.0.add(&theirs.0);
        }
        self.own_cpu += other.own_cpu;
        self.begun = [self.begun, other.begun].into_iter().flatten().min();
        self.ended = self.ended.max(other.ended);
    }

    /// From the first request to the last right answer.
    pub(super) fn elapsed(&self) -> Duration {
        match (self.begun, self.ended) {
            (Some(begun), Some(ended)) => ended.saturating_duration_since(begun),
            (None, _) | (_, None) => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn times_are_at_most_a_thousandth_off_and_never_lost() {
        let mut times = Times::new().unwrap();
        assert_eq!((times.quantile_us(0.5), times.max_us()), (None, None));
        for us in 1..=1000 {
            times.record(Duration::from_micros(us));
        }
        for (share, expected) in [(0.5, 500.0), (0.9, 900.0), (0.99, 990.0), (0.999, 999.0)] {
            let got = times.quantile_us(share).unwrap();
            assert!(
                (got - expected).abs() <= expected / 1000.0,
                "{share}: {got}"
            );
        }
        times.record(Duration::from_secs(10_000));
        let max = times.max_us().unwrap();
        assert!((max - 602e6).abs() < 602e3, "{max}");
        times.record(Duration::ZERO);
        assert_eq!(times.0.len(), 1002);
    }

    #[test]
    fn faults_are_counted_by_kind() {
        let mut faults = Faults::default();
        for (times, fault) in Fault::ALL.into_iter().enumerate() {
            for _ in 0..times {
                faults.add(fault);
            }
        }
        let mut twice = faults;
        twice.merge(&faults);
        for (index, (fault, count)) in twice.iter().enumerate() {
            assert_eq!((fault, count), (Fault::ALL[index], 2 * index as u64));
        }
        assert_eq!(twice.total(), 56);
    }

    #[test]
    fn merged_tallies_span_both() {
        let start = clock::now();
        let mut merged = Tally::new().unwrap();
        for (begun, ended) in [(20, 50), (10, 30)] {
            let mut one = Tally::new().unwrap();
            one.requests = 2;
            one.begun = Some(start + Duration::from_millis(begun));
            one.ended = Some(start + Duration::from_millis(ended));
            one.latency.record(Duration::from_millis(ended));
            merged.merge(&one);
        }
        assert_eq!(merged.elapsed(), Duration::from_millis(40));
        assert_eq!((merged.requests, merged.latency.0.len()), (4, 2));
        merged.clear();
        assert_eq!(merged.elapsed(), Duration::ZERO);
        assert_eq!((merged.requests, merged.latency.0.len()), (0, 0));
    }
}
