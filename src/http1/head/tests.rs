use proptest::prelude::*;

use super::*;
use crate::http1::emit;
use crate::http1::is_token_byte;
use crate::http1::is_value_byte;

const LIMITS: HeadLimits = HeadLimits {
    bytes: 4096,
    fields: 50,
};

fn request(text: &[u8]) -> Result<Progress, (u32, HeadReason)> {
    let parsed = RequestHead::default().parse(text, LIMITS);
    parsed.map_err(|error| (error.at, error.reason))
}

fn response(text: &[u8]) -> Result<Progress, (u32, HeadReason)> {
    let parsed = ResponseHead::default().parse(text, LIMITS);
    parsed.map_err(|error| (error.at, error.reason))
}

#[test]
fn request_faults_have_a_place_and_a_reason() {
    use HeadReason as Why;
    let cases: &[(&[u8], u32, Why)] = &[
        (b"\r\n\r\nGET / HTTP/1.1\r\n", 2, Why::EmptyLine),
        (b"\nGET / HTTP/1.1\r\n", 0, Why::BareLf),
        (b"\rGET / HTTP/1.1\r\n", 0, Why::BareCr),
        (b"GET / HTTP/1.1\n", 14, Why::BareLf),
        (b"GET / HTTP/1.1\rx", 14, Why::BareCr),
        (b"GET / HTTP/1.1\r\r\n", 14, Why::BareCr),
        (b"\x16\x03\x01\x02\x00\x01", 0, Why::Method),
        (b"{\"model\"", 0, Why::Method),
        (b" ", 0, Why::Method),
        (b" / HTTP/1.1\r\n", 0, Why::Method),
        (b"PO(ST", 2, Why::Method),
        (b"PO\0ST / HTTP/1.1\r\n", 2, Why::Method),
        (b"GET\t/ HTTP/1.1\r\n", 3, Why::Method),
        (&[b'A'; 33], 0, Why::MethodTooLong),
        (
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG / HTTP/1.1\r\n",
            0,
            Why::MethodTooLong,
        ),
        (b"GET /\r\n", 0, Why::Line),
        (b"GET\r\n", 0, Why::Line),
        (b"GET /a\x01", 6, Why::Line),
        (b"GET /\xc3", 5, Why::Line),
        (b"GET  / HTTP/1.1\r\n", 4, Why::Target),
        (b"GET /a#b HTTP/1.1\r\n", 6, Why::Target),
        (b"GET /\xc3\xb6 HTTP/1.1\r\n", 5, Why::Target),
        (b"GET /a\tb HTTP/1.1\r\n", 6, Why::Target),
        (b"GET /a b HTTP/1.1\r\n", 7, Why::Version),
        (b"GET / HTTP/1.1 \r\n", 6, Why::Version),
        (b"GET / http/1.1\r\n", 6, Why::Version),
        (b"GET / HTTP/1.10\r\n", 6, Why::Version),
        (b"GET / HTTP/1.2\r\n", 6, Why::VersionUnsupported),
        (b"GET / HTTP/0.9\r\n", 6, Why::VersionUnsupported),
        (b"PRI * HTTP/2.0\r\n", 6, Why::VersionUnsupported),
        (b"GET / HTTP/1.1\r\n A: b\r\n\r\n", 16, Why::FieldFold),
        (b"GET / HTTP/1.1\r\nA: b\r\n\tc\r\n\r\n", 22, Why::FieldFold),
        (
            b"GET / HTTP/1.1\r\nA: b\r\nC : d\r\n\r\n",
            23,
            Why::FieldName,
        ),
        (b"GET / HTTP/1.1\r\n: b\r\n\r\n", 16, Why::FieldName),
        (b"GET / HTTP/1.1\r\nAbc\r\n\r\n", 19, Why::FieldName),
        (b"GET / HTTP/1.1\r\nA: b\0c\r\n\r\n", 20, Why::FieldValue),
        (b"GET / HTTP/1.1\r\nA: b\rc\r\n\r\n", 20, Why::BareCr),
        (b"GET / HTTP/1.1\r\nA: b\nB: c\r\n\r\n", 20, Why::BareLf),
    ];
    for (text, at, reason) in cases {
        assert_eq!(
            request(text),
            Err((*at, *reason)),
            "{}",
            text.escape_ascii()
        );
    }
}

