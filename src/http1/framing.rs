//! How long a body is (RFC 9112 §6.3), or why the head does not say so in one way.
//!
//! Request smuggling is two parsers disagreeing here. So only what every parser reads alike passes:
//! one Content-Length of digits, or one Transfer-Encoding that is exactly `chunked`, or neither.
//! Stricter than the standard where it allows repair: equal repeats of a length are refused, and so
//! is a length beside a coding in a response. Fields named in Connection frame a message all the
//! same; nothing here looks at Connection.

use crate::http1::error::FramingError;
use crate::http1::error::FramingReason;
use crate::http1::head::Field;
use crate::http1::head::RequestHead;
use crate::http1::head::ResponseHead;
use crate::http1::head::Version;
use crate::http1::head::named;
use crate::http1::is_token;
use crate::http1::trim;

/// Where a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// There is no body; the next byte belongs to the next message.
    None,
    /// This many bytes follow, at most 2^63 - 1; `Known(0)` was written as `0`.
    Known(u64),
    /// The chunked coding follows, see [`Decoder`](crate::http1::chunked::Decoder).
    Chunked,
    /// The body runs to the close of the connection; only for responses.
    UntilClose,
}

/// The body of a request.
///
/// # Errors
/// [`FramingError`] if the fields contradict each other or their own grammar. The connection has to
/// be closed after the answer, because nobody knows where the next request starts.
pub fn request_body(head: &RequestHead, bytes: &[u8]) -> Result<BodyLength, FramingError> {
    Ok(declared(&head.fields, bytes, head.version)?.unwrap_or(BodyLength::None))
}

/// The body of a response to a request; `request_was_head` for a HEAD request. Informational
/// answers, 204 and 304 have none, whatever their fields say (RFC 9112 §6.3 rule 1).
///
/// # Errors
/// [`FramingError`] as for requests: a 502 to the client, and the connection is of no more use.
pub fn response_body(
    head: &ResponseHead,
    bytes: &[u8],
    request_was_head: bool,
) -> Result<BodyLength, FramingError> {
    if request_was_head || matches!(head.status, 100..=199 | 204 | 304) {
        return Ok(BodyLength::None);
    }
    Ok(declared(&head.fields, bytes, head.version)?.unwrap_or(BodyLength::UntilClose))
}

/// What the framing fields say, or `None` if there are none.
fn declared(
    fields: &[Field],
    bytes: &[u8],
    version: Version,
) -> Result<Option<BodyLength>, FramingError> {
    let mut lengths = named(fields, bytes, "content-length");
    let mut codings = named(fields, bytes, "transfer-encoding");
    match (lengths.next(), codings.next()) {
        (None, None) => Ok(None),
        (Some(_), Some(coding)) => Err(fault(coding, FramingReason::LengthAndCoding)),
        (Some(length), None) => {
            if let Some(second) = lengths.next() {
                return Err(fault(second, FramingReason::LengthRepeated));
            }
            let bytes = length_of(length.value.of(bytes)).map_err(|why| fault(length, why))?;
            Ok(Some(BodyLength::Known(bytes)))
        }
        (None, Some(coding)) => {
            if version == Version::Http10 {
                return Err(fault(coding, FramingReason::CodingInHttp10));
            }
            if let Some(second) = codings.next() {
                return Err(fault(second, FramingReason::Coding));
            }
            let value = coding.value.of(bytes);
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err(fault(coding, why_not_chunked(value)));
            }
            Ok(Some(BodyLength::Chunked))
        }
    }
}

/// `1*DIGIT` up to 2^63 - 1; more is beyond any limit and beyond the signed counters of others.
fn length_of(value: &[u8]) -> Result<u64, FramingReason> {
    if value.contains(&b',') {
        return Err(FramingReason::LengthRepeated);
    }
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(FramingReason::Length);
    }
    value
        .iter()
        .try_fold(0i64, |sum, digit| {
            sum.checked_mul(10)?.checked_add(i64::from(digit & 0x0F))
        })
        .and_then(|sum| u64::try_from(sum).ok())
        .ok_or(FramingReason::LengthTooLarge)
}

/// Tells codings that are not implemented (501) from misuse of chunked (400), RFC 9112 §6.1 and §6.3.
fn why_not_chunked(value: &[u8]) -> FramingReason {
    let mut codings = value.split(|&b| b == b',').map(trim).peekable();
    while let Some(coding) = codings.next() {
        let is_last = codings.peek().is_none();
        if !is_token(coding) || coding.eq_ignore_ascii_case(b"chunked") && !is_last {
            return FramingReason::Coding;
        }
    }
    FramingReason::CodingUnknown
}

