//! A decoded string value kept up to a bound.

use crate::json::{Span, Unescape};
use crate::peek::{Capture, Fact, Text};

/// Raw bytes decoded between two looks at the bound.
const STEP_BYTES: usize = 1024;

/// Collects one string value that comes in pieces.
#[derive(Clone)]
pub(super) struct Value {
    bytes: Vec<u8>,
    bytes_max: usize,
    state: State,
    unescape: Unescape,
    pub(super) span: Span,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Missing,
    /// Pieces are coming.
    Open,
    /// Pieces are coming and are dropped.
    Overflown,
    Complete,
    /// Complete, but longer than the bound.
    TooLong,
}

impl Value {
    pub(super) fn new(bytes_max: usize, capture: Capture) -> Self {
        let bytes_max = match capture {
            Capture::Bounded => bytes_max,
            Capture::Unbounded => usize::MAX,
        };
        let (bytes, unescape) = (Vec::new(), Unescape::default());
        Self {
            bytes,
            bytes_max,
            state: State::Missing,
            unescape,
            span: Span::default(),
        }
    }

    /// Forgets the value.
    pub(super) fn clear(&mut self) {
        self.state = State::Missing;
        self.bytes.clear();
    }

    pub(super) fn piece(&mut self, raw: &[u8], last: bool) {
        if self.state == State::Missing {
            self.unescape = Unescape::default();
            self.state = State::Open;
        }
        let (bytes, bytes_max) = (&mut self.bytes, self.bytes_max);
        let mut fits = self.state == State::Open;
        let mut keep = |text: &[u8]| {
            fits = fits && text.len() <= bytes_max - bytes.len();
            if fits {
                bytes.extend_from_slice(text);
            }
            fits
        };
        // In steps, so that nothing is decoded once the bound is passed.
        for step in raw.chunks(STEP_BYTES) {
            if !keep(b"") {
                break;
            }
            self.unescape.feed(step, |text| _ = keep(text));
        }
        if last {
            self.unescape.finish(|text| _ = keep(text));
        }
        self.state = match (fits, last) {
            (true, true) => State::Complete,
            (true, false) => State::Open,
            (false, true) => State::TooLong,
            (false, false) => State::Overflown,
        };
    }

    /// The value as a fact; `closed`: the root has closed.
    pub(super) fn fact(&self, closed: bool) -> Fact<Text<'_>> {
        match self.state {
            State::Complete => {
                // A judged body is UTF-8, and so is what `Unescape` makes of it.
                let value = std::str::from_utf8(&self.bytes).unwrap_or_default();
                Fact::Found(Text {
                    value,
                    span: self.span,
                })
            }
            State::TooLong => Fact::BeyondBound,
            State::Missing if closed => Fact::Absent,
            State::Missing | State::Open | State::Overflown => Fact::NotYet,
        }
    }
}
