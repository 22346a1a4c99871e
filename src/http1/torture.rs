//! Replays `tests/data/http/http_torture.jsonl` through the parsers, as a connection would: head
//! after head, each with its body. What a row expects from parts above the parsers is listed.

use serde::Deserialize;

use crate::http1::chunked::Decoder;
use crate::http1::framing::BodyLength;
use crate::http1::framing::request_body;
use crate::http1::framing::response_body;
use crate::http1::head::HeadLimits;
use crate::http1::head::Progress;
use crate::http1::head::RequestHead;
use crate::http1::head::ResponseHead;
use crate::http1::hop::ConnectionOptions;
use crate::http1::host::host;
use crate::http1::target::Target;
use crate::http1::target::parse_target;

/// The configured defaults.
const LIMITS: HeadLimits = HeadLimits {
    bytes: 64 * 1024,
    fields: 200,
};
const BODY_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Rows that a part above the parsers decides: which one, and how the parsers see the input.
const DECIDED_ABOVE: &[(&str, &str, End)] = &[
    (
        "line-lower-method",
        "the router knows no method `post`",
        End::Clean,
    ),
    (
        "cl-excess",
        "`garbage` may begin a method; the head clock ends it",
        End::Inside,
    ),
    (
        "conn-upgrade-ws",
        "the exchange answers 426 itself",
        End::Clean,
    ),
    ("resp-101", "the exchange asked for no upgrade", End::Clean),
    (
        "resp-1xx-flood",
        "the exchange counts interim answers",
        End::Clean,
    ),
];

#[derive(Deserialize)]
struct Row {
    id: String,
    side: String,
    input_b64: String,
    eof_after: bool,
    expect: String,
    status: Vec<u16>,
    origin: Option<Vec<Seen>>,
    request_method: Option<String>,
}

/// A request as an upstream would see it.
#[derive(Debug, PartialEq, Deserialize)]
struct Seen {
    method: String,
    target: String,
    body_len: u64,
}

/// How the bytes of one connection ended.
#[derive(Debug, PartialEq)]
enum End {
    /// After a whole message.
    Clean,
    /// Inside a message.
    Inside,
    /// Refused with this status.
    Refused(u16),
}

#[test]
fn every_row_of_the_torture_corpus() {
    let text = include_str!("../../tests/data/http/http_torture.jsonl");
    let mut failures = Vec::new();
    let mut rows = 0;
    for line in text.lines() {
        let row: Row = serde_json::from_str(line).unwrap();
        let input = decode_base64(&row.input_b64);
        let (seen, end) = match row.side.as_str() {
            "request" => requests(&input),
            "response" => (Vec::new(), response(&row, &input)),
            side => panic!("side {side}"),
        };
        if let Err(why) = verdict(&row, &seen, &end) {
            failures.push(format!("{}: {why}, got {end:?} after {seen:?}", row.id));
        }
        rows += 1;
    }
    assert_eq!(rows, 200);
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

fn verdict(row: &Row, seen: &[Seen], end: &End) -> Result<(), &'static str> {
    let is_allowed = |end: &End| matches!(end, End::Refused(status) if row.status.contains(status));
    let served = *end == End::Clean && row.origin.as_deref().is_none_or(|origin| origin == seen);
    if let Some((_, _, expected)) = DECIDED_ABOVE.iter().find(|(id, ..)| *id == row.id) {
        return (end == expected)
            .then_some(())
            .ok_or("listed as decided above the parsers");
    }
    match row.expect.as_str() {
        "reject" => is_allowed(end).then_some(()).ok_or("expected a refusal"),
        "incomplete" if *end == End::Inside && seen.is_empty() => Ok(()),
        "incomplete" => Err("expected a message that is not complete"),
        // A refusal may come after what was served before.
        "accept" | "either" if served || is_allowed(end) => Ok(()),
        "accept" | "either" => Err("expected to be served"),
        _ => Err("unknown expectation"),
    }
}

