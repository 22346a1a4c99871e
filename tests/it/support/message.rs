//! HTTP/1.1 messages as the tests read them: strict, small, and sharing no line with the gateway,
//! so that a fault in one cannot hide a fault in the other.
//!
//! What a peer sends is either a message that this reader accepts, or a named way of stopping. A
//! clean end, a cut, a reset and silence are four different things here, because telling them apart
//! is what most of these tests are about.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use rustls::{Connection, HandshakeKind};

/// How long any single wait may last before the test says that the peer hangs. Chosen: far above
/// what a loaded machine needs, and the limit for one torture row.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Why no more bytes came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The peer closed its sending side between two messages.
    Fin,
    /// The peer closed its sending side inside a message, or inside TLS without saying so.
    Torn,
    /// The connection was reset.
    Reset,
    /// Nothing came within [`PATIENCE`].
    Silent,
    /// Bytes came that are no HTTP/1.1 message of the strict grammar.
    Malformed(String),
}

/// How a body ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Its framing says that it is complete.
    Complete,
    /// It ran to a clean close, which is all that its framing can say.
    Closed,
    /// It broke off.
    Cut(Stop),
}

impl End {
    /// Whether a careful reader would take the body for a whole one.
    pub(crate) fn is_clean(&self) -> bool {
        !matches!(self, Self::Cut(_))
    }
}

/// A request or response head: its lines as they came, without line ends.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Head {
    lines: Vec<Vec<u8>>,
}

/// How long the body is (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Length(u64),
    Chunked,
    UntilClose,
}

impl Head {
    fn parse(section: &[u8]) -> Result<Self, Stop> {
        let mut lines = Vec::new();
        for line in split_crlf(section) {
            if line.iter().any(|b| matches!(b, b'\r' | b'\n' | 0)) {
                return Err(malformed("bare CR, bare LF or NUL in a head line", line));
            }
            if !lines.is_empty() && !is_field_line(line) {
                return Err(malformed("not a field line", line));
            }
            lines.push(line.to_vec());
        }
        Ok(Self { lines })
    }

    /// The head of a message that is known to be well formed, such as a test's own input.
    pub(crate) fn of(message: &[u8]) -> Self {
        let end = find(message, b"\r\n\r\n").unwrap();
        Self::parse(&message[..end]).unwrap()
    }

    /// Request line or status line.
    pub(crate) fn start(&self) -> String {
        String::from_utf8_lossy(&self.lines[0]).into_owned()
    }

    /// The second word of a request line, byte for byte.
    pub(crate) fn target(&self) -> &[u8] {
        self.lines[0].split(|b| *b == b' ').nth(1).unwrap_or(&[])
    }

    /// The first word of a request line.
    pub(crate) fn method(&self) -> String {
        self.start().split(' ').next().unwrap().to_owned()
    }

    /// The code of a status line.
    pub(crate) fn status(&self) -> Result<u16, Stop> {
        let line = &self.lines[0];
        let code = line.strip_prefix(b"HTTP/1.1 ").and_then(|l| l.get(..3));
        let code = code.and_then(|c| std::str::from_utf8(c).ok()?.parse().ok());
        code.ok_or_else(|| malformed("not a status line of HTTP/1.1", line))
    }

    /// The field lines, in order, as they came.
    pub(crate) fn field_lines(&self) -> &[Vec<u8>] {
        &self.lines[1..]
    }

    /// All values of a field, in order; bytes over 0x7F are shown as Latin-1.
    pub(crate) fn values(&self, name: &str) -> Vec<String> {
        let named = |l: &&Vec<u8>| name_of(l).eq_ignore_ascii_case(name.as_bytes());
        let value = |l: &Vec<u8>| {
            let raw = &l[name_of(l).len() + 1..];
            raw.iter().map(|b| char::from(*b)).collect::<String>()
        };
        self.field_lines()
            .iter()
            .filter(named)
            .map(|l| value(l).trim_matches([' ', '\t']).to_owned())
            .collect()
    }

