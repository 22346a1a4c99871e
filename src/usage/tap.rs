//! The tap: from the bytes of a response to what it cost.

use crate::coding::{Coding, CodingError, Codings, Decoder, memory_needed};
use crate::dialect::Dialect;
use crate::limits::{TAP_DECODER_BYTES, TAP_EVENT_BYTES};
use crate::sse::{Event, Fate, Framer, Sink};
use crate::usage::count::Given;
use crate::usage::gather::{Gather, Said, Status};
use crate::usage::{State, StopReason, Usage};

/// Decoded bytes that are looked at in one piece.
const ROOM_BYTES: usize = 4096;

/// What the body is, by its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One JSON object.
    Json,
    /// `text/event-stream`.
    Events,
}

impl Form {
    /// From `Content-Type`: an event stream if it says so (RFC 9110 §8.3.1), else JSON, which a body
    /// is or is not at its first byte.
    #[must_use]
    pub fn of(content_type: Option<&[u8]>) -> Self {
        let kind = content_type.unwrap_or_default();
        let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default();
        if kind.trim_ascii().eq_ignore_ascii_case(b"text/event-stream") {
            Self::Events
        } else {
            Self::Json
        }
    }
}

/// Reads the usage of one response.
#[derive(Debug)]
pub struct Tap {
    total: Total,
    body: Reader,
    coded: Coded,
}

#[derive(Debug)]
enum Reader {
    Json(Box<Gather>),
    Events(Box<Events>),
    /// Nothing more is read.
    Idle,
}

/// The content coding between the body and its reader.
#[derive(Debug)]
enum Coded {
    None,
    /// It begins with the first byte.
    Unopened(Coding),
    Open(Box<Decoder>),
}

/// What was said so far.
#[derive(Clone, Copy, Debug)]
struct Total {
    dialect: Dialect,
    given: Given,
    stop: Option<StopReason>,
    calls: bool,
    ended: Ended,
}

/// Whether the answer said that it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    No,
    Well,
    Failed,
}

impl Tap {
    /// A tap of a body in this form and dialect. Of unknown codings, and several, nothing is read.
    #[must_use]
    pub fn new(dialect: Dialect, form: Form, codings: Codings) -> Self {
        let body = match form {
            _ if codings == Codings::Unreadable => Reader::Idle,
            Form::Json => Reader::Json(Box::new(Gather::new(dialect))),
            Form::Events => Reader::Events(Box::new(Events::new(dialect))),
        };
        Self {
            total: Total {
                dialect,
                given: Given::default(),
                stop: None,
                calls: false,
                ended: Ended::No,
            },
            body,
            coded: match codings {
                Codings::One(coding) => Coded::Unopened(coding),
                Codings::Plain | Codings::Unreadable => Coded::None,
            },
        }
    }

    /// Reads bytes that passed.
    pub fn see(&mut self, bytes: &[u8]) {
        if bytes.is_empty() || matches!(self.body, Reader::Idle) {
            return;
        }
        if let Coded::Unopened(coding) = self.coded {
            match memory_needed(coding, bytes) {
                Ok(Some(needed)) if needed <= TAP_DECODER_BYTES => {
                    self.coded = Coded::Open(Box::new(Decoder::new(coding, u64::MAX)));
                }
                // zstd and brotli need more, whatever their window is, so one that is not known
                // after the first piece will be too much too.
                _ => return self.body = Reader::Idle,
            }
        }
        match &mut self.coded {
            Coded::None | Coded::Unopened(_) => self.body.see(bytes, &mut self.total),
            Coded::Open(decoder) => {
                // What was said so far counts as broken off.
                if decode(decoder, bytes, &mut self.body, &mut self.total).is_err() {
                    self.body = Reader::Idle;
                }
            }
        }
    }

    /// The end of the body: what the answer cost. `whole` if the body came to its end, as opposed to
    /// being cut.
    pub fn finish(&mut self, whole: bool) -> Usage {
        let total = &mut self.total;
        let read = match &mut self.body {
            Reader::Json(gather) => {
                let said = gather.finish();
                if let Some(said) = said {
                    total.add(&said);
                    // An object that came to its end is the whole answer.
                    total.end(Ended::Well);
                }
                said.is_some()
            }
            Reader::Events(events) => {
                events.finish(total);
                whole
            }
            Reader::Idle => false,
        };
        self.body = Reader::Idle;
        total.usage(read)
    }
}

/// Gives the reader what `bytes` decode to.
fn decode(
    decoder: &mut Decoder,
    mut bytes: &[u8],
    body: &mut Reader,
    total: &mut Total,
) -> Result<(), CodingError> {
    let mut room = [0; ROOM_BYTES];
    loop {
        let step = decoder.step(bytes, &mut room)?;
        body.see(room.get(..step.produced).unwrap_or_default(), total);
        bytes = bytes.get(step.consumed..).unwrap_or_default();
        if step.drained && bytes.is_empty() {
            return Ok(());
        }
    }
}

