//! A message body on its way from one connection's input.

use crate::buf::{Input, Reservation};
use crate::coding::{Coding, CodingError};
use crate::http1::chunked::Decoder;
use crate::http1::error::ChunkError;
use crate::http1::framing::BodyLength;
use crate::json::Broken;
use crate::lane::coded::Coded;
use crate::lane::inspect::Inspection;
use crate::peek::{Peek, TopKey};
use crate::usage::{Injection, Passage, Sieve, Tap, Usage};

/// What can be wrong with a body while it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// The chunked coding is broken.
    Chunk(ChunkError),
    /// More bytes than the limit allows, seen only while they came (a chunked body).
    TooLong,
    /// The body is not one JSON object.
    Json(Broken),
    /// A key that decides about the request comes twice, or in two spellings of one name.
    Ambiguous(TopKey),
    /// More white space after the JSON object than a window holds.
    TrailingSpace,
    /// The content coding is broken, or decodes to something beyond bounds.
    Coding(CodingError),
}

impl From<CodingError> for BodyError {
    fn from(error: CodingError) -> Self {
        match error {
            CodingError::TooLong => Self::TooLong,
            error => Self::Coding(error),
        }
    }
}

/// The state of a body: what was handed on, what is ready, and whether its end was seen.
///
/// "Decoded" is about the transfer coding here; a content coding is left as it is, and its decode is
/// only looked at. The ready bytes are the first ones of the connection's input, decoded; behind them come bytes
/// that are not decoded yet, then those of the next message.
#[derive(Debug)]
pub struct Body {
    shape: Shape,
    ready: usize,
    ended: bool,
    /// Decoded bytes handed on so far: the offset of the first ready byte.
    offset: u64,
    inspection: Option<Inspection>,
    /// Between the body and its inspection, if it has a content coding.
    coded: Option<Coded>,
    /// Is shown what was handed on.
    tap: Option<Tap>,
    /// Says what of it is handed on.
    sieve: Option<Box<Sieve>>,
    /// Decoded bytes that may still come before the body is too long.
    allowed: u64,
}

fn decoder(trailers: bool) -> Decoder {
    if trailers {
        Decoder::keeping_trailers()
    } else {
        Decoder::new()
    }
}

#[derive(Debug)]
enum Shape {
    /// Bytes still to hand on, the ready ones included.
    Known(u64),
    Chunked(Box<Decoder>),
    UntilClose,
}

impl Body {
    /// A body of this length that may have at most `limit` decoded bytes. The trailer section of
    /// a chunked body is kept if `trailers` says so.
    #[must_use]
    pub fn new(length: BodyLength, limit: u64, trailers: bool) -> Self {
        let shape = match length {
            BodyLength::None => Shape::Known(0),
            BodyLength::Known(bytes) => Shape::Known(bytes),
            BodyLength::Chunked => Shape::Chunked(Box::new(decoder(trailers))),
            BodyLength::UntilClose => Shape::UntilClose,
        };
        Self {
            shape,
            ready: 0,
            ended: false,
            offset: 0,
            inspection: None,
            coded: None,
            tap: None,
            sieve: None,
            allowed: limit,
        }
    }

    /// The body with its content judged as it arrives.
    #[must_use]
    pub fn inspected(mut self, inspection: Option<Inspection>) -> Self {
        self.inspection = inspection;
        self
    }

    /// The body with a content coding: if it is inspected, then what it decodes to, at most `limit`
    /// bytes.
    #[must_use]
    pub fn coded(mut self, coding: Option<Coding>, limit: u64) -> Self {
        self.coded = coding
            .filter(|_| self.inspection.is_some())
            .map(|coding| Coded::new(coding, limit));
        self
    }

    /// The body with a tap that is shown the bytes after they were handed on.
    #[must_use]
    pub fn tapped(mut self, tap: Option<Tap>) -> Self {
        self.tap = tap;
        self
    }

    /// The body with a sieve, which takes something out of it.
    #[must_use]
    pub fn sifted(mut self, sieve: Option<Sieve>) -> Self {
        self.sieve = sieve.map(Box::new);
        self
    }

    /// Whether the sieve has taken something out; none without one.
    #[must_use]
    pub fn injection(&self) -> Option<Injection> {
        self.sieve.as_ref().map(|sieve| sieve.outcome())
    }

    /// What of the ready bytes, those of `input`, goes on now: all of them where there is no sieve. What
    /// passes and what is taken out is to be handed on before this is asked again.
    pub fn passage(&mut self, input: &Input) -> Passage {
        let whole = self.is_complete();
        match &mut self.sieve {
            Some(sieve) => {
                let ready = input.bytes().get(..self.ready);
                sieve.sift(ready.unwrap_or_default(), whole)
            }
            None => Passage {
                pass: self.ready,
                remove: 0,
            },
        }
    }

    /// Makes the sieve let go of what it holds. Whether that is anything.
    pub fn release_held(&mut self) -> bool {
        let Some(sieve) = self.sieve.as_mut().filter(|_| self.ready > 0) else {
            return false;
        };
        sieve.release();
        true
    }

    /// What the tap has read, at the end of the body; `whole` if that is the body's own.
    #[must_use]
    pub fn usage(&mut self, whole: bool) -> Option<Usage> {
        self.tap.as_mut().map(|tap| tap.finish(whole))
    }

    /// The content that this body decoded to, all of which was judged and is at the front of the
    /// input: `bytes` bytes.
    #[must_use]
    pub fn decoded_to(self, bytes: usize) -> Self {
        let mut plain = Self::new(BodyLength::Known(bytes as u64), bytes as u64, false);
        plain.inspection = self.inspection;
        plain.ready = bytes;
        plain
    }

