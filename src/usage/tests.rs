use std::fs;
use std::path::Path;

use proptest::prelude::*;
use serde_json::Value;

use crate::dialect::Dialect;
use crate::usage::fuzzing::{agree, read};
use crate::usage::{Form, State, StopReason, Tokens, Usage};

/// The usage of a whole body, after every cut was found to give the same.
fn usage(dialect: Dialect, body: &str) -> Usage {
    let form = if body.starts_with('{') {
        Form::Json
    } else {
        Form::Events
    };
    let body = body.as_bytes();
    for step in [1, 2, 7, 64, 65] {
        agree(dialect, form, body, body.chunks(step), true);
    }
    read(dialect, form, [body].into_iter(), true)
}

/// Input, output, cached and cache write.
fn counts(usage: Usage) -> [Option<u64>; 4] {
    usage.tokens.named().map(|(_, count)| count)
}

/// An event stream of these objects.
fn stream(events: &[&str]) -> String {
    let frames = events.iter().map(|event| format!("data: {event}\n\n"));
    frames.collect()
}

/// What the manifest says of a file.
struct Expected {
    state: Option<State>,
    tokens: Tokens,
    stop: Option<StopReason>,
}

/// A row of the manifest in the tap's words. Counts of an answer that broke off are not in it.
fn expected(dialect: Dialect, row: &Value) -> Expected {
    let usage = &row["usage"];
    let count = |path: &str| usage.pointer(path).and_then(Value::as_u64);
    let tokens = match dialect {
        Dialect::Chat => Tokens {
            input: count("/prompt_tokens")
                .map(|all| all - count("/prompt_tokens_details/cached_tokens").unwrap_or(0)),
            output: count("/completion_tokens"),
            cached: count("/prompt_tokens_details/cached_tokens"),
            cache_write: None,
        },
        Dialect::Messages => Tokens {
            input: count("/input_tokens"),
            output: count("/output_tokens"),
            cached: count("/cache_read_input_tokens"),
            cache_write: count("/cache_creation_input_tokens"),
        },
        Dialect::Responses => Tokens {
            input: count("/input_tokens")
                .map(|all| all - count("/input_tokens_details/cached_tokens").unwrap_or(0)),
            output: count("/output_tokens"),
            cached: count("/input_tokens_details/cached_tokens"),
            cache_write: None,
        },
    };
    let calls = row["tool_calls"].as_array().is_some_and(|c| !c.is_empty());
    let stop = row["stop"].as_str().map(|word| match (dialect, word) {
        (Dialect::Responses, "completed") if calls => StopReason::ToolCalls,
        (Dialect::Responses, "completed") => StopReason::Stop,
        (Dialect::Responses, "incomplete") => StopReason::MaxTokens,
        (Dialect::Responses, "failed") => StopReason::Error,
        (_, word) => StopReason::of(dialect, word.as_bytes()),
    });
    let state = match (usage, row["end"].as_str()) {
        (Value::Null, Some("cut")) => None,
        (Value::Null, _) => Some(State::Absent),
        _ => Some(State::Complete),
    };
    Expected {
        state,
        tokens,
        stop,
    }
}

