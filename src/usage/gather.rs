//! One JSON object of an answer, an event or the whole, and what it says.

use crate::dialect::Dialect;
use crate::json::{Broken, Container, Scanner, Sink, Want, Word};
use crate::usage::count::Given;
use crate::usage::place::{Key, PLACES_MAX, Place};
use crate::usage::stop::StopReason;

/// Digits of the largest count.
const DIGITS_MAX: usize = 20;

/// What one object says. Of a member that comes twice the last sane value counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) given: Given,
    /// Of the first choice, where there are several.
    pub(super) stop: Option<StopReason>,
    /// It has an `error` that is not null, or is one.
    pub(super) error: bool,
    /// Messages: it is the last event.
    pub(super) over: bool,
    /// Responses: how the response ended.
    pub(super) status: Option<Status>,
    /// Responses: why it is incomplete.
    pub(super) short: Option<StopReason>,
    /// Responses: it has an item that calls a tool of the client.
    pub(super) calls: bool,
}

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Completed,
    Incomplete,
    /// Failed or cancelled.
    Failed,
}

impl Status {
    /// From the `status` of a response.
    pub(super) fn of(word: &[u8]) -> Option<Self> {
        match word {
            b"completed" => Some(Self::Completed),
            b"incomplete" => Some(Self::Incomplete),
            b"failed" | b"cancelled" => Some(Self::Failed),
            _ => None,
        }
    }
}

impl Said {
    /// Takes the type of an event.
    pub(super) fn typed(&mut self, dialect: Dialect, word: &[u8]) {
        match (dialect, word) {
            (_, b"error") => self.error = true,
            (Dialect::Messages, b"message_stop") => self.over = true,
            (Dialect::Responses, _) => {
                let status = word.strip_prefix(b"response.").and_then(Status::of);
                self.status = status.or(self.status);
            }
            (Dialect::Chat | Dialect::Messages, _) => {}
        }
    }
}

/// The tools that a client runs, as types of items.
pub(super) fn is_call(word: &[u8]) -> bool {
    matches!(word, b"function_call" | b"custom_tool_call")
}

/// Reads one object that comes in pieces.
#[derive(Debug)]
pub(super) struct Gather {
    scanner: Scanner,
    reading: Reading,
}

#[derive(Debug)]
struct Reading {
    dialect: Dialect,
    path: [Place; PLACES_MAX],
    /// Places of `path` that are open.
    depth: usize,
    key: Key,
    word: Word,
    number: Option<Number>,
    choice: Choice,
    said: Said,
}

/// A choice, until its end says whether it is the first.
#[derive(Clone, Copy, Debug, Default)]
struct Choice {
    index: Option<u64>,
    stop: Option<StopReason>,
}

/// A count whose end has not come.
#[derive(Clone, Copy, Debug)]
struct Number {
    /// Offset of its first digit.
    start: u64,
    /// Its digits in pieces that have passed.
    digits: [u8; DIGITS_MAX],
    len: usize,
}

impl Gather {
    pub(super) fn new(dialect: Dialect) -> Self {
        let reading = Reading {
            dialect,
            path: [Place::Outside; PLACES_MAX],
            depth: 0,
            key: Key::Other,
            word: Word::default(),
            number: None,
            choice: Choice::default(),
            said: Said::default(),
        };
        Self {
            scanner: Scanner::new(),
            reading,
        }
    }

    /// Reads the next bytes.
    ///
    /// # Errors
    /// When this is no JSON object.
    #[inline]
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<(), Broken> {
        let base = self.scanner.offset();
        let mut pass = Pass {
            reading: &mut self.reading,
            piece,
            base,
        };
        self.scanner.push(piece, &mut pass)?;
        if let Some(number) = &mut self.reading.number {
            number.keep(piece, base);
        }
        Ok(())
    }

    /// What the object says, if it was one and came to its end.
    pub(super) fn finish(&mut self) -> Option<Said> {
        let whole = self.scanner.finish().is_ok();
        whole.then_some(self.reading.said)
    }
}

impl Number {
    const fn new(start: u64) -> Self {
        Self {
            start,
            digits: [0; DIGITS_MAX],
            len: 0,
        }
    }

    /// Keeps the digits of a piece at `base` that ends inside the number.
    fn keep(&mut self, piece: &[u8], base: u64) {
        let digits = self.within(piece, base);
        let end = self.len.saturating_add(digits.len());
        if let Some(room) = self.digits.get_mut(self.len..end) {
            room.copy_from_slice(digits);
        }
        self.len = end;
    }

