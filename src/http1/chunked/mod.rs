//! The chunked transfer coding (RFC 9112 §7.1), read incrementally and written.
//!
//! The decoder moves data to the front of the caller's buffer and keeps a few words of state, so a
//! body of any length and any cut costs no memory. It refuses what other parsers read differently:
//! line ends other than CRLF, sizes with signs, prefixes or spaces, and extensions outside the
//! grammar, which is where chunk parsers were last found to disagree. Extensions are checked and
//! dropped. Trailers are checked, counted, and kept only if asked for; they are never fields of the
//! head. Framing is read byte by byte, data is moved in blocks.

use crate::http1::error::ChunkError;
use crate::http1::error::ChunkReason;
use crate::http1::is_token_byte;
use crate::http1::is_value_byte;

/// Leading zeros of one chunk size. Legal without end; senders that pad use up to 8.
pub const SIZE_ZEROS_MAX: u8 = 16;
/// Bytes of extensions in one body. They have no use here and cost as much as data to read.
pub const EXTENSION_BYTES_MAX: usize = 16 * 1024;
/// Bytes of the trailer section of one body.
pub const TRAILER_BYTES_MAX: usize = 8 * 1024;
/// Lines of the trailer section of one body.
pub const TRAILER_FIELDS_MAX: usize = 64;

/// What ends the data of a chunk.
pub const CHUNK_END: &[u8] = b"\r\n";
/// What ends a body without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// What one call of [`Decoder::decode`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoded {
    /// Bytes of input used: all of them, or up to the end of the body if `done`. What follows
    /// belongs to the next message and is where it was.
    pub consumed: usize,
    /// Bytes of data, now at the start of the buffer; at most `consumed`.
    pub produced: usize,
    /// The body has ended, trailers included.
    pub done: bool,
}

/// Reads one chunked body.
#[derive(Debug, Default)]
pub struct Decoder {
    state: State,
    /// Bytes of coded body before this call, for the offset of an error.
    offset: u64,
    /// Size of the chunk whose size line is being read.
    size: u64,
    /// Leading zeros of that size.
    zeros: u8,
    /// Extension bytes so far in this body.
    extension_bytes: usize,
    /// Trailer bytes and lines so far in this body.
    trailer_bytes: usize,
    trailer_fields: usize,
    /// The trailer lines, if they are to be kept; at most [`TRAILER_BYTES_MAX`].
    kept: Option<Vec<u8>>,
}

/// What the next byte is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A digit of the size, the first if `is_first`.
    Size {
        is_first: bool,
    },
    /// In an extension.
    Extension(Extension),
    /// The LF of a size line.
    SizeLf,
    /// Data, and how much of it is left, never 0.
    Data {
        left: u64,
    },
    /// The CR and the LF after data.
    DataCr,
    DataLf,
    /// In the trailer section.
    Trailer(Trailer),
    /// Nothing: the body has ended.
    Done,
}

/// Where in `*( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )` the next byte is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extension {
    /// After white space: a `;` has to follow.
    Semicolon,
    NameStart,
    Name,
    /// After the name and white space.
    NameEnd,
    ValueStart,
    Value,
    Quoted,
    /// After a backslash in a quoted string.
    Escaped,
    QuotedEnd,
}

/// Where in the trailer section the next byte is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trailer {
    LineStart,
    Name,
    Value,
    Lf,
    /// The LF of the empty line.
    LastLf,
}

impl Default for State {
    fn default() -> Self {
        Self::Size { is_first: true }
    }
}

impl Decoder {
    /// A decoder at the start of a body that checks trailers and drops them.
    pub fn new() -> Self {
        Self::default()
    }

    /// A decoder that keeps the trailer lines for [`Self::trailers`].
    pub fn keeping_trailers() -> Self {
        Self {
            kept: Some(Vec::new()),
            ..Self::default()
        }
    }

    /// The trailer lines so far, each with its CRLF, without the empty line; nothing if they are
    /// not kept. They are complete and checked when the body is done.
    pub fn trailers(&self) -> &[u8] {
        self.kept.as_deref().unwrap_or_default()
    }

