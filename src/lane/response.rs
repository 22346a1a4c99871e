//! The response on its way to the client.

use std::io;

use crate::buf::Input;
use crate::http1::error::HeadError;
use crate::http1::head::{HeadLimits, Progress, ResponseHead};
use crate::lane::body::{Body, BodyError};
use crate::lane::flight::{Flight, whole};
use crate::lane::pace::Pace;
use crate::limits::{BLOCK_BYTES, RESPONSE_HEAD_BYTES, RESPONSE_HEAD_FIELDS};
use crate::runtime::turn_after_burst;
use crate::tls::Stream;
use crate::usage::Passage;

const LIMITS: HeadLimits = HeadLimits {
    bytes: RESPONSE_HEAD_BYTES,
    fields: RESPONSE_HEAD_FIELDS,
};

/// Reads that may follow each other without a return to the ring.
const BURST: u32 = 16;

/// Why no response head came.
#[derive(Debug)]
pub enum ReceiveError {
    /// The upstream connection ended or broke. `silent` if not one byte of a response had come.
    Closed {
        /// Whether nothing had been received.
        silent: bool,
    },
    /// What came is not a response head.
    Head(HeadError),
}

/// Why a response body did not reach its end.
#[derive(Debug)]
pub enum RelayError {
    /// The upstream connection ended or broke inside the body.
    UpstreamCut,
    /// The upstream sent nothing for as long as it may.
    UpstreamSilent,
    /// The upstream's chunked coding is broken.
    Body(BodyError),
    /// The client's connection ended or broke.
    ClientGone,
    /// The client took nothing for as long as it may.
    ClientStalled,
}

/// How the body is framed for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// As bytes: a declared length, no body at all, or until the connection closes.
    Plain,
    /// As chunks.
    Chunked,
}

/// Which trailer fields follow a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrailerFields {
    /// None; the client did not ask for them.
    Drop,
    /// Those that a trailer section may hold.
    Relay,
}

/// What was read from the upstream and not used yet, and the head found in it.
#[derive(Debug)]
pub struct Receiver {
    /// Bytes read.
    pub input: Input,
    /// The head last parsed; its spans lie in `input` until [`Self::drop_head`].
    pub head: ResponseHead,
    /// Whether any byte of a response came, interim ones included.
    received: bool,
}

impl Receiver {
    /// A receiver that reads into `input`.
    #[must_use]
    pub fn new(input: Input) -> Self {
        Self {
            input,
            head: ResponseHead::default(),
            received: false,
        }
    }

    /// Waits for the next response head, interim ones included. May be dropped while it waits.
    ///
    /// # Errors
    /// When the connection ends before it, or something else comes.
    pub async fn next_head(&mut self, upstream: &Stream) -> Result<(), ReceiveError> {
        loop {
            if !self.input.is_empty() {
                let parsed = self.head.parse(self.input.bytes(), LIMITS);
                if parsed.map_err(ReceiveError::Head)? == Progress::Complete {
                    return Ok(());
                }
            }
            match read_some(upstream, &mut self.input, RESPONSE_HEAD_BYTES).await {
                Ok(count) if count > 0 => self.received = true,
                _ => {
                    return Err(ReceiveError::Closed {
                        silent: !self.received,
                    });
                }
            }
        }
    }

    /// Drops the head's bytes; what follows them is the body or the next head.
    pub fn drop_head(&mut self) {
        self.input.consume(self.head.len);
        self.head.reset();
    }

