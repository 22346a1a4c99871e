//! The one module that knows the runtime: driver choice, sockets, timers, tasks.
//!
//! Bytes are moved by waiting for **readiness** on the ring (or on epoll) and then reading or
//! writing with a plain non-blocking system call. A read that was given up can therefore never
//! have swallowed bytes, no buffer is ever parked in the kernel, and a readiness wait stays armed
//! from one use of a connection to the next, so that a waiting exchange costs one ring entry and
//! not one per event. docs/decisions/0001-readiness.md has the measurements.

mod bell;
mod descriptors;
mod gate;
mod heap;
mod line;
mod listener;
mod race;
mod stop;
mod stream;
mod tcp_info;
mod timer;

pub use bell::{Bell, Clapper, Ringer, bell};
pub use descriptors::{descriptors_max, is_descriptor_shortage, raise_descriptors};
pub use gate::{Gate, Pass};
pub use heap::on_heap;
pub use line::{Line, Seat};
pub use listener::{Accepted, Listener, bind};
pub use race::{Either, race};
pub use stop::Stop;
pub use stream::TcpStream;
pub use timer::{Timer, sleep};

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::io;
use std::time::Duration;

/// Which kernel interface waits for readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// io_uring.
    IoUring,
    /// epoll, where the ring is forbidden or not wanted.
    Epoll,
}

impl Driver {
    /// The ring where this process may use it, epoll elsewhere.
    #[must_use]
    pub fn detect() -> Self {
        if monoio::utils::detect_uring() {
            Self::IoUring
        } else {
            Self::Epoll
        }
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IoUring => "io_uring",
            Self::Epoll => "epoll",
        })
    }
}

/// Runs `main` to its end on a runtime that belongs to the calling thread.
///
/// # Errors
/// When the kernel refuses the driver, such as a ring under a seccomp filter.
pub fn block_on<F: Future>(driver: Driver, main: F) -> io::Result<F::Output> {
    DRIVER.set(driver);
    let ended = match driver {
        Driver::IoUring => ring()?.block_on(main),
        Driver::Epoll => monoio::RuntimeBuilder::<monoio::LegacyDriver>::new()
            .enable_timer()
            .build()?
            .block_on(main),
    };
    // The runtime and its tasks are gone: what they left would never fire on the next one.
    timer::forget_spare();
    Ok(ended)
}

type Ring = monoio::Runtime<monoio::time::TimeDriver<monoio::IoUringDriver>>;

/// A ring whose completions wait until this thread asks for them (Linux 6.1), else one that interrupts
/// it: with peers on other cores each event would cost an interrupt of this one.
fn ring() -> io::Result<Ring> {
    let build = |ring| {
        monoio::RuntimeBuilder::<monoio::IoUringDriver>::new()
            .uring_builder(ring)
            .enable_timer()
            .build()
    };
    let mut deferred = io_uring::IoUring::builder();
    deferred.setup_single_issuer().setup_defer_taskrun();
    build(deferred).or_else(|_| build(io_uring::IoUring::builder()))
}

/// Starts a task on this thread's runtime. It ends with the runtime if not before.
pub fn spawn(task: impl Future<Output = ()> + 'static) {
    drop(monoio::spawn(task));
}

thread_local! {
    static DRIVER: Cell<Driver> = const { Cell::new(Driver::Epoll) };
}

/// Lets everything else on this core have a turn. A timer and not a self-wake: a task that wakes
/// itself is put in front of all others by this runtime.
pub async fn turn() {
    sleep(Duration::from_millis(1)).await;
}

/// As [`turn`], where a wait for readiness would not give one: epoll remembers readiness, and a wait
/// for what is there already is over at once.
pub async fn turn_after_burst() {
    if DRIVER.get() == Driver::Epoll {
        turn().await;
    }
}
