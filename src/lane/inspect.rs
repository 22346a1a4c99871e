//! A JSON body judged while it passes by.
//!
//! The verdict must be known before the byte that closes the root is released: a provider that
//! stops reading there runs the request, whatever comes behind it. So that byte and all after it are
//! withheld until the framing has ended and everything was judged.

use crate::classify::ToolEvidence;
use crate::dialect::Dialect;
use crate::json::Broken;
use crate::lane::body::BodyError;
use crate::peek::{Capture, Demand, Peek, ToolBits, TopKey};

/// How much is made of a body that is not what its path expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rigour {
    /// It must be one JSON object without a routed key that has two readings: a fact is required.
    Required,
    /// It must be one JSON object; no fact is required, so repeated keys are the provider's business.
    Structure,
    /// It may be anything; what is no JSON has no facts, and no key but `model` means anything.
    Lenient,
}

/// The scan of one body.
#[derive(Debug)]
pub struct Inspection {
    peek: Box<Peek>,
    rigour: Rigour,
    /// White space that may follow the root, bytes.
    trailing_max: u64,
    /// A lenient body turned out to be no JSON.
    opaque: bool,
    ended: bool,
}

impl Inspection {
    /// An inspection of a body that speaks `dialect`, for the demanded facts.
    #[must_use]
    pub fn new(dialect: Dialect, demand: Demand, rigour: Rigour, trailing_max: u64) -> Self {
        // Of names of tools only what such tools can do is kept.
        let tools = ToolBits::by(ToolEvidence::reduce);
        Self {
            peek: Box::new(Peek::with(dialect, demand, Capture::Bounded, tools)),
            rigour,
            trailing_max,
            opaque: false,
            ended: false,
        }
    }

    /// Judges the next decoded bytes of the body.
    pub(super) fn see(&mut self, bytes: &[u8]) -> Result<(), BodyError> {
        if self.opaque {
            return Ok(());
        }
        let pushed = self.peek.push(bytes);
        self.judge(pushed)
    }

    /// Judges the end of the body.
    pub(super) fn end(&mut self) -> Result<(), BodyError> {
        if self.opaque || self.ended {
            return Ok(());
        }
        self.ended = true;
        let finished = self.peek.finish();
        self.judge(finished)
    }

    fn judge(&mut self, scanned: Result<(), Broken>) -> Result<(), BodyError> {
        match (scanned, self.rigour) {
            (Err(_), Rigour::Lenient) => self.opaque = true,
            (Err(broken), Rigour::Required | Rigour::Structure) => {
                return Err(BodyError::Json(broken));
            }
            (Ok(()), Rigour::Structure) => {}
            (Ok(()), Rigour::Required) => {
                if let Some(key) = self.repeated() {
                    return Err(BodyError::Ambiguous(key));
                }
            }
            (Ok(()), Rigour::Lenient) => {
                if self.peek.ambiguous().contains(TopKey::Model) {
                    return Err(BodyError::Ambiguous(TopKey::Model));
                }
            }
        }
        if self.peek.trailing() > self.trailing_max && self.rigour != Rigour::Lenient {
            return Err(BodyError::TrailingSpace);
        }
        Ok(())
    }

    fn repeated(&self) -> Option<TopKey> {
        let ambiguous = self.peek.ambiguous();
        TopKey::ALL.into_iter().find(|key| ambiguous.contains(*key))
    }

    /// Whether the closing byte is kept back.
    pub(super) fn withholds_tail(&self) -> bool {
        self.rigour != Rigour::Lenient
    }

    /// Whether the root has closed, and with it what may be released.
    pub(super) fn withholds_from_here(&self) -> bool {
        self.withholds_tail() && self.peek.closed_at().is_some()
    }

    /// How many of `ready` bytes, the first of which is at `offset` of the body, may be released
    /// before the body has ended.
    pub(super) fn releasable(&self, offset: u64, ready: usize) -> usize {
        match self.peek.closed_at() {
            Some(closed_at) if self.withholds_tail() => {
                let before = closed_at.saturating_sub(offset);
                usize::try_from(before).map_or(ready, |before| before.min(ready))
            }
            _ => ready,
        }
    }

    /// The facts read so far; none of a body that turned out to be no JSON.
    #[must_use]
    pub fn facts(&self) -> Option<&Peek> {
        (!self.opaque).then_some(&self.peek)
    }
}
