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
    let opening = line.get(..=METHOD_BYTES_MAX).unwrap_or(line);
    let opening = opening.strip_suffix(b"\r").unwrap_or(opening);
    if !opening.is_empty() {
        check_method(opening.split(|&b| b == b' ').next(), start)?;
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
    let method = check_method(parts.next(), start)?;
    let (Some(target), Some(version)) = (parts.next(), parts.next()) else {
        return Err(fault(start, HeadReason::Line));
    };
    let target_at = start.saturating_add(method.len()).saturating_add(1);
    let target_end = target_at.saturating_add(target.len());
    let is_target_byte = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    match target.iter().position(|&b| !is_target_byte(b)) {
        Some(i) => return Err(fault(target_at.saturating_add(i), HeadReason::Target)),
        None if target.is_empty() => return Err(fault(target_at, HeadReason::Target)),
        None => {}
    }
    let version_at = target_end.saturating_add(1);
    let version = read_version(version).map_err(|reason| fault(version_at, reason))?;
    let method = Span::new(start, start.saturating_add(method.len()));
    Ok((method, Span::new(target_at, target_end), version))
}

/// Passes on what stands before the first space of a request line if it is a method that is not too
/// long to be known.
fn check_method(method: Option<&[u8]>, at: usize) -> Result<&[u8], HeadError> {
    let method = method.unwrap_or_default();
    match method.iter().position(|&b| !is_token_byte(b)) {
        Some(i) => Err(fault(at.saturating_add(i), HeadReason::Method)),
        None if method.is_empty() => Err(fault(at, HeadReason::Method)),
        None if method.len() > METHOD_BYTES_MAX => Err(fault(at, HeadReason::MethodTooLong)),
        None => Ok(method),
    }
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
        a @ b'1'..=b'5',
        b @ b'0'..=b'9',
        c @ b'0'..=b'9',
        rest @ ..,
    ] = rest
    else {
        return Err(fault(at(8), HeadReason::Status));
    };
    let status = [a, b, c].iter().fold(0u16, |status, &&digit| {
        let digit = u16::from(digit & 0x0F);
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
