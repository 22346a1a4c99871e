//! Event streams as bytes that pass by (WHATWG HTML §9.2, "Server-sent events").
//!
//! The framer is pushed, takes any cut and reports the same to its [`Sink`]: the data of each event in
//! pieces, as slices of what was pushed, and where the event ended. It keeps the name of one event and
//! a few counters, never data, and allocates nothing. Lines end with LF, CR or CRLF; a CR ends its line
//! at once, because the byte behind it may come a minute later, and an LF that follows then counts to
//! what comes next.
//!
//! An event whose data is longer than the bound is reported as [`Fate::TooLong`] and the stream goes
//! on. `id` and `retry` are for clients that connect again, and are passed over like unknown fields.
//! Bytes that are not UTF-8 are left to who reads the data: they cannot change where a line ends.

#[doc(hidden)]
pub mod fuzzing;
#[doc(hidden)]
pub mod naive;
#[cfg(test)]
mod tests;

use memchr::memchr2;

/// Bytes of an event's name that are kept (per event). A longer name is no known one.
pub const NAME_BYTES_MAX: usize = 64;

/// Receives what a [`Framer`] meets, in order.
pub trait Sink {
    /// Bytes of the open event's data, the LF between two lines of it included.
    fn data(&mut self, piece: &[u8]);
    /// The open event ends.
    fn end(&mut self, event: Event<'_>);
}

/// An event that has ended, or an empty line that ended none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// What its last `event` field says; empty without one, and beyond [`NAME_BYTES_MAX`].
    pub name: &'a [u8],
    /// Whether it counts.
    pub fate: Fate,
    /// Offset in the stream behind the empty line, or behind the CR of one that ends in CRLF.
    pub end: u64,
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// All of its data was reported.
    Whole,
    /// It has no data field: a comment, a field alone, or one more empty line. Clients see no event.
    Empty,
    /// Its data is longer than the bound, and some of it was not reported.
    TooLong,
    /// The stream ended before the empty line. The standard drops such an event; some providers leave
    /// the line out behind their last one, and some readers take it.
    Unfinished,
}

/// Splits one event stream.
#[derive(Clone, Debug)]
pub struct Framer {
    /// Offset of the next byte.
    offset: u64,
    line: Line,
    /// The last byte was a CR, so an LF belongs to it.
    after_cr: bool,
    name: Name,
    /// A data field has come.
    has_data: bool,
    /// Bytes of data that the open event may still have.
    left: u64,
    too_long: bool,
    data_max: u64,
}

/// Where the line stands.
#[derive(Clone, Copy, Debug)]
enum Line {
    /// In the byte order mark that may start the stream: bytes seen.
    Mark(usize),
    /// Before the first byte.
    Start,
    /// In the name of a field that matters so far.
    Field { field: Field, matched: usize },
    /// Behind the colon, where one space does not count.
    Colon(Field),
    /// In a field's value.
    Value(Field),
    /// In a comment or a field that is passed over.
    Other,
}

/// The fields that matter.
#[derive(Clone, Copy, Debug)]
enum Field {
    Data,
    Name,
}

impl Field {
    const fn spelled(self) -> &'static [u8] {
        match self {
            Self::Data => b"data",
            Self::Name => b"event",
        }
    }
}

/// The name of the open event.
#[derive(Clone, Debug)]
struct Name {
    bytes: [u8; NAME_BYTES_MAX],
    /// Bytes of the name; more than there is room for if it is too long.
    len: usize,
}

impl Name {
    const EMPTY: Self = Self {
        bytes: [0; NAME_BYTES_MAX],
        len: 0,
    };

    fn push(&mut self, piece: &[u8]) {
        let end = self.len.saturating_add(piece.len());
        if let Some(room) = self.bytes.get_mut(self.len..end) {
            room.copy_from_slice(piece);
        }
        self.len = end;
    }

