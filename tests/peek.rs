//! What the scanner and `peek` promise: the same answer for every cut and every kind of lanes, and
//! the same as a full parse.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod bodies;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;

use bodies::Bodies;
use lanegate::dialect::Dialect;
use lanegate::json::{Broken, Reason, Scanner};
use lanegate::peek::fuzzing::{Names, Trace, agree, patch_agrees, range, read, scan_agrees};
use lanegate::peek::naive;
use lanegate::peek::{
    Capture, Demand, Fact, KeySet, MODEL_BYTES_MAX, Peek, StreamFlag, TopKey, report,
};
use proptest::prelude::{ProptestConfig, any, proptest};
use serde_json::Value;

fn all_cuts(body: &[u8]) -> Vec<Vec<&[u8]>> {
    let two = (0..=body.len()).map(|at| vec![&body[..at], &body[at..]]);
    two.chain([body.chunks(1).collect()]).collect()
}

struct Row {
    id: String,
    dialect: Dialect,
    body: Vec<u8>,
    expect: Value,
    strict: bool,
}

fn torture() -> Vec<Row> {
    let rows = fs::read_to_string("tests/data/json/json_torture.jsonl").unwrap();
    let rows = rows.lines().map(|line| {
        let row: Value = serde_json::from_str(line).unwrap();
        let body = match row["body_gz_b64"].as_str() {
            Some(packed) => {
                let packed = base64(packed);
                let mut body = Vec::new();
                flate2::read::GzDecoder::new(&packed[..])
                    .read_to_end(&mut body)
                    .unwrap();
                body
            }
            None => base64(row["body_b64"].as_str().unwrap()),
        };
        Row {
            id: row["id"].as_str().unwrap().to_owned(),
            dialect: Dialect::from_name(row["dialect"].as_str().unwrap()).unwrap(),
            body,
            strict: row["either"] == false && row["limit_may_apply"] == false,
            expect: row["expect"].clone(),
        }
    });
    rows.collect()
}

fn base64(text: &str) -> Vec<u8> {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for c in text.bytes().filter(|c| *c != b'=') {
        let digit = digits.iter().position(|d| *d == c).unwrap();
        (bits, held) = (bits << 6 | u32::try_from(digit).unwrap(), held + 6);
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from(bits >> held & 0xFF).unwrap());
        }
    }
    bytes
}

#[test]
fn torture_rows_are_reported_as_expected() {
    let mut strict = 0;
    for row in torture().into_iter().filter(|row| row.strict) {
        let line = report(row.dialect, &row.body);
        let reported: Value = serde_json::from_str(&line).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(reported["valid"], row.expect["valid"], "{}: {line}", row.id);
        if row.expect["valid"] == true {
            for key in ["model", "stream", "last_user_text", "tool_names"] {
                assert_eq!(reported[key], row.expect[key], "{} {key}: {line}", row.id);
            }
        }
        strict += 1;
    }
    assert_eq!(strict, 621);
}

#[test]
fn torture_rows_with_a_repeated_routed_key_are_ambiguous() {
    let mut ambiguous = BTreeMap::new();
    for row in torture() {
        let (peek, judged) = read(row.dialect, &[&row.body]);
        if judged.is_ok() && peek.ambiguous() != KeySet::NONE {
            let keys: Vec<_> = peek.ambiguous().iter().map(TopKey::as_str).collect();
            ambiguous.insert(row.id, keys.join(" "));
        }
    }
    let ambiguous: Vec<_> = ambiguous
        .iter()
        .map(|(id, keys)| format!("{id}: {keys}"))
        .collect();
    assert_eq!(
        ambiguous,
        [
            "dup-escaped-stream: stream",
            "dup-messages: messages",
            "dup-model: model",
            "dup-stream-ft: stream",
            "dup-stream-tf: stream",
            "key-case: model stream",
        ]
    );
}

#[test]
fn torture_rows_read_alike_in_every_cut() {
    for row in torture() {
        let naive = naive::facts(row.dialect, &row.body);
        if row.body.len() <= 400 {
            let cuts = all_cuts(&row.body);
            scan_agrees(&row.body, &cuts);
            for pieces in &cuts {
                agree(row.dialect, &row.body, pieces, naive.as_ref());
            }
        }
        for size in [63, 64, 65, 4096] {
            let pieces: Vec<_> = row.body.chunks(size).collect();
            agree(row.dialect, &row.body, &pieces, naive.as_ref());
        }
    }
}

