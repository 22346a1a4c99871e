//! CPU and memory of a process under test, as the kernel counts them (proc(5)).
//!
//! CPU is the sum over all threads of the process; the kernel's io_uring workers are threads of it. The
//! time of a thread comes in nanoseconds from its `schedstat`, if the kernel keeps it and every thread
//! that was there at the start still is at the end; else from the process's `stat`, which counts ended
//! threads too but only in ticks. Work that the kernel does for the process elsewhere, as in soft
//! interrupts, is charged to whom it interrupts and not seen here.

use std::fmt;
use std::fs;
use std::io;
use std::time::Duration;

/// Length of a tick: `USER_HZ` is 100 on all machines that this runs on (Linux, `asm-generic/param.h`).
const TICK: Duration = Duration::from_millis(10);

/// A process whose files in `/proc` could not be read.
#[derive(Debug)]
pub struct ProcessError {
    pid: u32,
    error: io::Error,
}

impl fmt::Display for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}: {}", self.pid, self.error)
    }
}

impl std::error::Error for ProcessError {}

/// Where a CPU time comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CpuSource {
    /// Nanoseconds of each thread.
    Schedstat,
    /// Ticks of the process.
    Ticks,
}

impl CpuSource {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Schedstat => "schedstat",
            Self::Ticks => "ticks",
        }
    }
}

/// The counters of some processes at one moment.
#[derive(Debug)]
pub(super) struct Sample {
    processes: Vec<Counters>,
}

#[derive(Debug)]
struct Counters {
    /// Thread and its time; `None` if the kernel keeps none.
    threads: Option<Vec<(u32, Duration)>>,
    /// Time of the process, ended threads included.
    ticks: Duration,
    memory: Memory,
}

/// Resident bytes, in KiB as the kernel gives them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) now_kib: u64,
    /// Since the process began.
    pub(super) peak_kib: u64,
}

impl Sample {
    pub(super) fn take(pids: &[u32]) -> Result<Self, ProcessError> {
        let counters =
            |pid: &u32| Counters::read(*pid).map_err(|error| ProcessError { pid: *pid, error });
        let processes = pids.iter().map(counters).collect::<Result<_, _>>()?;
        Ok(Self { processes })
    }

    /// CPU between two samples of the same processes; `None` without processes.
    pub(super) fn cpu_until(&self, later: &Self) -> Option<(Duration, CpuSource)> {
        let pairs = || self.processes.iter().zip(&later.processes);
        let exact = pairs()
            .map(|(a, b)| between(a.threads.as_deref()?, b.threads.as_deref()?))
            .sum::<Option<Duration>>()
            .map(|cpu| (cpu, CpuSource::Schedstat));
        let ticks = || {
            let cpu = pairs().map(|(a, b)| b.ticks.saturating_sub(a.ticks)).sum();
            (cpu, CpuSource::Ticks)
        };
        (!self.processes.is_empty()).then(|| exact.unwrap_or_else(ticks))
    }

    pub(super) fn memory(&self) -> Option<Memory> {
        let sum = |sum: Memory, one: &Counters| Memory {
            now_kib: sum.now_kib + one.memory.now_kib,
            peak_kib: sum.peak_kib + one.memory.peak_kib,
        };
        (!self.processes.is_empty()).then(|| self.processes.iter().fold(Memory::default(), sum))
    }
}

impl Counters {
    fn read(pid: u32) -> io::Result<Self> {
        let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("no {what}"));
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        Ok(Self {
            threads: threads(pid),
            ticks: ticks_of(&stat).ok_or_else(|| bad("CPU time"))?,
            memory: memory_of(&status).ok_or_else(|| bad("memory, so it has ended"))?,
        })
    }
}

/// The time of each thread; `None` if one of them cannot be known. A thread that ends while it is read
/// is left out, and missed by [`between`] if it was there before.
fn threads(pid: u32) -> Option<Vec<(u32, Duration)>> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let mut threads = Vec::new();
    for task in tasks {
        let thread = task.ok()?.file_name().to_str()?.parse().ok()?;
        match fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")) {
            Ok(text) => threads.push((thread, on_cpu(&text)?)),
            Err(_) if !fs::exists(format!("/proc/{pid}/task/{thread}")).ok()? => {}
            Err(_) => return None,
        }
    }
    Some(threads)
}

