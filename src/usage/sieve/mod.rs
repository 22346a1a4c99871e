//! The answer's half of `usage: inject`: takes the extra chunk out of a stream whose client did not ask
//! for it.
//!
//! A provider that is asked for usage sends one more event before `[DONE]`: a chunk without choices, with
//! the usage (OpenAI API reference, 2026-11). A [`Sieve`] is shown the bytes that are ready to be sent and
//! says how many of them pass, how many behind these are taken out, and so how many are held. What it takes
//! out are whole events, from the first byte of their line to the end of the empty one; all other bytes pass
//! as they came.
//!
//! Only one form is taken out: an event of a single `data` line whose value is one JSON object with an
//! empty list of `choices`, a `usage` that is an object, and no `error`. An event with another field, a
//! comment or a second line passes, and so does `choices: []` without usage, with which some providers begin,
//! and usage beside choices, which some put on every chunk. When in doubt a client sees one chunk more.
//!
//! An event is held only while it can be that one: a delta shows with the first of its `choices` that it is
//! not, and no more than [`EXTRA_CHUNK_BYTES`] of data are held of any. Nothing is kept here: what is held
//! stays in the buffer that it was read into, in front of what is read next. At the end of a stream, and
//! where it breaks off, what is held passes.
//!
//! Cost: a scan of each event up to the end of the piece in which the deciding byte is, no more than
//! [`EXTRA_CHUNK_BYTES`] of it; nothing is allocated, however long the stream.

mod chunk;
#[doc(hidden)]
pub mod fuzzing;
#[cfg(test)]
mod tests;

use memchr::memchr2;

use crate::limits::EXTRA_CHUNK_BYTES;
use crate::usage::Injection;
use crate::usage::sieve::chunk::Chunk;

/// What the line of an extra chunk begins with.
const FIELD: &[u8] = b"data:";

/// What becomes of the bytes at the front of those that are ready. Those behind them are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passage {
    /// How many are sent on.
    pub pass: usize,
    /// How many behind these are taken out. If there are any, the rest has not been looked at.
    pub remove: usize,
}

/// Takes the extra chunk out of one event stream.
#[derive(Debug)]
pub struct Sieve {
    place: Place,
    line_end: LineEnd,
    chunk: Chunk,
    /// Bytes at the front of what is ready that were looked at already: those of an event that is held.
    seen: usize,
    found: bool,
}

/// Where the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In what can be the first field of an event: bytes of [`FIELD`] that came.
    Field(usize),
    /// In its value.
    Value,
    /// Behind the line of what is the extra chunk if its event ends here.
    Behind,
    /// In an event that passes, at the start of a line.
    Start,
    /// In a line of such an event.
    Within,
}

/// What the last byte was, where that says what an LF now means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineEnd {
    /// No CR: an LF ends a line.
    Other,
    /// A CR, to which an LF belongs.
    Cr,
    /// The CR that ended an event which was taken out.
    CrRemoved,
}

impl Default for Sieve {
    fn default() -> Self {
        Self {
            place: Place::Field(0),
            line_end: LineEnd::Other,
            chunk: Chunk::new(),
            seen: 0,
            found: false,
        }
    }
}

impl Sieve {
    /// Whether the extra chunk was there.
    #[must_use]
    pub const fn outcome(&self) -> Injection {
        if self.found {
            Injection::Removed
        } else {
            Injection::NotFound
        }
    }

    /// Looks at `ready`, at whose front is what was held before; `whole` if nothing more comes. The caller
    /// drops what passes and what is taken out, and asks again until nothing is.
    pub fn sift(&mut self, ready: &[u8], whole: bool) -> Passage {
        if let [b'\n', ..] = ready
            && self.line_end == LineEnd::CrRemoved
        {
            self.line_end = LineEnd::Other;
            return Passage { pass: 0, remove: 1 };
        }
        let mut at = std::mem::take(&mut self.seen);
        let mut event = 0;
        while let Some(rest) = ready.get(at..)
            && let Some(first) = rest.first()
        {
            if matches!(first, b'\r' | b'\n') {
                at += 1;
                if self.end_line(*first) {
                    return self.removes(event, at);
                }
            } else {
                at += self.step(*first, rest);
            }
            if self.place == Place::Field(0) {
                event = at;
            }
        }
        let held = match self.place {
            Place::Field(_) | Place::Value | Place::Behind if !whole => at - event,
            _ => 0,
        };
        self.seen = held;
        Passage {
            pass: at - held,
            remove: 0,
        }
    }

    /// Lets go of what is held, because nothing comes behind it: it passes next.
    pub const fn release(&mut self) {
        self.seen = 0;
        self.place = Place::Within;
    }

    /// The event from `event` to `at` is taken out.
    const fn removes(&mut self, event: usize, at: usize) -> Passage {
        self.found = true;
        if matches!(self.line_end, LineEnd::Cr) {
            self.line_end = LineEnd::CrRemoved;
        }
        Passage {
            pass: event,
            remove: at - event,
        }
    }

    /// A byte that ends a line, or the second one of a CRLF. Whether it ends an extra chunk.
    fn end_line(&mut self, byte: u8) -> bool {
        let before = std::mem::replace(&mut self.line_end, LineEnd::of(byte));
        if byte == b'\n' && before == LineEnd::Cr {
            return false;
        }
        let is_extra = self.place == Place::Behind;
        self.place = match self.place {
            // An empty line.
            Place::Field(0) | Place::Behind | Place::Start => Place::Field(0),
            Place::Value if self.chunk.is_extra() => Place::Behind,
            Place::Field(_) | Place::Value | Place::Within => Place::Start,
        };
        is_extra
    }

    /// Takes bytes of one line, of which `first` ends none; how many.
    fn step(&mut self, first: u8, rest: &[u8]) -> usize {
        self.line_end = LineEnd::Other;
        match self.place {
            Place::Field(came) if FIELD.get(came) == Some(&first) => {
                self.place = Place::Field(came + 1);
                if came + 1 == FIELD.len() {
                    self.chunk = Chunk::new();
                    self.place = Place::Value;
                }
                1
            }
            Place::Value => {
                let value = to_line_end(rest);
                let bytes = self.chunk.bytes().saturating_add(value.len() as u64);
                if bytes > EXTRA_CHUNK_BYTES || !self.chunk.push(value) {
                    self.place = Place::Within;
                }
                value.len()
            }
            Place::Field(_) | Place::Behind | Place::Start | Place::Within => {
                self.place = Place::Within;
                to_line_end(rest).len()
            }
        }
    }
}

impl LineEnd {
    const fn of(byte: u8) -> Self {
        match byte {
            b'\r' => Self::Cr,
            _ => Self::Other,
        }
    }
}

/// The bytes before the end of the line.
fn to_line_end(rest: &[u8]) -> &[u8] {
    let end = memchr2(b'\r', b'\n', rest).unwrap_or(rest.len());
    rest.get(..end).unwrap_or_default()
}