#[test]
fn response_faults_have_a_place_and_a_reason() {
    use HeadReason as Why;
    let cases: &[(&[u8], u32, Why)] = &[
        (b"http/1.1", 0, Why::Version),
        (b"HTTP/2 200", 5, Why::Version),
        (b"\r\nHTTP/1.1 200 OK\r\n", 0, Why::Version),
        (b"HTTP/1.\r\n", 0, Why::Version),
        (b"HTTP/1.2 200 OK\r\n", 0, Why::VersionUnsupported),
        (b"HTTP/1.1\r\n", 8, Why::Status),
        (b"HTTP/1.1 20 OK\r\n", 8, Why::Status),
        (b"HTTP/1.1 2000 OK\r\n", 12, Why::Status),
        (b"HTTP/1.1 099 x\r\n", 8, Why::Status),
        (b"HTTP/1.1 600 x\r\n", 8, Why::Status),
        (b"HTTP/1.1  200 OK\r\n", 8, Why::Status),
        (b"HTTP/1.1 200\tOK\r\n", 12, Why::Status),
        (b"HTTP/1.1 200 O\x01\r\n", 14, Why::Phrase),
        (b"HTTP/1.1 200 OK\n", 15, Why::BareLf),
        (b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n", 18, Why::FieldName),
    ];
    for (text, at, reason) in cases {
        assert_eq!(
            response(text),
            Err((*at, *reason)),
            "{}",
            text.escape_ascii()
        );
    }
}

#[test]
fn beginnings_that_can_become_a_head_wait() {
    let requests: &[&[u8]] = &[
        b"",
        b"\r",
        b"\r\n",
        b"G",
        b"GET ",
        b"GET /a?b",
        b"GET / HTTP/1.1\r",
        b"\r\nGET / HTTP/1.1\r\n",
        b"GET / HTTP/1.1\r\nA",
        b"GET / HTTP/1.1\r\nA: b\r",
        b"GET / HTTP/1.1\r\nA: b\r\n\r",
    ];
    for text in requests {
        assert_eq!(
            request(text),
            Ok(Progress::Partial),
            "{}",
            text.escape_ascii()
        );
    }
    let responses: &[&[u8]] = &[b"", b"H", b"HTTP/1.1", b"HTTP/1.1 200 OK\r\nA: b\r\n"];
    for text in responses {
        assert_eq!(
            response(text),
            Ok(Progress::Partial),
            "{}",
            text.escape_ascii()
        );
    }
}

#[test]
fn request_parts_are_spans_of_the_input() {
    let text = b"\r\nPOST /v1/messages?a HTTP/1.0\r\nHost:\t gw.test \t\r\nX-A:\r\nx-a: \xff:b\tc\r\n\r\nbody";
    let mut head = RequestHead::default();
    assert_eq!(head.parse(text, LIMITS), Ok(Progress::Complete));
    assert_eq!(head.len, text.len() - 4);
    assert_eq!(head.method.of(text), b"POST");
    assert_eq!(head.target.of(text), b"/v1/messages?a");
    assert_eq!(head.version, Version::Http10);
    assert_eq!(field(&head.fields, text, "hOST"), Some(&b"gw.test"[..]));
    assert_eq!(field(&head.fields, text, "x"), None);
    let both: Vec<_> = values(&head.fields, text, "x-a").collect();
    assert_eq!(both, [&b""[..], b"\xff:b\tc"]);
}

#[test]
fn response_parts_are_spans_of_the_input() {
    let mut head = ResponseHead::default();
    for (text, status, reason) in [
        (&b"HTTP/1.1 200 OK\r\n\r\n"[..], 200, &b"OK"[..]),
        (b"HTTP/1.1 529 Over loaded\r\n\r\n", 529, b"Over loaded"),
        (b"HTTP/1.1 200 \r\n\r\n", 200, b""),
        (b"HTTP/1.0 204\r\n\r\n", 204, b""),
        (b"HTTP/1.1 599 \xe9\t\r\n\r\n", 599, b"\xe9\t"),
    ] {
        assert_eq!(head.parse(text, LIMITS), Ok(Progress::Complete));
        assert_eq!((head.status, head.reason.of(text)), (status, reason));
        assert_eq!(head.len, text.len());
    }
}

#[test]
fn every_byte_value_in_name_and_value() {
    for byte in 0..=u8::MAX {
        let mut text = b"GET / HTTP/1.1\r\nX".to_vec();
        text.push(byte);
        text.extend_from_slice(b"Y: b\r\n\r\n");
        // A colon ends the name and leaves a value that is fine.
        let is_good = is_token_byte(byte) || byte == b':';
        assert_eq!(
            request(&text) == Ok(Progress::Complete),
            is_good,
            "name {byte:#x}"
        );

        let mut text = b"GET / HTTP/1.1\r\nX: a".to_vec();
        text.push(byte);
        text.extend_from_slice(b"b\r\n\r\n");
        let is_good = is_value_byte(byte);
        assert_eq!(
            request(&text) == Ok(Progress::Complete),
            is_good,
            "value {byte:#x}"
        );
    }
}

#[test]
fn a_span_of_another_buffer_is_empty() {
    let text = b"GET /long/path HTTP/1.1\r\n\r\n";
    let mut head = RequestHead::default();
    assert_eq!(head.parse(text, LIMITS), Ok(Progress::Complete));
    assert_eq!(head.target.of(b"short"), b"");
}

#[test]
fn the_limit_on_bytes_is_exact() {
    let text = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    let at_most = |bytes| {
        let limits = HeadLimits { bytes, fields: 50 };
        let parsed = RequestHead::default().parse(text, limits);
        parsed.map_err(|error| error.reason)
    };
    assert_eq!(at_most(text.len()), Ok(Progress::Complete));
    assert_eq!(at_most(text.len() - 1), Err(HeadReason::TooLong));
    assert_eq!(at_most(16), Err(HeadReason::TooLong));
    assert_eq!(at_most(15), Err(HeadReason::LineTooLong));
    assert_eq!(at_most(0), Err(HeadReason::LineTooLong));
}

#[test]
fn a_head_without_end_is_refused_at_the_limit() {
    let endless = vec![b'a'; LIMITS.bytes];
    let target = [b"GET /", endless.as_slice()].concat();
    assert_eq!(request(&target).unwrap_err().1, HeadReason::LineTooLong);
    let value = [b"GET / HTTP/1.1\r\nA: ", endless.as_slice()].concat();
    assert_eq!(request(&value).unwrap_err().1, HeadReason::TooLong);
}

#[test]
fn the_limit_on_fields_is_exact() {
    let with = |count: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "a:\r\n".repeat(count));
    let at_most = |fields, text: &str| {
        let limits = HeadLimits {
            bytes: 4096,
            fields,
        };
        let parsed = RequestHead::default().parse(text.as_bytes(), limits);
        parsed.map_err(|error| error.reason)
    };
    assert_eq!(at_most(3, &with(3)), Ok(Progress::Complete));
    assert_eq!(at_most(3, &with(4)), Err(HeadReason::TooManyFields));
    assert_eq!(at_most(9999, &with(FIELDS_MAX)), Ok(Progress::Complete));
    assert_eq!(
        at_most(9999, &with(FIELDS_MAX + 1)),
        Err(HeadReason::TooManyFields)
    );
}

