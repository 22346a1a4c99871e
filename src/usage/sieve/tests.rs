use super::fuzzing::{agree, sifted};
use super::*;
use proptest::prelude::*;
use std::fs;

const DELTA: &str =
    r#"data: {"id":"c","choices":[{"index":0,"delta":{"content":"a"}}],"usage":null}"#;
const EXTRA: &str =
    r#"data: {"id":"c","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#;
const DONE: &str = "data: [DONE]";

/// The events with that line end.
fn stream(events: &[&str], end: &str) -> String {
    events
        .iter()
        .map(|event| format!("{}{end}{end}", event.replace('\n', end)))
        .collect()
}

fn passed(stream: &str) -> String {
    String::from_utf8(sifted([stream.as_bytes()].into_iter(), true)).unwrap()
}

/// Every cut in two, and every size of pieces.
fn every_cut(stream: &str) {
    let bytes = stream.as_bytes();
    for at in 0..bytes.len() {
        let (first, second) = bytes.split_at(at);
        agree(bytes, [first, second].into_iter());
    }
    for step in 1..bytes.len().min(9) {
        agree(bytes, bytes.chunks(step));
    }
}

#[test]
fn the_extra_chunk_is_taken_out_whole_with_every_line_end_and_in_every_cut() {
    for end in ["\n", "\r", "\r\n"] {
        let given = stream(&[DELTA, EXTRA, DONE], end);
        assert_eq!(passed(&given), stream(&[DELTA, DONE], end), "{end:?}");
        every_cut(&given);
    }
    // Line ends of several kinds in one event.
    for ends in ["\n\r\n", "\r\n\n", "\r\r\n", "\r\n\r"] {
        let given = format!("{EXTRA}{ends}{DONE}\n\n");
        assert_eq!(passed(&given), format!("{DONE}\n\n"), "{ends:?}");
        every_cut(&given);
    }
}

#[test]
fn spellings_of_the_extra_chunk() {
    for event in [
        r#"data:{"usage":{},"choices":[]}"#,
        "data: \t{ \"choices\" : [ ] , \"usage\" : { \"a\" : [ { } ] } } ",
        r#"data: {"\u0063hoices":[],"usage":{"choices":[1]},"error":null}"#,
        r#"data: {"x":{"choices":[1],"usage":null,"error":1},"choices":[],"usage":{}}"#,
    ] {
        let given = stream(&[DELTA, event, event, DONE], "\n");
        assert_eq!(passed(&given), stream(&[DELTA, DONE], "\n"), "{event}");
        every_cut(&given);
    }
}

#[test]
fn every_other_event_passes() {
    let long = format!(
        r#"data: {{"choices":[],"usage":{{"a":"{}"}}}}"#,
        "x".repeat(4096)
    );
    for event in [
        DELTA,
        DONE,
        &long,
        r#"data: {"choices":[],"prompt_filter_results":[{}]}"#,
        r#"data: {"choices":[],"usage":null}"#,
        r#"data: {"choices":[],"usage":[]}"#,
        r#"data: {"choices":[],"usage":1}"#,
        r#"data: {"choices":[],"usage":"{}"}"#,
        r#"data: {"choices":[{}],"usage":{}}"#,
        r#"data: {"choices":[[]],"usage":{}}"#,
        r#"data: {"choices":[null],"usage":{}}"#,
        r#"data: {"choices":[""],"usage":{}}"#,
        r#"data: {"choices":{},"usage":{}}"#,
        r#"data: {"choices":null,"usage":{}}"#,
        r#"data: {"usage":{}}"#,
        r#"data: {"choices":[],"choices":[],"usage":{}}"#,
        r#"data: {"choices":[],"usage":{},"usage":{}}"#,
        r#"data: {"choices":[],"usage":{},"error":{"code":500}}"#,
        r#"data: {"choices":[],"usage":{},"error":"x"}"#,
        r#"data: {"Choices":[],"usage":{}}"#,
        r#"data: {"choices":[],"usage":{}"#,
        r#"data: {"choices":[],"usage":{}}}"#,
        r#"data: {"choices":[],"usage":{}} x"#,
        r#"data: [{"choices":[],"usage":{}}]"#,
        r#"{"choices":[],"usage":{}}"#,
        r#"Data: {"choices":[],"usage":{}}"#,
        r#"data : {"choices":[],"usage":{}}"#,
        r#"xdata: {"choices":[],"usage":{}}"#,
        r#": {"choices":[],"usage":{}}"#,
        "data: {\"choices\":[],\ndata: \"usage\":{}}",
        "data: {\"choices\":[],\"usage\":{}}\ndata:",
        "data: {\"choices\":[],\"usage\":{}}\n: a comment",
        ": a comment\ndata: {\"choices\":[],\"usage\":{}}",
        "event: chunk\ndata: {\"choices\":[],\"usage\":{}}",
        "id: 1\ndata: {\"choices\":[],\"usage\":{}}",
        "data",
        "data:",
        "",
    ] {
        for end in ["\n", "\r\n"] {
            let given = stream(&[DELTA, event, DELTA], end);
            assert_eq!(passed(&given), given, "{event}");
            if event.len() < 200 {
                every_cut(&given);
            }
        }
    }
    let marked = format!("\u{feff}{EXTRA}\n\n{DONE}\n\n");
    assert_eq!(passed(&marked), marked);
}