    /// Whether the body has ended.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Decodes `buf` in place: reads the coded body from its front, moves the data to its front.
    /// The data is the same for any way of cutting the input.
    ///
    /// # Errors
    /// [`ChunkError`] at the first byte that cannot be there. The body is broken: data of this call
    /// is lost, and the decoder is not to be used again.
    pub fn decode(&mut self, buf: &mut [u8]) -> Result<Decoded, ChunkError> {
        let mut consumed = 0usize;
        let mut produced = 0usize;
        loop {
            if let State::Data { left } = self.state {
                let available = buf.len().saturating_sub(consumed);
                let taken = available.min(usize::try_from(left).unwrap_or(usize::MAX));
                if taken == 0 {
                    break;
                }
                let end = consumed.saturating_add(taken);
                if consumed != produced {
                    buf.copy_within(consumed..end, produced);
                }
                consumed = end;
                produced = produced.saturating_add(taken);
                self.state = match left.saturating_sub(taken as u64) {
                    0 => State::DataCr,
                    left => State::Data { left },
                };
            } else if self.state == State::Done {
                break;
            } else if let Some(&byte) = buf.get(consumed) {
                self.state = self.step(byte).map_err(|reason| ChunkError {
                    at: self.offset.saturating_add(consumed as u64),
                    reason,
                })?;
                consumed = consumed.saturating_add(1);
            } else {
                break;
            }
        }
        self.offset = self.offset.saturating_add(consumed as u64);
        Ok(Decoded {
            consumed,
            produced,
            done: self.is_done(),
        })
    }

    /// The state after a byte of framing.
    fn step(&mut self, byte: u8) -> Result<State, ChunkReason> {
        match (self.state, byte) {
            (State::Size { is_first }, _) => self.size(is_first, byte),
            (State::Extension(place), _) => self.extension(place, byte),
            (State::SizeLf, b'\n') => Ok(match self.size {
                0 => State::Trailer(Trailer::LineStart),
                left => State::Data { left },
            }),
            (State::SizeLf, _) => Err(ChunkReason::LineEnd),
            (State::DataCr, b'\r') => Ok(State::DataLf),
            (State::DataLf, b'\n') => {
                self.size = 0;
                self.zeros = 0;
                Ok(State::Size { is_first: true })
            }
            (State::DataCr | State::DataLf, _) => Err(ChunkReason::DataEnd),
            (State::Trailer(place), _) => self.trailer(place, byte),
            (State::Data { .. } | State::Done, _) => Ok(self.state),
        }
    }

    fn size(&mut self, is_first: bool, byte: u8) -> Result<State, ChunkReason> {
        let digit = match byte {
            b'0'..=b'9' => byte & 0x0F,
            b'a'..=b'f' | b'A'..=b'F' => (byte & 0x0F).saturating_add(9),
            _ if is_first => return Err(ChunkReason::Size),
            b'\r' => return Ok(State::SizeLf),
            b'\n' => return Err(ChunkReason::LineEnd),
            b' ' | b'\t' | b';' => return self.extension(Extension::Semicolon, byte),
            _ => return Err(ChunkReason::Size),
        };
        if self.size == 0 && digit == 0 {
            self.zeros = self.zeros.saturating_add(1);
            if self.zeros > SIZE_ZEROS_MAX {
                return Err(ChunkReason::SizeTooLong);
            }
        }
        // Three bits of room, so that the product stays below 2^63 and cannot overflow.
        if self.size > i64::MAX as u64 >> 4 {
            return Err(ChunkReason::SizeTooLarge);
        }
        self.size = self.size << 4 | u64::from(digit);
        Ok(State::Size { is_first: false })
    }