#[test]
fn one_value_reads_head_after_head() {
    let mut head = RequestHead::default();
    let long = b"POST /long/long/long HTTP/1.1\r\nA: 1\r\nB: 2\r\n\r\n";
    let short = b"GET / HTTP/1.1\r\n\r\n";
    assert_eq!(head.parse(long, LIMITS), Ok(Progress::Complete));
    assert_eq!(head.parse(short, LIMITS), Ok(Progress::Complete));
    assert!(head.fields.is_empty());
    // Shorter than what was seen: these are other bytes.
    assert_eq!(head.parse(&long[..40], LIMITS), Ok(Progress::Partial));
    assert_eq!(head.parse(short, LIMITS), Ok(Progress::Complete));
    assert_eq!(head.target.of(short), b"/");
    // As long or longer: the caller says so.
    assert_eq!(head.parse(&short[..10], LIMITS), Ok(Progress::Partial));
    head.reset();
    assert_eq!(head.parse(long, LIMITS), Ok(Progress::Complete));
    assert_eq!(head.method.of(long), b"POST");
    // After a fault the next head starts anew.
    assert!(
        head.parse(b"GET / HTTP/1.1\r\nA\0\r\n\r\n", LIMITS)
            .is_err()
    );
    assert_eq!(head.parse(short, LIMITS), Ok(Progress::Complete));
}

