//! A body with a content coding, decoded only to be judged.
//!
//! What is released are the bytes that came. So that no provider can decode more of them than was
//! judged here, nothing is released of a block whose decode was not handed out yet, and nothing from
//! the block on that gave the byte which closes the root.

use crate::buf::Reservation;
use crate::coding::{Coding, CodingError, Decoder, memory_needed};
use crate::lane::body::BodyError;
use crate::lane::inspect::Inspection;
use crate::limits::CODING_TURN_BYTES;

/// The decode of one body.
#[derive(Debug)]
pub(super) struct Coded {
    coding: Coding,
    /// Bytes it may decode to.
    limit: u64,
    stage: Stage,
    /// Offset of the block that closed the root.
    closing: Option<u64>,
}

#[derive(Debug)]
enum Stage {
    /// Its first bytes did not come yet.
    Unopened,
    /// It goes on when this much memory was granted.
    Wants(u64),
    /// `behind` if bytes that came are still to be decoded. The reservation is for the decoder.
    Open {
        decoder: Box<Decoder>,
        behind: bool,
        _memory: Reservation,
    },
    /// It ended well and decoded to this many bytes.
    Done(u64),
}

impl Coded {
    pub(super) fn new(coding: Coding, limit: u64) -> Self {
        Self {
            coding,
            limit,
            stage: Stage::Unopened,
            closing: None,
        }
    }

    /// Memory that has to be granted before anything else is done.
    pub(super) fn wants(&self) -> Option<u64> {
        match self.stage {
            Stage::Wants(bytes) => Some(bytes),
            Stage::Unopened | Stage::Open { .. } | Stage::Done(_) => None,
        }
    }

    pub(super) fn grant(&mut self, memory: Reservation) {
        self.stage = Stage::Open {
            decoder: Box::new(Decoder::new(self.coding, self.limit)),
            behind: true,
            _memory: memory,
        };
    }

    /// Whether bytes that came are still to be decoded, so that it must be asked again.
    pub(super) fn is_behind(&self) -> bool {
        matches!(self.stage, Stage::Open { behind: true, .. })
    }

    /// What the whole body decoded to; none before it has ended.
    pub(super) fn decoded(&self) -> Option<u64> {
        match self.stage {
            Stage::Done(bytes) => Some(bytes),
            Stage::Unopened | Stage::Wants(_) | Stage::Open { .. } => None,
        }
    }

    /// Decodes and judges some of `ready`, whose first byte is at `offset` of the body. `complete`
    /// if nothing comes behind them.
    pub(super) fn scan(
        &mut self,
        (ready, offset): (&[u8], u64),
        complete: bool,
        inspection: &mut Inspection,
        room: &mut [u8],
    ) -> Result<(), BodyError> {
        if matches!(self.stage, Stage::Unopened) {
            match memory_needed(self.coding, ready)? {
                Some(bytes) => self.stage = Stage::Wants(bytes),
                None if complete => return Err(CodingError::Truncated.into()),
                None => {}
            }
        }
        let Stage::Open {
            decoder, behind, ..
        } = &mut self.stage
        else {
            return Ok(());
        };
        let seen = usize::try_from(decoder.consumed().saturating_sub(offset));
        let mut wire = ready.get(seen.unwrap_or(ready.len())..).unwrap_or_default();
        let mut done = 0_usize;
        loop {
            let block = decoder.settled();
            let step = decoder.step(wire, room)?;
            wire = wire.get(step.consumed..).unwrap_or_default();
            inspection.see(room.get(..step.produced).unwrap_or_default())?;
            if inspection.withholds_from_here() {
                self.closing.get_or_insert(block);
            }
            done += step.consumed + step.produced;
            *behind = !(step.drained && wire.is_empty());
            if !*behind || done >= CODING_TURN_BYTES {
                break;
            }
        }
        if complete && !*behind {
            decoder.finish()?;
            inspection.end()?;
            self.stage = Stage::Done(decoder.produced());
        }
        Ok(())
    }

    /// How many of `ready` bytes, the first of which is at `offset` of the body, may be released
    /// before the body has ended.
    pub(super) fn releasable(&self, offset: u64, ready: usize) -> usize {
        let judged = match &self.stage {
            Stage::Unopened | Stage::Wants(_) => 0,
            Stage::Open { decoder, .. } => decoder.settled(),
            Stage::Done(_) => u64::MAX,
        };
        let until = self.closing.unwrap_or(u64::MAX).min(judged);
        usize::try_from(until.saturating_sub(offset)).map_or(ready, |count| count.min(ready))
    }
}
