//! One encrypted connection, moved by readiness like a plain one.
//!
//! Every call borrows the session for its own length only, so that one task may wait in both
//! directions. Ciphertext waits in the session only while the socket takes none; plaintext only
//! while nobody reads it, and then no more is taken from the socket.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::io::{self, BufRead, ErrorKind, IoSlice, Read, Write};
use std::task::{Context, Poll};

use rustls::{CertificateError, Connection, Error};

use crate::limits::{TLS_READS, TLS_SEND_BYTES};
use crate::runtime::TcpStream;

/// Why no encrypted connection came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeError {
    /// The peer's certificate is not valid any more, or not yet.
    Expired,
    /// The peer's certificate is for other names.
    Name,
    /// The peer's certificate comes from nobody who is believed.
    Issuer,
    /// The peer ended the connection, does not speak TLS, or nothing that both sides speak.
    Protocol,
}

impl From<Error> for HandshakeError {
    fn from(error: Error) -> Self {
        let Error::InvalidCertificate(reason) = error else {
            return Self::Protocol;
        };
        match reason {
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => Self::Expired,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Self::Name
            }
            // The second: an authority of the same name with another key, as after it was renewed.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::Issuer,
            _ => Self::Protocol,
        }
    }
}

/// A connection whose handshake is over.
pub struct TlsStream {
    socket: TcpStream,
    session: RefCell<Connection>,
    /// What came cannot be decrypted: every later read fails too.
    broken: Cell<bool>,
}

impl TlsStream {
    pub(super) fn new(socket: TcpStream, mut session: Connection) -> Self {
        session.set_buffer_limit(Some(TLS_SEND_BYTES));
        Self {
            socket,
            session: RefCell::new(session),
            broken: Cell::new(false),
        }
    }

    pub(super) async fn shake_hands(&self) -> Result<(), HandshakeError> {
        let gone = |_| HandshakeError::Protocol;
        loop {
            self.flush().await.map_err(gone)?;
            if !self.session.borrow().is_handshaking() {
                return Ok(());
            }
            self.socket.readable().await.map_err(gone)?;
            match self.receive() {
                Ok(0) => return Err(HandshakeError::Protocol),
                Ok(_) => {}
                Err(ReceiveError::Socket(error)) if error.kind() == ErrorKind::WouldBlock => {}
                Err(ReceiveError::Socket(error)) => return Err(gone(error)),
                Err(ReceiveError::Session(error)) => return Err(error),
            }
        }
    }

    /// The connection beneath.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Reads what is there; 0 is an end that the peer meant.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is there yet, `UnexpectedEof` at an end without `close_notify`,
    /// `InvalidData` when what came is no TLS, or what the kernel says.
    pub fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        self.fill()?;
        self.session.borrow_mut().reader().read(into)
    }

    /// Looks whether bytes are there (true) or the end (false), and leaves them. What is not for
    /// the reader, such as tickets for later sessions, is dealt with.
    ///
    /// # Errors
    /// As [`Self::try_read`].
    pub fn look(&self) -> io::Result<bool> {
        self.fill()?;
        self.decrypted()
    }

    /// Whether plaintext (true) or the end (false) waits for the reader; `WouldBlock` if neither.
    fn decrypted(&self) -> io::Result<bool> {
        if self.broken.get() {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut session = self.session.borrow_mut();
        let plaintext = !session.reader().fill_buf()?.is_empty();
        Ok(plaintext)
    }

    /// Whether a read would not wait for the socket.
    fn has_something(&self) -> bool {
        !self
            .decrypted()
            .is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// Takes ciphertext until there is something for the reader: plaintext or the end.
    fn fill(&self) -> io::Result<()> {
        for _ in 0..TLS_READS {
            match self.decrypted() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                something => return something.map(drop),
            }
            self.receive().map_err(|error| match error {
                ReceiveError::Socket(error) => error,
                // Said without a word of the peer's.
                ReceiveError::Session(_) => ErrorKind::InvalidData.into(),
            })?;
        }
        Err(ErrorKind::WouldBlock.into())
    }

    /// Takes ciphertext once and decrypts it; 0 is the end of the socket's stream. What the session
    /// has to say about it, such as an alert, is written if there is room.
    fn receive(&self) -> Result<usize, ReceiveError> {
        let mut session = self.session.borrow_mut();
        let taken = session.read_tls(&mut Socket(&self.socket));
        let taken = taken.map_err(ReceiveError::Socket)?;
        let decrypted = session.process_new_packets();
        drop(session);
        // A socket that takes nothing now, or never again, shows at the next write.
        let _shown_later = self.try_flush();
        match decrypted {
            Ok(_) => Ok(taken),
            Err(error) => {
                self.broken.set(true);
                Err(ReceiveError::Session(error.into()))
            }
        }
    }

    /// Encrypts as much of `parts` as may wait, and gives the socket as much of that as it takes.
    /// Before a caller relies on the bytes being on their way it has to [`Self::flush`].
    ///
    /// # Errors
    /// `WouldBlock` when the socket does not even take what was encrypted before, or what the
    /// kernel says.
    pub fn try_write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.try_flush()? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let taken = self.session.borrow_mut().writer().write_vectored(parts)?;
        self.try_flush()?;
        Ok(taken)
    }

    /// Waits until the socket has taken everything that was encrypted. May be dropped while it
    /// waits.
    ///
    /// # Errors
    /// `TimedOut`, or what the kernel says.
    pub async fn flush(&self) -> io::Result<()> {
        while !self.try_flush()? {
            self.socket.writable().await?;
        }
        Ok(())
    }

    /// Gives the socket what is encrypted; whether it took everything.
    pub(super) fn try_flush(&self) -> io::Result<bool> {
        let mut session = self.session.borrow_mut();
        while session.wants_write() {
            match session.write_tls(&mut Socket(&self.socket)) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Ready when a read may give bytes, the end or an error: it may also find that what came was
    /// not for the reader.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.has_something() {
            return Poll::Ready(Ok(()));
        }
        self.socket.poll_readable(cx)
    }

    /// Waits as [`Self::poll_readable`], within the socket's patience.
    ///
    /// # Errors
    /// `TimedOut`, or when the wait itself fails.
    pub async fn readable(&self) -> io::Result<()> {
        if self.has_something() {
            return Ok(());
        }
        self.socket.readable().await
    }

    /// Waits as [`Self::poll_readable`] for as long as it takes.
    ///
    /// # Errors
    /// When the wait itself fails.
    pub async fn readable_ever(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_readable(cx)).await
    }

    /// Tells the peer that no more bytes follow, so that the end of the stream is no cut.
    pub fn notify_close(&self) {
        self.session.borrow_mut().send_close_notify();
        // One record: it fits, unless the peer stopped reading and will not see any end.
        let _not_taken = self.try_flush();
    }
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream").finish_non_exhaustive()
    }
}

enum ReceiveError {
    Socket(io::Error),
    Session(HandshakeError),
}

/// The socket as the session wants it.
struct Socket<'a>(&'a TcpStream);

impl Read for Socket<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(into)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
