//! Content codings of request bodies (RFC 9110 §8.4.1): a bounded decoder that is pushed.
//!
//! One body is one gzip member, one zstd frame, one zlib stream or one brotli stream, and nothing
//! behind it: a decoder that reads on would see more than one that stops. `deflate` is the zlib form
//! that RFC 9110 §8.4.1.2 names; a raw stream, which some senders mean by it, is refused, because
//! whoever guesses between the two may guess differently from the provider.
//!
//! What a body decodes to is bounded by a length, by a ratio to what was received, and by a window.
//! Memory is what [`memory_needed`] says of the first bytes, and is asked for before the decoder is
//! made. A step takes at most [`CODING_PIECE_BYTES`] in and fills at most the room it is given, and
//! nothing is allocated per step once the first block was decoded. zstd and deflate stay within
//! tens of microseconds a step; brotli fills its window before it hands anything out, which costs a
//! hostile body one pause of a window's length, about 5 ms.
//!
//! Every limit is checked at places that depend on the body alone and not on how it was cut.

mod brotli;
#[doc(hidden)]
pub mod fuzzing;
#[cfg(test)]
mod tests;
mod zlib;
mod zstd;

use std::fmt;

pub use crate::limits::{CODING_PIECE_BYTES, CODING_RATIO_MAX, CODING_WINDOW_BYTES};

/// A content coding that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// `gzip`, `x-gzip`: one member (RFC 1952).
    Gzip,
    /// `deflate`: the zlib format (RFC 1950).
    Deflate,
    /// `zstd`: one frame (RFC 8878), without a dictionary.
    Zstd,
    /// `br` (RFC 7932).
    Brotli,
}

/// The codings that are read, as a list for a client that sent another one.
pub const READABLE: &str = "zstd, gzip, deflate, br";

/// What the head says about the codings of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codings {
    /// None: the body is what its type says.
    Plain,
    /// One that can be read.
    One(Coding),
    /// An unknown one, or several.
    Unreadable,
}

impl Codings {
    /// From the values of `Content-Encoding`, in order; `identity` and empty members are none.
    pub fn of<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let named = values
            .flat_map(|value| value.split(|byte| *byte == b','))
            .map(<[u8]>::trim_ascii)
            .filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case(b"identity"));
        named.fold(Self::Plain, |so_far, name| match so_far {
            Self::Plain => Coding::named(name).map_or(Self::Unreadable, Self::One),
            Self::One(_) | Self::Unreadable => Self::Unreadable,
        })
    }

    /// Whether there is any.
    #[must_use]
    pub const fn is_coded(self) -> bool {
        !matches!(self, Self::Plain)
    }
}

impl Coding {
    /// Names are matched without regard to case (RFC 9110 §8.4.1).
    fn named(name: &[u8]) -> Option<Self> {
        let names: [(&[u8], Self); 5] = [
            (b"zstd", Self::Zstd),
            (b"gzip", Self::Gzip),
            (b"x-gzip", Self::Gzip),
            (b"deflate", Self::Deflate),
            (b"br", Self::Brotli),
        ];
        let found = names.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, coding)| *coding)
    }
}

/// Why a body cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodingError {
    /// It is not what its coding demands, or needs a dictionary.
    Broken,
    /// It ended inside the coded stream.
    Truncated,
    /// Bytes follow the end of the coded stream, another member or frame included.
    Trailing,
    /// It decodes to more bytes than allowed.
    TooLong,
    /// It decodes to more than [`CODING_RATIO_MAX`] times its length.
    Ratio,
    /// It asks for a window of more than [`CODING_WINDOW_BYTES`].
    Window,
}

impl fmt::Display for CodingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Broken => "expected one stream in the named coding, got something else",
            Self::Truncated => "the coded stream breaks off",
            Self::Trailing => "bytes follow the coded stream; send one member or frame",
            Self::TooLong => "it decodes to too many bytes",
            Self::Ratio => "it decodes to more than 200 times its length",
            Self::Window => "it asks for a window of more than 8 MiB",
        })
    }
}

/// Most bytes of memory that decoding takes, from the first bytes of the body; none while they are
/// too few to say.
///
/// # Errors
/// [`CodingError::Window`], or [`CodingError::Broken`] if this is no beginning of such a stream.
pub fn memory_needed(coding: Coding, start: &[u8]) -> Result<Option<u64>, CodingError> {
    match coding {
        Coding::Gzip | Coding::Deflate => Ok(Some(zlib::MEMORY)),
        Coding::Zstd => zstd::memory_needed(start),
        Coding::Brotli => brotli::memory_needed(start),
    }
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Bytes of the body that were taken.
    pub consumed: usize,
    /// Bytes that were written to the start of the room.
    pub produced: usize,
    /// Whether everything that follows from the taken bytes was handed out. If not, the next step
    /// goes on with it, and may be given no new bytes.
    pub drained: bool,
}