    fn extension(&mut self, place: Extension, byte: u8) -> Result<State, ChunkReason> {
        use Extension as At;
        let next = match (place, byte) {
            (At::Name | At::Value | At::QuotedEnd, b'\r') => return Ok(State::SizeLf),
            (At::Quoted, b'"') => At::QuotedEnd,
            (At::Quoted, b'\\') => At::Escaped,
            (At::Quoted | At::Escaped, byte) if is_value_byte(byte) => At::Quoted,
            (At::Semicolon | At::Name | At::NameEnd | At::Value | At::QuotedEnd, b';') => {
                At::NameStart
            }
            (At::Semicolon | At::NameStart | At::ValueStart | At::NameEnd, b' ' | b'\t') => place,
            (At::Name, b' ' | b'\t') => At::NameEnd,
            (At::Value | At::QuotedEnd, b' ' | b'\t') => At::Semicolon,
            (At::Name | At::NameEnd, b'=') => At::ValueStart,
            (At::ValueStart, b'"') => At::Quoted,
            (At::NameStart | At::Name, byte) if is_token_byte(byte) => At::Name,
            (At::ValueStart | At::Value, byte) if is_token_byte(byte) => At::Value,
            (_, b'\n') => return Err(ChunkReason::LineEnd),
            _ => return Err(ChunkReason::Extension),
        };
        self.extension_bytes = self.extension_bytes.saturating_add(1);
        if self.extension_bytes > EXTENSION_BYTES_MAX {
            return Err(ChunkReason::ExtensionsTooLong);
        }
        Ok(State::Extension(next))
    }

    fn trailer(&mut self, place: Trailer, byte: u8) -> Result<State, ChunkReason> {
        let next = match (place, byte) {
            (Trailer::LastLf, b'\n') => return Ok(State::Done),
            (Trailer::LineStart, b'\r') => return Ok(State::Trailer(Trailer::LastLf)),
            (Trailer::LineStart, byte) if is_token_byte(byte) => {
                self.trailer_fields = self.trailer_fields.saturating_add(1);
                if self.trailer_fields > TRAILER_FIELDS_MAX {
                    return Err(ChunkReason::TooManyTrailers);
                }
                Trailer::Name
            }
            (Trailer::Name, b':') => Trailer::Value,
            (Trailer::Name, byte) if is_token_byte(byte) => Trailer::Name,
            (Trailer::Value, b'\r') => Trailer::Lf,
            (Trailer::Value, byte) if is_value_byte(byte) => Trailer::Value,
            (Trailer::Lf, b'\n') => Trailer::LineStart,
            (Trailer::Lf | Trailer::LastLf, _) | (_, b'\n') => return Err(ChunkReason::LineEnd),
            (Trailer::LineStart | Trailer::Name, _) => return Err(ChunkReason::TrailerName),
            (Trailer::Value, _) => return Err(ChunkReason::TrailerValue),
        };
        self.trailer_bytes = self.trailer_bytes.saturating_add(1);
        if self.trailer_bytes > TRAILER_BYTES_MAX {
            return Err(ChunkReason::TrailersTooLong);
        }
        if let Some(kept) = &mut self.kept {
            kept.push(byte);
        }
        Ok(State::Trailer(next))
    }
}

/// The line before the data of a chunk: its length in hex and CRLF, without allocation.
#[derive(Debug, Clone, Copy)]
pub struct ChunkHeader {
    text: [u8; Self::BYTES_MAX],
    start: usize,
}

impl ChunkHeader {
    /// Sixteen digits and CRLF.
    pub const BYTES_MAX: usize = 18;

    /// The header of a chunk of `data_bytes`. Zero ends the body: its line is followed by trailers,
    /// if any, and an empty line, see [`LAST_CHUNK`].
    pub fn new(data_bytes: u64) -> Self {
        let mut text = *b"................\r\n";
        let mut start = text.len().saturating_sub(CHUNK_END.len());
        let mut left = data_bytes;
        for (i, digit) in text.iter_mut().enumerate().take(start).rev() {
            *digit = match (left & 0x0F) as u8 {
                value @ 0..=9 => b'0' | value,
                value => b'a'.saturating_add(value.saturating_sub(10)),
            };
            start = i;
            left >>= 4;
            if left == 0 {
                break;
            }
        }
        Self { text, start }
    }

    /// The line, 3 to [`Self::BYTES_MAX`] bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.text.get(self.start..).unwrap_or_default()
    }
}

#[cfg(test)]
#[expect(
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]
mod tests;
