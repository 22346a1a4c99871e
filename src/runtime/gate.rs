//! A bound on how many tasks of one core do something at a time; the others wait in a line.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use crate::runtime::line::Line;

/// Lets `limit` tasks in. Cloning gives another handle to the same gate.
#[derive(Clone)]
pub struct Gate {
    shared: Rc<Shared>,
}

struct Shared {
    free: Cell<usize>,
    // One entry a waiting connection, so the number of connections bounds it.
    line: Line<Pass>,
}

impl Gate {
    /// A gate for `limit` tasks at a time.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let shared = Shared {
            free: Cell::new(limit),
            line: Line::default(),
        };
        Self {
            shared: Rc::new(shared),
        }
    }

    /// Waits for a turn, first come first served.
    pub async fn enter(&self) -> Pass {
        let free = self.shared.free.get();
        match free.checked_sub(1) {
            Some(left) => {
                self.shared.free.set(left);
                Pass {
                    gate: Rc::clone(&self.shared),
                }
            }
            None => self.shared.line.join().await,
        }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("free", &self.shared.free.get())
            .field("waiting", &self.shared.line.len())
            .finish()
    }
}

/// The right to be inside; dropping it lets the next one in.
pub struct Pass {
    gate: Rc<Shared>,
}

impl Drop for Pass {
    fn drop(&mut self) {
        let Shared { free, line } = &*self.gate;
        if line.is_empty() {
            free.set(free.get().saturating_add(1));
        } else {
            let gate = Rc::clone(&self.gate);
            // Somebody waits, so that nothing comes back.
            drop(line.hand(Self { gate }));
        }
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    fn polled<F: Future<Output = Pass>>(entering: Pin<&mut F>) -> Poll<Pass> {
        entering.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_full_gate_lets_the_first_waiter_in_when_one_leaves() {
        let gate = Gate::new(1);
        let Poll::Ready(inside) = polled(pin!(gate.enter())) else {
            unreachable!("there is room")
        };
        let (mut first, mut second) = (pin!(gate.enter()), pin!(gate.enter()));
        assert!(polled(first.as_mut()).is_pending() && polled(second.as_mut()).is_pending());
        drop(inside);
        assert!(polled(second.as_mut()).is_pending());
        let Poll::Ready(inside) = polled(first.as_mut()) else {
            unreachable!("it is its turn")
        };
        drop(inside);
        assert!(polled(second.as_mut()).is_ready());
        assert_eq!(gate.shared.free.get(), 1);
    }

    #[test]
    fn a_turn_that_nobody_takes_goes_to_the_next() {
        let gate = Gate::new(1);
        let inside = polled(pin!(gate.enter()));
        let mut second = pin!(gate.enter());
        {
            let mut first = pin!(gate.enter());
            assert!(polled(first.as_mut()).is_pending());
            assert!(polled(second.as_mut()).is_pending());
            drop(inside);
        }
        assert!(polled(second.as_mut()).is_ready());
        assert!(polled(pin!(gate.enter())).is_ready(), "and is free after");
    }
}
