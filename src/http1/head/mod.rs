//! Request and response heads as offsets into the caller's buffer.
//!
//! `parse` is called with everything read so far, each time more arrives. It remembers how far it
//! has looked, so that a head that comes in small pieces is searched once and not once per piece.
//! A first line that can no longer become one is refused at once, complete or not: a TLS hello, an
//! HTTP/2 preface or random bytes get their answer while the peer still waits for it.
//! The first line is read here, the field section by httparse; what httparse is lenient about (bare
//! LF as a line end, several empty lines before the head) is refused before it sees the bytes.

mod scan;
mod line;
mod section;

use std::ops::Range;

use crate::http1::error::HeadError;
use crate::http1::error::HeadReason;
use crate::http1::head::line::check_request_start;
use crate::http1::head::line::check_response_start;
use crate::http1::head::line::request_line;
use crate::http1::head::line::status_line;
use crate::http1::head::scan::Scan;
use crate::http1::head::section::read_fields;

/// Field lines that one head can hold, whatever the configured limit says. Heads of agents have up
/// to 40; the slots for them are 8 KiB of stack while a head is read.
pub const FIELDS_MAX: usize = 256;

/// Bytes of the longest method that is read. The longest registered one has 17 (IANA HTTP method
/// registry, 2026-11); a longer one is not implemented, 501 (RFC 9112 §3).
pub const METHOD_BYTES_MAX: usize = 32;

/// Limits on one head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes from the first to the end of the empty line, at most.
    pub bytes: usize,
    /// Field lines, at most; [`FIELDS_MAX`] holds beside it.
    pub fields: usize,
}

/// How far `parse` came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The head is good so far and its end has not arrived.
    Partial,
    /// The head is read; its fields are valid until the next call.
    Complete,
}

/// A protocol version that is spoken here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    /// `HTTP/1.0`
    Http10,
    /// `HTTP/1.1`
    #[default]
    Http11,
}

/// A range of bytes in the buffer that a head was parsed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// A span of a head; heads are shorter than `u32::MAX`, see `Scan::line`.
    fn new(start: usize, end: usize) -> Self {
        Self {
            start: offset(start),
            end: offset(end),
        }
    }

    /// The bytes of the span, empty if `bytes` is not the buffer that was parsed and too short.
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.range()).unwrap_or_default()
    }

    /// Offset of its first byte.
    pub fn at(self) -> u32 {
        self.start
    }

    /// The span as a range.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// One field line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// The name as written, never empty.
    pub name: Span,
    /// The value without the spaces and tabs around it.
    pub value: Span,
}

/// The value of the first field `name` (ASCII case is ignored).
pub fn field<'a>(fields: &[Field], bytes: &'a [u8], name: &str) -> Option<&'a [u8]> {
    values(fields, bytes, name).next()
}

/// The values of all fields `name` (ASCII case is ignored), in the order of their lines.
pub fn values<'a>(fields: &[Field], bytes: &'a [u8], name: &str) -> impl Iterator<Item = &'a [u8]> {
    named(fields, bytes, name).map(|field| field.value.of(bytes))
}

/// The fields `name` (ASCII case is ignored), in the order of their lines.
pub fn named<'f>(fields: &'f [Field], bytes: &[u8], name: &str) -> impl Iterator<Item = &'f Field> {
    let is_named = |field: &&Field| field.name.of(bytes).eq_ignore_ascii_case(name.as_bytes());
    fields.iter().filter(is_named)
}

/// A request head. One value serves all requests of a connection, so that its field list is
/// allocated once.
#[derive(Debug, Clone, Default)]
pub struct RequestHead {
    /// The method, a token; case is kept and counts.
    pub method: Span,
    /// The request target as sent: visible ASCII without `#`, of any form.
    pub target: Span,
    /// The version of the peer.
    pub version: Version,
    /// The field lines in order.
    pub fields: Vec<Field>,
    /// Bytes of the head: a skipped empty line before it, and the empty line that ends it, included.
    pub len: usize,
    scan: Scan,
}

