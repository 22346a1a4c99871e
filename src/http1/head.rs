//! Request and response heads as offsets into the caller's buffer.
//!
//! `parse` is called with everything read so far, each time more arrives. It remembers how far it
//! has looked, so that a head that comes in small pieces is searched once and not once per piece.
//! A first line that can no longer become one is refused at once, complete or not: a TLS hello, an
//! HTTP/2 preface or random bytes get their answer while the peer still waits for it.
//! The first line is read here, the field section by httparse; what httparse is lenient about (bare
//! LF as a line end, several empty lines before the head) is refused before it sees the bytes.

use std::ops::Range;

use crate::http1::error::HeadError;
use crate::http1::error::HeadReason;
use crate::http1::is_token_byte;
use crate::http1::is_value_byte;

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

/// How far the search for the end of a head has come.
/// `line <= at <= bytes.len()`; `section` is set once the first line is read.
#[derive(Debug, Clone, Default)]
struct Scan {
    /// Where the search goes on.
    at: usize,
    /// Start of the line that `at` is in.
    line: usize,
    /// Start of the field section.
    section: Option<usize>,
    /// Field lines found.
    fields: usize,
}

impl Scan {
    /// True if these cannot be the bytes of the last call and more.
    fn is_of_others(&self, bytes: &[u8]) -> bool {
        self.at > bytes.len()
    }

    fn skip_empty_line(&mut self) {
        self.at = 2;
        self.line = 2;
    }

