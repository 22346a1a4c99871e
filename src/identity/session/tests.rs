//! Rows R of the specification's test tables that need no socket; the others are in `tests/it/switches`.

use super::*;
use crate::dialect::Dialect;
use crate::http1::head::{HeadLimits, Progress, RequestHead};

/// The head of a request with these fields, and its text.
fn head(fields: &[(&str, &str)]) -> (RequestHead, Vec<u8>) {
    let mut text = b"POST / HTTP/1.1\r\n".to_vec();
    for (name, value) in fields {
        text.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    text.extend_from_slice(b"\r\n");
    (parsed(&text), text)
}

fn parsed(text: &[u8]) -> RequestHead {
    let mut head = RequestHead::default();
    let limits = HeadLimits {
        bytes: 1 << 20,
        fields: 64,
    };
    assert!(matches!(head.parse(text, limits), Ok(Progress::Complete)));
    head
}

fn peeked(body: &str) -> Peek {
    let mut peek = Peek::new(Dialect::Chat, DEMAND);
    peek.push(body.as_bytes()).unwrap();
    peek.finish().unwrap();
    peek
}

fn session(fields: &[(&str, &str)], body: Option<&str>) -> Option<Session> {
    let (head, text) = head(fields);
    let body = body.map(peeked);
    let asker = Asker {
        fields: &head.fields,
        text: &text,
        body: body.as_ref(),
    };
    assert!(!asker.is_open());
    asker.session()
}

fn captured(id: &str) -> Option<Session> {
    Some(Session {
        id: id.into(),
        source: Source::Captured,
    })
}

fn derived(fields: &[(&str, &str)], body: Option<&str>) -> String {
    let found = session(fields, body).unwrap();
    assert_eq!(found.source(), Source::Derived);
    found.id().to_owned()
}

#[test]
fn r1_and_r2_fields_come_before_the_body_in_their_own_order() {
    let body = Some(r#"{"prompt_cache_key":"from-body"}"#);
    let all = [
        ("x-opencode-session", "second"),
        ("conversation_id", "fourth"),
        ("session_id", "first"),
        ("X-Session-Id", "third"),
    ];
    assert_eq!(session(&all, body), captured("first"));
    let without = |name: &str| {
        let left: Vec<_> = all.into_iter().filter(|(it, _)| *it != name).collect();
        session(&left, body)
    };
    assert_eq!(without("session_id"), captured("second"));
    assert_eq!(session(&all[1..2], body), captured("fourth"));
    assert_eq!(session(&all[3..], body), captured("third"));
    assert_eq!(session(&[], body), captured("from-body"));
}

#[test]
fn r3_and_r4_the_cache_key_comes_before_the_user_id() {
    for (body, id) in [
        (
            r#"{"prompt_cache_key":"k","metadata":{"user_id":"u"}}"#,
            "k",
        ),
        (
            r#"{"metadata":{"user_id":"u"},"prompt_cache_key":"k"}"#,
            "k",
        ),
        (r#"{"metadata":{"user_id":"u"}}"#, "u"),
        (
            r#"{"prompt_cache_key":42,"metadata":{"user_id":" u\n"}}"#,
            "u",
        ),
        (
            r#"{"prompt_cache_key":" ","metadata":{"user_id":"u"}}"#,
            "u",
        ),
        // `session_id` of the body is no input.
        (r#"{"session_id":"s","metadata":{"user_id":"u"}}"#, "u"),
    ] {
        assert_eq!(session(&[], Some(body)), captured(id), "{body}");
    }
}

#[test]
fn r5_nothing_stable_is_no_session() {
    for body in [
        r#"{"metadata":"user_id"}"#,
        r#"{"metadata":{"user_id":7},"prompt_cache_key":null,"user":{}}"#,
        r#"{"user":" ","session_id":"s"}"#,
        "{}",
    ] {
        assert_eq!(
            session(&[("accept", "x"), ("authorization", " ")], Some(body)),
            None,
            "{body}"
        );
    }
    assert_eq!(session(&[], None), None);
}

/// Row R6 has no planner here: a body that is no JSON object is 400 on the paths of the three dialects,
/// and has no facts on the others.
#[test]
fn r6_a_body_without_facts_leaves_the_head() {
    assert_eq!(
        derived(&[("authorization", "Bearer caller-stable")], None),
        "derived-d8cf4c56e5f0f240dcc4b4a7fea9f0e2"
    );
}

/// The vectors of the specification.
#[test]
fn r7_derived_sessions_are_those_of_every_other_implementation() {
    for (fields, user, id) in [
        (
            &[("Authorization", "Bearer caller-stable")][..],
            None,
            "derived-d8cf4c56e5f0f240dcc4b4a7fea9f0e2",
        ),
        (
            &[
                ("authorization", "Bearer abc"),
                ("chatgpt-account-id", "acct-1"),
            ],
            None,
            "derived-e6d7bc34e92c294df872d72378c2c7ea",
        ),
        (
            &[],
            Some("alice"),
            "derived-bf5b407db21018c0d604af3e82df5476",
        ),
        (
            &[
                ("x-api-key", "key-1"),
                ("openai-organization", "org-1"),
                ("openai-project", "proj-1"),
                ("chatgpt-account-id", "acct-1"),
            ],
            None,
            "derived-2b0468f0b30ba56b19e96337bd96f0a3",
        ),
        (
            &[("authorization", "Bearer t"), ("x-api-key", "k")],
            Some("u1"),
            "derived-1cfed93585eeb8b9210e0a1a09a2c559",
        ),
    ] {
        let body = user.map(|user| format!(r#"{{"x":1,"user":" {user} "}}"#));
        assert_eq!(derived(fields, body.as_deref()), id);
        let reversed: Vec<_> = fields.iter().rev().copied().collect();
        assert_eq!(derived(&reversed, body.as_deref()), id);
        // Other bodies with the same user make the same session.
        let more = user.map_or_else(
            || r#"{"y":2}"#.to_owned(),
            |user| format!(r#"{{"user":"{user}","model":"z"}}"#),
        );
        assert_eq!(derived(fields, Some(&more)), id);
    }
}

#[test]
fn r7_every_input_makes_another_session() {
    let names = [
        "authorization",
        "chatgpt-account-id",
        "openai-organization",
        "openai-project",
        "x-api-key",
    ];
    let mut ids: Vec<String> = names.map(|name| derived(&[(name, "v")], None)).into();
    ids.push(derived(&[], Some(r#"{"user":"v"}"#)));
    ids.push(derived(&[("authorization", "w")], None));
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
}

#[test]
fn r8_the_first_value_that_is_not_blank_counts() {
    let many = [
        ("authorization", ""),
        ("authorization", "   "),
        ("authorization", "Bearer real"),
    ];
    assert_eq!(derived(&many, None), derived(&many[2..], None));
    let named = [
        ("session_id", " "),
        ("Session_ID", " a "),
        ("session_id", "b"),
    ];
    assert_eq!(session(&named, None), captured("a"));
}

/// Decision S10.
#[test]
fn ids_that_no_header_can_carry_are_no_session_and_hide_what_is_behind_them() {
    let auth = ("authorization", "Bearer abc");
    let longest = "x".repeat(SESSION_ID_BYTES_MAX);
    let too_long = format!("{longest}x");
    for (id, fits) in [
        ("a b\"c", true),
        (longest.as_str(), true),
        (&too_long, false),
        ("caf\u{e9}", false),
        ("a\tb", false),
    ] {
        let expected = fits.then(|| captured(id)).flatten();
        assert_eq!(
            session(&[("session_id", id), auth], None),
            expected,
            "{id:?}"
        );
        let body = serde_json::json!({ "prompt_cache_key": id, "metadata": { "user_id": "u" } });
        assert_eq!(
            session(&[auth], Some(&body.to_string())),
            expected,
            "{id:?}"
        );
    }
    for injected in ["a\r\nx-evil: 1", "a\nb", "a\0b", "a\u{7f}", "\u{202e}a"] {
        let body = serde_json::json!({ "prompt_cache_key": injected });
        assert_eq!(
            session(&[auth], Some(&body.to_string())),
            None,
            "{injected:?}"
        );
    }
    let long_user = serde_json::json!({ "user": too_long }).to_string();
    assert_eq!(session(&[auth], Some(&long_user)), None);
}

#[test]
fn a_body_is_read_no_further_than_to_the_first_name() {
    let asked = |fields: &[(&str, &str)], start: &str| {
        let (head, text) = head(fields);
        let mut peek = Peek::new(Dialect::Chat, DEMAND);
        peek.push(start.as_bytes()).unwrap();
        let asker = Asker {
            fields: &head.fields,
            text: &text,
            body: Some(&peek),
        };
        (asker.is_open(), asker.session())
    };
    let named = [("session_id", "a")];
    assert_eq!(asked(&named, r#"{"mod"#), (false, captured("a")));
    assert_eq!(asked(&[], r#"{"mod"#), (true, None));
    assert_eq!(asked(&[], r#"{"metadata":{"user_id":"u"},"#), (true, None));
    assert_eq!(
        asked(&[], r#"{"prompt_cache_key":"k","#),
        (false, captured("k"))
    );
    assert_eq!(asked(&[], r#"{"prompt_cache_key":"k"#), (true, None));
}

#[test]
fn nothing_of_an_id_is_printed() {
    assert_eq!(
        format!("{:?}", session(&[("session_id", "secret")], None).unwrap()),
        "Session(captured, 6 bytes)"
    );
}