#[test]
fn captured_bodies_have_the_facts_of_their_records() {
    let records = fs::read_to_string("tests/data/json/captures.jsonl").unwrap();
    let mut checked = 0;
    for line in records.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let name = record["capture"].as_str().unwrap();
        let dialect = Dialect::from_name(record["dialect"].as_str().unwrap_or_default());
        let (Some(dialect), true) = (dialect, record["stored"] == true) else {
            continue;
        };
        if record["framing"] != "content-length" || record["model"].is_null() {
            continue;
        }
        let body = if record["content_encoding"].is_null() {
            let request = fs::read(format!("tests/data/captures/{name}")).unwrap();
            let head = request.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
            request[head..].to_vec()
        } else {
            let plain = name.replace(".http", ".plain.json");
            fs::read(format!("tests/data/captures/{plain}")).unwrap()
        };
        let naive = naive::facts(dialect, &body);
        assert!(naive.is_some(), "{name}");
        for size in [1, 100, 65536] {
            let pieces: Vec<_> = body.chunks(size).collect();
            agree(dialect, &body, &pieces, naive.as_ref());
        }
        let (peek, _) = read(dialect, &[&body]);
        let model = peek.model().found().unwrap();
        assert_eq!(model.value, record["model"].as_str().unwrap(), "{name}");
        // The record counts from the key; the span starts at the value.
        let key = usize::try_from(record["offset_model"].as_u64().unwrap()).unwrap();
        assert_eq!(&body[key..key + 7], b"\"model\"", "{name}");
        assert!((8..=9).contains(&(range(model.span).start - key)), "{name}");
        let stream = match record["stream"].as_bool() {
            Some(true) => Fact::Found(StreamFlag::True),
            Some(false) => Fact::Found(StreamFlag::False),
            None => Fact::Absent,
        };
        assert_eq!(peek.stream(), stream, "{name}");
        assert_eq!(peek.tool_names().0, recorded_tools(&record), "{name}");
        let cache_key = peek.prompt_cache_key().found().map(|t| t.value);
        assert_eq!(
            cache_key,
            record["body_ids"]["prompt_cache_key"].as_str(),
            "{name}"
        );
        let user_id = record["body_ids"]["metadata"]
            .to_string()
            .contains("user_id");
        assert_eq!(peek.metadata_user_id().found().is_some(), user_id, "{name}");
        assert_eq!(
            peek.last_user().found().is_some() || last_is_long(&peek),
            recorded_text(&record)
        );
        checked += 1;
    }
    assert!(checked >= 130, "{checked} records");
}

fn last_is_long(peek: &Peek<Names>) -> bool {
    matches!(peek.last_user(), Fact::BeyondBound)
}

/// Tool names of a record, which writes a namespace as `name{a,b}` and a nameless tool as `<type>`.
fn recorded_tools(record: &Value) -> Vec<Option<String>> {
    let mut names = Vec::new();
    for tool in record["tools"].as_array().unwrap() {
        let tool = tool.as_str().unwrap();
        match tool.split_once('{') {
            Some((_, inner)) => names.extend(inner.trim_end_matches('}').split(',')),
            None if tool.starts_with('<') => {}
            None => names.push(tool),
        }
    }
    names
        .into_iter()
        .map(|name| Some(name.to_owned()))
        .collect()
}

/// Whether a record's last user message is text alone.
fn recorded_text(record: &Value) -> bool {
    let parts = record["last_user_parts"].as_array().unwrap();
    let text = |part: &Value| matches!(part[0].as_str(), Some("string" | "text" | "input_text"));
    !parts.is_empty() && parts.iter().all(text)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn made_bodies_read_alike_in_every_cut_and_as_the_full_parse(seed in any::<u64>()) {
        let mut bodies = Bodies::new(seed);
        let body = bodies.body().into_bytes();
        let naive = Dialect::ALL.map(|dialect| naive::facts(dialect, &body));
        let mut cuts: Vec<_> = (0..3).map(|_| bodies.cut(&body)).collect();
        if body.len() <= 200 {
            cuts.extend(all_cuts(&body));
        }
        scan_agrees(&body, &cuts);
        for (dialect, naive) in Dialect::ALL.into_iter().zip(&naive) {
            for pieces in &cuts {
                agree(dialect, &body, pieces, naive.as_ref());
            }
        }
    }

    #[test]
    fn spoiled_bodies_break_at_the_same_byte_in_every_cut(seed in any::<u64>()) {
        let mut bodies = Bodies::new(seed);
        let mut body = bodies.body().into_bytes();
        bodies.spoil(&mut body);
        let mut cuts: Vec<_> = (0..3).map(|_| bodies.cut(&body)).collect();
        if body.len() <= 200 {
            cuts.extend(all_cuts(&body));
        }
        scan_agrees(&body, &cuts);
        for dialect in Dialect::ALL {
            let naive = naive::facts(dialect, &body);
            agree(dialect, &body, &cuts[0], naive.as_ref());
        }
    }

    #[test]
    fn the_offset_of_an_error_is_the_first_byte_that_spoils_the_body(seed in any::<u64>()) {
        let mut bodies = Bodies::new(seed);
        let mut body = bodies.body().into_bytes();
        bodies.spoil(&mut body);
        let (_, judged) = read(Dialect::Chat, &[&body]);
        if let Err(Broken { offset, reason }) = judged {
            let good = usize::try_from(offset).unwrap();
            let mut scanner = Scanner::new();
            assert_eq!(scanner.push(&body[..good], &mut Trace::default()), Ok(()));
            if reason != Reason::Incomplete {
                let next = scanner.push(&body[good..=good], &mut Trace::default());
                assert_eq!(next, Err(Broken { offset, reason }));
            }
        }
    }

    #[test]
    fn a_patch_by_span_is_an_edit_of_the_parsed_value(seed in any::<u64>()) {
        let body = Bodies::new(seed).body().into_bytes();
        patch_agrees(&body, "a \"new\" näme");
    }
}