    /// Stops judging, for a body that is only read to find its end.
    pub fn stop_judging(&mut self) {
        self.inspection = None;
        self.coded = None;
    }

    /// Memory that the decoder of the content needs before it can begin; then [`Self::grant`].
    #[must_use]
    pub fn wants_memory(&self) -> Option<u64> {
        self.coded.as_ref().and_then(Coded::wants)
    }

    /// Gives the decoder its memory, for as long as it decodes.
    pub fn grant(&mut self, memory: Reservation) {
        if let Some(coded) = &mut self.coded {
            coded.grant(memory);
        }
    }

    /// Whether there are bytes that [`Self::absorb`] left for another turn.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.coded.as_ref().is_some_and(Coded::is_behind)
    }

    /// Bytes that the content decoded to, once all of it was judged.
    #[must_use]
    pub fn decoded_bytes(&self) -> Option<u64> {
        self.coded.as_ref().and_then(Coded::decoded)
    }

    /// The facts read so far, if the content is judged.
    #[must_use]
    pub fn facts(&self) -> Option<&Peek> {
        self.inspection.as_ref()?.facts()
    }

    /// Decodes and judges what `input` holds beyond the ready bytes; of a content coding, as much as
    /// one turn is good for.
    ///
    /// # Errors
    /// When the coding is broken, the body longer than allowed, or its content refused.
    pub fn absorb(&mut self, input: &mut Input) -> Result<(), BodyError> {
        let seen = self.ready;
        self.decode(input)?;
        let complete = self.is_received();
        if let (Some(coded), Some(inspection)) = (&mut self.coded, &mut self.inspection) {
            let mut room = input.spare();
            let ready = input.bytes().get(..self.ready).unwrap_or_default();
            coded.scan((ready, self.offset), complete, inspection, &mut room)?;
        } else if let Some(inspection) = &mut self.inspection {
            let new = input.bytes().get(seen..self.ready).unwrap_or_default();
            inspection.see(new)?;
            if complete {
                inspection.end()?;
            }
        }
        Ok(())
    }

    fn decode(&mut self, input: &mut Input) -> Result<(), BodyError> {
        match &mut self.shape {
            Shape::Known(left) => {
                self.ready = usize::try_from(*left)
                    .unwrap_or(usize::MAX)
                    .min(input.len());
            }
            Shape::UntilClose => self.ready = input.len(),
            Shape::Chunked(_) if self.ended => {}
            Shape::Chunked(decoder) => {
                let raw = input.bytes_mut().get_mut(self.ready..).unwrap_or_default();
                let decoded = decoder.decode(raw).map_err(BodyError::Chunk)?;
                self.ready += decoded.produced;
                input.remove(self.ready, decoded.consumed - decoded.produced);
                let produced = decoded.produced as u64;
                self.allowed = self
                    .allowed
                    .checked_sub(produced)
                    .ok_or(BodyError::TooLong)?;
                self.ended = decoded.done;
            }
        }
        Ok(())
    }

    /// The trailer section of a chunked body that ended, as raw field lines; empty unless kept.
    #[must_use]
    pub fn trailers(&self) -> &[u8] {
        match &self.shape {
            Shape::Chunked(decoder) if self.ended => decoder.trailers(),
            _ => &[],
        }
    }

    /// The peer ended its sending direction. Whether that ends the body well.
    #[must_use]
    pub fn close(&mut self) -> bool {
        if matches!(self.shape, Shape::UntilClose) {
            self.ended = true;
        }
        self.is_complete()
    }

    /// Decoded bytes at the front of the input that were not handed on.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.ready
    }

    /// Decoded bytes that came so far.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.offset.saturating_add(self.ready as u64)
    }

    /// How many of the ready bytes may be released: all of them once the body is complete, and
    /// until then those before the byte that closes its JSON root.
    #[must_use]
    pub fn releasable(&self) -> usize {
        if self.is_complete() {
            return self.ready;
        }
        match (&self.coded, &self.inspection) {
            (Some(coded), _) => coded.releasable(self.offset, self.ready),
            (None, Some(inspection)) => inspection.releasable(self.offset, self.ready),
            (None, None) => self.ready,
        }
    }

    /// Whether the byte that closes the JSON root is kept back until the body is complete.
    #[must_use]
    pub fn withholds_tail(&self) -> bool {
        self.inspection
            .as_ref()
            .is_some_and(Inspection::withholds_tail)
    }

    /// Whether everything that is not handed on yet is ready, and judged if it is to be.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let judged = |coded: &Coded| coded.decoded().is_some();
        self.is_received() && self.coded.as_ref().is_none_or(judged)
    }

    fn is_received(&self) -> bool {
        match &self.shape {
            Shape::Known(left) => *left == self.ready as u64,
            Shape::Chunked(_) | Shape::UntilClose => self.ended,
        }
    }

    /// Bytes known to come beyond the ready ones; none where the length is not declared.
    #[must_use]
    pub fn expected(&self) -> u64 {
        match &self.shape {
            Shape::Known(left) => left.saturating_sub(self.ready as u64),
            Shape::Chunked(_) | Shape::UntilClose => 0,
        }
    }

    /// Marks the first `count` ready bytes as handed on and drops them from the input.
    pub fn hand_on(&mut self, input: &mut Input, count: usize) {
        let count = count.min(self.ready);
        self.ready -= count;
        self.offset = self.offset.saturating_add(count as u64);
        if let Shape::Known(left) = &mut self.shape {
            *left = left.saturating_sub(count as u64);
        }
        if let Some(tap) = &mut self.tap {
            tap.see(input.bytes().get(..count).unwrap_or_default());
        }
        input.consume(count);
    }
}
