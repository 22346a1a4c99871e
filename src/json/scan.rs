//! The scanner: blocks into words, words into tokens, tokens through the grammar.

use crate::json::lanes::{BLOCK, Lanes};
use crate::json::scalar::Scalar;
use crate::json::simd::{self, Level};
use crate::json::words::{Strings, Words};
use crate::json::{Broken, Container, NESTING_MAX, Reason, Sink, Want};

/// Validates one JSON object that comes in pieces and reports it to a [`Sink`].
///
/// What has been pushed has been judged: no answer lags behind the input.
#[derive(Clone, Debug)]
pub struct Scanner {
    /// Offset of the first byte not yet judged; inside a push, of the chunk's first byte.
    offset: u64,
    strings: Strings,
    grammar: Grammar,
    broken: Option<Broken>,
    level: Level,
}

const _: () = assert!(
    NESTING_MAX <= u128::BITS,
    "one bit of `objects` for each container"
);

/// Where the grammar stands between two tokens.
#[derive(Clone, Debug)]
struct Grammar {
    expect: Expect,
    /// Containers open, the root included; at most `NESTING_MAX + 1`.
    depth: u32,
    /// `depth` inside the container that the sink skips; 0 while it looks.
    muted: u32,
    /// Is it an object: one bit for each open container but the root, the innermost lowest.
    objects: u128,
    /// The string whose end has not come.
    string: Option<Open>,
    /// The number or literal that reached the end of the last block.
    scalar: Option<Scalar>,
    closed_at: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    Root,
    KeyOrClose,
    Key,
    Colon,
    ValueOrClose,
    Value,
    CommaOrClose,
    Nothing,
}

/// An open string: is it a member name, and does the sink want its bytes.
#[derive(Clone, Copy, Debug)]
struct Open {
    key: bool,
    looked: bool,
}

/// One block's place in the chunk, and how much of it counts.
#[derive(Clone, Copy)]
struct Window<'a> {
    chunk: &'a [u8],
    /// Offset of the chunk in the body.
    base: u64,
    /// Index of the block in the chunk.
    at: usize,
    /// Bytes of the block that are input.
    len: u32,
    /// Bytes of the block before its first fault; `len` if there is none.
    stop: u32,
}

impl Window<'_> {
    #[inline(always)]
    const fn index(self, bit: u32) -> usize {
        self.at + bit as usize
    }

    #[inline(always)]
    const fn offset(self, bit: u32) -> u64 {
        self.base + self.index(bit) as u64
    }
}

impl Default for Scanner {
    fn default() -> Self {
        Self::new()
    }
}

impl Scanner {
    /// A scanner with the best lanes of this processor.
    #[must_use]
    pub fn new() -> Self {
        Self::with(Level::detect())
    }

    /// A scanner with the portable lanes, for comparison.
    #[must_use]
    pub fn portable() -> Self {
        Self::with(Level::PORTABLE)
    }

    fn with(level: Level) -> Self {
        let grammar = Grammar {
            expect: Expect::Root,
            depth: 0,
            muted: 0,
            objects: 0,
            string: None,
            scalar: None,
            closed_at: None,
        };
        let strings = Strings::default();
        Self {
            offset: 0,
            strings,
            grammar,
            broken: None,
            level,
        }
    }

