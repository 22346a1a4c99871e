//! Bounds on memory and on peers, and how `memory_bytes` is shared out.
//!
//! Responses come first: an exchange that was admitted must be able to finish, so that each
//! connection has one block which requests cannot take. Requests and reservations get half each of
//! the rest. Reservations are for bodies that have to be held until their model is known; a file is
//! refused in which the largest body could not be.

use std::ops::RangeInclusive;

use crate::config::file::Value;
use crate::config::quantity::show_size;
use crate::config::read::{self, Reader, Section};
use crate::http1::head::FIELDS_MAX;
use crate::limits::BLOCK_BYTES;

/// Full windows that the request pool must hold, so that a few slow uploads cannot use all of it.
const WINDOWS_MIN: u64 = 16;

/// Bounds on memory and on peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request head, 4 KiB to 1 MiB. Default 64 KiB: common servers stop at
    /// 8 to 32 KiB, and agents add trace and beta headers to what those allow.
    pub head_bytes: usize,
    /// Fields of a request head, 1 to 256. Default 200: twice what common HTTP libraries take.
    pub head_fields: usize,
    /// Bytes of a request body. Default 32 MiB: the request limit of the Anthropic Messages API,
    /// the largest of the dialects served.
    pub body_bytes: u64,
    /// Bytes of a body that one exchange holds at a time, 16 KiB to 16 MiB. Default 256 KiB: most
    /// agent requests fit, and larger ones fill the socket buffers of both sides.
    pub window_bytes: usize,
    /// Bytes of all request and response buffers, shared out by [`Limits::memory`]. Default
    /// 512 MiB: room for the responses of `connections`, for seven hundred full windows and for
    /// five bodies of the largest size that have to be held.
    pub memory_bytes: u64,
    /// Client connections at a time. Default 10000: their response buffers come to 157 MiB.
    pub connections: usize,
    /// TLS handshakes at a time on each core with clients, and as many with providers; further ones
    /// wait their turn within `timeouts.handshake`. Default 256: each is about a millisecond of a
    /// core and 40 KiB, and a storm of clients that come back must not stand in the way of streams.
    pub handshakes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes: 64 << 10,
            head_fields: 200,
            body_bytes: 32 << 20,
            window_bytes: 256 << 10,
            memory_bytes: 512 << 20,
            connections: 10_000,
            handshakes: 256,
        }
    }
}

/// The parts of [`Limits::memory_bytes`], in bytes. In a configuration that was accepted they add
/// up to it, an odd byte aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySplit {
    /// One block for each connection, which nothing else can take.
    pub responses: u64,
    /// Heads, and the windows of bodies that stream. At least 16 full windows.
    pub requests: u64,
    /// Bodies that are held until what decides about them was read. At least the largest body and
    /// one window.
    pub reservations: u64,
}

impl Limits {
    /// Shares out the memory.
    #[must_use]
    pub fn memory(&self) -> MemorySplit {
        let responses = wide(self.connections).saturating_mul(wide(BLOCK_BYTES));
        let rest = self.memory_bytes.saturating_sub(responses);
        MemorySplit {
            responses,
            requests: rest / 2,
            reservations: rest / 2,
        }
    }
}

/// Cannot fail on the targets of this program.
fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

pub(super) fn read(reader: &mut Reader, section: &Section<'_>) -> Limits {
    let default = Limits::default();
    let mut small = |key, default: usize, read: &dyn Fn(&Value) -> Result<u64, String>| {
        let value = reader.take(section, key, read);
        value
            .and_then(|value| usize::try_from(value).ok())
            .unwrap_or(default)
    };
    let bytes = |range: RangeInclusive<u64>| move |value: &Value| read::size(range.clone())(value);
    let count = |range: RangeInclusive<u64>| move |value: &Value| read::count(range.clone())(value);
    let head_bytes = small("head_bytes", default.head_bytes, &bytes(4 << 10..=1 << 20));
    let head_fields = small(
        "head_fields",
        default.head_fields,
        &count(1..=FIELDS_MAX as u64),
    );
    let window_bytes = small(
        "window_bytes",
        default.window_bytes,
        &bytes(16 << 10..=16 << 20),
    );
    let connections = small("connections", default.connections, &count(1..=1_000_000));
    let handshakes = small("handshakes", default.handshakes, &count(1..=100_000));
    let mut large = |key, default| {
        reader
            .take(section, key, read::size(64 << 10..=1 << 40))
            .unwrap_or(default)
    };
    let body_bytes = large("body_bytes", default.body_bytes);
    let memory_bytes = large("memory_bytes", default.memory_bytes);
    let limits = Limits {
        head_bytes,
        head_fields,
        body_bytes,
        window_bytes,
        memory_bytes,
        connections,
        handshakes,
    };
    relate(reader, section, limits);
    limits
}