impl RequestHead {
    /// Reads a head at the start of `bytes`, which holds all bytes of it so far. After
    /// [`Progress::Partial`] the next call goes on where this one ended, so it must be given the same
    /// bytes and more; call [`Self::reset`] to start over with others.
    ///
    /// # Errors
    /// [`HeadError`] as soon as `bytes` cannot become a head within `limits` (RFC 9112 §3, §5).
    pub fn parse(&mut self, bytes: &[u8], limits: HeadLimits) -> Result<Progress, HeadError> {
        let progress = self.go_on(bytes, limits);
        if progress != Ok(Progress::Partial) {
            self.scan = Scan::default();
        }
        progress
    }

    /// Forgets a head of which a part was seen; allocations stay.
    pub fn reset(&mut self) {
        self.scan = Scan::default();
        self.fields.clear();
    }

    fn go_on(&mut self, bytes: &[u8], limits: HeadLimits) -> Result<Progress, HeadError> {
        if self.scan.is_of_others(bytes) {
            self.reset();
        }
        if self.scan.section.is_none() {
            if self.scan.line == 0 && bytes.starts_with(b"\r\n") {
                self.scan.skip_empty_line();
            }
            let seen = self.scan.at;
            let Some(line) = self.scan.line(bytes, limits, HeadReason::LineTooLong)? else {
                check_request_start(bytes, self.scan.line, seen)?;
                return Ok(Progress::Partial);
            };
            (self.method, self.target, self.version) = request_line(bytes, line)?;
            self.scan.section = Some(self.scan.at);
        }
        let Some(section) = self.scan.section(bytes, limits)? else {
            return Ok(Progress::Partial);
        };
        self.len = section.end;
        read_fields(bytes, section, &mut self.fields)?;
        Ok(Progress::Complete)
    }
}

/// A response head. One value serves all responses of a connection.
#[derive(Debug, Clone, Default)]
pub struct ResponseHead {
    /// The version of the peer.
    pub version: Version,
    /// The status, 100..=599.
    pub status: u16,
    /// The reason phrase as sent, often empty.
    pub reason: Span,
    /// The field lines in order.
    pub fields: Vec<Field>,
    /// Bytes of the head with the empty line that ends it.
    pub len: usize,
    scan: Scan,
}

impl ResponseHead {
    /// Reads a head at the start of `bytes`; the same contract as [`RequestHead::parse`]. No empty
    /// line is skipped before a response.
    ///
    /// # Errors
    /// [`HeadError`] as soon as `bytes` cannot become a head within `limits` (RFC 9112 §4, §5).
    pub fn parse(&mut self, bytes: &[u8], limits: HeadLimits) -> Result<Progress, HeadError> {
        let progress = self.go_on(bytes, limits);
        if progress != Ok(Progress::Partial) {
            self.scan = Scan::default();
        }
        progress
    }

    /// Forgets a head of which a part was seen; allocations stay.
    pub fn reset(&mut self) {
        self.scan = Scan::default();
        self.fields.clear();
    }

    fn go_on(&mut self, bytes: &[u8], limits: HeadLimits) -> Result<Progress, HeadError> {
        if self.scan.is_of_others(bytes) {
            self.reset();
        }
        if self.scan.section.is_none() {
            let Some(line) = self.scan.line(bytes, limits, HeadReason::LineTooLong)? else {
                check_response_start(bytes)?;
                return Ok(Progress::Partial);
            };
            (self.version, self.status, self.reason) = status_line(bytes, line)?;
            self.scan.section = Some(self.scan.at);
        }
        let Some(section) = self.scan.section(bytes, limits)? else {
            return Ok(Progress::Partial);
        };
        self.len = section.end;
        read_fields(bytes, section, &mut self.fields)?;
        Ok(Progress::Complete)
    }
}

fn fault(at: usize, reason: HeadReason) -> HeadError {
    HeadError {
        at: offset(at),
        reason,
    }
}

fn offset(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[expect(
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]
mod tests;
