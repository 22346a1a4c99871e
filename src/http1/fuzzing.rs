//! What holds for every input, as functions that panic if it does not. The fuzz targets call them
//! with what the fuzzer makes up, `tests/corpus.rs` with the committed seeds. Each keeps a naive
//! second reading beside the real one: split the text, decode it whole, compare.

use std::str;

use crate::http1::chunked::CHUNK_END;
use crate::http1::chunked::ChunkHeader;
use crate::http1::chunked::Decoder;
use crate::http1::chunked::LAST_CHUNK;
use crate::http1::emit;
use crate::http1::error::ChunkError;
use crate::http1::error::HeadError;
use crate::http1::framing::BodyLength;
use crate::http1::framing::request_body;
use crate::http1::framing::response_body;
use crate::http1::head::Field;
use crate::http1::head::HeadLimits;
use crate::http1::head::Progress;
use crate::http1::head::RequestHead;
use crate::http1::head::ResponseHead;
use crate::http1::head::Version;
use crate::http1::hop::ConnectionOptions;
use crate::http1::host::host;
use crate::http1::query::QueryError;
use crate::http1::query::parameter;
use crate::http1::target::Target;
use crate::http1::target::has_dot_segments;
use crate::http1::target::parse_target;
use crate::http1::trim;

const LIMITS: HeadLimits = HeadLimits {
    bytes: 64 * 1024,
    fields: 200,
};

/// Queries: a value that is found is what a naive reading of the pairs finds, and survives being written
/// and read again.
pub fn query(input: &[u8]) {
    let naive = |pair: &[u8]| pair == b"model" || pair.starts_with(b"model=");
    match parameter(input, "model") {
        Ok(None) => assert!(!input.split(|byte| *byte == b'&').any(naive)),
        Ok(Some(value)) => {
            let written = format!("model={}", encoded(&value));
            let again = parameter(written.as_bytes(), "model");
            assert_eq!(again, Ok(Some(value)));
        }
        Err(QueryError::Repeated) => {
            let pairs = input.split(|byte| *byte == b'&').count();
            assert!(pairs > 1, "repeated in one pair");
        }
        Err(QueryError::Encoding) => {
            let plain = str::from_utf8(input).is_ok() && !input.contains(&b'%');
            assert!(!plain, "plain text is no encoding");
        }
    }
}