#[test]
fn what_is_held_at_the_end_passes() {
    for end in ["", "\n", "\r", "\r\n"] {
        let given = format!("{DELTA}\n\n{EXTRA}{end}");
        assert_eq!(passed(&given), given, "{end:?}");
        every_cut(&given);
    }
}

/// What passes at once of a stream that goes on.
fn at_once(given: &str) -> String {
    let passage = Sieve::default().sift(given.as_bytes(), false);
    assert_eq!(passage.remove, 0);
    given[..passage.pass].to_owned()
}

#[test]
fn an_event_passes_with_the_byte_that_shows_what_it_is() {
    for (held, shows) in [
        (r#"data: {"id":"c","choices":["#, "{"),
        (r#"data: {"choices":[],"usage":"#, "n"),
        (r#"data: {"error":"#, "{"),
        ("data: ", "["),
        ("da", "d"),
        ("data: {\"choices\":[],\"usage\":{}}\n", "d"),
        ("data: {\"choices\":[],\"usage\":{}", "\n"),
        ("", ":"),
        ("", "e"),
        ("", "\u{feff}"),
    ] {
        let before = format!("{DELTA}\n\n");
        assert_eq!(at_once(&format!("{before}{held}")), before, "{held}");
        let shown = format!("{before}{held}{shows}");
        assert_eq!(at_once(&shown), shown, "{held}");
    }
    let started = r#"data: {"choices":[],"a":""#;
    let long = format!("{started}{}", "x".repeat(4096));
    assert_eq!(at_once(&long), long);
}

#[test]
fn whether_the_chunk_was_there_is_known() {
    for (events, outcome) in [
        (&[DELTA, DONE][..], Injection::NotFound),
        (&[DELTA, EXTRA, DONE], Injection::Removed),
    ] {
        let mut sieve = Sieve::default();
        let given = stream(events, "\n");
        let mut ready = given.as_bytes();
        while !ready.is_empty() {
            let Passage { pass, remove } = sieve.sift(ready, true);
            ready = &ready[pass + remove..];
        }
        assert_eq!(sieve.outcome(), outcome);
    }
}

/// The corpus, in every dialect: whole, one byte a piece, and in pieces of several sizes.
#[test]
fn stored_streams_lose_their_extra_chunk_and_nothing_else() {
    let mut lost = Vec::new();
    for entry in fs::read_dir("tests/data/responses").unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|it| it != "sse") {
            continue;
        }
        let body = fs::read(&path).unwrap();
        for step in [1, 2, 7, 64, 1000] {
            agree(&body, body.chunks(step));
        }
        let passed = sifted([&body[..]].into_iter(), true);
        if passed != body {
            let count = |bytes: &[u8]| bytes.windows(5).filter(|it| it == b"data:").count();
            assert_eq!(count(&passed) + 1, count(&body), "{}", path.display());
            let name = path.file_stem().unwrap().to_str().unwrap();
            lost.push(name.to_owned());
        }
    }
    lost.sort();
    let expected = [
        "chat-text-usage",
        "chat-text-usage-cached",
        "chat-text-usage-null-each",
    ];
    assert_eq!(lost, expected);
}

proptest! {
    #[test]
    fn made_streams_in_any_cut(
        parts in proptest::collection::vec(
            proptest::sample::select(vec![
                EXTRA, DELTA, DONE, "\n", "\n\n", "\r\n", "\r", "\r\r", "data:", "data: {", ": x", "event: a",
                "\"choices\":", "[]", ",\"usage\":", "{}", "}", "null", " ", "[{", "\"error\":", "\u{e9}",
            ]),
            0..24,
        ),
        cuts in proptest::collection::vec(1_usize..90, 1..6),
    ) {
        let given = parts.concat();
        let (mut pieces, mut rest) = (Vec::new(), given.as_bytes());
        for size in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, tail) = rest.split_at(rest.len().min(*size));
            pieces.push(piece);
            rest = tail;
        }
        agree(given.as_bytes(), pieces.into_iter());
    }
}