    /// Writes `head` and then the body as it comes, to its end. `written` counts what the client's
    /// socket took. May be dropped while it waits, and then not be run again.
    ///
    /// # Errors
    /// When either side ends it early. What came before an upstream's end was written.
    pub async fn relay(
        &mut self,
        body: &mut Body,
        out: &Outgoing<'_>,
        upstream: &Stream,
        written: &mut u64,
    ) -> Result<(), RelayError> {
        body.absorb(&mut self.input).map_err(RelayError::Body)?;
        self.flight(out.head, body, out, written).await?;
        out.pace.begun();
        let mut burst = 0;
        let cut = loop {
            if body.is_complete() {
                return Ok(());
            }
            let read = read_now_or_wait(upstream, &mut self.input, burst > 0).await;
            // A read that filled its block says that more is there; a paced stream never does.
            let full = matches!(read, Ok(count) if count >= BLOCK_BYTES / 2);
            if full && burst == BURST {
                turn_after_burst().await;
            }
            burst = if full && burst < BURST { burst + 1 } else { 0 };
            match read {
                Ok(count) if count > 0 => {}
                Ok(_) if body.close() => {}
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    break RelayError::UpstreamSilent;
                }
                Ok(_) | Err(_) => break RelayError::UpstreamCut,
            }
            if let Err(error) = body.absorb(&mut self.input) {
                break RelayError::Body(error);
            }
            if self.flight(&[], body, out, written).await? {
                out.pace.went_on();
            }
        };
        if body.release_held() {
            self.flight(&[], body, out, written).await?;
        }
        Err(cut)
    }

    /// Writes the head, if there is one, and what may go on of the ready bytes. Whether that was anything.
    async fn flight(
        &mut self,
        mut head: &[u8],
        body: &mut Body,
        out: &Outgoing<'_>,
        written: &mut u64,
    ) -> Result<bool, RelayError> {
        let mut any = false;
        loop {
            let Passage { pass, remove } = body.passage(&self.input);
            let gone = pass.saturating_add(remove);
            let last = body.is_complete() && gone == body.ready();
            if pass > 0 || last || !head.is_empty() {
                let piece = (std::mem::take(&mut head), pass, last);
                self.write(piece, body, out, written).await?;
                any = true;
            }
            body.hand_on(&mut self.input, gone);
            if remove == 0 || last {
                return Ok(any);
            }
        }
    }

    /// Writes the head and so many of the ready bytes; `last` if the body ends with them.
    async fn write(
        &self,
        (head, count, last): (&[u8], usize, bool),
        body: &Body,
        out: &Outgoing<'_>,
        written: &mut u64,
    ) -> Result<(), RelayError> {
        let ending = match out.trailers {
            TrailerFields::Relay if last => trailer_section(body.trailers()),
            TrailerFields::Relay | TrailerFields::Drop => Vec::new(),
        };
        let ready = self.input.bytes().get(..count).unwrap_or_default();
        let flight = Flight {
            head,
            data: whole(ready),
            last,
            chunked: out.framing == Framing::Chunked,
            ending: &ending,
        };
        let taken = flight.write(out.client, written).await;
        taken.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => RelayError::ClientStalled,
            _ => RelayError::ClientGone,
        })
    }
}

/// Where a response goes, and in which form.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// The client's connection.
    pub client: &'a Stream,
    /// How fast it comes.
    pub pace: Pace<'a>,
    /// The response head as the client gets it.
    pub head: &'a [u8],
    /// How the body is framed.
    pub framing: Framing,
    /// Whether trailer fields follow.
    pub trailers: TrailerFields,
}

/// Reads once: at once if bytes are likely to be there, else after waiting for them.
async fn read_now_or_wait(upstream: &Stream, input: &mut Input, likely: bool) -> io::Result<usize> {
    if likely {
        match try_read_some(upstream, input, BLOCK_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return done,
        }
    }
    read_some(upstream, input, BLOCK_BYTES).await
}

/// Waits for bytes and reads them into the input; 0 is the end.
async fn read_some(from: &Stream, input: &mut Input, capacity: usize) -> io::Result<usize> {
    loop {
        from.readable().await?;
        match try_read_some(from, input, capacity) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return done,
        }
    }
}

fn try_read_some(from: &Stream, input: &mut Input, capacity: usize) -> io::Result<usize> {
    let room = input.room(capacity).ok_or(io::ErrorKind::OutOfMemory)?;
    let read = from.try_read(room);
    match &read {
        Ok(count) => input.filled(*count),
        Err(_) if input.is_empty() => input.release(),
        Err(_) => {}
    }
    read
}

/// The end of a chunked body with the trailer fields that may stand there: no framing, routing or
/// credential field has a meaning in a trailer section (RFC 9110 §6.5.1). Empty if none is left.
fn trailer_section(raw: &[u8]) -> Vec<u8> {
    const FORBIDDEN: [&str; 12] = [
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "content-range",
        "content-type",
        "host",
        "keep-alive",
        "set-cookie",
        "te",
        "trailer",
        "transfer-encoding",
    ];
    let mut section = b"0\r\n".to_vec();
    let empty = section.len();
    for line in raw.split_inclusive(|byte| *byte == b'\n') {
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        if line != b"\r\n"
            && !FORBIDDEN
                .iter()
                .any(|f| name.eq_ignore_ascii_case(f.as_bytes()))
        {
            section.extend_from_slice(line);
        }
    }
    if section.len() == empty {
        return Vec::new();
    }
    section.extend_from_slice(b"\r\n");
    section
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framing_fields_are_dropped_from_a_trailer_section() {
        let raw = b"X-Sum: 1\r\nTransfer-Encoding: chunked\r\nx-b: 2\r\n";
        assert_eq!(trailer_section(raw), b"0\r\nX-Sum: 1\r\nx-b: 2\r\n\r\n");
        assert!(trailer_section(b"Content-Length: 5\r\n").is_empty());
        assert!(trailer_section(b"").is_empty());
    }
}
