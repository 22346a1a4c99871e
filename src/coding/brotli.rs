//! brotli.

use std::fmt;

use brotli_decompressor::{
    BrotliDecompressStream, BrotliResult, BrotliState, HuffmanCode, StandardAlloc,
};

use crate::coding::{CodingError, Progress};
use crate::limits::CODING_WINDOW_BYTES;

/// Bytes beside the window: three groups of at most 256 prefix codes of at most 1080 entries of
/// four bytes (RFC 7932 §7.3), the context maps, and the state.
const TABLES: u64 = 4 * 1024 * 1024;

type State = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

pub(super) struct Stream {
    state: State,
    total: usize,
}

impl Default for Stream {
    fn default() -> Self {
        let alloc = StandardAlloc::default;
        Self {
            state: State::new_strict(alloc(), alloc(), alloc()),
            total: 0,
        }
    }
}

/// WBITS, in the lowest bits of the first byte (RFC 7932 §9.1), and from it the window's bytes.
pub(super) fn memory_needed(start: &[u8]) -> Result<Option<u64>, CodingError> {
    let Some(first) = start.first() else {
        return Ok(None);
    };
    let bits = match (first & 1, first >> 1 & 7, first >> 4 & 7) {
        (0, ..) => 16,
        (_, 0, 0) => 17,
        // The mark of large windows, which the coding `br` does not have.
        (_, 0, 1) => return Err(CodingError::Window),
        (_, 0, more) => 8 + u32::from(more),
        (_, more, _) => 17 + u32::from(more),
    };
    let window = 1_u64 << bits;
    if window > CODING_WINDOW_BYTES {
        return Err(CodingError::Window);
    }
    // The window grows by being moved into one of twice the size.
    Ok(Some(window + window / 2 + TABLES))
}

impl Stream {
    pub(super) fn step(&mut self, piece: &[u8], room: &mut [u8]) -> Result<Progress, CodingError> {
        let (mut available, mut consumed) = (piece.len(), 0);
        let (mut space, mut produced) = (room.len(), 0);
        let result = BrotliDecompressStream(
            &mut available,
            &mut consumed,
            piece,
            &mut space,
            &mut produced,
            room,
            &mut self.total,
            &mut self.state,
        );
        match result {
            BrotliResult::ResultFailure => Err(CodingError::Broken),
            other => Ok(Progress {
                consumed,
                produced,
                ended: matches!(other, BrotliResult::ResultSuccess),
            }),
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

const _: () = assert!(size_of::<HuffmanCode>() <= 4);
