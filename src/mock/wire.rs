//! HTTP/1.1 request reader of the mock: head and body off a blocking socket.
//!
//! On purpose it shares no line with the gateway's own reader, so that a fault in one cannot hide a
//! fault in the other. It is the strict reading of RFC 9112: where two readings are possible it
//! refuses, since whatever reaches it has passed the gateway and must be plain.

use std::io::{self, Read};
use std::net::TcpStream;
use std::sync::Arc;

/// Bytes of one head, the empty line included.
const HEAD_BYTES_MAX: usize = 256 << 10;
/// Bytes of one chunk line or trailer line, its end included.
const LINE_BYTES_MAX: usize = 16 << 10;
/// Bytes of one trailer section.
const TRAILER_BYTES_MAX: usize = 64 << 10;
/// Bytes of one read from the socket.
const READ_BYTES: usize = 32 << 10;

/// One connection's receiving side: the socket and what was read ahead.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: Arc<TcpStream>,
    ahead: Vec<u8>,
    scratch: Box<[u8]>,
}

/// How the request body ends (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyLength {
    Fixed(u64),
    Chunked,
}

/// One parsed request head.
#[derive(Debug)]
pub(crate) struct Head {
    /// As received, the empty line included.
    pub(crate) raw: Vec<u8>,
    pub(crate) method: String,
    pub(crate) target: String,
    /// HTTP/1.0 or HTTP/1.1.
    pub(crate) minor: u8,
    /// Names in lower case; bytes of values as Latin-1.
    headers: Vec<(String, String)>,
    pub(crate) length: BodyLength,
}

/// Why no request could be read.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The peer closed or reset, or was silent past the bound.
    Ended,
    /// The bytes are no message; what came of the head is kept for the record.
    Malformed { reason: &'static str, head: Vec<u8> },
}

impl Head {
    /// First value of a header, by lower-case name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|header| header.0 == name)?;
        Some(&found.1)
    }

    /// True if a comma-separated header holds the token, in any case.
    pub(crate) fn has_token(&self, name: &str, token: &str) -> bool {
        self.headers
            .iter()
            .filter(|header| header.0 == name)
            .flat_map(|header| header.1.split(','))
            .any(|part| part.trim().eq_ignore_ascii_case(token))
    }

    /// Path of the target without its query.
    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// True if the client wants the connection kept (RFC 9112 §9.3).
    pub(crate) fn keeps_alive(&self) -> bool {
        !self.has_token("connection", "close")
            && (self.minor == 1 || self.has_token("connection", "keep-alive"))
    }
}

impl Wire {
    pub(crate) fn new(stream: Arc<TcpStream>) -> Self {
        Self {
            stream,
            ahead: Vec::new(),
            scratch: vec![0; READ_BYTES].into_boxed_slice(),
        }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// True if bytes of a next request were already read.
    pub(crate) fn has_ahead(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Reads one head. `Ended` without a byte of it is the normal end of a connection.
    pub(crate) fn read_head(&mut self) -> Result<Head, Broken> {
        let mut searched = 0;
        loop {
            if let Some(end) = find(&self.ahead[searched..], b"\r\n\r\n") {
                let raw: Vec<u8> = self.ahead.drain(..searched + end + 4).collect();
                return parse_head(raw);
            }
            searched = self.ahead.len().saturating_sub(3);
            if self.ahead.len() > HEAD_BYTES_MAX {
                let head = std::mem::take(&mut self.ahead);
                return Err(Broken::Malformed {
                    reason: "head too long",
                    head,
                });
            }
            self.more()?;
        }
    }

    fn more(&mut self) -> Result<(), Broken> {
        let read = loop {
            match (&*self.stream).read(&mut self.scratch) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) | Ok(0) => return Err(Broken::Ended),
                Ok(read) => break read,
            }
        };
        self.ahead.extend_from_slice(&self.scratch[..read]);
        Ok(())
    }

    /// Takes up to `max` bytes, at least one.
    fn take(&mut self, max: usize) -> Result<Vec<u8>, Broken> {
        if self.ahead.is_empty() {
            self.more()?;
        }
        let taken = self.ahead.len().min(max);
        Ok(self.ahead.drain(..taken).collect())
    }

    /// Takes one line and its CRLF; answers it without them.
    fn line(&mut self) -> Result<Vec<u8>, Broken> {
        loop {
            if let Some(end) = find(&self.ahead, b"\n") {
                let mut line: Vec<u8> = self.ahead.drain(..=end).collect();
                line.pop();
                if line.pop() != Some(b'\r') || line.contains(&b'\r') {
                    return Err(malformed("line without CRLF"));
                }
                return Ok(line);
            }
            if self.ahead.len() > LINE_BYTES_MAX {
                return Err(malformed("line too long"));
            }
            self.more()?;
        }
    }
}

