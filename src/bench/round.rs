//! One round of one target: warm connections, then the measured run between two samples of its
//! processes.

use std::io;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use crate::bench::BenchError;
use crate::bench::answer::Answer;
use crate::bench::drive::{Drive, Quota};
use crate::bench::plan::{Plan, Target};
use crate::bench::process::{CpuSource, Memory, Sample};
use crate::bench::request::Request;
use crate::bench::tally::Tally;

/// What is asked of whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load<'a> {
    pub(super) plan: &'a Plan,
    pub(super) target: &'a Target,
    pub(super) request: &'a Request<'a>,
    pub(super) answer: &'a Answer,
}

/// What a round measured.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) tally: Tally,
    /// CPU of the target's processes, if it has any.
    pub(super) cpu: Option<(Duration, CpuSource)>,
    pub(super) memory: Option<Memory>,
    /// Events of one answer.
    pub(super) events: usize,
    pub(super) threads: usize,
}

impl Load<'_> {
    /// Opens all connections, sends one request on each that counts only if it fails, waits until all
    /// threads have done so, and then measures.
    pub(super) fn round(self) -> Result<Round, BenchError> {
        let threads = self.plan.threads;
        let drives = (0..threads)
            .map(|index| Drive::new(self, share(self.plan.connections, threads, index)))
            .collect::<io::Result<Vec<_>>>()?;
        let warm = Barrier::new(threads + 1);
        let go = Barrier::new(threads + 1);
        let (before, tallies) = thread::scope(|scope| {
            let mut running = Vec::with_capacity(threads);
            for (index, mut drive) in drives.into_iter().enumerate() {
                let (warm, go) = (&warm, &go);
                running.push(scope.spawn(move || self.thread(&mut drive, index, warm, go)));
            }
            warm.wait();
            let before = Sample::take(&self.target.pids);
            go.wait();
            let joined = running.into_iter().map(|thread| {
                let ended = thread.join();
                ended.map_err(|_| io::Error::other("a thread of the load generator panicked"))?
            });
            (before, joined.collect::<io::Result<Vec<_>>>())
        });
        let after = Sample::take(&self.target.pids)?;
        let mut tally = Tally::new().map_err(io::Error::other)?;
        for one in tallies? {
            tally.merge(&one);
        }
        Ok(Round {
            tally,
            cpu: before?.cpu_until(&after),
            memory: after.memory(),
            events: self.answer.ends.len(),
            threads,
        })
    }

    /// What one thread does; it meets both barriers whatever happens.
    fn thread(
        self,
        drive: &mut Drive<'_>,
        index: usize,
        warm: &Barrier,
        go: &Barrier,
    ) -> io::Result<Tally> {
        let plan = self.plan;
        let connections = share(plan.connections, plan.threads, index);
        let warmed = drive.run(Quota {
            requests: connections as u64,
            time: plan.timeout,
        });
        let faults = warmed.map(|tally| tally.faults);
        warm.wait();
        go.wait();
        let threads = plan.threads as u64;
        let mut tally = Tally::clone(drive.run(Quota {
            requests: plan.requests / threads + u64::from((index as u64) < plan.requests % threads),
            time: plan.duration,
        })?);
        tally.faults.merge(&faults?);
        Ok(tally)
    }
}

/// The part of `whole` that falls to one of `parts`.
fn share(whole: usize, parts: usize, index: usize) -> usize {
    whole / parts + usize::from(index < whole % parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_make_the_whole_and_differ_by_one_at_most() {
        for (whole, parts) in [(1, 1), (16, 1), (16, 3), (5, 5), (1000, 16)] {
            let shares: Vec<_> = (0..parts).map(|index| share(whole, parts, index)).collect();
            assert_eq!(shares.iter().sum::<usize>(), whole);
            let (min, max) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            assert!(max - min <= 1, "{shares:?}");
        }
    }
}
