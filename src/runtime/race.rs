//! Waiting for the first of two things without losing the other.

use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

/// Which of two futures was ready first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Either<A, B> {
    /// The first one; it is looked at before the second.
    First(A),
    /// The second one.
    Second(B),
}

pin_project! {
    /// What [`race`] waits with. A type of its own and not an `async fn`: that one would hold both futures
    /// twice, as arguments and as what is waited for, in the state of every connection.
    #[derive(Debug)]
    #[must_use = "a race that is not awaited is not run"]
    pub struct Race<A, B> {
        #[pin]
        first: A,
        #[pin]
        second: B,
    }
}

/// Waits for the first of two futures and drops the other. Only for futures that may be dropped:
/// readiness waits, timers and compositions of these.
pub const fn race<A: Future, B: Future>(first: A, second: B) -> Race<A, B> {
    Race { first, second }
}

impl<A: Future, B: Future> Future for Race<A, B> {
    type Output = Either<A::Output, B::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let race = self.project();
        if let Poll::Ready(value) = race.first.poll(cx) {
            return Poll::Ready(Either::First(value));
        }
        race.second.poll(cx).map(Either::Second)
    }
}
