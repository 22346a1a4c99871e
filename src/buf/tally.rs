//! What the requests on their way to one provider hold of a core's blocks.
//!
//! A request counts from the moment when its provider is known to the moment when it was sent: with
//! one ordinary block, which it may need at any time, and with what its present block has beyond
//! that. The sum is exact, and is bounded: one that does not fit is not admitted, and one that was
//! admitted gets a wide block only below half of the bound, so that the other half is there for many
//! narrow ones. Beyond the bound go only the few bytes of white space behind a body that are held
//! until its end is seen.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use crate::limits::{BLOCK_BYTES, WIDE_BLOCK_BYTES};

/// The sum of one provider on one core.
#[derive(Debug)]
pub struct Tally {
    limit: usize,
    held: Cell<usize>,
}

impl Tally {
    /// A sum that stays below `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Rc<Self> {
        Rc::new(Self {
            limit,
            held: Cell::new(0),
        })
    }

    /// Bytes held at this moment.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.get()
    }

    /// Admits a request that holds `bytes`, if they fit. The only one always does: otherwise one
    /// that is larger than the bound could never be sent.
    #[must_use]
    pub fn admit(self: &Rc<Self>, bytes: usize) -> Option<Share> {
        let bytes = bytes.max(BLOCK_BYTES);
        let held = self.held.get().saturating_add(bytes);
        (held <= self.limit || self.held.get() == 0).then(|| {
            self.held.set(held);
            Share(Rc::new(Account {
                tally: Rc::clone(self),
                bytes: Cell::new(bytes),
                open: Cell::new(true),
            }))
        })
    }
}

/// One request's part of the sum.
struct Account {
    tally: Rc<Tally>,
    bytes: Cell<usize>,
    open: Cell<bool>,
}

impl Account {
    fn set(&self, bytes: usize) {
        let before = self.bytes.replace(bytes);
        let held = &self.tally.held;
        held.set(held.get().saturating_sub(before).saturating_add(bytes));
    }
}

/// A request that was admitted. Dropping it takes its part out of the sum, wherever it is counted.
pub struct Share(Rc<Account>);

impl Share {
    /// For the holder of the blocks, which may outlive the request.
    pub(super) fn counted(&self) -> Counted {
        Counted(Rc::clone(&self.0))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.open.set(false);
        self.0.set(0);
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Share").field(&self.0.bytes.get()).finish()
    }
}

/// A view of a share that keeps it up to date while it exists.
pub(super) struct Counted(Rc<Account>);

impl Counted {
    /// The present block has so many bytes.
    pub(super) fn set(&self, bytes: usize) {
        if self.0.open.get() {
            self.0.set(bytes.max(BLOCK_BYTES));
        }
    }

    /// Whether one more wide block leaves half of the bound free.
    pub(super) fn may_widen(&self) -> bool {
        let Tally { limit, held } = &*self.0.tally;
        !self.0.open.get() || held.get().saturating_add(WIDE_BLOCK_BYTES) <= limit / 2
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counted").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::{Input, Pool};

    const LIMIT: usize = 4 * WIDE_BLOCK_BYTES;

    #[test]
    fn what_does_not_fit_is_not_admitted() {
        let tally = Tally::new(LIMIT);
        let shares: Vec<_> = (0..LIMIT / BLOCK_BYTES)
            .map(|_| tally.admit(0).unwrap())
            .collect();
        assert_eq!(tally.held(), LIMIT);
        assert!(tally.admit(0).is_none());
        drop(shares);
        assert_eq!(tally.held(), 0);
        let alone = tally.admit(2 * LIMIT);
        assert!(alone.is_some() && tally.admit(1).is_none());
    }

    #[test]
    fn blocks_count_while_the_request_is_on_its_way() {
        let (tally, pool) = (Tally::new(LIMIT), Pool::new(100 * WIDE_BLOCK_BYTES));
        let mut input = Input::new(pool);
        let share = tally.admit(input.held_bytes()).unwrap();
        input.count_in(&share);
        assert_eq!(tally.held(), BLOCK_BYTES);
        input.widen();
        assert_eq!(tally.held(), WIDE_BLOCK_BYTES);
        input.release();
        assert_eq!(tally.held(), BLOCK_BYTES);
        input.widen();
        drop(share);
        assert_eq!(tally.held(), 0);
        input.release();
        input.widen();
        assert_eq!(tally.held(), 0, "the next request is not counted yet");
    }

    #[test]
    fn a_body_that_was_reserved_for_counts_one_block() {
        let (tally, pool) = (Tally::new(LIMIT), Pool::new(100 * WIDE_BLOCK_BYTES));
        let mut input = Input::new(pool);
        input.reserve(2 * LIMIT);
        let share = tally.admit(input.held_bytes()).unwrap();
        input.count_in(&share);
        assert_eq!(tally.held(), BLOCK_BYTES);
    }

    #[test]
    fn half_of_the_bound_is_kept_for_narrow_requests() {
        let (tally, pool) = (Tally::new(LIMIT), Pool::new(100 * WIDE_BLOCK_BYTES));
        let mut kept = Vec::new();
        while let Some(share) = tally.admit(0) {
            let mut input = Input::new(pool.clone());
            input.count_in(&share);
            input.widen();
            kept.push((share, input));
        }
        assert!(kept.len() > LIMIT / BLOCK_BYTES / 2, "{}", kept.len());
        assert!(tally.held() <= LIMIT);
        drop(kept);
        assert_eq!(tally.held(), 0);
    }
}
