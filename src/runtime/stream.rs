//! One TCP connection: non-blocking reads and writes, and readiness waits that stay armed.

#![expect(
    unsafe_code,
    reason = "lends the runtime's descriptor to system-call wrappers"
)]

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};

use crate::clock;
use crate::limits::JOINED_WRITE_BYTES;
use crate::runtime::{Accepted, Timer};

type Inner = Rc<monoio::net::TcpStream>;

/// A connected TCP socket of this core. Reading and writing borrow it shared, so that both
/// directions can be waited for at once, by one task.
pub struct TcpStream {
    inner: Inner,
    reading: RefCell<Side>,
    writing: RefCell<Side>,
    /// Bytes that the kernel took.
    written: Cell<u64>,
    /// What the kernel counted as acknowledged before the first of them.
    acked_at_start: u64,
}

/// One direction: its wait in the kernel, and how long a wait may last.
#[derive(Default)]
struct Side {
    armed: Option<Box<dyn Readiness>>,
    timer: Option<Timer>,
    patience: Option<Duration>,
}

impl Side {
    /// Sets the clock of a wait that begins now.
    fn begin(&mut self) {
        let deadline = self.patience.map(|patience| clock::now() + patience);
        if deadline.is_some() || self.timer.is_some() {
            self.timer.get_or_insert_default().set(deadline);
        }
    }

    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        self.timer
            .as_mut()
            .is_some_and(|timer| timer.poll(cx).is_ready())
    }
}

impl TcpStream {
    fn new(inner: monoio::net::TcpStream) -> Self {
        Self {
            inner: Rc::new(inner),
            reading: RefCell::default(),
            writing: RefCell::default(),
            written: Cell::new(0),
            acked_at_start: 0,
        }
    }

    /// A connection that was accepted; must run on the core that will serve it.
    ///
    /// # Errors
    /// When the driver does not take it.
    pub fn adopt(accepted: Accepted) -> io::Result<Self> {
        monoio::net::TcpStream::from_std(accepted.0).map(Self::new)
    }

    /// From now on a wait for bytes or for room ends with `TimedOut` after this time without
    /// either; none waits for ever. [`Self::poll_readable`] is not concerned.
    pub fn set_patience(&self, reading: Option<Duration>, writing: Option<Duration>) {
        self.reading.borrow_mut().patience = reading;
        self.writing.borrow_mut().patience = writing;
    }

    /// As [`Self::set_patience`], for bytes only.
    pub fn set_read_patience(&self, reading: Option<Duration>) {
        self.reading.borrow_mut().patience = reading;
    }

    /// As [`Self::set_patience`], for room only.
    pub fn set_write_patience(&self, writing: Option<Duration>) {
        self.writing.borrow_mut().patience = writing;
    }

    /// Whether the peer has gone: reset, or closed in both directions, or ended its sending direction
    /// where `half_close` says that this counts. Bytes that nobody has read do not hide it.
    #[must_use]
    pub fn has_hung_up(&self, half_close: bool) -> bool {
        let end = if half_close {
            PollFlags::RDHUP
        } else {
            PollFlags::empty()
        };
        let descriptor = self.fd();
        let mut asked = [PollFd::new(&descriptor, end)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // A failed look is no news; the next use of the socket brings it.
        poll(&mut asked, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Connects to `address`; Nagle's algorithm is off. May be dropped while it waits.
    ///
    /// # Errors
    /// What the kernel says.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        let inner = monoio::net::TcpStream::connect_addr(address).await?;
        inner.set_nodelay(true)?;
        let mut stream = Self::new(inner);
        stream.acked_at_start = super::tcp_info::bytes_acked(stream.fd())?;
        Ok(stream)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: `inner` owns the descriptor and is not closed before it is dropped, which the
        // borrow of `self` forbids; descriptors of a socket are never -1.
        unsafe { BorrowedFd::borrow_raw(self.inner.as_raw_fd()) }
    }

    /// Reads what is there; 0 is the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is there yet, or what the kernel says.
    pub fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        let (read, _) = rustix::net::recv(self.fd(), into, RecvFlags::DONTWAIT)?;
        Ok(read)
    }

    /// Looks at what is there and leaves it.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is there yet, or what the kernel says.
    pub fn try_peek(&self, into: &mut [u8]) -> io::Result<usize> {
        let flags = RecvFlags::DONTWAIT.union(RecvFlags::PEEK);
        let (seen, _) = rustix::net::recv(self.fd(), into, flags)?;
        Ok(seen)
    }

    /// Writes as much of `parts` as the socket takes.
    ///
    /// # Errors
    /// `WouldBlock` when it takes nothing now, or what the kernel says.
    pub fn try_write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
        let total = parts.iter().map(|part| part.len()).sum();
        let count = match parts {
            [one] => rustix::net::send(self.fd(), one, flags)?,
            _ if total <= JOINED_WRITE_BYTES => {
                let mut joined = [0_u8; JOINED_WRITE_BYTES];
                let joined = joined.get_mut(..total).unwrap_or_default();
                join(parts, joined);
                rustix::net::send(self.fd(), joined, flags)?
            }
            _ => {
                let mut no_control = SendAncillaryBuffer::default();
                rustix::net::sendmsg(self.fd(), parts, &mut no_control, flags)?
            }
        };
        self.written.set(self.written.get() + count as u64);
        Ok(count)
    }