#[test]
fn each_fault_has_its_status() {
    let status = |reason| HeadError { at: 0, reason }.status();
    assert_eq!(status(HeadReason::FieldFold), 400);
    assert_eq!(status(HeadReason::LineTooLong), 414);
    assert_eq!(status(HeadReason::TooLong), 431);
    assert_eq!(status(HeadReason::TooManyFields), 431);
    assert_eq!(status(HeadReason::MethodTooLong), 501);
    assert_eq!(status(HeadReason::VersionUnsupported), 505);
    let error = HeadError {
        at: 7,
        reason: HeadReason::BareCr,
    };
    assert_eq!(error.to_string(), "expected LF after CR at byte 7");
}

/// A field line whose value has no white space at its ends.
fn line() -> impl Strategy<Value = (String, Vec<u8>)> {
    let name = "[!#$%&'*+.^_`|~0-9A-Za-z-]{1,20}";
    let inner = prop_oneof![Just(b'\t'), b' '..=b'~', 0x80..=0xFFu8];
    let value = prop::collection::vec(inner, 0..40).prop_map(|value| value.trim_ascii().to_vec());
    (name, value)
}

proptest! {
    #[test]
    fn an_emitted_request_is_read_back(
        method in "[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}",
        target in "[!-\"$-~]{1,60}",
        lines in prop::collection::vec(line(), 0..20),
    ) {
        let mut text = Vec::new();
        emit::request_line(&mut text, method.as_bytes(), &[target.as_bytes()]);
        for (name, value) in &lines {
            emit::field(&mut text, name.as_bytes(), value);
        }
        emit::end(&mut text);
        let mut head = RequestHead::default();
        prop_assert_eq!(head.parse(&text, LIMITS), Ok(Progress::Complete));
        prop_assert_eq!(head.len, text.len());
        prop_assert_eq!(head.method.of(&text), method.as_bytes());
        prop_assert_eq!(head.target.of(&text), target.as_bytes());
        let read: Vec<_> = head.fields.iter().map(|f| (f.name.of(&text), f.value.of(&text))).collect();
        let sent: Vec<_> = lines.iter().map(|(n, v)| (n.as_bytes(), v.as_slice())).collect();
        prop_assert_eq!(read, sent);
        for cut in 0..text.len() {
            let before = RequestHead::default().parse(&text[..cut], LIMITS);
            prop_assert_eq!(before, Ok(Progress::Partial), "cut at {}", cut);
        }
    }

    #[test]
    fn an_emitted_response_is_read_back(
        status in 100..=599u16,
        reason in "[ -~\t]{0,30}",
        lines in prop::collection::vec(line(), 0..20),
    ) {
        let mut text = Vec::new();
        emit::status_line(&mut text, status, reason.as_bytes());
        for (name, value) in &lines {
            emit::field(&mut text, name.as_bytes(), value);
        }
        emit::end(&mut text);
        let mut head = ResponseHead::default();
        prop_assert_eq!(head.parse(&text, LIMITS), Ok(Progress::Complete));
        prop_assert_eq!((head.status, head.reason.of(&text)), (status, reason.as_bytes()));
        prop_assert_eq!(head.fields.len(), lines.len());
        for cut in 0..text.len() {
            let before = ResponseHead::default().parse(&text[..cut], LIMITS);
            prop_assert_eq!(before, Ok(Progress::Partial), "cut at {}", cut);
        }
    }
}