/// The corpus: whole, one byte a piece and at every listed cut.
#[test]
fn usage_of_the_corpus_is_what_the_manifest_says() {
    let folder = Path::new("tests/data/responses");
    let manifest = fs::read_to_string(folder.join("responses.jsonl")).unwrap();
    let (mut complete, mut partial) = (0, 0);
    for row in manifest.lines() {
        let row: Value = serde_json::from_str(row).unwrap();
        let name = row["file"].as_str().unwrap();
        if row["status"] != 200 {
            continue;
        }
        let dialect = Dialect::from_name(row["dialect"].as_str().unwrap()).unwrap();
        let body = fs::read(folder.join(name)).unwrap();
        let form = Form::of(row["headers"]["content-type"].as_str().map(str::as_bytes));
        assert_eq!(form == Form::Events, name.ends_with(".sse"), "{name}");
        let whole = row["end"] != "cut";
        let expected = expected(dialect, &row);
        let check = |pieces: &mut dyn Iterator<Item = &[u8]>| {
            let usage = read(dialect, form, pieces, whole);
            assert_eq!(usage.stop, expected.stop, "{name}");
            match expected.state {
                Some(state) => {
                    assert_eq!(usage.state, state, "{name}");
                    assert_eq!(usage.tokens, expected.tokens, "{name}");
                }
                None => assert_ne!(usage.state, State::Complete, "{name}"),
            }
            usage
        };
        let usage = check(&mut [&body[..]].into_iter());
        check(&mut body.chunks(1));
        for cuts in ["event_ends", "cuts_inside_utf8", "cuts_inside_crlf"] {
            for cut in row[cuts].as_array().unwrap() {
                let (head, tail) = body.split_at(cut.as_u64().unwrap().try_into().unwrap());
                check(&mut [head, tail].into_iter());
            }
        }
        agree(dialect, form, &body, body.chunks(13), whole);
        match usage.state {
            State::Complete => complete += 1,
            State::Partial => partial += 1,
            State::Absent => {}
        }
    }
    assert_eq!((complete, partial), (45, 2));
}

#[test]
fn an_answer_that_breaks_off_gives_what_it_had_said() {
    let start =
        r#"{"type":"message_start","message":{"usage":{"input_tokens":12,"output_tokens":1}}}"#;
    let usage = usage(Dialect::Messages, &stream(&[start]));
    assert_eq!(usage.state, State::Partial);
    assert_eq!(counts(usage), [Some(12), Some(1), None, None]);
    let delta = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}"#;
    let both = stream(&[start, delta]);
    for (whole, state) in [(true, State::Complete), (false, State::Partial)] {
        let pieces = [both.as_bytes()].into_iter();
        let usage = read(Dialect::Messages, Form::Events, pieces, whole);
        assert_eq!(usage.state, state);
        assert_eq!(counts(usage), [Some(12), Some(9), None, None]);
    }
}

#[test]
fn usage_may_stand_anywhere_in_a_chat_stream() {
    let finish = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    let usage_object = r#"{"prompt_tokens":12,"completion_tokens":7}"#;
    let on_finish = finish.replace("]}", &format!("],\"usage\":{usage_object}}}"));
    let in_choice = finish.replace("}]}", &format!(",\"usage\":{usage_object}}}]}}"));
    let alone = format!("{{\"choices\":[],\"usage\":{usage_object}}}");
    let empty = r#"{"choices":[],"usage":null}"#;
    for events in [
        vec![on_finish.as_str(), "[DONE]"],
        vec![&in_choice, "[DONE]"],
        vec![finish, &alone, "[DONE]"],
        vec![finish, &alone, empty, "[DONE]"],
        vec![&alone, finish],
    ] {
        let usage = usage(Dialect::Chat, &stream(&events));
        assert_eq!(usage.state, State::Complete, "{events:?}");
        assert_eq!(counts(usage), [Some(12), Some(7), None, None]);
        assert_eq!(usage.stop, Some(StopReason::Stop));
    }
}

#[test]
fn what_follows_the_end_of_a_chat_stream_does_not_count() {
    let late = r#"{"choices":[],"usage":{"prompt_tokens":5}}"#;
    let usage = usage(Dialect::Chat, &stream(&["[DONE]", late]));
    assert_eq!(usage, Usage::default());
}

#[test]
fn absent_is_not_zero() {
    let zero = r#"{"usage":{"prompt_tokens":0,"completion_tokens":0}}"#;
    let zero = usage(Dialect::Chat, zero);
    assert_eq!(zero.state, State::Complete);
    assert_eq!(counts(zero), [Some(0), Some(0), None, None]);
    for none in [
        r#"{"usage":null}"#,
        r#"{"usage":{}}"#,
        r#"{"usage":[1]}"#,
        r#"{"prompt_tokens":5}"#,
        r#"{"usage":{"usage":{"prompt_tokens":5}}}"#,
        r#"{"choices":[{"message":{"usage":{"prompt_tokens":5}}}]}"#,
        r#"{"usage":{"prompt_tokens":5}"#,
        "<html></html>",
        "",
    ] {
        assert_eq!(usage(Dialect::Chat, none), Usage::default(), "{none}");
    }
}