/// Reads one body, in order, in pieces as they come.
#[derive(Debug)]
pub(crate) struct BodyReader {
    state: BodyState,
    /// Trailer lines as received.
    pub(crate) trailers: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
enum BodyState {
    Fixed { left: u64 },
    ChunkLine,
    ChunkBytes { left: u64 },
    End,
}

impl BodyReader {
    pub(crate) fn new(length: BodyLength) -> Self {
        let state = match length {
            BodyLength::Fixed(0) => BodyState::End,
            BodyLength::Fixed(left) => BodyState::Fixed { left },
            BodyLength::Chunked => BodyState::ChunkLine,
        };
        Self {
            state,
            trailers: Vec::new(),
        }
    }

    /// True once the framing came to its end; a chunked body may still owe its last chunk.
    pub(crate) fn ended(&self) -> bool {
        matches!(self.state, BodyState::End)
    }

    /// The next decoded bytes, at most `max` (at least 1); empty at the end of the framing.
    pub(crate) fn next(&mut self, wire: &mut Wire, max: usize) -> Result<Vec<u8>, Broken> {
        loop {
            match self.state {
                BodyState::End => return Ok(Vec::new()),
                BodyState::Fixed { left } => {
                    let bytes = wire.take(at_most(left, max))?;
                    self.state = match left - bytes.len() as u64 {
                        0 => BodyState::End,
                        left => BodyState::Fixed { left },
                    };
                    return Ok(bytes);
                }
                BodyState::ChunkLine => {
                    let left = chunk_size(&wire.line()?)?;
                    self.state = BodyState::ChunkBytes { left };
                    if left == 0 {
                        self.read_trailers(wire)?;
                        self.state = BodyState::End;
                    }
                }
                BodyState::ChunkBytes { left: 0 } => {
                    if !wire.line()?.is_empty() {
                        return Err(malformed("chunk longer than its size"));
                    }
                    self.state = BodyState::ChunkLine;
                }
                BodyState::ChunkBytes { left } => {
                    let bytes = wire.take(at_most(left, max))?;
                    self.state = BodyState::ChunkBytes {
                        left: left - bytes.len() as u64,
                    };
                    return Ok(bytes);
                }
            }
        }
    }

    fn read_trailers(&mut self, wire: &mut Wire) -> Result<(), Broken> {
        loop {
            let line = wire.line()?;
            if line.is_empty() {
                return Ok(());
            }
            field(&line)?;
            self.trailers.extend_from_slice(&line);
            self.trailers.extend_from_slice(b"\r\n");
            if self.trailers.len() > TRAILER_BYTES_MAX {
                return Err(malformed("trailers too long"));
            }
        }
    }
}

fn at_most(left: u64, max: usize) -> usize {
    usize::try_from(left).map_or(max, |left| left.min(max))
}

fn malformed(reason: &'static str) -> Broken {
    Broken::Malformed {
        reason,
        head: Vec::new(),
    }
}

/// RFC 9112 §7.1: `1*HEXDIG`, then extensions, which carry nothing here.
fn chunk_size(line: &[u8]) -> Result<u64, Broken> {
    let digits = line
        .iter()
        .take_while(|byte| byte.is_ascii_hexdigit())
        .count();
    let rest = line[digits..].trim_ascii_start();
    if !(1..=16).contains(&digits) || !(rest.is_empty() || rest[0] == b';') {
        return Err(malformed("bad chunk size"));
    }
    let text = std::str::from_utf8(&line[..digits]).unwrap_or_default();
    u64::from_str_radix(text, 16).map_err(|_| malformed("bad chunk size"))
}

fn parse_head(raw: Vec<u8>) -> Result<Head, Broken> {
    match head_parts(&raw) {
        Ok((method, target, minor, headers, length)) => Ok(Head {
            raw,
            method,
            target,
            minor,
            headers,
            length,
        }),
        Err(Broken::Malformed { reason, .. }) => Err(Broken::Malformed { reason, head: raw }),
        Err(Broken::Ended) => Err(Broken::Ended),
    }
}

type HeadParts = (String, String, u8, Vec<(String, String)>, BodyLength);

fn head_parts(raw: &[u8]) -> Result<HeadParts, Broken> {
    let text: String = raw.iter().map(|byte| char::from(*byte)).collect();
    let text = text.strip_suffix("\r\n\r\n").unwrap_or(&text);
    let mut lines = text.split("\r\n");
    let request_line = lines.next().unwrap_or_default();
    let mut words = request_line.split(' ');
    let parts = (words.next(), words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some(version), None) = parts else {
        return Err(malformed("bad request line"));
    };
    let plain = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic());
    let minor = match version {
        "HTTP/1.1" => 1,
        "HTTP/1.0" => 0,
        _ => return Err(malformed("bad version")),
    };
    if !plain(method) || !plain(target) {
        return Err(malformed("bad request line"));
    }
    let headers = lines
        .map(|line| field(&latin1(line)))
        .collect::<Result<Vec<_>, _>>()?;
    let hosts = headers.iter().filter(|header| header.0 == "host").count();
    if minor == 1 && hosts != 1 {
        return Err(malformed("not exactly one host"));
    }
    let length = body_length(minor, &headers)?;
    Ok((method.to_owned(), target.to_owned(), minor, headers, length))
}

