//! CPU time as the measure of a bench.

use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{Criterion, Throughput};
use rustix::time::{ClockId, clock_gettime};

/// Time that this thread ran, so that other work on the machine does not count.
pub(crate) struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(
            now.tv_sec.unsigned_abs(),
            u32::try_from(now.tv_nsec).unwrap_or(0),
        )
    }

    fn end(&self, start: Duration) -> Duration {
        self.start() - start
    }

    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        WallTime.to_f64(value)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

/// Few and short samples: a whole run stays under a minute.
pub(crate) fn criterion() -> Criterion<CpuTime> {
    Criterion::default()
        .with_measurement(CpuTime)
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(1500))
        .configure_from_args()
}

/// Throughput of one pass over `body`.
pub(crate) fn throughput(body: &[u8]) -> Throughput {
    Throughput::Bytes(body.len() as u64)
}