/// `value` as it can stand in a query.
pub(super) fn encoded(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Heads: pieces give what the whole gives, a naive split agrees, what is emitted is read back.
pub fn head(input: &[u8]) {
    let mut request = RequestHead::default();
    let whole = request.parse(input, LIMITS);
    let mut pieces = RequestHead::default();
    let in_pieces = in_pieces(input, |bytes| pieces.parse(bytes, LIMITS));
    assert_same(whole, in_pieces, request.len);
    if whole == Ok(Progress::Complete) {
        assert_eq!(request.fields, pieces.fields);
        check_fields(&request.fields, input, request.len);
        let mut text = Vec::new();
        emit::request_line(
            &mut text,
            request.method.of(input),
            &[request.target.of(input)],
        );
        emit_fields(&mut text, &request.fields, input);
        let mut again = RequestHead::default();
        assert_eq!(again.parse(&text, LIMITS_EMITTED), Ok(Progress::Complete));
        assert_eq!(again.len, text.len());
        assert_eq!(again.method.of(&text), request.method.of(input));
        assert_eq!(again.target.of(&text), request.target.of(input));
        assert_same_fields((&again.fields, &text), (&request.fields, input));
    }
    response_head(input);
}

fn response_head(input: &[u8]) {
    let mut response = ResponseHead::default();
    let whole = response.parse(input, LIMITS);
    let mut pieces = ResponseHead::default();
    let in_pieces = in_pieces(input, |bytes| pieces.parse(bytes, LIMITS));
    assert_same(whole, in_pieces, response.len);
    if whole == Ok(Progress::Complete) {
        assert_eq!(response.fields, pieces.fields);
        check_fields(&response.fields, input, response.len);
        let mut text = Vec::new();
        emit::status_line(&mut text, response.status, response.reason.of(input));
        emit_fields(&mut text, &response.fields, input);
        let mut again = ResponseHead::default();
        assert_eq!(again.parse(&text, LIMITS_EMITTED), Ok(Progress::Complete));
        assert_eq!(again.status, response.status);
        assert_eq!(again.reason.of(&text), response.reason.of(input));
        assert_same_fields((&again.fields, &text), (&response.fields, input));
    }
}

/// An emitted field line has a space after its colon that the original may not have had.
const LIMITS_EMITTED: HeadLimits = HeadLimits {
    bytes: 65 * 1024,
    fields: 200,
};

/// Parses every prefix in turn; the first answer other than `Partial`, and after how many bytes.
fn in_pieces(
    input: &[u8],
    mut parse: impl FnMut(&[u8]) -> Result<Progress, HeadError>,
) -> (Result<Progress, HeadError>, usize) {
    for cut in 0..input.len() {
        let progress = parse(input.get(..cut).unwrap_or_default());
        if progress != Ok(Progress::Partial) {
            return (progress, cut);
        }
    }
    (parse(input), input.len())
}

/// Pieces may find a fault earlier and name another reason for it, but agree on everything else.
fn assert_same(
    whole: Result<Progress, HeadError>,
    (pieces, cut): (Result<Progress, HeadError>, usize),
    len: usize,
) {
    assert_eq!(whole.is_err(), pieces.is_err(), "{whole:?} {pieces:?}");
    if let (Ok(whole), Ok(pieces)) = (whole, pieces) {
        assert_eq!(whole, pieces);
        if whole == Progress::Complete {
            assert_eq!(cut, len);
        }
    }
}

/// The fields are what splitting the text at line ends and colons gives.
fn check_fields(fields: &[Field], input: &[u8], len: usize) {
    let text = input.get(..len).unwrap_or_default();
    let text = text.strip_prefix(b"\r\n").unwrap_or(text);
    let mut lines = text
        .split(|&b| b == b'\n')
        .map(|line| line.strip_suffix(b"\r"));
    assert!(
        lines
            .next()
            .flatten()
            .is_some_and(|first| !first.is_empty())
    );
    for field in fields {
        let line = lines.next().flatten().unwrap_or_default();
        let mut parts = line.splitn(2, |&b| b == b':');
        assert_eq!(parts.next(), Some(field.name.of(input)));
        assert_eq!(parts.next().map(trim), Some(field.value.of(input)));
        assert!(!line.iter().any(|b| matches!(b, 0 | b'\r')));
    }
    assert_eq!(lines.next(), Some(Some(&b""[..])));
    assert_eq!(lines.next(), Some(None));
    assert_eq!(lines.next(), None);
}

fn emit_fields(text: &mut Vec<u8>, fields: &[Field], input: &[u8]) {
    for field in fields {
        emit::field(text, field.name.of(input), field.value.of(input));
    }
    emit::end(text);
}

fn assert_same_fields(
    (left, left_bytes): (&[Field], &[u8]),
    (right, right_bytes): (&[Field], &[u8]),
) {
    assert_eq!(left.len(), right.len());
    for (left, right) in left.iter().zip(right) {
        assert_eq!(left.name.of(left_bytes), right.name.of(right_bytes));
        assert_eq!(left.value.of(left_bytes), right.value.of(right_bytes));
    }
}

/// Framing, host, target and options: nothing that two readers could frame differently passes.
pub fn framing(input: &[u8]) {
    let mut request = RequestHead::default();
    if request.parse(input, LIMITS) == Ok(Progress::Complete) {
        let length = request_body(&request, input);
        assert_ne!(length, Ok(BodyLength::UntilClose));
        if let Ok(length) = length {
            check_length(length, &request.fields, input, request.version);
        }
        if let Ok(named) = host(&request, input) {
            let count = with_name(&request.fields, input, "host").len();
            assert_eq!(count, usize::from(named.is_some()));
        }
        check_target(request.method.of(input), request.target.of(input));
        check_options(&request.fields, input);
    }
    let mut response = ResponseHead::default();
    if response.parse(input, LIMITS) == Ok(Progress::Complete) {
        assert_eq!(response_body(&response, input, true), Ok(BodyLength::None));
        let has_body = !matches!(response.status, 100..=199 | 204 | 304);
        match response_body(&response, input, false) {
            Ok(length) if has_body => {
                check_length(length, &response.fields, input, response.version);
            }
            other => assert!(other == Ok(BodyLength::None) || has_body),
        }
        check_options(&response.fields, input);
    }
}

/// The values of the fields with this name.
fn with_name<'a>(fields: &[Field], input: &'a [u8], name: &str) -> Vec<&'a [u8]> {
    let is_named = |field: &&Field| field.name.of(input).to_ascii_lowercase() == name.as_bytes();
    let named = fields.iter().filter(is_named);
    named.map(|field| field.value.of(input)).collect()
}

fn check_length(length: BodyLength, fields: &[Field], input: &[u8], version: Version) {
    let lengths = with_name(fields, input, "content-length");
    let codings = with_name(fields, input, "transfer-encoding");
    match length {
        BodyLength::None | BodyLength::UntilClose => {
            assert!(lengths.is_empty() && codings.is_empty());
        }
        BodyLength::Known(bytes) => {
            assert!(codings.is_empty());
            let value = lengths.first().and_then(|value| str::from_utf8(value).ok());
            assert_eq!(value.and_then(|value| value.parse().ok()), Some(bytes));
            assert_eq!(lengths.len(), 1);
        }
        BodyLength::Chunked => {
            assert!(lengths.is_empty());
            let values: Vec<_> = codings
                .iter()
                .map(|value| value.to_ascii_lowercase())
                .collect();
            assert_eq!(values, [b"chunked"]);
            assert_eq!(version, Version::Http11);
        }
    }
}