/// The sums that have to come out.
fn relate(reader: &mut Reader, section: &Section<'_>, limits: Limits) {
    // In the place of what was refused there is a default that nobody wrote.
    if reader.has_refused(section, &["window_bytes", "body_bytes"]) {
        return;
    }
    let (window, body) = (wide(limits.window_bytes), limits.body_bytes);
    if window > body {
        let what = format!(
            "one window of {} is larger than the largest body: raise body_bytes ({}) or lower \
             window_bytes",
            section.written("window_bytes", show_size(window)),
            section.written("body_bytes", show_size(body))
        );
        let line = section.line_of(&["window_bytes", "body_bytes"]);
        reader.fail(line, section.path_of("window_bytes"), what);
    }
    let split = limits.memory();
    let windows = window.saturating_mul(WINDOWS_MIN);
    let held = body.saturating_add(window);
    let needed = held.max(windows);
    // The halves are alike, so that what binds is the larger need.
    if split.reservations >= needed || reader.has_refused(section, &["memory_bytes"]) {
        return;
    }
    let reason = if needed == held {
        format!(
            "the largest body {} + one window {} = {}, because a body whose model comes last \
             must fit",
            show_size(body),
            show_size(window),
            show_size(held)
        )
    } else {
        format!(
            "{WINDOWS_MIN} windows x {} = {}, because a few slow uploads must not use all of it",
            show_size(window),
            show_size(windows)
        )
    };
    let smallest = needed.saturating_mul(2).saturating_add(split.responses);
    let what = format!(
        "{} less {} connections x {} response buffer leaves {}; half of that, {}, has to hold \
         {reason}: raise memory_bytes to at least {}, or lower body_bytes, window_bytes or \
         connections",
        show_size(limits.memory_bytes),
        limits.connections,
        show_size(wide(BLOCK_BYTES)),
        show_size(limits.memory_bytes.saturating_sub(split.responses)),
        show_size(split.reservations),
        show_size(smallest)
    );
    let keys = ["memory_bytes", "body_bytes", "window_bytes", "connections"];
    reader.fail(
        section.line_of(&keys),
        section.path_of("memory_bytes"),
        what,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_memory_is_shared_out() {
        let split = Limits::default().memory();
        assert_eq!(split.responses, 10_000 * 16_384);
        assert_eq!(split.requests, (512 * 1_048_576 - 10_000 * 16_384) / 2);
        assert_eq!(split.reservations, split.requests);
    }

    #[test]
    fn parts_add_up_to_the_memory() {
        for (memory_bytes, connections) in [
            (512 << 20, 1),
            ((512 << 20) + 1, 10_000),
            (16_384, 1),
            (16_385, 1),
            (16_386, 1),
            (u64::MAX, 1_000_000),
        ] {
            let split = Limits {
                memory_bytes,
                connections,
                ..Limits::default()
            }
            .memory();
            let sum = u128::from(split.responses)
                + u128::from(split.requests)
                + u128::from(split.reservations);
            assert_eq!(split.requests, split.reservations);
            assert_eq!(sum, u128::from(memory_bytes & !1), "{split:?}");
        }
    }

    #[test]
    fn more_connections_than_memory_leave_nothing_for_requests() {
        let limits = Limits {
            memory_bytes: 1 << 20,
            connections: 65,
            ..Limits::default()
        };
        let split = limits.memory();
        assert_eq!((split.requests, split.reservations), (0, 0));
        let unreal = Limits {
            connections: usize::MAX,
            ..limits
        };
        assert_eq!(unreal.memory().responses, u64::MAX);
    }
}
