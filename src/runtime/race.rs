//! Waiting for the first of two things without losing the other.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Which of two futures was ready first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Either<A, B> {
    /// The first one; it is looked at before the second.
    First(A),
    /// The second one.
    Second(B),
}

/// Waits for the first of two futures and drops the other. Only for futures that may be dropped:
/// readiness waits, timers and compositions of these.
pub async fn race<A: Future, B: Future>(a: A, b: B) -> Either<A::Output, B::Output> {
    let mut a = pin!(a);
    let mut b = pin!(b);
    poll_fn(|cx| {
        if let Poll::Ready(value) = a.as_mut().poll(cx) {
            return Poll::Ready(Either::First(value));
        }
        b.as_mut().poll(cx).map(Either::Second)
    })
    .await
}
