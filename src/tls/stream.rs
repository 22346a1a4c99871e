//! A connection, encrypted or not: what lanes and exchanges move bytes over.

use std::io::{self, IoSlice};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::runtime::TcpStream;
use crate::tls::TlsStream;

/// A connection of this core. Both kinds are used in the same way: non-blocking calls, and waits
/// that may be dropped.
#[derive(Debug)]
pub enum Stream {
    /// Bytes as they are on the wire.
    Plain(TcpStream),
    /// Bytes inside TLS.
    Tls(Box<TlsStream>),
}

impl Stream {
    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.socket(),
        }
    }

    /// See [`TcpStream::set_patience`].
    pub fn set_patience(&self, reading: Option<Duration>, writing: Option<Duration>) {
        self.socket().set_patience(reading, writing);
    }

    /// See [`TcpStream::set_read_patience`].
    pub fn set_read_patience(&self, reading: Option<Duration>) {
        self.socket().set_read_patience(reading);
    }

    /// See [`TcpStream::set_write_patience`].
    pub fn set_write_patience(&self, writing: Option<Duration>) {
        self.socket().set_write_patience(writing);
    }

    /// See [`TcpStream::has_hung_up`]. The end of a TLS stream counts with the end of the connection,
    /// which follows it.
    #[must_use]
    pub fn has_hung_up(&self, half_close: bool) -> bool {
        self.socket().has_hung_up(half_close)
    }

    /// Reads what is there; 0 is the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is there yet, what the kernel says, or see
    /// [`TlsStream::try_read`].
    pub fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.try_read(into),
            Self::Tls(stream) => stream.try_read(into),
        }
    }

    /// Looks whether bytes are there (true) or the end (false), and leaves them.
    ///
    /// # Errors
    /// As [`Self::try_read`].
    pub fn look(&self) -> io::Result<bool> {
        match self {
            Self::Plain(socket) => Ok(socket.try_peek(&mut [0])? > 0),
            Self::Tls(stream) => stream.look(),
        }
    }

    /// Writes as much of `parts` as is taken now; what was taken is on its way once
    /// [`Self::try_flush`] says so.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is taken now, or what the kernel says.
    pub fn try_write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.try_write(parts),
            Self::Tls(stream) => stream.try_write(parts),
        }
    }

    /// Gives the socket everything that was written, as far as it takes it; whether it took all.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn try_flush(&self) -> io::Result<bool> {
        match self {
            Self::Plain(_) => Ok(true),
            Self::Tls(stream) => stream.try_flush(),
        }
    }

    /// Ready when a read may give bytes, the end or an error.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(socket) => socket.poll_readable(cx),
            Self::Tls(stream) => stream.poll_readable(cx),
        }
    }

    /// Waits as [`Self::poll_readable`], within the patience for reading.
    ///
    /// # Errors
    /// `TimedOut`, or when the wait itself fails.
    pub async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.readable().await,
            Self::Tls(stream) => stream.readable().await,
        }
    }

    /// Waits for bytes for as long as it takes.
    ///
    /// # Errors
    /// When the wait itself fails.
    pub async fn readable_ever(&self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.readable_ever().await,
            Self::Tls(stream) => stream.readable_ever().await,
        }
    }

    /// Waits until a write may be taken, within the patience for writing.
    ///
    /// # Errors
    /// `TimedOut`, or when the wait itself fails.
    pub async fn writable(&self) -> io::Result<()> {
        self.socket().writable().await
    }

    /// Waits for bytes and reads them; 0 is the end of the stream. May be dropped while it waits.
    ///
    /// # Errors
    /// As [`Self::try_read`], but never `WouldBlock`.
    pub async fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            self.readable().await?;
            match self.try_read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }

    /// Says that the end of the stream, which follows, is meant. Over plain TCP only the end itself
    /// can say it.
    pub fn notify_close(&self) {
        if let Self::Tls(stream) = self {
            stream.notify_close();
        }
    }

    /// Ends the sending direction: the peer reads the end after what was written.
    pub fn shutdown_write(&self) {
        self.notify_close();
        self.socket().shutdown_write();
    }

    /// See [`TcpStream::reset_on_close`].
    pub fn reset_on_close(&self) {
        self.socket().reset_on_close();
    }

    /// Bytes on the wire that the kernel took: see [`TcpStream::written`].
    #[must_use]
    pub fn written(&self) -> u64 {
        self.socket().written()
    }

    /// Bytes on the wire that the peer's kernel has acknowledged: see [`TcpStream::bytes_acked`].
    ///
    /// # Errors
    /// What the kernel says.
    pub fn bytes_acked(&self) -> io::Result<u64> {
        self.socket().bytes_acked()
    }
}
