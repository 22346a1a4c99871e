//! Futures on the heap.

use std::pin::Pin;

/// A future on the heap, made where it will lie. `Box::pin` makes it on the stack first and then moves all of
/// its state, of which only the arguments are written yet: some kilobytes for a request.
pub fn on_heap<F>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(Box::write(Box::new_uninit(), make()))
}