/// One field line: token, colon, value without control bytes (RFC 9110 §5.1, §5.5).
fn field(line: &[u8]) -> Result<(String, String), Broken> {
    let colon = find(line, b":").ok_or_else(|| malformed("field without a colon"))?;
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    let token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    if name.is_empty() || !name.iter().all(token) {
        return Err(malformed("bad field name"));
    }
    if value
        .iter()
        .any(|byte| byte.is_ascii_control() && *byte != b'\t')
    {
        return Err(malformed("control byte in a field value"));
    }
    let text = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| char::from(*byte))
            .collect::<String>()
    };
    Ok((text(name).to_ascii_lowercase(), text(value)))
}

/// The bytes of a text made by one char a byte.
fn latin1(text: &str) -> Vec<u8> {
    text.chars()
        .filter_map(|char| u8::try_from(u32::from(char)).ok())
        .collect()
}

fn body_length(minor: u8, headers: &[(String, String)]) -> Result<BodyLength, Broken> {
    let values = |name: &str| -> Vec<&str> {
        let named = headers.iter().filter(|header| header.0 == name);
        named.map(|header| header.1.as_str()).collect()
    };
    let (lengths, codings) = (values("content-length"), values("transfer-encoding"));
    match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Ok(BodyLength::Fixed(0)),
        ([], [coding]) if minor == 1 && coding.eq_ignore_ascii_case("chunked") => {
            Ok(BodyLength::Chunked)
        }
        ([length], []) if length.bytes().all(|byte| byte.is_ascii_digit()) => length
            .parse()
            .map(BodyLength::Fixed)
            .map_err(|_| malformed("bad content-length")),
        ([_], []) => Err(malformed("bad content-length")),
        _ => Err(malformed("ambiguous framing")),
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Head, &'static str> {
        parse_head(text.as_bytes().to_vec()).map_err(|broken| match broken {
            Broken::Malformed { reason, .. } => reason,
            Broken::Ended => "ended",
        })
    }

    #[test]
    fn head_is_split_into_its_parts() {
        let text = "POST /v1/x?beta=1 HTTP/1.1\r\nHost: h\r\nX-Mock:  a=b \r\nConnection: a, Close\r\n\r\n";
        let head = parsed(text).unwrap();
        assert_eq!(
            (head.method.as_str(), head.path(), head.minor),
            ("POST", "/v1/x", 1)
        );
        assert_eq!(head.header("x-mock"), Some("a=b"));
        assert_eq!(head.length, BodyLength::Fixed(0));
        assert!(head.has_token("connection", "close") && !head.keeps_alive());
        assert_eq!(head.raw, text.as_bytes());
    }

    #[test]
    fn ambiguous_or_broken_heads_are_refused() {
        for (head, reason) in [
            (
                "GET / HTTP/1.1\r\nHost: a\r\nHost: b",
                "not exactly one host",
            ),
            ("GET / HTTP/1.1\r\nA: b", "not exactly one host"),
            ("GET /  HTTP/1.1\r\nHost: a", "bad request line"),
            ("GET / HTTP/2.0\r\nHost: a", "bad version"),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +5",
                "bad content-length",
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5",
                "ambiguous framing",
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
                "ambiguous framing",
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked",
                "ambiguous framing",
            ),
            (
                "GET / HTTP/1.0\r\nTransfer-Encoding: chunked",
                "ambiguous framing",
            ),
            ("GET / HTTP/1.1\r\nHost : a", "bad field name"),
            (
                "GET / HTTP/1.1\r\nHost: a\r\n folded",
                "field without a colon",
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\nb: c",
                "control byte in a field value",
            ),
        ] {
            assert_eq!(
                parsed(&format!("{head}\r\n\r\n")).unwrap_err(),
                reason,
                "{head}"
            );
        }
    }

    #[test]
    fn chunk_sizes() {
        for (line, size) in [("0", 0), ("00a;x=y", 10), ("FFFF ;e", 65535)] {
            assert_eq!(chunk_size(line.as_bytes()).unwrap(), size, "{line}");
        }
        for line in ["", ";x", "0x5", "5 5", "-1", "11111111111111111"] {
            assert!(chunk_size(line.as_bytes()).is_err(), "{line}");
        }
    }
}