    /// The number's bytes in a piece at `base`, to the piece's end.
    fn within<'a>(&self, piece: &'a [u8], base: u64) -> &'a [u8] {
        let from = usize::try_from(self.start.saturating_sub(base));
        from.ok()
            .and_then(|from| piece.get(from..))
            .unwrap_or_default()
    }

    /// The count; none if it is no whole number or beyond 64 bits.
    fn value(&self) -> Option<u64> {
        let digits = self.digits.get(..self.len)?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }
}

/// The sink of one push.
struct Pass<'a> {
    reading: &'a mut Reading,
    piece: &'a [u8],
    base: u64,
}

impl Reading {
    fn place(&self) -> Place {
        let above = self.depth.checked_sub(1);
        above
            .and_then(|at| self.path.get(at).copied())
            .unwrap_or(Place::Outside)
    }

    /// The value under the key begins and is not null.
    const fn begins(&mut self) {
        if matches!(self.key, Key::Error) {
            self.said.error = true;
        }
    }

    fn take_count(&mut self, count: u64) {
        let given = &mut self.said.given;
        let field = match self.key {
            Key::InputTokens => &mut given.input,
            Key::OutputTokens => &mut given.output,
            Key::Cached => &mut given.cached,
            Key::CacheWrite => &mut given.cache_write,
            Key::Index => &mut self.choice.index,
            _ => return,
        };
        *field = Some(count);
    }

    fn take_word(&mut self, raw: &[u8], last: bool) {
        let place = self.place();
        let Some(word) = self.word.take(raw, last) else {
            return;
        };
        let (said, dialect) = (&mut self.said, self.dialect);
        match (place, self.key) {
            (Place::Item, _) => said.calls |= is_call(word),
            (_, Key::Type) => said.typed(dialect, word),
            (_, Key::Status) => said.status = Status::of(word).or(said.status),
            (Place::Incomplete, _) => said.short = Some(StopReason::of(dialect, word)),
            (Place::Choice, _) => self.choice.stop = Some(StopReason::of(dialect, word)),
            (_, Key::Reason) => said.stop = Some(StopReason::of(dialect, word)),
            (_, _) => {}
        }
    }
}

impl Sink for Pass<'_> {
    #[inline]
    fn open(&mut self, container: Container, _: u64) -> Want {
        let reading = &mut *self.reading;
        reading.begins();
        let inside = reading.place().inside(reading.key, container);
        let (Some(place), Some(room)) = (inside, reading.path.get_mut(reading.depth)) else {
            return Want::Skip;
        };
        *room = place;
        reading.depth += 1;
        reading.key = Key::Other;
        if place == Place::Choice {
            reading.choice = Choice::default();
        }
        Want::Look
    }

    #[inline]
    fn close(&mut self) {
        let reading = &mut *self.reading;
        let choice = reading.choice;
        if reading.place() == Place::Choice && choice.index.unwrap_or(0) == 0 {
            reading.said.stop = choice.stop.or(reading.said.stop);
        }
        reading.depth = reading.depth.saturating_sub(1);
        reading.key = Key::Other;
    }

    #[inline]
    fn key(&mut self, raw: &[u8], last: bool) {
        let (dialect, place) = (self.reading.dialect, self.reading.place());
        if let Some(name) = self.reading.word.take(raw, last) {
            self.reading.key = Key::of(dialect, place, name);
        }
    }

    #[inline]
    fn text(&mut self, _: u64) -> Want {
        self.reading.begins();
        match self.reading.key {
            Key::Type | Key::Status | Key::Reason => Want::Look,
            _ => Want::Skip,
        }
    }

    #[inline]
    fn piece(&mut self, raw: &[u8], last: bool) {
        self.reading.take_word(raw, last);
    }

    #[inline]
    fn scalar(&mut self, first: u8, at: u64) {
        if first != b'n' {
            self.reading.begins();
        }
        if first.is_ascii_digit() {
            self.reading.number = match self.reading.key {
                Key::InputTokens
                | Key::OutputTokens
                | Key::Cached
                | Key::CacheWrite
                | Key::Index => Some(Number::new(at)),
                _ => None,
            };
        }
    }

    #[inline]
    fn end(&mut self, end: u64) {
        let Some(mut number) = self.reading.number.take() else {
            return;
        };
        let len = usize::try_from(end.saturating_sub(self.base)).unwrap_or(usize::MAX);
        number.keep(self.piece.get(..len).unwrap_or_default(), self.base);
        if let Some(count) = number.value() {
            self.reading.take_count(count);
        }
    }
}