#[test]
fn a_number_that_is_no_count_is_not_given() {
    for (number, count) in [
        ("0", Some(0)),
        ("18446744073709551615", Some(u64::MAX)),
        ("18446744073709551616", None),
        ("100000000000000000000000000000", None),
        ("-1", None),
        ("-0", None),
        ("1.0", None),
        ("1e3", None),
        ("\"7\"", None),
        ("null", None),
        ("true", None),
        ("[7]", None),
    ] {
        let body =
            format!(r#"{{"usage": {{"input_tokens" : {number} , "output_tokens":{number}}}}}"#);
        let usage = usage(Dialect::Messages, &body);
        assert_eq!(counts(usage), [count, count, None, None], "{number}");
    }
}

#[test]
fn escaped_names_are_names() {
    let body = r#"{"us\u0061ge":{"input\u005ftokens":12},"stop_reason":"end\u005fturn"}"#;
    let usage = usage(Dialect::Messages, body);
    assert_eq!(counts(usage), [Some(12), None, None, None]);
    assert_eq!(usage.stop, Some(StopReason::Stop));
}

#[test]
fn reasons_to_stop_come_from_one_set() {
    for (word, reason) in [
        ("stop", StopReason::Stop),
        ("length", StopReason::MaxTokens),
        ("content_filter", StopReason::Refusal),
        ("function_call", StopReason::ToolCalls),
        ("error", StopReason::Error),
        ("sk-secret", StopReason::Other),
    ] {
        let body = format!(r#"{{"choices":[{{"index":0,"finish_reason":"{word}"}}]}}"#);
        assert_eq!(usage(Dialect::Chat, &body).stop, Some(reason), "{word}");
    }
    for (word, reason) in [
        ("end_turn", StopReason::Stop),
        ("stop_sequence", StopReason::StopSequence),
        ("tool_use", StopReason::ToolCalls),
        ("max_tokens", StopReason::MaxTokens),
        ("model_context_window_exceeded", StopReason::ContextFull),
        ("refusal", StopReason::Refusal),
        ("pause_turn", StopReason::Pause),
        ("stop", StopReason::Other),
    ] {
        let body = format!(r#"{{"stop_reason":"{word}"}}"#);
        assert_eq!(usage(Dialect::Messages, &body).stop, Some(reason), "{word}");
    }
    for (details, reason) in [
        (r#"{"reason":"max_output_tokens"}"#, StopReason::MaxTokens),
        (r#"{"reason":"content_filter"}"#, StopReason::Refusal),
        ("null", StopReason::Other),
    ] {
        let body = format!(r#"{{"status":"incomplete","incomplete_details":{details}}}"#);
        assert_eq!(
            usage(Dialect::Responses, &body).stop,
            Some(reason),
            "{details}"
        );
    }
}

#[test]
fn a_stop_behind_tool_calls_does_not_undo_them() {
    let choice = |reason: &str| format!(r#"{{"choices":[{{"finish_reason":"{reason}"}}]}}"#);
    let (calls, stop, length) = (choice("tool_calls"), choice("stop"), choice("length"));
    let calls_then = |last: &str| usage(Dialect::Chat, &stream(&[&calls, last])).stop;
    assert_eq!(calls_then(&stop), Some(StopReason::ToolCalls));
    assert_eq!(calls_then(&length), Some(StopReason::MaxTokens));
}

#[test]
fn an_event_that_is_no_object_says_nothing() {
    let good = r#"{"choices":[],"usage":{"prompt_tokens":3}}"#;
    for bad in [
        r#"{"usage":{"prompt_tokens":9},"#,
        r#"[{"usage":{"prompt_tokens":9}}]"#,
        "[DO",
        "[DONE] {}",
        "[DONE]{\"usage\":{\"prompt_tokens\":9}}",
        "\"x\"",
        "",
        "{\"usage\":{\"prompt_tokens\":9}} x",
    ] {
        let usage = usage(Dialect::Chat, &stream(&[bad, good, " [DONE] "]));
        assert_eq!(counts(usage), [Some(3), None, None, None], "{bad}");
        assert_eq!(usage.state, State::Complete, "{bad}");
    }
}

#[test]
fn a_last_event_without_its_empty_line_counts_if_it_is_whole() {
    let event = r#"data: {"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":3}}"#;
    assert_eq!(usage(Dialect::Chat, event).state, State::Complete);
    let cut = event.strip_suffix('}').unwrap();
    assert_eq!(usage(Dialect::Chat, cut), Usage::default());
}

#[test]
fn an_error_leaves_what_was_said_partial() {
    let usage_chunk = r#"{"choices":[],"usage":{"prompt_tokens":3}}"#;
    let error = r#"{"error":{"message":"x"}}"#;
    let usage = usage(Dialect::Chat, &stream(&[usage_chunk, error, "[DONE]"]));
    assert_eq!(usage.state, State::Partial);
}

#[test]
fn forms_come_from_the_type() {
    for (kind, form) in [
        (Some("text/event-stream"), Form::Events),
        (Some("Text/Event-Stream ; charset=utf-8"), Form::Events),
        (Some("text/event-streams"), Form::Json),
        (Some("application/json"), Form::Json),
        (None, Form::Json),
    ] {
        assert_eq!(Form::of(kind.map(str::as_bytes)), form, "{kind:?}");
    }
}

/// JSON in which the names and words that matter are frequent.
fn json() -> impl Strategy<Value = String> {
    const NAMES: &[&str] = &[
        "type",
        "error",
        "message",
        "response",
        "delta",
        "usage",
        "choices",
        "index",
        "status",
        "finish_reason",
        "stop_reason",
        "reason",
        "incomplete_details",
        "output",
        "item",
        "prompt_tokens",
        "completion_tokens",
        "input_tokens",
        "output_tokens",
        "cached_tokens",
        "cache_write_tokens",
        "prompt_tokens_details",
        "input_tokens_details",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "us\\u0061ge",
        "other",
    ];
    const WORDS: &[&str] = &[
        "error",
        "message_stop",
        "response.completed",
        "response.failed",
        "completed",
        "incomplete",
        "failed",
        "function_call",
        "stop",
        "tool_calls",
        "end_turn",
        "max_output_tokens",
        "x",
    ];
    let scalar = prop_oneof![
        prop::sample::select(WORDS).prop_map(|word| format!("\"{word}\"")),
        (0_u64..30).prop_map(|count| count.to_string()),
        prop::sample::select(&["null", "true", "-4", "1.5", "99999999999999999999"][..])
            .prop_map(str::to_owned),
    ];
    let name = || prop::sample::select(NAMES);
    scalar.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            3 => prop::collection::vec((name(), inner.clone()), 0..6).prop_map(|members| {
                let members: Vec<_> = members
                    .iter()
                    .map(|(name, value)| format!("\"{name}\": {value}"))
                    .collect();
                format!("{{{}}}", members.join(","))
            }),
            1 => prop::collection::vec(inner, 0..4)
                .prop_map(|items| format!("[{}]", items.join(" , "))),
        ]
    })
}

proptest! {
    #[test]
    fn any_cut_of_any_answer_gives_what_a_full_parse_finds(
        events in prop::collection::vec(json(), 1..5),
        dialect in prop::sample::select(&Dialect::ALL[..]),
        done in any::<bool>(),
        whole in any::<bool>(),
        step in 1_usize..70,
    ) {
        let mut events: Vec<_> = events.iter().map(String::as_str).collect();
        let first = events[0].as_bytes();
        agree(dialect, Form::Json, first, first.chunks(step), whole);
        if done {
            events.insert(events.len() / 2, "[DONE]");
        }
        let body = stream(&events);
        agree(dialect, Form::Events, body.as_bytes(), body.as_bytes().chunks(step), whole);
    }
}
