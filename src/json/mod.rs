//! JSON as bytes that pass by: a push scanner, string escapes, and edits by span.
//!
//! The scanner decides whether a body is one JSON object (RFC 8259) and reports what it meets to a
//! [`Sink`] that may look at a part or skip it. It takes any cut of the input, keeps no input, builds
//! no tree and allocates nothing; its state is a few hundred bytes. It refuses what is not an
//! object, what nests deeper than [`NESTING_MAX`], and every byte but white space after the root.
//!
//! Cost: bytes are taken in blocks of 64. Each test on a block ("is it a quote", "is it a control
//! character") gives one bit per byte, the rules for strings, escapes and UTF-8 are algebra on those
//! words, and only structural characters, quotes and the starts of numbers and literals are visited
//! one by one. Long strings therefore pass at the speed of a few compares per block. All word
//! algebra is shared; the AVX2 and the portable lanes differ only in how a word is made, and the
//! first wrong bit is the exact offset of the error, so results do not depend on lanes or cuts.
//!
//! Lone surrogates: `"\ud800"` is valid by the grammar (RFC 8259 §8.2 calls the outcome
//! unpredictable), so the scanner passes it; [`Unescape`] decodes it to U+FFFD.

mod lanes;
mod patch;
mod scalar;
mod scan;
mod simd;
mod text;
mod utf8;
mod word;
mod words;

pub use crate::limits::NESTING_MAX;
pub use patch::{PATCHES_MAX, Patch, Patches, Pieces, Span, patched_len, splice};
pub use scan::Scanner;
pub use text::{Unescape, quote};
pub use word::{WORD_BYTES_MAX, Word};

use std::fmt;

/// Why a body is not one JSON object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The first byte that is not white space is not `{`.
    RootNotObject,
    /// A byte that the grammar does not allow here.
    Unexpected,
    /// A raw control character inside a string.
    Control,
    /// An unknown escape, or `\u` without four hexadecimal digits.
    Escape,
    /// Not UTF-8 (RFC 3629).
    Utf8,
    /// A number or literal that breaks off or goes on wrongly.
    Scalar,
    /// More than [`NESTING_MAX`] containers inside the root.
    Nesting,
    /// Something other than white space after the root.
    Trailing,
    /// The body ended inside the root.
    Incomplete,
}

impl Reason {
    /// A short stable name for logs and error bodies.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RootNotObject => "root_not_object",
            Self::Unexpected => "unexpected_byte",
            Self::Control => "control_in_string",
            Self::Escape => "bad_escape",
            Self::Utf8 => "bad_utf8",
            Self::Scalar => "bad_scalar",
            Self::Nesting => "too_deep",
            Self::Trailing => "trailing_bytes",
            Self::Incomplete => "incomplete",
        }
    }
}

/// The body is not one JSON object: the first byte at which no continuation could make it one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Offset of that byte from the start of the body; the body's length for
    /// [`Reason::Incomplete`].
    pub offset: u64,
    /// What is wrong there.
    pub reason: Reason,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.reason.as_str(), self.offset)
    }
}

impl std::error::Error for Broken {}

/// Whether the sink wants to see inside a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Report what is inside.
    Look,
    /// Validate it and report only its end.
    Skip,
}

/// The two containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// `{}`
    Object,
    /// `[]`
    Array,
}

/// Receives what a [`Scanner`] meets, in order. Offsets count from the start of the body.
///
/// What was reported before a push returns [`Broken`] is not to be trusted.
pub trait Sink {
    /// A container opens at `at`. After [`Want::Skip`] the next call is its `end`.
    fn open(&mut self, container: Container, at: u64) -> Want;
    /// The innermost container that was looked into closes; its `end` follows.
    fn close(&mut self);
    /// Bytes between the quotes of a member name, still escaped; in more than one piece only where
    /// the input was cut. `last`: the name is complete.
    fn key(&mut self, raw: &[u8], last: bool);
    /// A string value opens, its first quote at `at`. After [`Want::Skip`] the next call is its
    /// `end`.
    fn text(&mut self, at: u64) -> Want;
    /// Bytes of a string value that is looked at, as in [`Sink::key`].
    fn piece(&mut self, raw: &[u8], last: bool);
    /// A number or literal starts at `at` with the byte `first`.
    fn scalar(&mut self, first: u8, at: u64);
    /// The value that started last at this level ends before offset `end`.
    fn end(&mut self, end: u64);
}