fn check_target(method: &[u8], target: &[u8]) {
    match parse_target(method, target) {
        Ok(Target::Origin { path, query }) => {
            assert!(path.starts_with(b"/") && !path.contains(&b'?'));
            let query = query.map_or_else(Vec::new, |query| [b"?", query].concat());
            assert_eq!([path, &query].concat(), target);
            assert_eq!(has_dot_segments(path), has_dot_segments_naive(path));
        }
        Ok(Target::Absolute {
            authority, path, ..
        }) => {
            assert!(path.starts_with(b"/") && !path.contains(&b'?'));
            assert!(!authority.is_empty() && !authority.contains(&b'@'));
            assert_eq!(has_dot_segments(path), has_dot_segments_naive(path));
        }
        Ok(Target::Asterisk) => assert_eq!((method, target), (&b"OPTIONS"[..], &b"*"[..])),
        Ok(Target::Authority) => assert_eq!(method, b"CONNECT"),
        Err(error) => assert_eq!(error.status(), 400),
    }
}

fn has_dot_segments_naive(path: &[u8]) -> bool {
    let mut text = String::from_utf8_lossy(path).to_ascii_lowercase();
    for (coded, byte) in [
        ("%2e", "."),
        ("%2f", "/"),
        ("%5c", "/"),
        ("%3b", ";"),
        ("\\", "/"),
    ] {
        text = text.replace(coded, byte);
    }
    let names = text.split('/').map(|segment| segment.split(';').next());
    names.flatten().any(|name| matches!(name, "." | ".."))
}

fn check_options(fields: &[Field], input: &[u8]) {
    let Ok(options) = ConnectionOptions::of(fields, input) else {
        return;
    };
    let text = with_name(fields, input, "connection").join(&b',');
    let mut named = text.split(|&b| b == b',').map(trim);
    let has_close = named.any(|option| option.eq_ignore_ascii_case(b"close"));
    assert_eq!(options.close, has_close);
    for name in ["content-length", "Transfer-Encoding", "HOST"] {
        assert!(!options.names(name.as_bytes()));
    }
}

/// Chunked bodies: any cut gives the same data or the same fault, a naive reading agrees, and the
/// input itself, taken as data, survives being written and read.
pub fn chunked(input: &[u8]) {
    let whole = decode(input, input.len());
    for piece in [1, 2, 7] {
        assert_eq!(decode(input, piece), whole);
    }
    if let Ok(body) = &whole
        && body.done
    {
        let rest = input.get(body.consumed..).unwrap_or_default();
        assert_eq!(decode_naive(input), Some((body.data.clone(), rest)));
    }
    let mut text = Vec::new();
    for chunk in input.chunks(17) {
        text.extend_from_slice(ChunkHeader::new(chunk.len() as u64).as_bytes());
        text.extend_from_slice(chunk);
        text.extend_from_slice(CHUNK_END);
    }
    text.extend_from_slice(LAST_CHUNK);
    let expected = Body {
        data: input.to_vec(),
        consumed: text.len(),
        trailers: Vec::new(),
        done: true,
    };
    assert_eq!(decode(&text, 16), Ok(expected));
}

#[derive(Debug, PartialEq)]
struct Body {
    data: Vec<u8>,
    consumed: usize,
    trailers: Vec<u8>,
    done: bool,
}

/// Decodes in pieces of `piece` bytes.
fn decode(input: &[u8], piece: usize) -> Result<Body, ChunkError> {
    let mut decoder = Decoder::keeping_trailers();
    let mut data = Vec::new();
    let mut consumed = 0usize;
    for part in input.chunks(piece.max(1)) {
        let mut buf = part.to_vec();
        let decoded = decoder.decode(&mut buf)?;
        assert!(decoded.produced <= decoded.consumed);
        assert!(decoded.done || decoded.consumed == part.len());
        assert_eq!(buf.get(decoded.consumed..), part.get(decoded.consumed..));
        data.extend_from_slice(buf.get(..decoded.produced).unwrap_or_default());
        consumed = consumed.saturating_add(decoded.consumed);
        if decoded.done {
            break;
        }
    }
    Ok(Body {
        data,
        consumed,
        trailers: decoder.trailers().to_vec(),
        done: decoder.is_done(),
    })
}

/// The data of a whole body and what follows it, read line by line without any check of the parts
/// that carry no data; `None` if it is not whole.
fn decode_naive(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut data = Vec::new();
    loop {
        let (line, after) = split_line(rest)?;
        let text = str::from_utf8(line.split(|b| b";\t ".contains(b)).next()?).ok()?;
        let size = usize::from_str_radix(text, 16).ok()?;
        rest = after;
        if size == 0 {
            break;
        }
        let (chunk, after) = rest.split_at_checked(size)?;
        data.extend_from_slice(chunk);
        rest = after.strip_prefix(b"\r\n")?;
    }
    loop {
        let (line, after) = split_line(rest)?;
        rest = after;
        if line.is_empty() {
            return Some((data, rest));
        }
    }
}

fn split_line(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.windows(2).position(|pair| pair == b"\r\n")?;
    let (line, rest) = text.split_at_checked(end)?;
    Some((line, rest.strip_prefix(b"\r\n")?))
}