impl Reader {
    fn see(&mut self, bytes: &[u8], total: &mut Total) {
        match self {
            Self::Json(gather) => {
                if gather.push(bytes).is_err() {
                    *self = Self::Idle;
                }
            }
            Self::Events(events) => {
                if events.see(bytes, total) {
                    *self = Self::Idle;
                }
            }
            Self::Idle => {}
        }
    }
}

impl Total {
    /// Adds what an object said that was whole.
    fn add(&mut self, said: &Said) {
        self.given.overwrite(&said.given);
        self.calls |= said.calls;
        let stop = match said.status {
            Some(Status::Completed) if self.calls => Some(StopReason::ToolCalls),
            Some(Status::Completed) => Some(StopReason::Stop),
            Some(Status::Incomplete) => Some(said.short.unwrap_or(StopReason::Other)),
            Some(Status::Failed) => Some(StopReason::Error),
            None => said.stop,
        };
        // Some servers say `stop` once more behind their tool calls.
        if stop != Some(StopReason::Stop) || self.stop != Some(StopReason::ToolCalls) {
            self.stop = stop.or(self.stop);
        }
        if said.error || said.status == Some(Status::Failed) {
            self.end(Ended::Failed);
        } else if said.over || said.status.is_some() {
            self.end(Ended::Well);
        }
    }

    /// A failure stays one.
    fn end(&mut self, ended: Ended) {
        if self.ended == Ended::No {
            self.ended = ended;
        }
    }

    /// `whole` if the body was read to its end.
    fn usage(&self, whole: bool) -> Usage {
        let over = match self.ended {
            Ended::Well => true,
            Ended::Failed => false,
            // Some servers leave the last marker out, which a reason to stop makes up for.
            Ended::No => whole && self.stop.is_some(),
        };
        let state = match (self.given.is_nothing(), over) {
            (true, _) => State::Absent,
            (false, true) => State::Complete,
            (false, false) => State::Partial,
        };
        Usage {
            state,
            tokens: self.given.tokens(self.dialect),
            stop: self.stop,
        }
    }
}

/// Reads an event stream.
#[derive(Debug)]
struct Events {
    framer: Framer,
    open: Open,
}

/// The event that is open.
#[derive(Debug)]
struct Open {
    dialect: Dialect,
    /// Its data as JSON; none before the first byte of it.
    gather: Option<Gather>,
    /// Its data as the marker that ends a stream.
    marker: Marker,
}

impl Events {
    fn new(dialect: Dialect) -> Self {
        Self {
            framer: Framer::new(TAP_EVENT_BYTES),
            open: Open {
                dialect,
                gather: None,
                marker: Marker::default(),
            },
        }
    }

    /// Reads bytes of the stream. Whether nothing that follows counts.
    fn see(&mut self, bytes: &[u8], total: &mut Total) -> bool {
        let mut pass = Pass {
            open: &mut self.open,
            total,
            over: false,
        };
        self.framer.push(bytes, &mut pass);
        pass.over
    }

    fn finish(&mut self, total: &mut Total) {
        let mut pass = Pass {
            open: &mut self.open,
            total,
            over: false,
        };
        self.framer.finish(&mut pass);
    }
}

/// The sink of one push.
struct Pass<'a> {
    open: &'a mut Open,
    total: &'a mut Total,
    /// The stream's own end has come.
    over: bool,
}

impl Sink for Pass<'_> {
    fn data(&mut self, piece: &[u8]) {
        if self.over {
            return;
        }
        let open = &mut *self.open;
        open.marker.see(piece);
        if !open.marker.has_begun() {
            let dialect = open.dialect;
            let gather = open.gather.get_or_insert_with(|| Gather::new(dialect));
            // What is no JSON says so again at its end.
            let _broken = gather.push(piece);
        }
    }

    fn end(&mut self, event: Event<'_>) {
        let marker = std::mem::take(&mut self.open.marker);
        let said = self
            .open
            .gather
            .take()
            .and_then(|mut gather| gather.finish());
        if self.over || matches!(event.fate, Fate::Empty | Fate::TooLong) {
            return;
        }
        if let Some(said) = said {
            self.total.add(&said);
        } else if marker.matches() && self.open.dialect == Dialect::Chat {
            self.total.end(Ended::Well);
            self.over = true;
        }
    }
}

/// Recognises `[DONE]`, with white space around it.
#[derive(Clone, Copy, Debug, Default)]
struct Marker {
    /// Bytes of it that have come.
    matched: usize,
    other: bool,
}

impl Marker {
    const TEXT: &'static [u8] = b"[DONE]";

    fn see(&mut self, piece: &[u8]) {
        for byte in piece {
            if self.other {
                return;
            }
            if Self::TEXT.get(self.matched) == Some(byte) {
                self.matched += 1;
            } else if !byte.is_ascii_whitespace() || !matches!(self.matched, 0 | 6) {
                self.other = true;
            }
        }
    }

    /// Whether the data begins like it, and so is no JSON object.
    const fn has_begun(&self) -> bool {
        self.matched > 0
    }

    const fn matches(&self) -> bool {
        self.matched == Self::TEXT.len() && !self.other
    }
}
