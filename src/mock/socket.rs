//! The three things that std cannot ask of a socket: to be reset, to say that its peer left, and to
//! say within a time that bytes came.
//!
//! Waiting happens here too, so that a wait ends with its connection.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Makes the close of this socket a reset: what is unsent is dropped, the peer sees `ECONNRESET`.
pub(crate) fn reset_on_close(stream: &TcpStream) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_linger(
        stream,
        Some(Duration::ZERO),
    )?)
}

/// Waits until the peer closes or resets, at most `wait`; true if it did. Unread bytes stay unread.
/// A peer that only ends its sending side counts as gone: no client of a gateway does that.
pub(crate) fn peer_leaves_within(stream: &TcpStream, wait: Duration) -> io::Result<bool> {
    polled(stream, PollFlags::RDHUP, wait)
}

/// Lets time pass; true if the connection broke meanwhile. A peer that only ended its sending side
/// does not cut the pause short, since it may still read.
pub(crate) fn breaks_within(stream: &TcpStream, wait: Duration) -> io::Result<bool> {
    polled(stream, PollFlags::empty(), wait)
}

/// Waits for bytes or the end of the connection, at most `wait`; true if something came.
pub(crate) fn readable_within(stream: &TcpStream, wait: Duration) -> io::Result<bool> {
    polled(stream, PollFlags::IN | PollFlags::RDHUP, wait)
}

/// Errors and hang-ups are always reported, asked for or not (poll(2)).
fn polled(stream: &TcpStream, flags: PollFlags, wait: Duration) -> io::Result<bool> {
    let limit = Timespec::try_from(wait).map_err(io::Error::other)?;
    let mut fds = [PollFd::new(stream, flags)];
    let ready = rustix::io::retry_on_intr(|| poll(&mut fds, Some(&limit)))?;
    Ok(ready > 0)
}