    fn known(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

const MARK: &[u8] = b"\xEF\xBB\xBF";

impl Framer {
    /// A framer of a stream whose events have at most `data_max` bytes of data each.
    #[must_use]
    pub const fn new(data_max: u64) -> Self {
        Self {
            offset: 0,
            line: Line::Mark(0),
            after_cr: false,
            name: Name::EMPTY,
            has_data: false,
            left: data_max,
            too_long: false,
            data_max,
        }
    }

    /// Takes the next bytes of the stream.
    pub fn push<S: Sink>(&mut self, chunk: &[u8], sink: &mut S) {
        let mut rest = chunk;
        while let [first, tail @ ..] = rest {
            let taken = if std::mem::take(&mut self.after_cr) && *first == b'\n' {
                1
            } else if matches!(first, b'\r' | b'\n') {
                self.after_cr = *first == b'\r';
                self.offset += 1;
                self.end_line(sink);
                rest = tail;
                continue;
            } else {
                self.step(rest, sink)
            };
            self.offset += taken as u64;
            rest = rest.get(taken..).unwrap_or_default();
        }
    }

    /// The end of the stream: reports the event that is open, if it has data.
    pub fn finish<S: Sink>(&mut self, sink: &mut S) {
        if let Line::Field { field, matched } = self.line
            && matched == field.spelled().len()
        {
            self.begin_value(field, sink);
        }
        if self.has_data {
            self.end_event(Fate::Unfinished, sink);
        }
        self.line = Line::Start;
    }

    /// Takes bytes of one line, of which the first ends none; how many.
    fn step<S: Sink>(&mut self, rest: &[u8], sink: &mut S) -> usize {
        let first = rest.first().copied().unwrap_or_default();
        match self.line {
            Line::Mark(seen) if MARK.get(seen) == Some(&first) => {
                self.line = if seen + 1 == MARK.len() {
                    Line::Start
                } else {
                    Line::Mark(seen + 1)
                };
                1
            }
            // What began like the mark and is none is the name of some field.
            Line::Mark(1..) => self.pass(Line::Other, 0),
            Line::Mark(_) | Line::Start => match first {
                b'd' => self.pass(Line::matching(Field::Data), 1),
                b'e' => self.pass(Line::matching(Field::Name), 1),
                _ => self.pass(Line::Other, 1),
            },
            Line::Field { field, matched } => match field.spelled().get(matched) {
                Some(next) if *next == first => {
                    let matched = matched + 1;
                    self.pass(Line::Field { field, matched }, 1)
                }
                None if first == b':' => {
                    self.begin_value(field, sink);
                    self.pass(Line::Colon(field), 1)
                }
                _ => self.pass(Line::Other, 1),
            },
            Line::Colon(field) => self.pass(Line::Value(field), usize::from(first == b' ')),
            Line::Value(field) => {
                let end = memchr2(b'\r', b'\n', rest).unwrap_or(rest.len());
                let piece = rest.get(..end).unwrap_or_default();
                match field {
                    Field::Data => self.data(piece, sink),
                    Field::Name => self.name.push(piece),
                }
                end
            }
            Line::Other => memchr2(b'\r', b'\n', rest).unwrap_or(rest.len()),
        }
    }

    const fn pass(&mut self, line: Line, taken: usize) -> usize {
        self.line = line;
        taken
    }

    fn begin_value<S: Sink>(&mut self, field: Field, sink: &mut S) {
        match field {
            Field::Data if std::mem::replace(&mut self.has_data, true) => self.data(b"\n", sink),
            Field::Data => {}
            Field::Name => self.name.len = 0,
        }
    }

    fn data<S: Sink>(&mut self, piece: &[u8], sink: &mut S) {
        let left = self.left.checked_sub(piece.len() as u64);
        self.too_long |= left.is_none();
        self.left = left.unwrap_or(0);
        if !self.too_long {
            sink.data(piece);
        }
    }

    fn end_line<S: Sink>(&mut self, sink: &mut S) {
        match std::mem::replace(&mut self.line, Line::Start) {
            Line::Mark(0) | Line::Start => {
                let fate = if self.has_data {
                    Fate::Whole
                } else {
                    Fate::Empty
                };
                self.end_event(fate, sink);
            }
            // A name without a colon is a field with an empty value.
            Line::Field { field, matched } if matched == field.spelled().len() => {
                self.begin_value(field, sink);
            }
            _ => {}
        }
    }

    fn end_event<S: Sink>(&mut self, fate: Fate, sink: &mut S) {
        sink.end(Event {
            name: self.name.known(),
            fate: if self.too_long { Fate::TooLong } else { fate },
            end: self.offset,
        });
        self.name.len = 0;
        self.has_data = false;
        self.too_long = false;
        self.left = self.data_max;
    }
}

impl Line {
    /// Behind the first byte of that field's name.
    const fn matching(field: Field) -> Self {
        Self::Field { field, matched: 1 }
    }
}