    /// Bytes that the kernel took over the life of this connection.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written.get()
    }

    /// Ready when a read would give bytes, the end or an error. The wait stays armed in the kernel
    /// when the caller goes away, and serves the next caller.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let armed = &mut self.reading.borrow_mut().armed;
        armed
            .get_or_insert_with(|| {
                arm(Rc::clone(&self.inner), |inner| async move {
                    inner.readable(false).await
                })
            })
            .poll(cx)
    }

    /// Ready when a write would take bytes or give an error.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let armed = &mut self.writing.borrow_mut().armed;
        armed
            .get_or_insert_with(|| {
                arm(Rc::clone(&self.inner), |inner| async move {
                    inner.writable(false).await
                })
            })
            .poll(cx)
    }

    /// Waits as [`Self::poll_readable`], within the patience for reading.
    ///
    /// # Errors
    /// `TimedOut`, or when the wait itself fails.
    pub async fn readable(&self) -> io::Result<()> {
        self.reading.borrow_mut().begin();
        poll_fn(|cx| match self.poll_readable(cx) {
            Poll::Pending if self.reading.borrow_mut().is_late(cx) => late(),
            polled => polled,
        })
        .await
    }

    /// Waits as [`Self::poll_writable`], within the patience for writing.
    ///
    /// # Errors
    /// `TimedOut`, or when the wait itself fails.
    pub async fn writable(&self) -> io::Result<()> {
        self.writing.borrow_mut().begin();
        poll_fn(|cx| match self.poll_writable(cx) {
            Poll::Pending if self.writing.borrow_mut().is_late(cx) => late(),
            polled => polled,
        })
        .await
    }

    /// Waits for bytes for as long as it takes.
    ///
    /// # Errors
    /// When the wait itself fails.
    pub async fn readable_ever(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_readable(cx)).await
    }

    /// Waits for bytes and reads them; 0 is the end of the stream. May be dropped while it waits.
    ///
    /// # Errors
    /// What the kernel says.
    pub async fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            self.readable().await?;
            match self.try_read(into) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }

    /// Ends the sending direction: the peer reads the end after what was written.
    pub fn shutdown_write(&self) {
        // A socket that the peer already reset has nothing left to end.
        let _reset_before = rustix::net::shutdown(self.fd(), Shutdown::Write);
    }

    /// Makes the close that follows a reset, which no peer can take for a clean end.
    pub fn reset_on_close(&self) {
        let _gone_before = rustix::net::sockopt::set_socket_linger(self.fd(), Some(Duration::ZERO));
    }

    /// How many of the bytes [`Self::written`] the peer's kernel has acknowledged (`tcpi_bytes_acked`,
    /// RFC 4898 tcpEStatsAppHCThruOctetsAcked, without the SYN); of a connection that this side opened.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn bytes_acked(&self) -> io::Result<u64> {
        let acked = super::tcp_info::bytes_acked(self.fd())?;
        Ok(acked.saturating_sub(self.acked_at_start))
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpStream").finish_non_exhaustive()
    }
}

/// Copies `parts` one behind the other.
fn join(parts: &[IoSlice<'_>], mut into: &mut [u8]) {
    for part in parts {
        let (here, behind) = into.split_at_mut(part.len().min(into.len()));
        here.copy_from_slice(part.get(..here.len()).unwrap_or_default());
        into = behind;
    }
}

fn late() -> Poll<io::Result<()>> {
    Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
}

/// A readiness wait that starts when it is first asked and survives the asker.
trait Readiness {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

struct Armed<M, F> {
    inner: Inner,
    make: M,
    wait: Pin<Box<Option<F>>>,
}

fn arm<M, F>(inner: Inner, make: M) -> Box<dyn Readiness>
where
    M: Fn(Inner) -> F + 'static,
    F: Future<Output = io::Result<()>> + 'static,
{
    Box::new(Armed {
        inner,
        make,
        wait: Box::pin(None),
    })
}

impl<M, F> Readiness for Armed<M, F>
where
    M: Fn(Inner) -> F,
    F: Future<Output = io::Result<()>>,
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if let Some(wait) = self.wait.as_mut().as_pin_mut() {
                let polled = wait.poll(cx);
                if polled.is_ready() {
                    self.wait.set(None);
                }
                return polled;
            }
            let wait = (self.make)(Rc::clone(&self.inner));
            self.wait.set(Some(wait));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{Driver, block_on, sleep};
    use std::io::Read;
    use std::net::TcpListener;

    /// What the peer reads of `pieces`, and how many bytes counted as written and as acknowledged.
    fn sent(driver: Driver, pieces: &[&[u8]]) -> (Vec<u8>, u64, u64) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let total: usize = pieces.iter().map(|piece| piece.len()).sum();
        let peer = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut read = vec![0; total];
            socket.read_exact(&mut read).unwrap();
            read
        });
        let (written, acked) = block_on(driver, async {
            let stream = TcpStream::connect(address).await.unwrap();
            assert_eq!((stream.written(), stream.bytes_acked().unwrap()), (0, 0));
            let parts: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            assert_eq!(stream.try_write(&parts).unwrap(), total);
            while stream.bytes_acked().unwrap() < total as u64 {
                sleep(Duration::from_millis(1)).await;
            }
            (stream.written(), stream.bytes_acked().unwrap())
        })
        .unwrap();
        (peer.join().unwrap(), written, acked)
    }

    #[test]
    fn pieces_arrive_in_order_and_are_counted_however_long_they_are() {
        let longest = [b'x'; JOINED_WRITE_BYTES];
        for driver in [Driver::IoUring, Driver::Epoll] {
            for middle in [&[][..], b"bc", &longest[..JOINED_WRITE_BYTES - 2], &longest] {
                let pieces = [b"a", middle, b"", b"z"];
                let total = middle.len() as u64 + 2;
                assert_eq!(sent(driver, &pieces), (pieces.concat(), total, total));
            }
        }
    }
}