    /// The next complete line without its CRLF, or `None` if its end has not arrived.
    fn line(
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
    fn section(
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

/// Refuses the bytes from `start` if no continuation makes a request line of them; those before
/// `seen` have been looked at before.
fn check_request_start(bytes: &[u8], start: usize, seen: usize) -> Result<(), HeadError> {
    let line = bytes.get(start..).unwrap_or_default();
    let mut opening = line.iter().take(METHOD_BYTES_MAX.saturating_add(1));
    match opening.position(|&b| !is_token_byte(b)) {
        Some(0) if line != b"\r" => return Err(fault(start, HeadReason::Method)),
        Some(i) if !matches!(line.get(i), Some(b' ' | b'\r')) => {
            return Err(fault(start.saturating_add(i), HeadReason::Method));
        }
        None if line.len() > METHOD_BYTES_MAX => {
            return Err(fault(start, HeadReason::MethodTooLong));
        }
        Some(_) | None => {}
    }
    let fresh = bytes.get(seen.max(start)..).unwrap_or_default();
    match fresh.iter().position(|b| !matches!(b, b' '..=b'~' | b'\r')) {
        Some(i) => Err(fault(seen.max(start).saturating_add(i), HeadReason::Line)),
        None => Ok(()),
    }
}

/// Refuses bytes that no continuation makes a status line of.
fn check_response_start(bytes: &[u8]) -> Result<(), HeadError> {
    let expected = b"HTTP/1.";
    match bytes
        .iter()
        .zip(expected)
        .position(|(got, want)| got != want)
    {
        Some(i) => Err(fault(i, HeadReason::Version)),
        None => Ok(()),
    }
}

/// `method SP request-target SP HTTP-version` (RFC 9112 §3).
fn request_line(bytes: &[u8], line: Range<usize>) -> Result<(Span, Span, Version), HeadError> {
    let start = line.start;
    let text = bytes.get(line).unwrap_or_default();
    if text.is_empty() {
        return Err(fault(start, HeadReason::EmptyLine));
    }
    let mut parts = text.splitn(3, |&b| b == b' ');
    let mut at = start;
    let mut part = || {
        let part = parts.next()?;
        let span = Span::new(at, at.saturating_add(part.len()));
        at = at.saturating_add(part.len()).saturating_add(1);
        Some((span, part))
    };
    let (Some((method_span, method)), target, version) = (part(), part(), part()) else {
        return Err(fault(start, HeadReason::Line));
    };
    if let Some(i) = method.iter().position(|&b| !is_token_byte(b)) {
        return Err(fault(start.saturating_add(i), HeadReason::Method));
    }
    if method.is_empty() {
        return Err(fault(start, HeadReason::Method));
    }
    if method.len() > METHOD_BYTES_MAX {
        return Err(fault(start, HeadReason::MethodTooLong));
    }
    let (Some((target_span, target)), Some((version_span, version))) = (target, version) else {
        return Err(fault(start, HeadReason::Line));
    };
    let target_at = target_span.range().start;
    if target.is_empty() {
        return Err(fault(target_at, HeadReason::Target));
    }
    if let Some(i) = target
        .iter()
        .position(|&b| !b.is_ascii_graphic() || b == b'#')
    {
        return Err(fault(target_at.saturating_add(i), HeadReason::Target));
    }
    let version =
        read_version(version).map_err(|reason| fault(version_span.range().start, reason))?;
    Ok((method_span, target_span, version))
}

/// `HTTP-version SP status-code SP [ reason-phrase ]` (RFC 9112 §4). A missing space before an
/// empty phrase is common and harmless, so it is read.
fn status_line(bytes: &[u8], line: Range<usize>) -> Result<(Version, u16, Span), HeadError> {
    let start = line.start;
    let at = |offset: usize| start.saturating_add(offset);
    let text = bytes.get(line.clone()).unwrap_or_default();
    let Some((version, rest)) = text.split_first_chunk::<8>() else {
        return Err(fault(start, HeadReason::Version));
    };
    let version = read_version(version).map_err(|reason| fault(start, reason))?;
    let [
        b' ',
        hundreds @ b'1'..=b'5',
        tens @ b'0'..=b'9',
        ones @ b'0'..=b'9',
        rest @ ..,
    ] = rest
    else {
        return Err(fault(at(8), HeadReason::Status));
    };
    let digits = [hundreds, tens, ones].map(|digit| u16::from(digit & 0x0F));
    let status = digits.iter().fold(0u16, |status, &digit| {
        status.saturating_mul(10).saturating_add(digit)
    });
    let phrase = match rest {
        [] => line.end..line.end,
        [b' ', ..] => at(13)..line.end,
        _ => return Err(fault(at(12), HeadReason::Status)),
    };
    match rest.iter().position(|&b| !is_value_byte(b)) {
        Some(i) => Err(fault(at(12).saturating_add(i), HeadReason::Phrase)),
        None => Ok((version, status, Span::new(phrase.start, phrase.end))),
    }
}

/// The version is case sensitive and has one digit on each side (RFC 9112 §2.3).
fn read_version(text: &[u8]) -> Result<Version, HeadReason> {
    match text {
        b"HTTP/1.1" => Ok(Version::Http11),
        b"HTTP/1.0" => Ok(Version::Http10),
        [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => {
            Err(HeadReason::VersionUnsupported)
        }
        _ => Err(HeadReason::Version),
    }
}

/// Reads the lines of `section`, all of which end with CRLF and the last of which is empty.
fn read_fields(
    bytes: &[u8],
    section: Range<usize>,
    fields: &mut Vec<Field>,
) -> Result<(), HeadError> {
    let start = section.start;
    let text = bytes.get(section).unwrap_or_default();
    let mut slots = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let Ok(httparse::Status::Complete((_, read))) = httparse::parse_headers(text, &mut slots)
    else {
        return Err(first_fault(text, start));
    };
    fields.clear();
    fields.extend(read.iter().map(|field| Field {
        name: span_of(field.name.as_bytes(), bytes),
        value: span_of(field.value, bytes),
    }));
    Ok(())
}

/// Where `part` lies in `bytes`, of which it is a slice.
fn span_of(part: &[u8], bytes: &[u8]) -> Span {
    let start = part.as_ptr().addr().saturating_sub(bytes.as_ptr().addr());
    Span::new(start, start.saturating_add(part.len()))
}

/// Where and why a field section was refused; httparse says only that it was.
fn first_fault(section: &[u8], start: usize) -> HeadError {
    let mut at = start;
    for line in section.split(|&b| b == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some((i, reason)) = line_fault(line) {
            return fault(at.saturating_add(i), reason);
        }
        at = at.saturating_add(line.len()).saturating_add(2);
    }
    fault(start, HeadReason::FieldName)
}

/// The first fault of a field line `field-name ":" OWS field-value OWS` (RFC 9112 §5).
fn line_fault(line: &[u8]) -> Option<(usize, HeadReason)> {
    if matches!(line, [b' ' | b'\t', ..]) {
        return Some((0, HeadReason::FieldFold));
    }
    let name_bytes = line.iter().take_while(|&&b| is_token_byte(b)).count();
    match line.get(name_bytes) {
        None if line.is_empty() => None,
        Some(b':') if name_bytes > 0 => {
            let value = line.get(name_bytes..).unwrap_or_default();
            let i = value.iter().position(|&b| !is_value_byte(b))?;
            Some((name_bytes.saturating_add(i), HeadReason::FieldValue))
        }
        _ => Some((name_bytes, HeadReason::FieldName)),
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
    clippy::arithmetic_side_effects,
    reason = "a test stops at the first surprise"
)]
mod tests;
