//! Writes one answer: head, framing, pieces, pauses, and the ends that a script may ask for.

use std::io::{self, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::mock::answer::Answer;
use crate::mock::script::{Cut, Framing, Script, Silence};
use crate::mock::socket;

/// How sending ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    Whole,
    /// Broken off as scripted; the connection must close now.
    Cut,
    /// The peer left first.
    Left,
}

/// What the connection says of itself in the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Manner {
    /// Answer to HEAD: no body follows.
    pub(crate) head_only: bool,
    /// Say `Connection: close`.
    pub(crate) closes: bool,
    /// The client speaks HTTP/1.0, which has no chunks.
    pub(crate) http10: bool,
}

/// Sends the answer; write errors mean that the peer left.
pub(crate) fn send(stream: &TcpStream, answer: &Answer, script: &Script, manner: Manner) -> Sent {
    let sender = Sender {
        stream,
        pending: head(answer, manner),
        chunked: chunked(answer, manner),
    };
    let sent = if manner.head_only || bodiless(answer.status) {
        sender.finish()
    } else {
        sender.body(answer, script)
    };
    sent.unwrap_or(Sent::Left)
}

/// An interim answer (RFC 9110 §15.2).
pub(crate) fn interim(mut stream: &TcpStream, status: u16) -> io::Result<()> {
    let fields = if status == 103 {
        "Link: </mock>; rel=preload\r\n"
    } else {
        ""
    };
    stream.write_all(format!("HTTP/1.1 {status} {}\r\n{fields}\r\n", reason(status)).as_bytes())
}

struct Sender<'a> {
    stream: &'a TcpStream,
    /// Bytes to go out with the next write: head and first piece share one, as with most servers.
    pending: Vec<u8>,
    chunked: bool,
}

impl Sender<'_> {
    fn body(mut self, answer: &Answer, script: &Script) -> io::Result<Sent> {
        let mut at = 0;
        for (number, end) in boundaries(answer, script).into_iter().enumerate() {
            let paused = number > 0 && self.pause(script.pause)?;
            if paused || self.silence(script, at)? {
                return Ok(Sent::Left);
            }
            if let Some(cut) = script.cut.filter(|cut| cut.at == at) {
                return self.cut(cut);
            }
            self.piece(&answer.body[at..end])?;
            at = end;
        }
        if self.silence(script, at)? {
            return Ok(Sent::Left);
        }
        if let Some(cut) = script.cut {
            return self.cut(cut);
        }
        if self.chunked {
            self.pending.extend_from_slice(b"0\r\n\r\n");
        }
        self.finish()
    }

    fn piece(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.chunked {
            self.pending
                .extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
            self.pending.extend_from_slice(bytes);
            self.pending.extend_from_slice(b"\r\n");
        } else {
            self.pending.extend_from_slice(bytes);
        }
        self.flush()
    }

    /// True if the connection broke meanwhile.
    fn pause(&mut self, wait: Duration) -> io::Result<bool> {
        if wait.is_zero() {
            return Ok(false);
        }
        self.flush()?;
        socket::breaks_within(self.stream, wait)
    }

    /// True if the peer left during the silence scripted for this offset.
    fn silence(&mut self, script: &Script, at: usize) -> io::Result<bool> {
        match script.silence {
            Some(Silence::Body { at: place, wait }) if place == at => {
                self.flush()?;
                socket::peer_leaves_within(self.stream, wait)
            }
            Some(Silence::Head | Silence::Body { .. }) | None => Ok(false),
        }
    }

    fn cut(mut self, cut: Cut) -> io::Result<Sent> {
        self.flush()?;
        if cut.reset {
            socket::reset_on_close(self.stream)?;
        }
        Ok(Sent::Cut)
    }

    fn finish(mut self) -> io::Result<Sent> {
        self.flush()?;
        Ok(Sent::Whole)
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.pending.is_empty() {
            let mut stream = self.stream;
            stream.write_all(&self.pending)?;
            self.pending.clear();
        }
        Ok(())
    }
}

/// Offsets at which a write ends, rising, the last one the end of the body; none for an empty body.
fn boundaries(answer: &Answer, script: &Script) -> Vec<usize> {
    let whole = answer.body.len();
    let mut ends: Vec<usize> = match (script.piece, script.cuts.is_empty()) {
        (None, true) => answer.ends.clone(),
        (None, false) => script.cuts.clone(),
        (Some(piece), _) => (piece..whole)
            .step_by(piece)
            .chain(script.cuts.iter().copied())
            .collect(),
    };
    ends.extend(script.cut.map(|cut| cut.at));
    if let Some(Silence::Body { at, .. }) = script.silence {
        ends.push(at);
    }
    ends.push(whole);
    ends.retain(|end| (1..=whole).contains(end));
    ends.sort_unstable();
    ends.dedup();
    ends
}

fn chunked(answer: &Answer, manner: Manner) -> bool {
    answer.framing == Framing::Chunked && !manner.http10
}

/// Statuses that never have a body (RFC 9110 §6.4.1).
fn bodiless(status: u16) -> bool {
    status == 204 || status == 304
}

fn head(answer: &Answer, manner: Manner) -> Vec<u8> {
    let status = answer.status;
    let mut text = format!("HTTP/1.1 {status} {}\r\n", reason(status));
    let mut line = |name: &str, value: &str| {
        text.push_str(&format!("{name}: {value}\r\n"));
    };
    for (name, value) in &answer.headers {
        line(name, value);
    }
    if !bodiless(status) {
        if chunked(answer, manner) {
            line("Transfer-Encoding", "chunked");
        } else if answer.framing == Framing::Length {
            line("Content-Length", &answer.body.len().to_string());
        }
    }
    if manner.closes {
        line("Connection", "close");
    } else if manner.http10 {
        line("Connection", "keep-alive");
    }
    text.push_str("\r\n");
    text.into_bytes()
}

fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        413 => "Content Too Large",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        529 => "Overloaded",
        _ => "Scripted",
    }
}
