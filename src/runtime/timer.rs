//! A deadline that is moved far more often than it fires.
//!
//! The runtime's own timers have the alignment of two cache lines. Inside a future they would give it that
//! alignment and several hundred bytes each, and an allocation that the allocator's fast path does not
//! serve. They live on the heap here, and a thread keeps some that are done for what waits next.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;

use crate::clock;
use crate::limits::SPARE_TIMERS;

pin_project! {
    /// An entry of the timer wheel.
    struct Entry {
        #[pin]
        sleep: monoio::time::Sleep,
        // When it fires at the earliest.
        at: Instant,
        // The task that it wakes. The runtime keeps the first one that it was given until the entry fires, so
        // a timer that goes from one task to another (that of a pooled connection) needs a new entry.
        task: Option<Waker>,
        deadline: Option<Instant>,
    }
}

impl Entry {
    fn new() -> Self {
        let at = clock::now();
        Self {
            sleep: monoio::time::sleep_until(at.into()),
            at,
            task: None,
            deadline: None,
        }
    }

    /// Takes it off the wheel.
    fn rest(self: Pin<&mut Self>) {
        let mut entry = self.project();
        let sleep = monoio::time::sleep_until((*entry.at).into());
        entry.sleep.set(sleep);
        *entry.task = None;
        *entry.deadline = None;
    }

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut entry = self.project();
        let Some(deadline) = *entry.deadline else {
            return Poll::Pending;
        };
        let wakes = |task: &Waker| task.will_wake(cx.waker());
        if !entry.task.as_ref().is_some_and(wakes) {
            entry.sleep.set(monoio::time::sleep_until(deadline.into()));
            *entry.at = deadline;
            *entry.task = Some(cx.waker().clone());
        }
        loop {
            let fired = entry.sleep.as_mut().poll(cx).is_ready();
            if fired && clock::now() >= deadline {
                return Poll::Ready(());
            }
            if !fired && *entry.at <= deadline {
                return Poll::Pending;
            }
            *entry.at = deadline;
            entry.sleep.as_mut().reset(deadline.into());
        }
    }
}

thread_local! {
    /// Entries that are off the wheel, for the runtime of this thread.
    static SPARE: RefCell<Vec<Pin<Box<Entry>>>> = const { RefCell::new(Vec::new()) };
}

/// Lets the entries go that are kept. They belong to the runtime that ends now.
pub(super) fn forget_spare() {
    drop(SPARE.take());
}

/// One timer of a connection. Moving the deadline later costs nothing: the entry in the timer
/// wheel is left where it is and put right when it fires.
pub struct Timer {
    /// There until the timer is dropped.
    entry: Option<Pin<Box<Entry>>>,
}

impl Timer {
    /// A timer that is off. Must be made on a thread that runs a runtime.
    #[must_use]
    pub fn new() -> Self {
        let spare = SPARE.with_borrow_mut(Vec::pop);
        Self {
            entry: Some(spare.unwrap_or_else(|| Box::pin(Entry::new()))),
        }
    }

    /// Sets the deadline, or turns the timer off.
    pub fn set(&mut self, deadline: Option<Instant>) {
        if let Some(entry) = &mut self.entry {
            *entry.as_mut().project().deadline = deadline;
        }
    }

    /// Ready when the deadline has passed; never while the timer is off.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.entry {
            Some(entry) => entry.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }

    /// Waits for the deadline; for ever while the timer is off.
    pub async fn expired(&mut self) {
        std::future::poll_fn(|cx| self.poll(cx)).await;
    }

    fn deadline(&self) -> Option<Instant> {
        self.entry.as_ref()?.deadline
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let Some(mut entry) = self.entry.take() else {
            return;
        };
        // May drop the task, and with it other timers.
        entry.as_mut().rest();
        // Gone at the end of the thread, when there is nothing to keep an entry for.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_TIMERS {
                spare.push(entry);
            }
        });
    }
}

/// Waits for `duration`; granularity 1 ms.
pub async fn sleep(duration: Duration) {
    let mut timer = Timer::new();
    // Beyond what a clock can say: for ever.
    timer.set(clock::now().checked_add(duration));
    timer.expired().await;
}

impl Default for Timer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer")
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{Driver, Either, block_on, race, spawn};
    use std::future::poll_fn;
    use std::rc::Rc;

    /// Hour of the other deadlines: one that fires instead would not be seen as this.
    const NEVER: Duration = Duration::from_secs(3600);
    const SOON: Duration = Duration::from_millis(5);

    fn on_both(test: impl AsyncFn()) {
        block_on(Driver::Epoll, test()).unwrap();
        if Driver::detect() == Driver::IoUring {
            block_on(Driver::IoUring, test()).unwrap();
        }
    }

    /// Looks at the timer once.
    async fn look(timer: &RefCell<Timer>) {
        poll_fn(|cx| {
            assert!(timer.borrow_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
    }

    #[test]
    fn a_timer_wakes_the_task_that_waits_and_not_the_one_before() {
        on_both(async || {
            let timer = Rc::new(RefCell::new(Timer::new()));
            for deadline in [NEVER, SOON] {
                timer.borrow_mut().set(Some(clock::now() + deadline));
                let (theirs, done) = (Rc::clone(&timer), Rc::new(RefCell::new(Timer::new())));
                let looked = Rc::clone(&done);
                spawn(async move {
                    look(&theirs).await;
                    looked.borrow_mut().set(Some(clock::now()));
                });
                while done.borrow().deadline().is_none() {
                    sleep(SOON).await;
                }
            }
            timer.borrow_mut().set(Some(clock::now() + SOON));
            let fires = poll_fn(|cx| timer.borrow_mut().poll(cx));
            let missed = sleep(Duration::from_secs(10));
            assert_eq!(race(fires, missed).await, Either::First(()));
        });
    }

    #[test]
    fn a_timer_that_was_used_before_is_as_a_new_one() {
        on_both(async || {
            for before in [None, Some(NEVER), Some(SOON)] {
                let used = RefCell::new(Timer::new());
                used.borrow_mut()
                    .set(before.map(|before| clock::now() + before));
                look(&used).await;
                drop(used);
                assert!(SPARE.with_borrow(|spare| !spare.is_empty()));
                let (began, mut timer) = (clock::now(), Timer::new());
                look(&RefCell::new(Timer::new())).await;
                timer.set(Some(began + SOON));
                timer.expired().await;
                assert!(clock::now() >= began + SOON);
            }
        });
    }

    #[test]
    fn few_are_kept_and_none_beyond_the_runtime() {
        on_both(async || {
            let many: Vec<Timer> = (0..SPARE_TIMERS + 2).map(|_| Timer::new()).collect();
            drop(many);
            assert_eq!(SPARE.with_borrow(Vec::len), SPARE_TIMERS);
        });
        assert_eq!(SPARE.with_borrow(Vec::len), 0);
    }
}