fn fault(field: &Field, reason: FramingReason) -> FramingError {
    FramingError {
        at: field.name.at(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::BodyLength::Chunked;
    use super::BodyLength::Known;
    use super::BodyLength::UntilClose;
    use super::FramingReason as Why;
    use super::*;
    use crate::http1::head::HeadLimits;
    use crate::http1::head::Progress;

    const LIMITS: HeadLimits = HeadLimits {
        bytes: 4096,
        fields: 50,
    };

    fn of_request(version: &str, fields: &str) -> Result<BodyLength, FramingReason> {
        let text = format!("POST / {version}\r\nHost: h\r\n{fields}\r\n");
        let mut head = RequestHead::default();
        let progress = head.parse(text.as_bytes(), LIMITS);
        assert_eq!(progress, Ok(Progress::Complete), "{fields}");
        request_body(&head, text.as_bytes()).map_err(|error| error.reason)
    }

    fn of_response(status: u16, fields: &str, was_head: bool) -> Result<BodyLength, FramingReason> {
        let text = format!("HTTP/1.1 {status} x\r\n{fields}\r\n");
        let mut head = ResponseHead::default();
        let progress = head.parse(text.as_bytes(), LIMITS);
        assert_eq!(progress, Ok(Progress::Complete), "{fields}");
        response_body(&head, text.as_bytes(), was_head).map_err(|error| error.reason)
    }

    const REQUESTS: &[(&str, Result<BodyLength, Why>)] = &[
        ("", Ok(BodyLength::None)),
        ("Content-Length: 0\r\n", Ok(Known(0))),
        ("content-length:\t 00057 \r\n", Ok(Known(57))),
        (
            "Content-Length: 9223372036854775807\r\n",
            Ok(Known(i64::MAX as u64)),
        ),
        (
            "Content-Length: 9223372036854775808\r\n",
            Err(Why::LengthTooLarge),
        ),
        (
            "Content-Length: 99999999999999999999999999\r\n",
            Err(Why::LengthTooLarge),
        ),
        (
            "Content-Length: 000000000000000000000000000001\r\n",
            Ok(Known(1)),
        ),
        ("Content-Length:\r\n", Err(Why::Length)),
        ("Content-Length: +1\r\n", Err(Why::Length)),
        ("Content-Length: 1 1\r\n", Err(Why::Length)),
        ("Content-Length: 1, 1\r\n", Err(Why::LengthRepeated)),
        (
            "Content-Length: 1\r\nContent-Length: 1\r\n",
            Err(Why::LengthRepeated),
        ),
        ("Content_Length: 3\r\n", Ok(BodyLength::None)),
        (
            "Connection: content-length\r\nContent-Length: 3\r\n",
            Ok(Known(3)),
        ),
        ("Transfer-Encoding: chunked\r\n", Ok(Chunked)),
        ("tRANSFER-eNCODING:\tChunkeD \r\n", Ok(Chunked)),
        (
            "Connection: transfer-encoding\r\nTransfer-Encoding: chunked\r\n",
            Ok(Chunked),
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
            Err(Why::LengthAndCoding),
        ),
        (
            "Content-Length: x\r\nTransfer-Encoding: y\r\n",
            Err(Why::LengthAndCoding),
        ),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            Err(Why::Coding),
        ),
        ("Transfer-Encoding: chunked, chunked\r\n", Err(Why::Coding)),
        ("Transfer-Encoding: chunked, gzip\r\n", Err(Why::Coding)),
        ("Transfer-Encoding: chunked;q=1\r\n", Err(Why::Coding)),
        ("Transfer-Encoding: ,chunked\r\n", Err(Why::Coding)),
        ("Transfer-Encoding: chunked,\r\n", Err(Why::Coding)),
        ("Transfer-Encoding:\r\n", Err(Why::Coding)),
        ("Transfer-Encoding: \"chunked\"\r\n", Err(Why::Coding)),
        ("Transfer-Encoding: \u{a0}chunked\r\n", Err(Why::Coding)),
        ("Transfer-Encoding: identity\r\n", Err(Why::CodingUnknown)),
        ("Transfer-Encoding: xchunked\r\n", Err(Why::CodingUnknown)),
        (
            "Transfer-Encoding: gzip, chunked\r\n",
            Err(Why::CodingUnknown),
        ),
    ];

    #[test]
    fn request_bodies() {
        for (fields, expected) in REQUESTS {
            assert_eq!(of_request("HTTP/1.1", fields), *expected, "{fields}");
        }
        let coded = "Transfer-Encoding: chunked\r\n";
        assert_eq!(of_request("HTTP/1.0", coded), Err(Why::CodingInHttp10));
        assert_eq!(
            of_request("HTTP/1.0", "Content-Length: 2\r\n"),
            Ok(Known(2))
        );
    }

    #[test]
    fn response_bodies() {
        let length = "Content-Length: 5\r\n";
        let coded = "Transfer-Encoding: chunked\r\n";
        let both = format!("{length}{coded}");
        for status in [100, 101, 103, 199, 204, 304] {
            assert_eq!(
                of_response(status, &both, false),
                Ok(BodyLength::None),
                "{status}"
            );
        }
        assert_eq!(of_response(200, length, true), Ok(BodyLength::None));
        assert_eq!(of_response(200, coded, true), Ok(BodyLength::None));
        assert_eq!(of_response(200, "", false), Ok(UntilClose));
        assert_eq!(of_response(500, length, false), Ok(Known(5)));
        assert_eq!(of_response(200, coded, false), Ok(Chunked));
        assert_eq!(of_response(200, &both, false), Err(Why::LengthAndCoding));
        let twice = format!("{length}{length}");
        assert_eq!(of_response(200, &twice, false), Err(Why::LengthRepeated));
        let gzip = "Transfer-Encoding: gzip\r\n";
        assert_eq!(of_response(200, gzip, false), Err(Why::CodingUnknown));
    }

    #[test]
    fn a_fault_names_its_line() {
        let text = b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n";
        let mut head = RequestHead::default();
        assert_eq!(head.parse(text, LIMITS), Ok(Progress::Complete));
        let error = request_body(&head, text).unwrap_err();
        assert!(
            text.get(error.at as usize..)
                .unwrap()
                .starts_with(b"Content-Length: 1\r\n\r\n")
        );
    }
}