    /// The only value of a field; a repeated field has none.
    pub(crate) fn value(&self, name: &str) -> Option<String> {
        let mut values = self.values(name);
        if values.len() == 1 {
            values.pop()
        } else {
            None
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        !self.values(name).is_empty()
    }

    /// Whether a list-valued field names `token`.
    pub(crate) fn lists(&self, name: &str, token: &str) -> bool {
        let same = |t: &str| t.trim().eq_ignore_ascii_case(token);
        self.values(name).iter().any(|v| v.split(',').any(same))
    }

    /// Framing of a request with this head.
    pub(crate) fn request_framing(&self) -> Result<Framing, Stop> {
        Ok(self.declared_framing()?.unwrap_or(Framing::Length(0)))
    }

    /// Framing of an answer with this head to a request with `method`.
    pub(crate) fn response_framing(&self, method: &str) -> Result<Framing, Stop> {
        let declared = self.declared_framing()?;
        if method == "HEAD" || matches!(self.status()?, 204 | 304) {
            return Ok(Framing::Length(0));
        }
        Ok(declared.unwrap_or(Framing::UntilClose))
    }

    fn declared_framing(&self) -> Result<Option<Framing>, Stop> {
        let lengths = self.values("content-length");
        let codings = self.values("transfer-encoding");
        match (lengths.as_slice(), codings.as_slice()) {
            ([], []) => Ok(None),
            ([length], []) => match length.parse() {
                Ok(length) => Ok(Some(Framing::Length(length))),
                Err(_) => Err(malformed("Content-Length", length.as_bytes())),
            },
            ([], [coding]) if coding.eq_ignore_ascii_case("chunked") => Ok(Some(Framing::Chunked)),
            _ => Err(malformed("framing fields", format!("{self:?}").as_bytes())),
        }
    }
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            let shown: String = line.escape_ascii().to_string().chars().take(300).collect();
            write!(f, "\n      | {shown}")?;
        }
        Ok(())
    }
}

/// The name of a field line (all of it when there is no colon).
pub(crate) fn name_of(line: &[u8]) -> &[u8] {
    line.split(|b| *b == b':').next().unwrap_or(&[])
}

/// Position of `needle` in `hay`.
pub(crate) fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    hay.windows(needle.len()).position(|w| w == needle)
}

/// Bytes for a failure message: escaped and short.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let head = &bytes[..bytes.len().min(300)];
    format!("{} ({} bytes)", head.escape_ascii(), bytes.len())
}

fn is_field_line(line: &[u8]) -> bool {
    let name = name_of(line);
    let token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
    !name.is_empty() && name.len() < line.len() && name.iter().all(token)
}

fn split_crlf(section: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    let mut rest = section;
    while let Some(at) = find(rest, b"\r\n") {
        lines.push(&rest[..at]);
        rest = &rest[at + 2..];
    }
    lines.push(rest);
    lines
}

fn malformed(what: &str, bytes: &[u8]) -> Stop {
    Stop::Malformed(format!("{what}: {}", shown(bytes)))
}

/// One connection, encrypted or not, read message by message.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    session: Option<Box<RefCell<Connection>>>,
    buffered: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream,
            session: None,
            buffered: Vec::new(),
        }
    }

    /// Encrypted; the handshake is part of the first reading or sending.
    pub(crate) fn encrypted(stream: TcpStream, session: Connection) -> Self {
        let mut wire = Self::new(stream);
        wire.session = Some(Box::new(RefCell::new(session)));
        wire
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Whether the session went on from an earlier one; only after a reading.
    pub(crate) fn was_resumed(&self) -> bool {
        let session = self.session.as_ref().unwrap().borrow();
        session.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Sends what is for the session and not for its reader: new keys (RFC 8446 §4.6.3).
    pub(crate) fn renew_keys(&self) {
        let session = self.session.as_ref().unwrap();
        session.borrow_mut().refresh_traffic_keys().unwrap();
        self.send(&[]).unwrap();
    }

    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let mut socket = &self.stream;
        let Some(session) = &self.session else {
            return socket.write_all(bytes);
        };
        let mut session = session.borrow_mut();
        let mut rest = bytes;
        loop {
            while session.is_handshaking() || session.wants_write() {
                session.complete_io(&mut socket)?;
            }
            if rest.is_empty() {
                return Ok(());
            }
            let taken = session.writer().write(rest)?;
            rest = &rest[taken..];
        }
    }

    fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut socket = &self.stream;
        let Some(session) = &self.session else {
            return socket.read(into);
        };
        let mut session = session.borrow_mut();
        loop {
            match session.reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => return done,
            }
            if session.is_handshaking() || session.wants_write() {
                session.complete_io(&mut socket)?;
                continue;
            }
            session.read_tls(&mut socket)?;
            let processed = session.process_new_packets();
            processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        }
    }

    /// Closes the sending side only.
    pub(crate) fn half_close(&self) {
        if let Some(session) = &self.session {
            session.borrow_mut().send_close_notify();
            // The peer may already be gone, as below.
            let _already_gone = self.send(&[]);
        }
        // The peer may already have reset the connection; then there is nothing left to close.
        let _already_gone = self.stream.shutdown(Shutdown::Write);
    }

    /// Closes with a reset in place of a FIN.
    pub(crate) fn reset(self) {
        let linger = socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
        linger.unwrap();
    }

    /// The next head.
    pub(crate) fn head(&mut self) -> Result<Head, Stop> {
        let mut searched = 0;
        loop {
            if let Some(at) = find(&self.buffered[searched..], b"\r\n\r\n") {
                let head = Head::parse(&self.buffered[..searched + at])?;
                self.buffered.drain(..searched + at + 4);
                return Ok(head);
            }
            searched = self.buffered.len().saturating_sub(3);
            self.fill()?;
        }
    }

    /// Reads until the connection ends; bytes that still come are an error.
    pub(crate) fn ending(&mut self) -> Stop {
        if !self.buffered.is_empty() {
            return malformed("bytes after the last message", &self.buffered);
        }
        match self.fill() {
            Ok(()) => self.ending(),
            Err(stop) => stop,
        }
    }

    fn fill(&mut self) -> Result<(), Stop> {
        let mut piece = [0; 16 * 1024];
        match self.receive(&mut piece) {
            Ok(0) if self.buffered.is_empty() => Err(Stop::Fin),
            Ok(0) => Err(Stop::Torn),
            Ok(n) => {
                self.buffered.extend_from_slice(&piece[..n]);
                Ok(())
            }
            Err(e) => Err(match e.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => Stop::Silent,
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Stop::Reset,
                ErrorKind::UnexpectedEof => Stop::Torn,
                kind => Stop::Malformed(format!("read error {kind:?}")),
            }),
        }
    }

    fn line(&mut self) -> Result<Vec<u8>, Stop> {
        loop {
            if let Some(at) = find(&self.buffered, b"\r\n") {
                let line = self.buffered[..at].to_vec();
                self.buffered.drain(..at + 2);
                return Ok(line);
            }
            self.fill()?;
        }
    }

    fn take(&mut self, max: u64) -> Result<Vec<u8>, Stop> {
        if self.buffered.is_empty() {
            self.fill()?;
        }
        let n = usize::try_from(max).map_or(self.buffered.len(), |m| m.min(self.buffered.len()));
        Ok(self.buffered.drain(..n).collect())
    }
}

