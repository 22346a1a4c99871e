//! gzip and zlib, both around deflate.

use std::fmt;

use flate2::{Decompress, FlushDecompress, Status};

use crate::coding::{CodingError, Progress};

/// Bytes of a decoder: a window of 32 KiB and tables.
pub(super) const MEMORY: u64 = 64 * 1024;

/// Of the largest deflate window, 32 KiB.
const WINDOW_BITS: u8 = 15;

pub(super) struct Inflater(Decompress);

impl Inflater {
    pub(super) fn gzip() -> Self {
        Self(Decompress::new_gzip(WINDOW_BITS))
    }

    pub(super) fn zlib() -> Self {
        Self(Decompress::new(true))
    }

    pub(super) fn step(&mut self, piece: &[u8], room: &mut [u8]) -> Result<Progress, CodingError> {
        let (taken, made) = (self.0.total_in(), self.0.total_out());
        let status = self.0.decompress(piece, room, FlushDecompress::None);
        let status = status.map_err(|_| CodingError::Broken)?;
        let since = |now: u64, then: u64| usize::try_from(now.saturating_sub(then)).unwrap_or(0);
        Ok(Progress {
            consumed: since(self.0.total_in(), taken),
            produced: since(self.0.total_out(), made),
            ended: status == Status::StreamEnd,
        })
    }
}

impl fmt::Debug for Inflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inflater").finish_non_exhaustive()
    }
}