fn requests(input: &[u8]) -> (Vec<Seen>, End) {
    let mut seen = Vec::new();
    let mut rest = input;
    while !rest.is_empty() {
        match request(rest) {
            Ok(Some((request, used, keeps_open))) => {
                seen.push(request);
                rest = &rest[used..];
                if !keeps_open {
                    break;
                }
            }
            Ok(None) => return (seen, End::Inside),
            Err(status) => return (seen, End::Refused(status)),
        }
    }
    (seen, End::Clean)
}

/// One request: what is seen of it, its bytes, and whether another may follow.
fn request(input: &[u8]) -> Result<Option<(Seen, usize, bool)>, u16> {
    let mut head = RequestHead::default();
    if head.parse(input, LIMITS).map_err(|e| e.status())? == Progress::Partial {
        return Ok(None);
    }
    host(&head, input).map_err(|e| e.status())?;
    let method = head.method.of(input);
    let target = match parse_target(method, head.target.of(input)).map_err(|e| e.status())? {
        Target::Origin { path, query } | Target::Absolute { path, query, .. } => {
            let query = query.map_or_else(Vec::new, |query| [b"?", query].concat());
            [path, &query].concat()
        }
        Target::Asterisk | Target::Authority => head.target.of(input).to_vec(),
    };
    let length = request_body(&head, input).map_err(|e| e.status())?;
    let options = ConnectionOptions::of(&head.fields, input).map_err(|e| e.status())?;
    let Some((body_len, used)) = body(length, &input[head.len..]).map_err(|e| e.unwrap_or(413))?
    else {
        return Ok(None);
    };
    let seen = Seen {
        method: String::from_utf8(method.to_vec()).unwrap(),
        target: String::from_utf8(target).unwrap(),
        body_len,
    };
    Ok(Some((
        seen,
        head.len + used,
        options.keeps_open(head.version),
    )))
}

fn response(row: &Row, input: &[u8]) -> End {
    let was_head = row.request_method.as_deref() == Some("HEAD");
    let mut rest = input;
    let mut head = ResponseHead::default();
    loop {
        match head.parse(rest, LIMITS) {
            Ok(Progress::Partial) => return End::Inside,
            Ok(Progress::Complete) => {}
            Err(_) => return End::Refused(502),
        }
        let Ok(length) = response_body(&head, rest, was_head) else {
            return End::Refused(502);
        };
        if length == BodyLength::UntilClose {
            assert!(row.eof_after, "{} never ends", row.id);
            return End::Clean;
        }
        let after = &rest[head.len..];
        // 101 is final: what follows is another protocol.
        if matches!(head.status, 100 | 102..=199) {
            rest = after;
            continue;
        }
        return match body(length, after) {
            Ok(Some(_)) => End::Clean,
            Ok(None) => End::Inside,
            Err(_) => End::Refused(502),
        };
    }
}

/// Decoded length of a whole body and the bytes it took; `Err(None)` if it is over the limit.
fn body(length: BodyLength, rest: &[u8]) -> Result<Option<(u64, usize)>, Option<u16>> {
    match length {
        BodyLength::None => Ok(Some((0, 0))),
        BodyLength::Known(bytes) if bytes > BODY_BYTES_MAX => Err(None),
        BodyLength::Known(bytes) => {
            let bytes_here = usize::try_from(bytes).unwrap();
            Ok((bytes_here <= rest.len()).then_some((bytes, bytes_here)))
        }
        BodyLength::Chunked => {
            let mut buf = rest.to_vec();
            let decoded = Decoder::new()
                .decode(&mut buf)
                .map_err(|e| Some(e.status()))?;
            Ok(decoded
                .done
                .then_some((decoded.produced as u64, decoded.consumed)))
        }
        BodyLength::UntilClose => panic!("a request does not run to the close"),
    }
}

/// RFC 4648 §4 with padding; the corpus holds nothing else.
fn decode_base64(text: &str) -> Vec<u8> {
    let digits = text.bytes().filter(|&b| b != b'=').map(|b| match b {
        b'A'..=b'Z' => b - b'A',
        b'a'..=b'z' => b - b'a' + 26,
        b'0'..=b'9' => b - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("byte {b:#x} in base64"),
    });
    let (mut bits, mut count, mut out) = (0u32, 0, Vec::new());
    for digit in digits {
        bits = bits << 6 | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count & 0xFF) as u8);
        }
    }
    out
}