/// A body being read, piece by piece.
#[derive(Debug)]
pub(crate) struct Flow {
    state: State,
    /// Trailer lines, once the last chunk was read.
    pub(crate) trailers: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Length(u64),
    ChunkSize,
    ChunkData(u64),
    ChunkEnd,
    UntilClose,
    Done(bool),
}

impl Flow {
    pub(crate) fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::Length(n) => State::Length(n),
            Framing::Chunked => State::ChunkSize,
            Framing::UntilClose => State::UntilClose,
        };
        Self {
            state,
            trailers: Vec::new(),
        }
    }

    /// The next bytes of the body, or how it ended.
    pub(crate) fn piece(&mut self, wire: &mut Wire) -> Result<Vec<u8>, End> {
        let torn = |stop| End::Cut(if stop == Stop::Fin { Stop::Torn } else { stop });
        loop {
            match self.state {
                State::Done(closed) => {
                    return Err(if closed { End::Closed } else { End::Complete });
                }
                State::Length(0) => self.state = State::Done(false),
                State::Length(left) => {
                    let bytes = wire.take(left).map_err(torn)?;
                    self.state = State::Length(left - bytes.len() as u64);
                    return Ok(bytes);
                }
                State::UntilClose => match wire.take(u64::MAX) {
                    Err(Stop::Fin) => self.state = State::Done(true),
                    other => return other.map_err(torn),
                },
                State::ChunkSize => self.chunk_size(wire).map_err(torn)?,
                State::ChunkData(left) => {
                    let bytes = wire.take(left).map_err(torn)?;
                    self.state = match left - bytes.len() as u64 {
                        0 => State::ChunkEnd,
                        left => State::ChunkData(left),
                    };
                    return Ok(bytes);
                }
                State::ChunkEnd => {
                    let line = wire.line().map_err(torn)?;
                    if !line.is_empty() {
                        return Err(End::Cut(malformed("no line end after chunk data", &line)));
                    }
                    self.state = State::ChunkSize;
                }
            }
        }
    }

    fn chunk_size(&mut self, wire: &mut Wire) -> Result<(), Stop> {
        let line = wire.line()?;
        let digits = std::str::from_utf8(&line).unwrap_or("");
        let size = u64::from_str_radix(digits, 16);
        let size = size.map_err(|_| malformed("chunk size", &line))?;
        if size > 0 {
            self.state = State::ChunkData(size);
            return Ok(());
        }
        loop {
            let line = wire.line()?;
            if line.is_empty() {
                self.state = State::Done(false);
                return Ok(());
            }
            self.trailers.push(line);
        }
    }

    /// Everything that is left of the body, and how it ended.
    pub(crate) fn collect(&mut self, wire: &mut Wire) -> (Vec<u8>, End) {
        let mut body = Vec::new();
        loop {
            match self.piece(wire) {
                Ok(bytes) => body.extend_from_slice(&bytes),
                Err(end) => return (body, end),
            }
        }
    }
}

/// Polls until `done`, at most [`PATIENCE`]; returns whether it came true.
pub(crate) fn eventually(mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    done()
}

/// Gives the gateway time to act on what its kernel already has. Nothing outside can see it act,
/// so this is the one wait of these tests that is not for an event: it makes a wrong gateway more
/// likely to be caught and cannot fail a right one.
pub(crate) fn settle() {
    std::thread::sleep(Duration::from_millis(50));
}
