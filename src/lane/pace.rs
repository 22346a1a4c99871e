//! How fast a response comes, as its client sees it: one reading of the clock for each write.

use std::cell::Cell;
use std::time::Instant;

use crate::clock;
use crate::meter::Distribution;

/// Times the writes of one response.
#[derive(Debug)]
pub struct Pace<'a> {
    first: &'a Distribution,
    gaps: &'a Distribution,
    last: Cell<Instant>,
}

impl<'a> Pace<'a> {
    /// For a response whose head came now. The time to the end of the first write is counted in
    /// `first`, that from write to write in `gaps`.
    #[must_use]
    pub fn new(first: &'a Distribution, gaps: &'a Distribution) -> Self {
        Self {
            first,
            gaps,
            last: Cell::new(clock::now()),
        }
    }

    /// The first write was taken.
    pub(super) fn begun(&self) {
        self.step(self.first);
    }

    /// A later write was taken.
    pub(super) fn went_on(&self) {
        self.step(self.gaps);
    }

    fn step(&self, into: &Distribution) {
        let now = clock::now();
        into.record(now.saturating_duration_since(self.last.replace(now)));
    }
}