/// Time of all threads between two moments; `None` if one has ended, and its time with it.
fn between(before: &[(u32, Duration)], after: &[(u32, Duration)]) -> Option<Duration> {
    let at = |thread: u32, times: &[(u32, Duration)]| {
        times
            .iter()
            .find(|(id, _)| *id == thread)
            .map(|(_, time)| *time)
    };
    let all_there = before
        .iter()
        .all(|(thread, _)| at(*thread, after).is_some());
    let grown = |(thread, time): &(u32, Duration)| {
        time.saturating_sub(at(*thread, before).unwrap_or_default())
    };
    all_there.then(|| after.iter().map(grown).sum())
}

/// `schedstat`: nanoseconds on a CPU, waiting for one, and how often; all 0 if nothing is kept.
fn on_cpu(text: &str) -> Option<Duration> {
    let mut fields = text.split_ascii_whitespace();
    let ns = fields.next()?.parse().ok()?;
    let is_kept = ns > 0 || fields.any(|field| field != "0");
    is_kept.then(|| Duration::from_nanos(ns))
}

/// `stat`: `utime` and `stime`, fields 14 and 15; the name before them may hold anything.
fn ticks_of(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_ascii_whitespace().skip(11);
    let mut ticks = || times.next()?.parse::<u32>().ok();
    Some(TICK.saturating_mul(ticks()?.checked_add(ticks()?)?))
}

/// `status`: `VmRSS` and `VmHWM`; a process that has ended has neither.
fn memory_of(status: &str) -> Option<Memory> {
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse().ok()
    };
    Some(Memory {
        now_kib: kib("VmRSS:")?,
        peak_kib: kib("VmHWM:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_process_are_found_behind_any_name() {
        let rest = "S 1 1 1 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 1 0 1 1 1";
        for name in ["lanegate", "a b", "a) R 9 (b", ")"] {
            let stat = format!("7 ({name}) {rest}");
            assert_eq!(ticks_of(&stat), Some(Duration::from_secs(3)), "{name}");
        }
        for stat in [
            "",
            "7 (a",
            "7 (a) S 1 1",
            "7 (a) S 1 1 1 0 -1 4 1 0 0 0 x 50",
        ] {
            assert_eq!(ticks_of(stat), None, "{stat}");
        }
    }

    #[test]
    fn time_of_a_thread_that_nobody_keeps_is_unknown() {
        for (text, ns) in [
            ("1234 5 6\n", Some(1234)),
            ("0 5 1\n", Some(0)),
            ("0 0 0\n", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(on_cpu(text), ns.map(Duration::from_nanos), "{text:?}");
        }
    }

    #[test]
    fn time_between_counts_new_threads_and_misses_ended_ones() {
        let times = |times: &[(u32, u64)]| {
            let times = times
                .iter()
                .map(|(id, ns)| (*id, Duration::from_nanos(*ns)));
            times.collect::<Vec<_>>()
        };
        let before = times(&[(1, 100), (2, 50)]);
        for (after, ns) in [
            (times(&[(1, 110), (2, 50)]), Some(10)),
            (times(&[(1, 110), (2, 55), (3, 7)]), Some(22)),
            (times(&[(1, 110), (3, 7)]), None),
        ] {
            let expected = ns.map(Duration::from_nanos);
            assert_eq!(between(&before, &after), expected, "{after:?}");
        }
    }

    #[test]
    fn memory_is_read_in_kib() {
        let status = "Name:\tx\nVmHWM:\t    1234 kB\nVmRSS:\t 1000 kB\n";
        let expected = Memory {
            now_kib: 1000,
            peak_kib: 1234,
        };
        assert_eq!(memory_of(status), Some(expected));
        assert_eq!(memory_of("Name:\tx\nState:\tZ (zombie)\n"), None);
    }

    #[test]
    fn own_process_is_measured() {
        let pids = [std::process::id()];
        let before = Sample::take(&pids).unwrap();
        let after = Sample::take(&pids).unwrap();
        assert!(before.cpu_until(&after).is_some());
        let memory = after.memory().unwrap();
        assert!(
            memory.now_kib > 0 && memory.peak_kib >= memory.now_kib,
            "{memory:?}"
        );
        let none = Sample::take(&[]).unwrap();
        assert!(none.cpu_until(&none).is_none() && none.memory().is_none());
    }

    #[test]
    fn process_that_is_not_there_is_named() {
        // Above the largest id that Linux gives (2^22).
        let error = Sample::take(&[u32::MAX]).unwrap_err();
        assert!(
            error.to_string().starts_with("process 4294967295: "),
            "{error}"
        );
    }
}
