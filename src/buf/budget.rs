//! One bound on the body bytes that all cores hold while a decision is open.
//!
//! A body is reserved for as a whole before it is held, all or nothing, so that two half-held bodies
//! never wait for each other. Who asks first is served first. Asking is one atomic operation while
//! nobody waits; the queue behind the lock is touched only when the budget is short.

#![expect(
    clippy::disallowed_types,
    reason = "a queue of waiters between cores, locked for a few instructions and only when memory is short"
)]

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The budget; clones are handles to the same one.
#[derive(Clone)]
pub struct Budget {
    shared: Arc<Shared>,
}

struct Shared {
    limit: u64,
    used: AtomicU64,
    /// Whether somebody waits; set and cleared under the lock.
    contended: AtomicBool,
    growing: AtomicBool,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    next: u64,
    // One entry a waiting exchange, so the number of connections bounds it.
    waiting: VecDeque<u64>,
}

impl Budget {
    /// A budget of `limit` bytes.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        let shared = Shared {
            limit,
            used: AtomicU64::new(0),
            contended: AtomicBool::new(false),
            growing: AtomicBool::new(false),
            queue: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Bytes reserved at this moment.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.shared.used.load(Ordering::Relaxed)
    }

    /// Bytes that can be reserved in all.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.shared.limit
    }

    /// A request for `bytes`, to be asked again until it is granted or given up.
    #[must_use]
    pub fn ask(&self, bytes: u64) -> Ask {
        Ask {
            budget: self.clone(),
            bytes,
            place: None,
        }
    }

    /// The right to reserve in steps, for a body whose length nobody declared: one holder at a
    /// time, so that two growing bodies never wait for each other.
    #[must_use]
    pub fn grower(&self) -> Option<Grower> {
        let taken = self.shared.growing.swap(true, Ordering::AcqRel);
        (!taken).then(|| Grower {
            budget: self.clone(),
        })
    }

    fn take(&self, bytes: u64) -> bool {
        let limit = self.shared.limit;
        let taken = self
            .shared
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                used.checked_add(bytes).filter(|sum| *sum <= limit)
            });
        taken.is_ok()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // The queue is a list of numbers: whole after any panic.
        self.shared
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn leave(&self, place: u64) {
        let mut queue = self.queue();
        queue.waiting.retain(|waiting| *waiting != place);
        let contended = !queue.waiting.is_empty();
        self.shared.contended.store(contended, Ordering::Release);
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("limit", &self.shared.limit)
            .field("used", &self.used())
            .finish_non_exhaustive()
    }
}

/// A pending request for memory; dropping gives up its place.
#[derive(Debug)]
pub struct Ask {
    budget: Budget,
    bytes: u64,
    place: Option<u64>,
}

impl Ask {
    /// Whether the bytes can ever be granted.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        self.bytes <= self.budget.shared.limit
    }

    /// The reservation, if it is this request's turn and the bytes are free.
    pub fn granted(&mut self) -> Option<Reservation> {
        let contended = &self.budget.shared.contended;
        if self.place.is_none()
            && !contended.load(Ordering::Acquire)
            && self.budget.take(self.bytes)
        {
            return Some(self.reservation());
        }
        let place = self.place.unwrap_or_else(|| self.enqueue());
        self.place = Some(place);
        let first = self.budget.queue().waiting.front() == Some(&place);
        (first && self.budget.take(self.bytes)).then(|| {
            self.place = None;
            self.budget.leave(place);
            self.reservation()
        })
    }

    fn enqueue(&self) -> u64 {
        let mut queue = self.budget.queue();
        let place = queue.next;
        queue.next = queue.next.wrapping_add(1);
        queue.waiting.push_back(place);
        self.budget.shared.contended.store(true, Ordering::Release);
        place
    }

    fn reservation(&self) -> Reservation {
        Reservation {
            budget: self.budget.clone(),
            bytes: self.bytes,
        }
    }
}

impl Drop for Ask {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.budget.leave(place);
        }
    }
}

/// Reserved bytes; dropping gives them back.
#[derive(Debug)]
pub struct Reservation {
    budget: Budget,
    bytes: u64,
}

impl Reservation {
    /// Bytes reserved.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives back what is beyond `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        let rest = self.bytes.saturating_sub(bytes);
        self.bytes -= rest;
        // Dropping it gives it back.
        drop(Self {
            budget: self.budget.clone(),
            bytes: rest,
        });
    }

    /// Takes another reservation of the same budget into this one.
    pub fn merge(&mut self, mut other: Self) {
        self.bytes = self.bytes.saturating_add(std::mem::take(&mut other.bytes));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget
            .shared
            .used
            .fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// The right to grow; dropping gives it to the next.
#[derive(Debug)]
pub struct Grower {
    budget: Budget,
}

impl Drop for Grower {
    fn drop(&mut self) {
        self.budget.shared.growing.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_is_given_back_by_dropping() {
        let budget = Budget::new(100);
        let held = budget.ask(60).granted().unwrap();
        assert_eq!((budget.used(), held.bytes()), (60, 60));
        assert!(budget.ask(50).granted().is_none());
        drop(held);
        assert_eq!(budget.used(), 0);
        assert!(budget.ask(100).granted().is_some());
    }

    #[test]
    fn a_small_request_does_not_pass_a_waiting_large_one() {
        let budget = Budget::new(100);
        let held = budget.ask(60).granted().unwrap();
        let mut large = budget.ask(80);
        assert!(large.granted().is_none());
        let mut small = budget.ask(10);
        assert!(
            small.granted().is_none(),
            "30 bytes are free, but not its turn"
        );
        drop(held);
        assert!(small.granted().is_none());
        let large = large.granted().unwrap();
        assert!(small.granted().is_some());
        drop(large);
    }

    #[test]
    fn who_gives_up_does_not_block_the_queue() {
        let budget = Budget::new(100);
        let held = budget.ask(100).granted().unwrap();
        let mut first = budget.ask(100);
        let mut second = budget.ask(100);
        assert!(first.granted().is_none() && second.granted().is_none());
        drop(first);
        drop(held);
        assert!(second.granted().is_some());
        assert!(budget.ask(1).granted().is_some(), "nobody waits any more");
    }

    #[test]
    fn more_than_the_limit_is_known_to_be_impossible() {
        assert!(!Budget::new(10).ask(11).is_possible());
        assert!(Budget::new(u64::MAX).ask(u64::MAX).is_possible());
    }

    #[test]
    fn merged_reservations_are_given_back_once() {
        let budget = Budget::new(100);
        let mut held = budget.ask(40).granted().unwrap();
        held.merge(budget.ask(30).granted().unwrap());
        assert_eq!((held.bytes(), budget.used()), (70, 70));
        drop(held);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn one_body_grows_at_a_time() {
        let budget = Budget::new(10);
        let grower = budget.grower();
        assert!(grower.is_some() && budget.grower().is_none());
        drop(grower);
        assert!(budget.grower().is_some());
    }

    #[test]
    fn the_sum_never_exceeds_the_limit_between_threads() {
        let budget = Budget::new(1000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let mut ask = budget.ask(300);
                        for _ in 0..100 {
                            if let Some(held) = ask.granted() {
                                assert!(budget.used() <= 1000);
                                drop(held);
                                break;
                            }
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
        assert_eq!(budget.used(), 0);
    }
}