    /// Judges the next bytes of the body.
    ///
    /// # Errors
    /// The body is not one JSON object; every later call says the same.
    #[inline]
    pub fn push<S: Sink>(&mut self, chunk: &[u8], sink: &mut S) -> Result<(), Broken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let judged = simd::drive(self.level, self, chunk, sink);
        if let Err(broken) = judged {
            self.broken = Some(broken);
            self.offset = broken.offset;
        }
        judged
    }

    /// Judges the end of the body.
    ///
    /// # Errors
    /// As [`Scanner::push`]; [`Reason::Incomplete`] if the root is still open.
    pub fn finish(&mut self) -> Result<(), Broken> {
        if self.broken.is_none() && self.grammar.closed_at.is_none() {
            let (offset, reason) = (self.offset, Reason::Incomplete);
            self.broken = Some(Broken { offset, reason });
        }
        self.broken.map_or(Ok(()), Err)
    }

    /// Offset of the byte that closed the root.
    #[must_use]
    pub const fn closed_at(&self) -> Option<u64> {
        self.grammar.closed_at
    }

    /// Bytes judged; after an error, the error's offset.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of white space after the root.
    #[must_use]
    pub fn trailing(&self) -> u64 {
        self.closed_at().map_or(0, |at| self.offset - at - 1)
    }

    /// The first error met.
    #[must_use]
    pub const fn broken(&self) -> Option<Broken> {
        self.broken
    }

    #[inline(always)]
    pub(super) fn drive<L: Lanes, S: Sink>(
        &mut self,
        chunk: &[u8],
        sink: &mut S,
    ) -> Result<(), Broken> {
        let base = self.offset;
        // Index in `chunk` of the first byte of the open string that the sink has not had.
        let mut unsent = 0;
        let mut at = 0;
        let mut in_plain_text = false;
        while at < chunk.len() {
            let mut rest = &chunk[at..];
            if in_plain_text {
                let passed = L::plain(rest);
                at += passed;
                rest = &rest[passed..];
            }
            let (lanes, len, words) = match rest.first_chunk::<BLOCK>() {
                Some(block) => {
                    let lanes = L::load(block);
                    (lanes, 64, self.strings.read(lanes, 64))
                }
                None if rest.is_empty() => break,
                None => {
                    let mut padded = [b' '; BLOCK];
                    padded[..rest.len()].copy_from_slice(rest);
                    let lanes = L::load(&padded);
                    let len = u32::try_from(rest.len()).unwrap_or(64);
                    (lanes, len, self.strings.read(lanes, len))
                }
            };
            in_plain_text = words.is_plain_text();
            if !in_plain_text {
                let stop = words.fault.map_or(len, |(bit, _)| bit);
                let window = Window {
                    chunk,
                    base,
                    at,
                    len,
                    stop,
                };
                if words.has_tokens() {
                    self.grammar
                        .block(lanes, words, window, &mut unsent, sink)?;
                }
                if let Some((bit, reason)) = words.fault {
                    return Err(Broken {
                        offset: window.offset(bit),
                        reason,
                    });
                }
            }
            at += len as usize;
        }
        self.grammar.hand_over(&chunk[unsent..], sink);
        self.offset = base + chunk.len() as u64;
        Ok(())
    }
}

impl Grammar {
    /// Gives the sink what came of the open string.
    #[inline(always)]
    fn hand_over<S: Sink>(&self, raw: &[u8], sink: &mut S) {
        match self.string {
            Some(Open {
                key: true,
                looked: true,
            }) => sink.key(raw, false),
            Some(Open {
                key: false,
                looked: true,
            }) => sink.piece(raw, false),
            _ => {}
        }
    }

    /// Takes a block's tokens through the grammar.
    #[inline(always)]
    fn block<L: Lanes, S: Sink>(
        &mut self,
        lanes: L,
        words: Words,
        window: Window<'_>,
        unsent: &mut usize,
        sink: &mut S,
    ) -> Result<(), Broken> {
        let structural = lanes.structural() & !(words.inside | words.controls);
        let scalars = !(words.inside | words.quotes | structural | lanes.white());
        let starts = scalars & !(scalars << 1 | u64::from(self.scalar.is_some()));
        let sound = 1_u64
            .checked_shl(window.stop)
            .map_or(u64::MAX, |bit| bit - 1);
        let mut tokens = (structural | words.quotes | starts) & sound;

        if let Some(scalar) = self.scalar.take() {
            self.run(scalar, 0, scalars, window, sink)?;
        }
        if self.string.is_some() && tokens != 0 {
            // The first token of a block that starts inside a string is that string's quote.
            self.close_string(tokens.trailing_zeros(), window, *unsent, sink);
            tokens &= tokens - 1;
        }
        while tokens != 0 {
            let bit = tokens.trailing_zeros();
            tokens &= tokens - 1;
            match window.chunk[window.index(bit)] {
                b'"' => {
                    self.open_string(bit, window, sink)?;
                    *unsent = window.index(bit) + 1;
                    // The quote that ends it is the next token, if it is in this block.
                    if tokens != 0 {
                        self.close_string(tokens.trailing_zeros(), window, *unsent, sink);
                        tokens &= tokens - 1;
                    }
                }
                b':' if self.expect == Expect::Colon => self.expect = Expect::Value,
                b',' if self.expect == Expect::CommaOrClose => {
                    self.expect = if self.in_object() {
                        Expect::Key
                    } else {
                        Expect::Value
                    };
                }
                b'{' => self.open(Container::Object, bit, window, sink)?,
                b'[' => self.open(Container::Array, bit, window, sink)?,
                b'}' if self.may_close(Expect::KeyOrClose, true) => self.close(bit, window, sink),
                b']' if self.may_close(Expect::ValueOrClose, false) => {
                    self.close(bit, window, sink);
                }
                first => self.start(first, bit, scalars, window, sink)?,
            }
        }
        Ok(())
    }

    #[inline(always)]
    const fn in_object(&self) -> bool {
        self.depth == 1 || self.objects & 1 == 1
    }

    #[inline(always)]
    fn may_close(&self, empty: Expect, object: bool) -> bool {
        self.expect == empty || self.expect == Expect::CommaOrClose && self.in_object() == object
    }

    #[inline(always)]
    fn takes_value(&self) -> bool {
        matches!(self.expect, Expect::Value | Expect::ValueOrClose)
    }

