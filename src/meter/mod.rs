//! Numbers that one core writes and anyone may read.
//!
//! A core counts for itself: every cell has one writer, the core that it belongs to, so that a
//! relaxed load and a relaxed store are enough and no cache line is fought for. A reader sees each cell
//! as it was at some moment during the scrape; cells are not a snapshot of one instant, and need not be.
//! Costs one add per count and, for a distribution, a bit scan more; no allocation, no lock.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A number that only grows. Written by one thread.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Zero.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `more`; wraps after 2^64, as readers of counters expect.
    pub fn add(&self, more: u64) {
        // Not one atomic operation: nobody else writes, and a locked instruction costs ten times that.
        let now = self.0.load(Ordering::Relaxed).wrapping_add(more);
        self.0.store(now, Ordering::Relaxed);
    }

    /// The number at some moment.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that rises and falls. Written by one thread.
#[derive(Debug, Default)]
pub struct Level(AtomicU64);

impl Level {
    /// Zero.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Sets it.
    pub fn set(&self, to: u64) {
        self.0.store(to, Ordering::Relaxed);
    }

    /// One higher until the guard is dropped.
    #[must_use]
    pub fn raised(&self) -> Raised<'_> {
        self.set(self.get().saturating_add(1));
        Raised(self)
    }

    /// The number at some moment.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Holds a [`Level`] one higher; dropped on the thread that raised it.
#[derive(Debug)]
pub struct Raised<'a>(&'a Level);

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// Bits of a value that its cell keeps below the leading one: cells are at most 1/32 of their value
/// wide, 3 %.
const KEPT_BITS: u32 = 5;
const KEPT: usize = 1 << KEPT_BITS;

/// Bits of the largest value with a cell of its own, in microseconds: 38 hours. No clock of the
/// gateway is longer than 24 h; what is longer all the same counts in the last cell.
const VALUE_BITS: u32 = 37;

/// Exact below 64 µs, then 32 cells for each doubling.
const CELLS: usize = (VALUE_BITS - KEPT_BITS + 1) as usize * KEPT;

/// A distribution of durations in microseconds. Written by one thread.
///
/// The cells of `hdrhistogram` are plain memory behind `&mut`, and its `sync` recorder makes the
/// reader wait until every core has recorded again, which an idle core never does. So the cells are here,
/// laid out as an HDR histogram lays out its own, and the reader adds those of all cores up in one.
pub struct Distribution {
    cells: [Count; CELLS],
    /// Of all values, microseconds.
    sum: Count,
}

impl Distribution {
    /// Nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            cells: [const { Count::new() }; CELLS],
            sum: Count::new(),
        }
    }

    /// Counts one duration.
    pub fn record(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        if let Some(cell) = self.cells.get(index_of(micros)) {
            cell.add(1);
        }
        self.sum.add(micros);
    }

    /// The smallest value of each cell that counted anything, in microseconds, and its count.
    pub fn counted(&self) -> impl Iterator<Item = (u64, u64)> {
        let cells = self.cells.iter().map(Count::get).enumerate();
        let counted = cells.filter(|(_, count)| *count > 0);
        counted.map(|(index, count)| (lowest_of(index), count))
    }

    /// The sum of all durations, in microseconds.
    #[must_use]
    pub fn sum_micros(&self) -> u64 {
        self.sum.get()
    }
}

impl Default for Distribution {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count: u64 = self.counted().map(|(_, count)| count).sum();
        f.debug_struct("Distribution")
            .field("count", &count)
            .finish_non_exhaustive()
    }
}

fn index_of(micros: u64) -> usize {
    let shift = (u64::BITS - micros.leading_zeros()).saturating_sub(KEPT_BITS + 1);
    let kept = usize::try_from(micros >> shift).unwrap_or(usize::MAX);
    (shift as usize * KEPT).saturating_add(kept).min(CELLS - 1)
}

fn lowest_of(index: usize) -> u64 {
    let shift = (index / KEPT).saturating_sub(1);
    let kept = index - shift * KEPT;
    (kept as u64) << shift
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_level_is_raised_while_its_guard_lives() {
        let level = Level::new();
        let (first, second) = (level.raised(), level.raised());
        drop(first);
        assert_eq!(level.get(), 1);
        drop(second);
        assert_eq!(level.get(), 0);
    }

    #[test]
    fn every_cell_begins_where_the_one_before_ends() {
        for index in 0..CELLS {
            let lowest = lowest_of(index);
            assert_eq!(index_of(lowest), index, "{lowest}");
            if index > 0 {
                assert_eq!(index_of(lowest - 1), index - 1, "{lowest}");
            }
        }
        assert_eq!(index_of(u64::MAX), CELLS - 1);
    }

    proptest! {
        #[test]
        fn a_cell_is_at_most_a_thirty_second_of_its_value_wide(micros in 0..1_u64 << VALUE_BITS) {
            let lowest = lowest_of(index_of(micros));
            prop_assert!(lowest <= micros);
            prop_assert!((micros - lowest) * 32 <= micros, "{micros} in the cell of {lowest}");
        }
    }

    #[test]
    fn a_reader_on_another_thread_sees_all_that_was_counted() {
        let distribution = Distribution::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for micros in 0..10_000 {
                    distribution.record(Duration::from_micros(micros));
                }
            });
            // While they are written, sums only grow.
            let mut last = 0;
            for _ in 0..100 {
                let now: u64 = distribution.counted().map(|(_, count)| count).sum();
                assert!(now >= last);
                last = now;
            }
        });
        let all: u64 = distribution.counted().map(|(_, count)| count).sum();
        assert_eq!((all, distribution.sum_micros()), (10_000, 49_995_000));
    }
}
