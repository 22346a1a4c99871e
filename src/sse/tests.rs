use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use proptest::prelude::*;

use crate::sse::Fate;
use crate::sse::fuzzing::{agree, read};

/// Name, data and fate of the events of `stream`, empty ones left out.
fn events(stream: &[u8]) -> Vec<(String, String, Fate)> {
    agree(stream, stream.chunks(1));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    read([stream].into_iter(), u64::MAX)
        .into_iter()
        .filter(|event| event.fate != Fate::Empty)
        .map(|event| (text(&event.name), text(&event.data), event.fate))
        .collect()
}

/// The data of events that all are whole and have no name.
fn plain(stream: &str) -> Vec<String> {
    let events = events(stream.as_bytes());
    let unnamed = |event: &(String, String, Fate)| event.0.is_empty() && event.2 == Fate::Whole;
    assert!(events.iter().all(unnamed), "{events:?}");
    events.into_iter().map(|(_, data, _)| data).collect()
}

#[test]
fn lines_end_with_lf_cr_or_crlf() {
    for end in ["\n", "\r", "\r\n"] {
        let stream = "data: a|data: b||data:c||".replace('|', end);
        assert_eq!(plain(&stream), ["a\nb", "c"], "{end:?}");
    }
    assert_eq!(plain("data: a\r\ndata: b\n\rdata: c\r\r\n"), ["a\nb", "c"]);
}

#[test]
fn one_space_behind_the_colon_does_not_count() {
    assert_eq!(
        plain("data:a\n\ndata: a\n\ndata:  a \n\n"),
        ["a", "a", " a "]
    );
}

#[test]
fn empty_data_is_an_event_and_no_data_is_none() {
    assert_eq!(plain("data\n\ndata:\n\n\n\n:x\n\nid: 1\n\n"), ["", ""]);
    assert_eq!(plain("data\ndata\n\n"), ["\n"]);
}

#[test]
fn other_fields_and_comments_are_passed_over() {
    let stream =
        ": hello\ndat: x\ndatax: y\n data: z\nretry: 5\nDATA: q\ndata: a\n:\nid: 7\nevents: e\n\n";
    assert_eq!(plain(stream), ["a"]);
}

#[test]
fn a_byte_order_mark_counts_at_the_start_only() {
    assert_eq!(plain("\u{feff}data: a\n\n"), ["a"]);
    assert_eq!(
        plain("\u{feff}\u{feff}data: a\n\ndata: b\n\n\u{feff}data: c\n\n"),
        ["b"]
    );
    assert_eq!(events(b"\xEF\xBBdata: a\n\ndata: b\n\n").len(), 1);
}

#[test]
fn the_last_name_counts_and_goes_with_its_event() {
    let stream = b"event: a\nevent: ping\ndata: 1\n\ndata: 2\nevent: late\n\nevent: lost\n\ndata: 3\nevent\n\n";
    let event = |name: &str, data: &str| (name.to_owned(), data.to_owned(), Fate::Whole);
    assert_eq!(
        events(stream),
        [event("ping", "1"), event("late", "2"), event("", "3")]
    );
    let long = format!("event: {}\ndata: 1\n\n", "n".repeat(65));
    assert_eq!(events(long.as_bytes()), [event("", "1")]);
}

#[test]
fn what_the_end_leaves_open_is_unfinished() {
    for stream in ["data: a\n", "data: a", "data:a\r"] {
        let open = ("".to_owned(), "a".to_owned(), Fate::Unfinished);
        assert_eq!(events(stream.as_bytes()), [open], "{stream:?}");
    }
    assert_eq!(events(b"event: a\n").len(), 0);
    assert_eq!(events(b"data: a\n\ndata").len(), 2);
}

#[test]
fn an_event_beyond_the_bound_is_skipped_and_the_stream_goes_on() {
    let stream = b"data: 12345\n\ndata: 123456\n\ndata: 12\ndata: 34\n\n";
    let fates: Vec<_> = read(stream.chunks(3), 5)
        .into_iter()
        .map(|event| (event.fate, event.data.len()))
        .collect();
    assert_eq!(
        fates,
        [(Fate::Whole, 5), (Fate::TooLong, 5), (Fate::Whole, 5)]
    );
}

/// Every stream of the corpus ends its events where its manifest says.
#[test]
fn events_of_the_corpus_end_where_the_manifest_says() {
    let folder = Path::new("tests/data/responses");
    let manifest = fs::read_to_string(folder.join("responses.jsonl")).unwrap();
    let mut streams = 0;
    for row in manifest.lines() {
        let row: serde_json::Value = serde_json::from_str(row).unwrap();
        let name = row["file"].as_str().unwrap();
        if !name.ends_with(".sse") {
            continue;
        }
        streams += 1;
        let stream = fs::read(folder.join(name)).unwrap();
        agree(&stream, stream.chunks(1));
        agree(&stream, [&stream[..]].into_iter());
        for cuts in ["event_ends", "cuts_inside_utf8", "cuts_inside_crlf"] {
            for cut in row[cuts].as_array().unwrap() {
                let (head, tail) = stream.split_at(cut.as_u64().unwrap().try_into().unwrap());
                agree(&stream, [head, tail].into_iter());
            }
        }
        let listed = row["event_ends"].as_array().unwrap().iter();
        let listed: BTreeSet<_> = listed.filter_map(serde_json::Value::as_u64).collect();
        let mut ends = BTreeSet::new();
        for event in read([&stream[..]].into_iter(), u64::MAX) {
            let end: usize = event.end.try_into().unwrap();
            // The manifest counts the LF of a CRLF to the event.
            let crlf = stream[end - 1] == b'\r' && stream.get(end) == Some(&b'\n');
            let end = event.end + u64::from(crlf);
            ends.insert(end);
            // It does not list each of several empty lines, nor the end of a very long stream.
            if event.fate == Fate::Whole && listed.last().is_some_and(|last| end <= *last) {
                assert!(listed.contains(&end), "{name} {end}");
            }
        }
        assert!(listed.is_subset(&ends), "{name} {listed:?} {ends:?}");
    }
    assert_eq!(streams, 80);
}

/// A line of an event stream, or something like one.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let field = prop_oneof![
        Just("data"),
        Just("event"),
        Just("id"),
        Just(""),
        Just("dat"),
        Just("\u{feff}data")
    ];
    let colon = prop_oneof![Just(""), Just(":"), Just(": "), Just("::")];
    let end = prop_oneof![
        Just("\n"),
        Just("\r"),
        Just("\r\n"),
        Just("\n\n"),
        Just("\r\n\r\n"),
        Just("")
    ];
    (field, colon, "[a: \u{e9}\\[\\]]{0,90}", end)
        .prop_map(|(field, colon, value, end)| format!("{field}{colon}{value}{end}").into_bytes())
}

proptest! {
    #[test]
    fn any_cut_gives_the_events_of_a_whole_reading(
        lines in prop::collection::vec(line(), 0..12),
        noise in prop::collection::vec(any::<u8>(), 0..8),
        step in 1_usize..40,
    ) {
        let mut stream = lines.concat();
        stream.extend_from_slice(&noise);
        agree(&stream, stream.chunks(step));
        agree(&stream, stream.chunks(1));
    }
}
