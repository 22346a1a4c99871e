//! Rows S of the specification's test tables that need no socket; the others are in `tests/it/switches`.

use super::*;
use crate::peek::Peek;
use proptest::prelude::*;
use serde_json::{Value, json};

/// The switch that a chat body asks for.
fn asked(body: &str) -> Option<Switch> {
    asked_as(Dialect::Chat, body)
}

fn asked_as(dialect: Dialect, body: &str) -> Option<Switch> {
    let mut peek = Peek::new(dialect, DEMAND);
    let read = peek.push(body.as_bytes()).and_then(|()| peek.finish());
    read.ok().and_then(|()| Switch::asked(&peek))
}

/// A chat body with these messages, and more members before them.
fn body(more: &str, messages: &str) -> String {
    format!(r#"{{"model":"m",{more}"messages":{messages}}}"#)
}

/// The same with one user message of this content.
fn said(content: &str) -> String {
    body("", &format!(r#"[{{"role":"user","content":{content}}}]"#))
}

const WHO: Option<Switch> = Some(Switch::Who);
const SEEN: Shown<'static> = Shown {
    model: "gpt-5.4",
    target: Some("grok-code-5"),
    auth: "Bearer",
    session: None,
};

fn reply_body(reply: &Reply, dialect: Dialect, model: &str) -> Value {
    serde_json::from_str(&reply.body(dialect, model, 1_796_000_000)).unwrap()
}

fn text_of(body: &Value) -> &str {
    let openai = &body["choices"][0]["message"]["content"];
    openai
        .as_str()
        .or_else(|| body["content"][0]["text"].as_str())
        .unwrap()
}

#[test]
fn s1_and_s15_a_chat_completion_that_says_where_the_request_goes() {
    let mut body = reply_body(&Reply::who(&SEEN), Dialect::Chat, "gpt-5.4");
    let id = body["id"].take();
    let digits = id.as_str().unwrap().strip_prefix("chatcmpl-who-").unwrap();
    assert_eq!(digits.len(), 32);
    assert!(digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_eq!(
        body,
        json!({
            "id": null,
            "object": "chat.completion",
            "created": 1_796_000_000,
            "model": "gpt-5.4",
            "choices": [{
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "Imposter: gpt-5.4 → grok-code-5 (auth: Bearer, session: null)",
                },
                "finish_reason": "stop",
            }],
            "usage": { "prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0 },
        })
    );
}

#[test]
fn s2_and_s15_a_message_for_the_other_dialect() {
    let seen = Shown {
        auth: "ApiKey",
        ..SEEN
    };
    let mut body = reply_body(&Reply::who(&seen), Dialect::Messages, "gpt-5.4");
    let id = body["id"].take();
    assert!(id.as_str().unwrap().starts_with("msg_who_"));
    assert_eq!(
        body,
        json!({
            "id": null,
            "type": "message",
            "role": "assistant",
            "content": [{
                "type": "text",
                "text": "Imposter: gpt-5.4 → grok-code-5 (auth: ApiKey, session: null)",
            }],
            "model": "gpt-5.4",
            "stop_reason": "end_turn",
            "usage": { "input_tokens": 0, "output_tokens": 0 },
        })
    );
}

#[test]
fn s3_and_s5_the_words_for_what_is_sent() {
    for (target, auth, text) in [
        (
            None,
            "caller-passthrough",
            "Passthrough: gpt-5.4 (auth: caller-passthrough, session: null)",
        ),
        (
            Some("x"),
            "none",
            "Imposter: gpt-5.4 → x (auth: none, session: null)",
        ),
    ] {
        let reply = Reply::who(&Shown {
            target,
            auth,
            ..SEEN
        });
        assert_eq!(text_of(&reply_body(&reply, Dialect::Chat, "gpt-5.4")), text);
    }
}

/// Decision S1: the answers to `--newsession` have ids of their own.
#[test]
fn s15_ids_name_the_switch() {
    let dictionary = Dictionary::new(1);
    let Added::New(id) = dictionary.try_add("", "a") else {
        panic!("it was empty");
    };
    let (who, new) = (Reply::who(&SEEN), Reply::new_session("a", id));
    for (dialect, who_prefix, new_prefix) in [
        (Dialect::Chat, "chatcmpl-who-", "chatcmpl-newsession-"),
        (Dialect::Messages, "msg_who_", "msg_newsession_"),
        (Dialect::Responses, "resp_who_", "resp_newsession_"),
    ] {
        for (reply, prefix) in [(&who, who_prefix), (&new, new_prefix)] {
            let id = reply_body(reply, dialect, "m")["id"].clone();
            let id = id.as_str().unwrap();
            assert!(id.starts_with(prefix), "{id}");
            assert_eq!(id.len(), prefix.len() + 32);
            let again = reply_body(reply, dialect, "m")["id"].clone();
            assert_ne!(id, again.as_str().unwrap());
        }
    }
}

#[test]
fn s16_the_session_is_shown() {
    let seen = Shown {
        session: Some("caller-session-abc"),
        ..SEEN
    };
    let body = reply_body(&Reply::who(&seen), Dialect::Chat, "gpt-5.4");
    assert!(text_of(&body).ends_with(", session: caller-session-abc)"));
}

#[test]
fn s17_both_ids_of_a_new_session_are_shown() {
    let dictionary = Dictionary::new(1);
    let Added::New(id) = dictionary.try_add("", "caller-session-xyz") else {
        panic!("it was empty");
    };
    let body = reply_body(
        &Reply::new_session("caller-session-xyz", id),
        Dialect::Chat,
        "m",
    );
    assert_eq!(
        text_of(&body),
        format!("Session: caller-session-xyz → {id}")
    );
}

#[test]
fn s6_requests_for_a_stream_are_no_switch() {
    for literal in ["--who?", "--newsession"] {
        let messages = format!(r#"[{{"role":"user","content":"{literal}"}}]"#);
        assert!(asked(&body("", &messages)).is_some());
        assert_eq!(asked(&body(r#""stream":true,"#, &messages)), None);
        let last = body("", &messages).replace("]}", r#"],"stream":true}"#);
        assert_eq!(asked(&last), None);
    }
}

#[test]
fn s7_other_texts_are_no_switch() {
    for text in [
        "hello world",
        "Who?",
        "WHO?",
        "who",
        "who?",
        "--WHO?",
        "--who",
        "--who?!",
        "please --who?",
        "--who? ?",
        "--newsession x",
        "--new session",
        "",
        " ",
    ] {
        assert_eq!(asked(&said(&format!("\"{text}\""))), None, "{text}");
    }
}

#[test]
fn s8_white_space_around_a_literal_does_not_count() {
    assert_eq!(asked(&said(r#""  --who?  ""#)), WHO);
    let blank = " ".repeat(70_000);
    assert_eq!(asked(&said(&format!("\"{blank}--who?{blank}\""))), WHO);
}

#[test]
fn s9_s10_and_s24_the_last_user_message_decides() {
    let other = r#"{"role":"user","content":"other"}"#;
    let who = r#"{"role":"user","content":"--who?"}"#;
    let answer = r#"{"role":"assistant","content":"--newsession"}"#;
    let result = r#"{"role":"tool","tool_call_id":"1","content":"x"}"#;
    for (messages, expected) in [
        (vec![other, who], WHO),
        (vec![who, other], None),
        (vec![other, who, answer, result], WHO),
        (vec![who, answer, other], None),
    ] {
        let messages = format!("[{}]", messages.join(","));
        assert_eq!(asked(&body("", &messages)), expected, "{messages}");
    }
}

#[test]
fn s11_s12_s25_and_s27_parts_are_joined_and_must_be_text() {
    for (content, expected) in [
        (
            r#"[{"type":"text","text":"--wh"},{"type":"text","text":"o?"}]"#,
            WHO,
        ),
        (
            r#"[{"type":"text","text":"--who?"},{"type":"image_url","image_url":{"url":"x"}}]"#,
            None,
        ),
        (
            r#"[{"type":"tool_result","tool_use_id":"t","content":"--who?"}]"#,
            None,
        ),
        (r#"[{"type":"text"},{"type":"text","text":"--who?"}]"#, WHO),
        (
            r#"[{"type":"text","text":7},{"type":"text","text":"--who?"}]"#,
            WHO,
        ),
        (r#"[{"text":"--who?"}]"#, None),
        (r#"["--who?"]"#, None),
        ("[]", None),
    ] {
        assert_eq!(asked(&said(content)), expected, "{content}");
    }
}

#[test]
fn s13_and_s31_what_has_no_messages_is_no_switch() {
    for body in [
        r#"{"model":"m"}"#,
        r#"{"model":"m","messages":[{"role":"user"}]}"#,
        r#"{"model":"m","messages":"--who?"}"#,
        r#"{"model":"m","messages":{"role":"user","content":"--who?"}}"#,
        "",
        "not json",
        "[]",
        r#""--who?""#,
        "{}",
        "{",
    ] {
        assert_eq!(asked(body), None, "{body}");
    }
    // A message without content clears an earlier candidate.
    let cleared = r#"[{"role":"user","content":"--who?"},{"role":"user"}]"#;
    assert_eq!(asked(&body("", cleared)), None);
}

#[test]
fn s21_only_the_literal_true_asks_for_a_stream() {
    for stream in [r#""true""#, "null", "false", "1", "{}", "[true]"] {
        let more = format!(r#""stream":{stream},"#);
        let messages = r#"[{"role":"user","content":"--who?"}]"#;
        assert_eq!(asked(&body(&more, messages)), WHO, "{stream}");
    }
}

/// Changed by decision G12: the origin takes the last value of a repeated key. A body with two readings
/// is never a switch here; where its route is read from it, it is 400 `ambiguous_body` before that.
#[test]
fn s22_a_repeated_stream_flag_is_no_switch_whatever_its_order() {
    for more in [
        r#""stream":true,"stream":false,"#,
        r#""stream":false,"stream":true,"#,
        r#""stream":false,"Stream":false,"#,
    ] {
        let messages = r#"[{"role":"user","content":"--who?"}]"#;
        assert_eq!(asked(&body(more, messages)), None, "{more}");
    }
}

#[test]
fn s23_a_last_content_that_is_no_text_is_no_switch() {
    for content in ["null", "7", r#"{"type":"text","text":"--who?"}"#, "true"] {
        let messages = format!(
            r#"[{{"role":"user","content":"--who?"}},{{"role":"user","content":{content}}}]"#
        );
        assert_eq!(asked(&body("", &messages)), None, "{content}");
    }
}

#[test]
fn s26_what_is_no_message_of_a_user_is_passed_over() {
    for entry in [
        r#"{"role":"User","content":"x"}"#,
        r#"{"role":7,"content":"x"}"#,
        r#"{"content":"x"}"#,
        "7",
        "null",
        r#"["user"]"#,
    ] {
        let messages = format!(r#"[{{"role":"user","content":"--who?"}},{entry}]"#);
        assert_eq!(asked(&body("", &messages)), WHO, "{entry}");
        let only = format!("[{entry}]").replace("\"x\"", "\"--who?\"");
        assert_eq!(asked(&body("", &only)), None, "{entry}");
    }
}

#[test]
fn s28_escapes_and_every_white_space_of_unicode() {
    for (content, expected) in [
        (r#""\u002d\u002dwho?""#, WHO),
        (r#""--who?\n""#, WHO),
        (r#""\u00a0--who?\u3000""#, WHO),
        ("\"\u{a0}--who?\u{2028}\"", WHO),
        (r#""\u200b--who?""#, None),
        (r#""\ufeff--who?""#, None),
        ("\"\u{2212}\u{2212}who?\"", None),
    ] {
        assert_eq!(asked(&said(content)), expected, "{content}");
    }
}

#[test]
fn s29_bodies_with_input_are_for_their_own_dialect_only() {
    let text = r#"{"model":"m","input":"--who?"}"#;
    let items = r#"{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"--who?"}]}]}"#;
    for body in [text, items] {
        assert_eq!(asked_as(Dialect::Chat, body), None);
        assert_eq!(asked_as(Dialect::Responses, body), WHO);
    }
    let gate = |enabled, responses| Gate { enabled, responses };
    for (gate, chat, responses) in [
        (gate(true, false), true, false),
        (gate(true, true), true, true),
        (gate(false, true), false, false),
    ] {
        assert_eq!(gate.watches(Some(Dialect::Chat)), chat);
        assert_eq!(gate.watches(Some(Dialect::Messages)), chat);
        assert_eq!(gate.watches(Some(Dialect::Responses)), responses);
        assert!(!gate.watches(None));
    }
}

#[test]
fn literals_are_distinct_trimmed_and_short_enough_to_be_compared() {
    for (position, switch) in Switch::ALL.into_iter().enumerate() {
        let literal = switch.literal();
        assert_eq!(switch as usize, position);
        assert_eq!(literal.trim(), literal);
        assert!(literal.len() <= crate::peek::USER_TEXT_BYTES_MAX);
        let same = Switch::ALL.into_iter().filter(|it| it.literal() == literal);
        assert_eq!(same.count(), 1);
        assert_eq!(asked(&said(&format!("\"{literal}\""))), Some(switch));
    }
}

proptest! {
    /// Row S30.
    #[test]
    fn s30_any_model_is_echoed_exactly(model in any::<String>(), target in any::<String>(), session in any::<String>()) {
        let seen = Shown { model: &model, target: Some(&target), session: Some(&session), auth: "none" };
        for dialect in Dialect::ALL {
            let body = reply_body(&Reply::who(&seen), dialect, &model);
            prop_assert_eq!(body["model"].as_str(), Some(model.as_str()));
            if dialect != Dialect::Responses {
                prop_assert_eq!(
                    text_of(&body),
                    format!("Imposter: {model} → {target} (auth: none, session: {session})")
                );
            }
        }
    }

    #[test]
    fn s7_no_other_text_is_a_switch(text in "[-a-z? \u{a0}\u{200b}\n]{0,16}") {
        let literal = Switch::ALL.into_iter().find(|switch| switch.literal() == text.trim());
        let content = serde_json::to_string(&text).unwrap();
        prop_assert_eq!(asked(&said(&content)), literal);
    }
}
