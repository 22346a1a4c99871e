//! Where the lines of a head end, and that they end with CRLF.

use std::ops::Range;

use crate::http1::error::HeadError;
use crate::http1::error::HeadReason;
use crate::http1::head::FIELDS_MAX;
use crate::http1::head::HeadLimits;
use crate::http1::head::fault;

/// How far the search for the end of a head has come.
/// `line <= at <= bytes.len()`; `section` is set once the first line is read.
#[derive(Debug, Clone, Default)]
pub(super) struct Scan {
    /// Where the search goes on.
    pub(super) at: usize,
    /// Start of the line that `at` is in.
    pub(super) line: usize,
    /// Start of the field section.
    pub(super) section: Option<usize>,
    /// Field lines found.
    fields: usize,
}

impl Scan {
    /// True if these cannot be the bytes of the last call and more.
    pub(super) fn is_of_others(&self, bytes: &[u8]) -> bool {
        self.at > bytes.len()
    }

    pub(super) fn skip_empty_line(&mut self) {
        self.at = 2;
        self.line = 2;
    }

    /// The next complete line without its CRLF, or `None` if its end has not arrived.
    pub(super) fn line(
        &mut self,
        bytes: &[u8],
        limits: HeadLimits,
        too_long: HeadReason,
    ) -> Result<Option<Range<usize>>, HeadError> {
        // Offsets are kept in 32 bits.
        let bytes_max = limits.bytes.min(u32::MAX as usize);
        let rest = bytes.get(self.at..).unwrap_or_default();
        let end = match memchr::memchr2(b'\r', b'\n', rest) {
            Some(i) => self.at.saturating_add(i),
            None => bytes.len(),
        };
        let after = end.saturating_add(2);
        // The shortest end of a line would already be beyond the limit.
        if after > bytes_max {
            return Err(fault(bytes_max, too_long));
        }
        match bytes.get(end..).unwrap_or_default() {
            [] | [b'\r'] => {
                self.at = end;
                Ok(None)
            }
            [b'\r', b'\n', ..] => {
                let line = self.line..end;
                self.at = after;
                self.line = after;
                Ok(Some(line))
            }
            [b'\r', ..] => Err(fault(end, HeadReason::BareCr)),
            _ => Err(fault(end, HeadReason::BareLf)),
        }
    }

    /// The field section up to and with the empty line, or `None` if its end has not arrived.
    pub(super) fn section(
        &mut self,
        bytes: &[u8],
        limits: HeadLimits,
    ) -> Result<Option<Range<usize>>, HeadError> {
        while let Some(line) = self.line(bytes, limits, HeadReason::TooLong)? {
            if line.is_empty() {
                return Ok(self.section.map(|start| start..self.at));
            }
            self.fields = self.fields.saturating_add(1);
            if self.fields > limits.fields.min(FIELDS_MAX) {
                return Err(fault(line.start, HeadReason::TooManyFields));
            }
        }
        Ok(None)
    }
}