#[test]
fn every_two_bytes_of_utf8_are_judged_as_the_standard_library_does() {
    for first in 0x80..=0xFF_u8 {
        for second in 0x7F..=0xFF_u8 {
            for tail in [&b""[..], b"\x80", b"\x80\x80", b"\xbf\xbf\xbf"] {
                let mut body = br#"{"a":""#.to_vec();
                body.extend_from_slice(&[first, second]);
                body.extend_from_slice(tail);
                body.extend_from_slice(br#""}"#);
                for padding in [0, 56] {
                    let mut padded = vec![b' '; padding];
                    padded.extend_from_slice(&body);
                    scan_agrees(
                        &padded,
                        &[padded.chunks(1).collect(), padded.chunks(8).collect()],
                    );
                }
            }
        }
    }
}

#[test]
fn facts_of_a_prefix_are_open_and_never_absent() {
    let body = br#" {"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]} "#;
    let mut peek = Peek::new(Dialect::Chat, Demand::ALL);
    let mut known = Vec::new();
    for (i, byte) in body.iter().enumerate() {
        peek.push(&[*byte]).unwrap();
        assert_eq!(peek.closed_at().is_some(), i >= body.len() - 2, "byte {i}");
        if peek.closed_at().is_none() {
            assert_eq!(peek.session_id(), Fact::NotYet, "byte {i}");
            assert_eq!(peek.kind(TopKey::Input), Fact::NotYet, "byte {i}");
        }
        for (name, open) in [
            ("model", peek.model().is_open()),
            ("stream", peek.stream().is_open()),
            ("last_user", peek.last_user().is_open()),
        ] {
            if !open && !known.iter().any(|(n, _)| *n == name) {
                known.push((name, String::from_utf8_lossy(&body[..=i]).into_owned()));
            }
        }
    }
    let ends = known
        .iter()
        .map(|(name, prefix)| (*name, prefix.split(':').next_back().unwrap()));
    let ends: Vec<_> = ends.collect();
    assert_eq!(
        ends,
        [
            ("model", "\"m\""),
            ("stream", "true,"),
            ("last_user", "\"x\"}]")
        ]
    );
    assert_eq!(peek.session_id(), Fact::Absent);
    assert_eq!((peek.opened_at(), peek.trailing()), (Some(1), 1));
}

#[test]
fn facts_that_are_not_demanded_stay_open() {
    let body = br#"{"model":"m","user":"u","stream":true,"tools":[{"name":"t"}],"input":"x"}"#;
    let mut peek = Peek::with(
        Dialect::Responses,
        Demand::NOTHING,
        Capture::Bounded,
        Names::default(),
    );
    peek.push(body).unwrap();
    assert!(peek.model().is_open() && peek.user().is_open() && peek.last_user().is_open());
    assert_eq!(peek.tool_names().0, []);
    assert_eq!(peek.stream(), Fact::Found(StreamFlag::True));
    assert_eq!(peek.open(), Demand::NOTHING);
}

#[test]
fn values_at_and_beyond_their_bounds() {
    let longest = "é".repeat(MODEL_BYTES_MAX / 2);
    for (model, fits) in [(longest.clone(), true), (longest + "x", false)] {
        let body = format!(r#"{{"model":"{model}"}}"#).into_bytes();
        for size in [1, 7, 4096] {
            let (peek, judged) = read(Dialect::Chat, &body.chunks(size).collect::<Vec<_>>());
            assert_eq!(judged, Ok(()));
            assert_eq!(matches!(peek.model(), Fact::Found(_)), fits);
            assert_eq!(matches!(peek.model(), Fact::BeyondBound), !fits);
        }
    }
}

#[test]
fn nesting_at_and_beyond_its_bound() {
    for (levels, reason) in [(128, None), (129, Some(Reason::Nesting))] {
        let body = format!(r#"{{"x":{}{}}}"#, "[".repeat(levels), "]".repeat(levels));
        let (_, judged) = read(Dialect::Chat, &[body.as_bytes()]);
        assert_eq!(judged.err().map(|b| b.reason), reason);
        let offset = reason.map(|_| 5 + 128);
        assert_eq!(judged.err().map(|b| b.offset), offset);
    }
}
