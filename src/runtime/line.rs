//! Tasks of one core in the order in which they came, each waiting to be handed one thing.
//!
//! Who leaves the line is forgotten at once. What was handed to a waiter that left before it looked
//! is dropped, so that a thing which must not be lost finds its way back by its own `Drop`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A line of waiters for a `T` each. Whoever lets tasks join bounds their number by [`Line::len`].
pub struct Line<T> {
    waiting: RefCell<VecDeque<Rc<Slip<T>>>>,
}

struct Slip<T> {
    handed: Cell<Option<T>>,
    waker: Cell<Option<Waker>>,
}

impl<T> Line<T> {
    /// Number of waiters that were handed nothing yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the last place.
    pub fn join(&self) -> Seat<'_, T> {
        let seat = self.seat();
        self.waiting.borrow_mut().push_back(Rc::clone(&seat.slip));
        seat
    }

    /// Takes the first place: for one that had its turn and must come back for a reason of the line.
    pub fn rejoin(&self) -> Seat<'_, T> {
        let seat = self.seat();
        self.waiting.borrow_mut().push_front(Rc::clone(&seat.slip));
        seat
    }

    fn seat(&self) -> Seat<'_, T> {
        let slip = Rc::new(Slip {
            handed: Cell::new(None),
            waker: Cell::new(None),
        });
        Seat { line: self, slip }
    }

    /// Hands something to the first one, which leaves the line by it; gives it back if nobody waits.
    pub fn hand(&self, thing: T) -> Option<T> {
        let Some(first) = self.waiting.borrow_mut().pop_front() else {
            return Some(thing);
        };
        first.handed.set(Some(thing));
        if let Some(waker) = first.waker.take() {
            waker.wake();
        }
        None
    }
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self {
            waiting: RefCell::default(),
        }
    }
}

impl<T> fmt::Debug for Line<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line")
            .field("waiting", &self.waiting.borrow().len())
            .finish()
    }
}

/// A place in a line; awaiting it gives what is handed out, dropping it leaves.
pub struct Seat<'a, T> {
    line: &'a Line<T>,
    slip: Rc<Slip<T>>,
}

impl<T> Future for Seat<'_, T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match self.slip.handed.take() {
            Some(thing) => Poll::Ready(thing),
            None => {
                self.slip.waker.set(Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl<T> Drop for Seat<'_, T> {
    fn drop(&mut self) {
        let mut waiting = self.line.waiting.borrow_mut();
        // From the end: who gives up has mostly waited longest, but who is handed something is gone
        // from the line already, and that is the common case.
        if let Some(at) = waiting.iter().position(|it| Rc::ptr_eq(it, &self.slip)) {
            waiting.remove(at);
        }
    }
}

impl<T> fmt::Debug for Seat<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    fn polled<T>(seat: Pin<&mut Seat<'_, T>>) -> Poll<T> {
        seat.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn the_first_to_come_is_the_first_to_be_served() {
        let line = Line::default();
        assert_eq!(line.hand("none waits"), Some("none waits"));
        let (mut first, mut second) = (pin!(line.join()), pin!(line.join()));
        assert!(polled(first.as_mut()).is_pending() && polled(second.as_mut()).is_pending());
        assert_eq!(line.len(), 2);
        assert_eq!(line.hand("a"), None);
        assert!(polled(second.as_mut()).is_pending());
        assert_eq!(polled(first.as_mut()), Poll::Ready("a"));
        assert_eq!(line.hand("b"), None);
        assert_eq!(polled(second.as_mut()), Poll::Ready("b"));
        assert!(line.is_empty());
    }

    #[test]
    fn who_leaves_is_passed_over() {
        let line = Line::default();
        let first = line.join();
        let mut second = pin!(line.join());
        drop(first);
        assert_eq!(line.len(), 1);
        assert_eq!(line.hand(()), None);
        assert_eq!(polled(second.as_mut()), Poll::Ready(()));
    }

    #[test]
    fn who_comes_back_is_first() {
        let line = Line::default();
        let (mut first, mut again) = (pin!(line.join()), pin!(line.rejoin()));
        assert_eq!(line.hand(()), None);
        assert!(polled(first.as_mut()).is_pending());
        assert_eq!(polled(again.as_mut()), Poll::Ready(()));
    }

    #[test]
    fn what_was_handed_to_one_that_left_is_dropped() {
        let line = Line::default();
        let seat = line.join();
        let thing = Rc::new(());
        assert!(line.hand(Rc::clone(&thing)).is_none());
        assert_eq!(Rc::strong_count(&thing), 2);
        drop(seat);
        assert_eq!(Rc::strong_count(&thing), 1);
    }
}
