//! One write: a head, the framing around a piece of body, and the piece itself, in one vector.

use std::io::{self, IoSlice};

use crate::http1::chunked::{CHUNK_END, ChunkHeader, LAST_CHUNK};
use crate::json::Pieces;
use crate::tls::Stream;

/// Pieces of one write.
const PARTS: usize = 11;

/// Data of which nothing is replaced.
pub(super) const fn whole(data: &[u8]) -> Pieces<'_> {
    [data, &[], &[], &[], &[], &[], &[]]
}

/// A piece of a body in the framing of the connection it goes to.
pub(super) struct Flight<'a> {
    /// The message head, or nothing after the first flight.
    pub(super) head: &'a [u8],
    /// Decoded body bytes, cut at what is replaced in them.
    pub(super) data: Pieces<'a>,
    /// Whether these are the last bytes of the body.
    pub(super) last: bool,
    /// Whether the body travels as chunks.
    pub(super) chunked: bool,
    /// What stands for the last chunk where it has trailers; otherwise empty.
    pub(super) ending: &'a [u8],
}

impl Flight<'_> {
    /// Writes everything. `written` counts what the connection took, also when it fails.
    pub(super) async fn write(&self, to: &Stream, written: &mut u64) -> io::Result<()> {
        self.write_waiting(to, written, || to.writable()).await
    }

    /// As [`Self::write`], with a wait of the caller's own for a connection that takes nothing.
    pub(super) async fn write_waiting(
        &self,
        to: &Stream,
        written: &mut u64,
        writable: impl AsyncFn() -> io::Result<()>,
    ) -> io::Result<()> {
        let header = self.header();
        write_all_waiting(to, self.parts(&header), written, writable).await
    }

    /// Everything in one piece, for checks without sockets.
    pub(super) fn append_to(&self, out: &mut Vec<u8>) {
        for part in self.parts(&self.header()) {
            out.extend_from_slice(part);
        }
    }

    fn length(&self) -> usize {
        self.data.iter().map(|piece| piece.len()).sum()
    }

    fn header(&self) -> ChunkHeader {
        ChunkHeader::new(self.length() as u64)
    }

    fn parts<'a>(&'a self, header: &'a ChunkHeader) -> [&'a [u8]; PARTS] {
        let framed = self.chunked && self.length() > 0;
        let before: &[u8] = if framed { header.as_bytes() } else { &[] };
        let after: &[u8] = if framed { CHUNK_END } else { &[] };
        let end: &[u8] = match (self.chunked && self.last, self.ending.is_empty()) {
            (true, true) => LAST_CHUNK,
            (true, false) => self.ending,
            (false, _) => &[],
        };
        let [a, b, c, d, e, f, g] = self.data;
        [self.head, before, a, b, c, d, e, f, g, after, end]
    }
}

/// Writes all bytes of `parts` in order, waiting while the connection takes nothing, and leaves none
/// of them behind in it. May be dropped while it waits; `written` then tells how far it came.
///
/// # Errors
/// What the kernel says.
pub async fn write_all<const N: usize>(
    to: &Stream,
    parts: [&[u8]; N],
    written: &mut u64,
) -> io::Result<()> {
    write_all_waiting(to, parts, written, || to.writable()).await
}

async fn write_all_waiting<const N: usize>(
    to: &Stream,
    parts: [&[u8]; N],
    written: &mut u64,
    writable: impl AsyncFn() -> io::Result<()>,
) -> io::Result<()> {
    let total: usize = parts.iter().map(|p| p.len()).sum();
    let mut done = 0_usize;
    while done < total {
        match to.try_write(&rest(parts, done)) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                done += count;
                *written += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => writable().await?,
            Err(error) => return Err(error),
        }
    }
    while !to.try_flush()? {
        writable().await?;
    }
    Ok(())
}

/// `parts` without their first `done` bytes.
fn rest<const N: usize>(parts: [&[u8]; N], mut done: usize) -> [IoSlice<'_>; N] {
    parts.map(|part| {
        let skip = done.min(part.len());
        done -= skip;
        IoSlice::new(part.get(skip..).unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_skipped_across_parts() {
        let parts: [&[u8]; 4] = [b"ab", b"", b"cde", b"f"];
        for done in 0..=6 {
            let left: Vec<u8> = rest(parts, done).iter().flat_map(|s| s.to_vec()).collect();
            assert_eq!(left, &b"abcdef"[done..]);
        }
    }
}
