//! zstd, and where in its frame the decoder stands.
//!
//! The library decodes a block when it has all of it. Another decoder may hand out the literals of a
//! block while the block still comes, so what counts as undecided is the whole block that has begun.

use std::fmt;

use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use crate::coding::{CodingError, Progress};
use crate::limits::CODING_WINDOW_BYTES;

/// Bytes beside the window: the context, one block of input and two of output (RFC 8878 §3.1.1.2:
/// a block has at most 128 KiB).
const MEMORY: u64 = 1024 * 1024;

const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// Bytes of a block header (RFC 8878 §3.1.1.2).
const BLOCK_HEADER: u8 = 3;

/// Bytes of the checksum behind the last block (RFC 8878 §3.1.1).
const CHECKSUM: u32 = 4;

/// The header of a frame (RFC 8878 §3.1.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    bytes: usize,
    window: u64,
    checksum: bool,
}

impl Header {
    /// None while it is not there as a whole.
    fn of(start: &[u8]) -> Result<Option<Self>, CodingError> {
        let magic = start.get(..MAGIC.len()).unwrap_or(start);
        if !MAGIC.starts_with(magic) {
            return Err(CodingError::Broken);
        }
        let Some(descriptor) = start.get(MAGIC.len()).copied() else {
            return Ok(None);
        };
        let single = descriptor & 0x20 != 0;
        let window_at = MAGIC.len() + 1;
        let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
        let content = match (descriptor >> 6, single) {
            (0, false) => 0,
            (0, true) => 1,
            (1, _) => 2,
            (2, _) => 4,
            (_, _) => 8,
        };
        let content_at = window_at + usize::from(!single) + dictionary;
        let bytes = content_at + content;
        let Some(header) = start.get(..bytes) else {
            return Ok(None);
        };
        let window = if single {
            let field = header.get(content_at..).unwrap_or_default();
            let size = field.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
            // A field of two bytes counts from 256 on.
            if content == 2 { size + 256 } else { size }
        } else {
            let byte = header.get(window_at).copied().unwrap_or_default();
            let base = 1_u64 << (10 + (byte >> 3));
            base + base / 8 * u64::from(byte & 7)
        };
        Ok(Some(Self {
            bytes,
            window,
            checksum: descriptor & 4 != 0,
        }))
    }
}

pub(super) fn memory_needed(start: &[u8]) -> Result<Option<u64>, CodingError> {
    match Header::of(start)? {
        Some(header) if header.window > CODING_WINDOW_BYTES => Err(CodingError::Window),
        header => Ok(header.map(|header| header.window + MEMORY)),
    }
}

/// The bytes of a frame header, of which there are at most 18.
type HeaderBytes = [u8; 18];

/// What the next byte of the frame belongs to.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// The frame header, of which these were seen.
    Header(HeaderBytes, u8),
    /// A block header: its bytes so far, lowest first, and how many.
    Block(u32, u8),
    /// The content of a block: bytes still to come, and whether it is the last one.
    Content(u32, bool),
    /// What is behind the last block.
    Rest(u32),
}

/// Follows the blocks of a frame. What is wrong with them is for the library to say.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    place: Place,
    checksum: bool,
    offset: u64,
    /// Offset of the block that has begun, or of whatever else comes next.
    start: u64,
}

impl Default for Blocks {
    fn default() -> Self {
        Self {
            place: Place::Header(HeaderBytes::default(), 0),
            checksum: false,
            offset: 0,
            start: 0,
        }
    }
}

impl Blocks {
    fn pass(&mut self, mut bytes: &[u8]) -> Result<(), CodingError> {
        while let Some((first, rest)) = bytes.split_first() {
            let taken = match &mut self.place {
                Place::Header(..) | Place::Block(..) => {
                    self.header_byte(*first)?;
                    bytes = rest;
                    continue;
                }
                Place::Content(left, _) | Place::Rest(left) => {
                    let taken = usize::try_from(*left).map_or(bytes.len(), |n| n.min(bytes.len()));
                    *left -= u32::try_from(taken).unwrap_or(*left);
                    taken
                }
            };
            if taken == 0 {
                // Behind the frame, where nothing counts.
                return Ok(());
            }
            self.offset = self.offset.saturating_add(taken as u64);
            bytes = bytes.get(taken..).unwrap_or_default();
            self.next_block();
        }
        Ok(())
    }

    fn header_byte(&mut self, byte: u8) -> Result<(), CodingError> {
        self.offset = self.offset.saturating_add(1);
        match &mut self.place {
            Place::Header(seen, count) => {
                if let Some(place) = seen.get_mut(usize::from(*count)) {
                    *place = byte;
                    *count += 1;
                }
                let start = seen.get(..usize::from(*count)).unwrap_or_default();
                if let Some(header) = Header::of(start)? {
                    self.checksum = header.checksum;
                    self.place = Place::Block(0, 0);
                    self.start = self.offset;
                }
            }
            Place::Block(header, count) => {
                *header |= u32::from(byte) << (8 * u32::from(*count));
                *count += 1;
                if *count == BLOCK_HEADER {
                    let (last, kind, size) = (*header & 1 == 1, *header >> 1 & 3, *header >> 3);
                    // A run is one byte, whatever it decodes to.
                    let content = if kind == 1 { 1 } else { size };
                    self.place = Place::Content(content, last);
                    self.next_block();
                }
            }
            Place::Content(..) | Place::Rest(_) => {}
        }
        Ok(())
    }

    fn next_block(&mut self) {
        if let Place::Content(0, last) = self.place {
            self.start = self.offset;
            self.place = match (last, self.checksum) {
                (false, _) => Place::Block(0, 0),
                (true, true) => Place::Rest(CHECKSUM),
                (true, false) => Place::Rest(0),
            };
        }
    }
}

pub(super) struct Frame {
    context: Option<DCtx<'static>>,
    blocks: Blocks,
}

impl Default for Frame {
    fn default() -> Self {
        let mut context = DCtx::try_create();
        // A window that is a power of two, so its logarithm says it all.
        let window = DParameter::WindowLogMax(CODING_WINDOW_BYTES.ilog2());
        if context
            .as_mut()
            .is_some_and(|context| context.set_parameter(window).is_err())
        {
            context = None;
        }
        Self {
            context,
            blocks: Blocks::default(),
        }
    }
}

impl Frame {
    pub(super) fn step(&mut self, piece: &[u8], room: &mut [u8]) -> Result<Progress, CodingError> {
        // No memory for a context is no memory for anything; the body is refused.
        let context = self.context.as_mut().ok_or(CodingError::Broken)?;
        let (mut input, mut output) = (InBuffer::around(piece), OutBuffer::around(room));
        let hint = context.decompress_stream(&mut output, &mut input);
        let hint = hint.map_err(|_| CodingError::Broken)?;
        let (consumed, produced) = (input.pos, output.pos());
        self.blocks
            .pass(piece.get(..consumed).unwrap_or_default())?;
        Ok(Progress {
            consumed,
            produced,
            ended: hint == 0,
        })
    }

    /// Offset of the block that has begun, or of the end of the last one.
    pub(super) const fn block_start(&self) -> u64 {
        self.blocks.start
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("blocks", &self.blocks)
            .finish_non_exhaustive()
    }
}

const _: () = assert!(CODING_WINDOW_BYTES.is_power_of_two());