/// The decoder of one body.
#[derive(Debug)]
pub struct Decoder {
    codec: Codec,
    /// Bytes it may still decode to.
    left: u64,
    consumed: u64,
    produced: u64,
    settled: u64,
    ended: bool,
}

#[derive(Debug)]
enum Codec {
    Zlib(zlib::Inflater),
    Zstd(zstd::Frame),
    Brotli(Box<brotli::Stream>),
}

/// What a codec did with one piece; `ended` if the stream is over and all of it was handed out.
#[derive(Clone, Copy, Debug)]
struct Progress {
    consumed: usize,
    produced: usize,
    ended: bool,
}

impl Decoder {
    /// A decoder of a body that may decode to `limit` bytes.
    #[must_use]
    pub fn new(coding: Coding, limit: u64) -> Self {
        let codec = match coding {
            Coding::Gzip => Codec::Zlib(zlib::Inflater::gzip()),
            Coding::Deflate => Codec::Zlib(zlib::Inflater::zlib()),
            Coding::Zstd => Codec::Zstd(zstd::Frame::default()),
            Coding::Brotli => Codec::Brotli(Box::default()),
        };
        Self {
            codec,
            left: limit,
            consumed: 0,
            produced: 0,
            settled: 0,
            ended: false,
        }
    }

    /// Decodes from the next bytes of the body into `room`, which must not be empty.
    ///
    /// # Errors
    /// When the body is refused; the decoder is of no use then.
    pub fn step(&mut self, wire: &[u8], room: &mut [u8]) -> Result<Step, CodingError> {
        if self.ended {
            let drained = Step {
                consumed: 0,
                produced: 0,
                drained: true,
            };
            let trails = !wire.is_empty();
            return (!trails).then_some(drained).ok_or(CodingError::Trailing);
        }
        let piece = wire.get(..self.piece(wire.len())).unwrap_or_default();
        let done = match &mut self.codec {
            Codec::Zlib(inflater) => inflater.step(piece, room)?,
            Codec::Zstd(frame) => frame.step(piece, room)?,
            Codec::Brotli(stream) => stream.step(piece, room)?,
        };
        self.ended = done.ended;
        self.consumed = self.consumed.saturating_add(done.consumed as u64);
        self.produced = self.produced.saturating_add(done.produced as u64);
        let left = self.left.checked_sub(done.produced as u64);
        self.left = left.ok_or(CodingError::TooLong)?;
        if self.produced > self.allowed() {
            return Err(CodingError::Ratio);
        }
        let taken = done.consumed == piece.len();
        let drained = done.ended || taken && done.produced < room.len();
        // What neither takes nor makes would be asked for ever.
        if !drained && done.consumed == 0 && done.produced == 0 {
            return Err(CodingError::Broken);
        }
        if drained {
            self.settled = match &self.codec {
                Codec::Zstd(frame) => frame.block_start(),
                Codec::Zlib(_) | Codec::Brotli(_) => self.consumed,
            };
        }
        Ok(Step {
            consumed: done.consumed,
            produced: done.produced,
            drained,
        })
    }

    /// How many of `ready` bytes are taken at once. A piece never crosses a multiple of its greatest
    /// length, so that the ratio is looked at in the same places however the body was cut.
    fn piece(&self, ready: usize) -> usize {
        let taken = usize::try_from(self.consumed % CODING_PIECE_BYTES as u64).unwrap_or(0);
        ready.min(CODING_PIECE_BYTES - taken)
    }

    /// Bytes that the ratio allows to come from what was taken, a begun piece counted as a whole.
    fn allowed(&self) -> u64 {
        let pieces = self.consumed.div_ceil(CODING_PIECE_BYTES as u64).max(1);
        pieces.saturating_mul(CODING_PIECE_BYTES as u64 * CODING_RATIO_MAX)
    }

    /// The end of the body.
    ///
    /// # Errors
    /// [`CodingError::Truncated`] if the coded stream has not ended.
    pub fn finish(&self) -> Result<(), CodingError> {
        self.ended.then_some(()).ok_or(CodingError::Truncated)
    }

    /// Bytes of the body taken so far.
    #[must_use]
    pub const fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Bytes decoded so far.
    #[must_use]
    pub const fn produced(&self) -> u64 {
        self.produced
    }

    /// Offset in the coded body of the first byte whose decode was not handed out: no decoder can
    /// have made more of the bytes before it. For zstd, the start of the block that has begun.
    #[must_use]
    pub const fn settled(&self) -> u64 {
        self.settled
    }
}
