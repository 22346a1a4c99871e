//! The first line of a request and of a response.

use std::ops::Range;

use crate::http1::error::HeadError;
use crate::http1::error::HeadReason;
use crate::http1::head::METHOD_BYTES_MAX;
use crate::http1::head::Span;
use crate::http1::head::Version;
use crate::http1::head::fault;
use crate::http1::is_token_byte;
use crate::http1::is_value_byte;

/// Refuses the bytes from `start` if no continuation makes a request line of them; those before
/// `seen` have been looked at before.
pub(super) fn check_request_start(
    bytes: &[u8],
    start: usize,
    seen: usize,
) -> Result<(), HeadError> {
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
pub(super) fn check_response_start(bytes: &[u8]) -> Result<(), HeadError> {
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
pub(super) fn request_line(
    bytes: &[u8],
    line: Range<usize>,
) -> Result<(Span, Span, Version), HeadError> {
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
pub(super) fn status_line(
    bytes: &[u8],
    line: Range<usize>,
) -> Result<(Version, u16, Span), HeadError> {
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