    /// What is wrong with a token that is not expected.
    #[cold]
    fn unexpected(&self, bit: u32, window: Window<'_>) -> Broken {
        let reason = match self.expect {
            Expect::Root => Reason::RootNotObject,
            Expect::Nothing => Reason::Trailing,
            Expect::KeyOrClose
            | Expect::Key
            | Expect::Colon
            | Expect::ValueOrClose
            | Expect::Value
            | Expect::CommaOrClose => Reason::Unexpected,
        };
        Broken {
            offset: window.offset(bit),
            reason,
        }
    }

    #[inline(always)]
    fn open_string<S: Sink>(
        &mut self,
        bit: u32,
        window: Window<'_>,
        sink: &mut S,
    ) -> Result<(), Broken> {
        let looks = self.muted == 0;
        self.string = Some(match self.expect {
            Expect::Key | Expect::KeyOrClose => Open {
                key: true,
                looked: looks,
            },
            Expect::Value | Expect::ValueOrClose => {
                let looked = looks && sink.text(window.offset(bit)) == Want::Look;
                Open { key: false, looked }
            }
            Expect::Root | Expect::Colon | Expect::CommaOrClose | Expect::Nothing => {
                return Err(self.unexpected(bit, window));
            }
        });
        Ok(())
    }

    /// The open string ends with the quote at `bit`.
    #[inline(always)]
    fn close_string<S: Sink>(&mut self, bit: u32, window: Window<'_>, unsent: usize, sink: &mut S) {
        let Some(Open { key, looked }) = self.string.take() else {
            return;
        };
        let raw = &window.chunk[unsent..window.index(bit)];
        if key {
            self.expect = Expect::Colon;
            if looked {
                sink.key(raw, true);
            }
        } else {
            if looked {
                sink.piece(raw, true);
            }
            self.end_value(window.offset(bit) + 1, sink);
        }
    }

    #[inline(always)]
    fn open<S: Sink>(
        &mut self,
        container: Container,
        bit: u32,
        window: Window<'_>,
        sink: &mut S,
    ) -> Result<(), Broken> {
        let object = container == Container::Object;
        if self.takes_value() {
            self.objects = self.objects << 1 | u128::from(object);
        } else if self.expect != Expect::Root || !object {
            return Err(self.unexpected(bit, window));
        }
        if self.depth > NESTING_MAX {
            let (offset, reason) = (window.offset(bit), Reason::Nesting);
            return Err(Broken { offset, reason });
        }
        self.depth += 1;
        self.expect = if object {
            Expect::KeyOrClose
        } else {
            Expect::ValueOrClose
        };
        if self.muted == 0 && sink.open(container, window.offset(bit)) == Want::Skip {
            self.muted = self.depth;
        }
        Ok(())
    }

    #[inline(always)]
    fn close<S: Sink>(&mut self, bit: u32, window: Window<'_>, sink: &mut S) {
        if self.muted == 0 {
            sink.close();
        } else if self.muted == self.depth {
            self.muted = 0;
        }
        self.depth -= 1;
        self.objects >>= 1;
        let at = window.offset(bit);
        self.end_value(at + 1, sink);
        if self.depth == 0 {
            self.expect = Expect::Nothing;
            self.closed_at = Some(at);
        }
    }

    /// Starts the number or literal at `bit`.
    #[inline(always)]
    fn start<S: Sink>(
        &mut self,
        first: u8,
        bit: u32,
        scalars: u64,
        window: Window<'_>,
        sink: &mut S,
    ) -> Result<(), Broken> {
        let scalar = Scalar::start(first).filter(|_| self.takes_value());
        let Some(scalar) = scalar else {
            return Err(self.unexpected(bit, window));
        };
        if self.muted == 0 {
            sink.scalar(first, window.offset(bit));
        }
        self.run(scalar, bit + 1, scalars, window, sink)
    }

    /// Steps a number or literal from `bit` to its end, or to the end of the block.
    #[inline(always)]
    fn run<S: Sink>(
        &mut self,
        mut scalar: Scalar,
        mut bit: u32,
        scalars: u64,
        window: Window<'_>,
        sink: &mut S,
    ) -> Result<(), Broken> {
        let broken = |bit| Broken {
            offset: window.offset(bit),
            reason: Reason::Scalar,
        };
        while bit < window.stop && scalars >> bit & 1 == 1 {
            let byte = window.chunk[window.index(bit)];
            scalar = scalar.step(byte).ok_or_else(|| broken(bit))?;
            bit += 1;
        }
        if bit == window.len {
            self.scalar = Some(scalar);
        } else if bit < window.stop {
            if !scalar.complete() {
                return Err(broken(bit));
            }
            self.end_value(window.offset(bit), sink);
        }
        Ok(())
    }

    #[inline(always)]
    fn end_value<S: Sink>(&mut self, end: u64, sink: &mut S) {
        self.expect = Expect::CommaOrClose;
        if self.muted == 0 {
            sink.end(end);
        }
    }
}
