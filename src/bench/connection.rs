//! One connection of a round and the request that is on it.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::bench::answer::Answer;
use crate::bench::reader::{Reader, Step};
use crate::bench::request::Request;
use crate::bench::tally::{Fault, Tally};
use crate::clock;

/// Writes, or reads, of one connection before another has its turn.
const CALLS_IN_TURN: u32 = 16;

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Bytes to come.
    Read,
    /// Room for bytes to go.
    Write,
}

/// What a turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Waits(Wait),
    /// Answered rightly; whether the connection may be used again.
    Answered {
        keeps: bool,
    },
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    reader: Reader,
    /// Bytes of the request that are sent.
    sent: usize,
    /// Bytes of the answer that were compared, and whether all were right.
    compared: usize,
    differs: bool,
    /// Events of the answer that are whole.
    events: usize,
    begun: Instant,
    first_byte: Option<Instant>,
    last_event: Instant,
    /// When bytes moved last.
    pub(super) progressed: Instant,
    /// Whether a request is on it.
    pub(super) is_busy: bool,
    /// What its socket is registered for.
    pub(super) armed: Wait,
}

impl Connection {
    pub(super) fn open(addr: &SocketAddr, timeout: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(addr, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let now = clock::now();
        Ok(Self {
            stream,
            reader: Reader::new(),
            sent: 0,
            compared: 0,
            differs: false,
            events: 0,
            begun: now,
            first_byte: None,
            last_event: now,
            progressed: now,
            is_busy: false,
            armed: Wait::Read,
        })
    }

    /// Starts a request; [`Connection::send`] sends it.
    pub(super) fn begin(&mut self, now: Instant) {
        self.reader.reset();
        self.sent = 0;
        self.compared = 0;
        self.differs = false;
        self.events = 0;
        self.begun = now;
        self.first_byte = None;
        self.progressed = now;
        self.is_busy = true;
    }

    /// Sends what the socket takes.
    pub(super) fn send(&mut self, request: &Request<'_>) -> Result<Wait, Fault> {
        for _ in 0..CALLS_IN_TURN {
            if self.sent == request.bytes() {
                return Ok(Wait::Read);
            }
            let rest = request.rest(self.sent).map(IoSlice::new);
            match (&self.stream).write_vectored(&rest) {
                Ok(written) => {
                    self.sent += written;
                    self.progressed = clock::now();
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(Wait::Write),
                    ErrorKind::Interrupted => {}
                    _ => return Err(fault(&error)),
                },
            }
        }
        Ok(if self.sent == request.bytes() {
            Wait::Read
        } else {
            Wait::Write
        })
    }

    /// Reads what is there and compares it; times go to `tally`.
    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        request: &Request<'_>,
        answer: &Answer,
        tally: &mut Tally,
    ) -> Result<Turn, Fault> {
        for _ in 0..CALLS_IN_TURN {
            let read = match (&self.stream).read(buffer) {
                Ok(read) => read,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => break,
                    ErrorKind::Interrupted => continue,
                    _ => return Err(fault(&error)),
                },
            };
            let now = clock::now();
            if read == 0 && !self.reader.ends_here() {
                return Err(Fault::Closed);
            }
            let bytes = buffer.get(..read).unwrap_or_default();
            let step = self.take(bytes, now, answer, tally)?;
            if step == Step::Done || read == 0 {
                return self.judge(now, request, answer, tally);
            }
            if read < buffer.len() {
                break;
            }
        }
        Ok(Turn::Waits(if self.sent == request.bytes() {
            Wait::Read
        } else {
            Wait::Write
        }))
    }

    fn take(
        &mut self,
        bytes: &[u8],
        now: Instant,
        answer: &Answer,
        tally: &mut Tally,
    ) -> Result<Step, Fault> {
        self.progressed = now;
        self.first_byte.get_or_insert(now);
        let (compared, differs) = (&mut self.compared, &mut self.differs);
        let step = self.reader.push(bytes, |bytes| {
            let end = compared.saturating_add(bytes.len());
            *differs |= answer.body.get(*compared..end) != Some(bytes);
            *compared = end;
        });
        let step = step.map_err(|_| Fault::Malformed)?;
        // An error has no events of the answer, however long it is.
        if self.differs {
            return Ok(step);
        }
        let ends = answer.ends.get(self.events..).unwrap_or_default();
        for _ in ends.iter().take_while(|end| **end <= self.compared) {
            if self.events > 0 {
                tally
                    .gaps
                    .record(now.saturating_duration_since(self.last_event));
            }
            self.events += 1;
            self.last_event = now;
        }
        Ok(step)
    }

    /// The answer is whole.
    fn judge(
        &mut self,
        now: Instant,
        request: &Request<'_>,
        answer: &Answer,
        tally: &mut Tally,
    ) -> Result<Turn, Fault> {
        if self.reader.status() != 200 {
            return Err(Fault::Status);
        }
        if self.differs || self.compared != answer.body.len() {
            return Err(Fault::Answer);
        }
        if self.sent != request.bytes() {
            return Err(Fault::Early);
        }
        self.is_busy = false;
        tally.requests += 1;
        tally
            .latency
            .record(now.saturating_duration_since(self.begun));
        if let Some(first) = self.first_byte {
            tally
                .first_byte
                .record(first.saturating_duration_since(self.begun));
        }
        tally.ended = Some(now);
        Ok(Turn::Answered {
            keeps: self.reader.keeps(),
        })
    }
}

fn fault(error: &io::Error) -> Fault {
    if error.kind() == ErrorKind::BrokenPipe {
        Fault::Closed
    } else {
        Fault::Io
    }
}
