//! The signal of one core that it is time to stop.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Tells every idle task of a core to end. Cloning gives another handle to the same signal.
#[derive(Clone, Default)]
pub struct Stop {
    shared: Rc<Shared>,
}

#[derive(Default)]
struct Shared {
    stopping: Cell<bool>,
    // One slot a waiting connection, so the number of connections bounds it.
    waiting: RefCell<Vec<Option<Waker>>>,
    free: RefCell<Vec<usize>>,
}

/// Gives a waiter's slot back even when its future is dropped.
struct Seat<'a> {
    shared: &'a Shared,
    index: usize,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.shared.waiting.borrow_mut().get_mut(self.index) {
            *slot = None;
        }
        self.shared.free.borrow_mut().push(self.index);
    }
}

impl Stop {
    /// Whether the signal was given.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.shared.stopping.get()
    }

    /// Gives the signal; it stays given.
    pub fn set(&self) {
        self.shared.stopping.set(true);
        for slot in self.shared.waiting.borrow_mut().iter_mut() {
            if let Some(waker) = slot.take() {
                waker.wake();
            }
        }
    }

    /// Waits for the signal.
    pub async fn wait(&self) {
        let seat = self.seat();
        poll_fn(|cx| {
            if self.is_set() {
                return Poll::Ready(());
            }
            if let Some(slot) = self.shared.waiting.borrow_mut().get_mut(seat.index) {
                match slot {
                    Some(waker) if waker.will_wake(cx.waker()) => {}
                    _ => *slot = Some(cx.waker().clone()),
                }
            }
            Poll::Pending
        })
        .await;
    }

    fn seat(&self) -> Seat<'_> {
        let free = self.shared.free.borrow_mut().pop();
        let index = free.unwrap_or_else(|| {
            let mut waiting = self.shared.waiting.borrow_mut();
            waiting.push(None);
            waiting.len() - 1
        });
        Seat {
            shared: &self.shared,
            index,
        }
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stop")
            .field("stopping", &self.is_set())
            .finish_non_exhaustive()
    }
}
