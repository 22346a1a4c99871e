//! The answer that every request must get, learnt from the first one.
//!
//! The first answer is checked for what it says: status, JSON or events, the event that ends the
//! dialect's stream. All others are then compared with it byte for byte, which finds what a length
//! would not, and costs less than reading events again. So the target must answer alike each time,
//! as the mock does.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;

use memchr::memmem;

use crate::bench::plan::{Plan, Target};
use crate::bench::reader::{Malformed, Reader, Step};
use crate::bench::request::Request;
use crate::dialect::Dialect;

/// Bytes of an answer, which is kept.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Bytes of a wrong answer that are shown.
const SHOWN_BYTES_MAX: usize = 200;
/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;

/// A right answer's body.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) body: Vec<u8>,
    /// Offset behind each event of a stream, rising; none for JSON.
    pub(super) ends: Vec<usize>,
}

/// What was wrong with a first answer.
#[derive(Debug)]
pub enum ProbeError {
    /// No connection, or it broke.
    Io(io::Error),
    /// No response of HTTP/1.1.
    Malformed,
    /// The connection ended before the answer did.
    Closed,
    /// More bytes than are kept.
    TooLong,
    /// A status other than 200, and the start of its body.
    Status {
        /// The status.
        status: u16,
        /// Printable start of the body.
        body: String,
    },
    /// Not one JSON object.
    Json,
    /// Not a stream with this final event.
    FinalEvent(&'static str),
    /// Not the bytes that the first target answered; the first offset that differs.
    Differs(usize),
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Malformed => f.write_str("expected a response of HTTP/1.1"),
            Self::Closed => f.write_str("the connection ended before the answer did"),
            Self::TooLong => write!(f, "expected at most {ANSWER_BYTES_MAX} bytes of answer"),
            Self::Status { status, body } => write!(f, "expected status 200, got {status}: {body}"),
            Self::Json => f.write_str("expected one JSON object"),
            Self::FinalEvent(name) => write!(f, "expected a stream that ends with {name}"),
            Self::Differs(at) => {
                write!(
                    f,
                    "expected the answer of the first target, it differs at byte {at}"
                )
            }
        }
    }
}

impl std::error::Error for ProbeError {}

impl From<io::Error> for ProbeError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Malformed> for ProbeError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl Answer {
    /// Checks what a body of status 200 says.
    fn new(body: Vec<u8>, dialect: Dialect, stream: bool) -> Result<Self, ProbeError> {
        if !stream {
            return match serde_json::from_slice::<serde_json::Value>(&body) {
                Ok(value) if value.is_object() => Ok(Self {
                    body,
                    ends: Vec::new(),
                }),
                Ok(_) | Err(_) => Err(ProbeError::Json),
            };
        }
        // As the providers document their streams, 2026-11.
        let (name, mark) = match dialect {
            Dialect::Chat => ("data: [DONE]", "data: [DONE]\n\n"),
            Dialect::Messages => ("message_stop", "event: message_stop\n"),
            Dialect::Responses => ("response.completed", "event: response.completed\n"),
        };
        let ends: Vec<_> = memmem::find_iter(&body, b"\n\n").map(|at| at + 2).collect();
        let last_starts = ends.iter().rev().nth(1).copied().unwrap_or(0);
        let is_final = body
            .get(last_starts..)
            .is_some_and(|last| last.starts_with(mark.as_bytes()));
        if is_final && ends.last() == Some(&body.len()) {
            Ok(Self { body, ends })
        } else {
            Err(ProbeError::FinalEvent(name))
        }
    }

    pub(super) fn assert_same(&self, other: &Self) -> Result<(), ProbeError> {
        if self.body == other.body {
            return Ok(());
        }
        let pairs = self.body.iter().zip(&other.body);
        Err(ProbeError::Differs(
            pairs.take_while(|(a, b)| a == b).count(),
        ))
    }
}

/// Sends one request on a connection of its own.
pub(super) fn probe(
    plan: &Plan,
    target: &Target,
    request: &Request<'_>,
) -> Result<Answer, ProbeError> {
    let mut stream = TcpStream::connect_timeout(&target.addr, plan.timeout)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(plan.timeout))?;
    stream.set_write_timeout(Some(plan.timeout))?;
    // A target that answers early stops reading; its answer says more than the failed write.
    let sent = send(&mut stream, request);
    let mut reader = Reader::new();
    let mut body = Vec::new();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let read = match stream.read(&mut buffer) {
            Ok(read) => read,
            Err(error) => return Err(sent.err().unwrap_or(error).into()),
        };
        if read == 0 && !reader.ends_here() {
            return Err(sent.err().map_or(ProbeError::Closed, ProbeError::Io));
        }
        let bytes = buffer.get(..read).unwrap_or_default();
        let step = reader.push(bytes, |bytes| body.extend_from_slice(bytes))?;
        if body.len() > ANSWER_BYTES_MAX {
            return Err(ProbeError::TooLong);
        }
        if step == Step::Done || read == 0 {
            break;
        }
    }
    if reader.status() != 200 {
        let shown = body.get(..SHOWN_BYTES_MAX).unwrap_or(&body);
        return Err(ProbeError::Status {
            status: reader.status(),
            body: String::from_utf8_lossy(shown).escape_debug().collect(),
        });
    }
    Answer::new(body, plan.dialect, plan.stream)
}

fn send(stream: &mut TcpStream, request: &Request<'_>) -> io::Result<()> {
    let mut sent = 0;
    while sent < request.bytes() {
        match stream.write_vectored(&request.rest(sent).map(IoSlice::new)) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => sent += written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_must_end_as_their_dialect_does() {
        let chat = "data: {\"a\":1}\n\ndata: [DONE]\n\n";
        let messages =
            "event: ping\ndata: {}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
        let responses =
            "event: response.created\ndata: {}\n\nevent: response.completed\ndata: {}\n\n";
        let texts = [chat, messages, responses];
        for (dialect, own) in Dialect::ALL.into_iter().zip(texts) {
            for text in texts {
                let answer = Answer::new(text.into(), dialect, true);
                assert_eq!(answer.is_ok(), text == own, "{dialect}: {text}");
            }
            let answer = Answer::new(own.into(), dialect, true).unwrap();
            assert_eq!((answer.ends.len(), answer.ends[1]), (2, own.len()));
            for cut in 0..own.len() {
                let part = own.as_bytes()[..cut].to_vec();
                assert!(Answer::new(part, dialect, true).is_err(), "{dialect} {cut}");
            }
        }
    }

    #[test]
    fn json_must_be_one_object() {
        for (text, fine) in [
            ("{\"a\":1}", true),
            ("[]", false),
            ("{}{}", false),
            ("", false),
        ] {
            let answer = Answer::new(text.into(), Dialect::Chat, false);
            assert_eq!(answer.is_ok(), fine, "{text}");
        }
    }

    #[test]
    fn difference_is_placed() {
        let answer = |text: &str| Answer {
            body: text.into(),
            ends: Vec::new(),
        };
        for (other, expected) in [
            ("abc", None),
            ("abd", Some(2)),
            ("ab", Some(2)),
            ("abcd", Some(3)),
        ] {
            let got = match answer("abc").assert_same(&answer(other)) {
                Err(ProbeError::Differs(at)) => Some(at),
                Ok(()) | Err(_) => None,
            };
            assert_eq!(got, expected, "{other}");
        }
    }
}
