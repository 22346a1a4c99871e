//! What a provider is told of a session, and what others are not: rows R, and rows I about sessions.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::support::client::{CHAT, Client, request};
use crate::support::gateway::{Driver, SECRET};
use crate::support::message::eventually;
use crate::support::on_both_drivers;
use crate::support::origin::Origin;
use crate::switches::{
    MESSAGES, RESPONSES, SESSION, arrives, body, connections, field, json_of, minted, post,
    session_fields, setup, stamped, start, text, who,
};

on_both_drivers!(
    i6_and_i7_a_new_session_replaces_the_old_one_in_field_and_body,
    i9_a_stream_carries_the_new_session,
    i10_sessions_are_known_on_every_core_and_do_not_mix,
    i11_s18_and_s4_without_a_named_session_there_is_no_new_one,
    s32_sessions_are_only_of_opted_in_routes,
    r6_other_paths_tell_the_session_in_the_head,
    r9_r11_and_r13_an_opted_in_provider_is_told_the_session,
    r10_and_r13_others_get_what_the_client_sent,
    r12_bodies_of_the_other_dialect_are_left_alone,
    r15_the_log_says_where_a_session_came_from_and_never_which,
    a10_without_a_key_the_callers_credential_is_relayed,
    clients_have_sessions_of_their_own,
);

fn i6_and_i7_a_new_session_replaces_the_old_one_in_field_and_body(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = start(driver, &origin);
    let mut client = gateway.connect();
    let named = field("session_id", SESSION);
    let fields: [&str; 4] = [
        &named,
        "x-session-id: another",
        "X-OpenCode-Session: third",
        "conversation_id: fourth",
    ];
    let id = minted(&mut client, CHAT, &fields, "gpt5.4");
    // Once more is the same (row S19), and the first switch shows it (row S20).
    assert_eq!(minted(&mut client, CHAT, &fields, "gpt5.4"), id);
    assert!(who(&mut client, CHAT, &fields, "gpt5.4").ends_with(&format!("session: {id})")));
    assert_eq!(connections(&origin), 0);
    let sent = request("POST", CHAT, &fields, &body("gpt5.4", "hi"));
    let seen = arrives(&mut client, &origin, &sent);
    assert_eq!(session_fields(&seen), stamped(&id));
    let arrived = json_of(&seen);
    assert_eq!(
        (&arrived["session_id"], &arrived["model"]),
        (&json!(id), &json!("grok-code"))
    );
    // The same session in the other family is told in the head alone.
    let sent = request("POST", MESSAGES, &fields, &body("claude-haiku-3", "hi"));
    let seen = arrives(&mut client, &origin, &sent);
    assert_eq!(session_fields(&seen), stamped(&id));
    assert!(json_of(&seen).get("session_id").is_none());
}

fn i9_a_stream_carries_the_new_session(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = start(driver, &origin);
    let mut client = gateway.connect();
    let sent = br#"{"model":"gpt5.4","prompt_cache_key":"caller-session-1","messages":[{"role":"user","content":"--newsession"}]}"#;
    let answer = post(&mut client, CHAT, &[], sent);
    let said = text(&answer);
    let id = said
        .strip_prefix("Session: caller-session-1 → ")
        .unwrap()
        .to_owned();
    let sent = br#"{"stream":true,"session_id":{"of":["theirs"]},"prompt_cache_key":"caller-session-1","model":"gpt5.4","messages":[]}"#;
    let seen = arrives(&mut client, &origin, &request("POST", CHAT, &[], sent));
    assert_eq!(session_fields(&seen), stamped(&id));
    let expected = format!(
        r#"{{"stream":true,"session_id":"{id}","prompt_cache_key":"caller-session-1","model":"grok-code","messages":[]}}"#
    );
    assert_eq!(String::from_utf8(seen.body).unwrap(), expected);
}

/// Connections are dealt to two cores by the kernel, so that some of many are on each.
fn i10_sessions_are_known_on_every_core_and_do_not_mix(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = setup(driver, &origin).workers(2).start();
    let mut ids = HashSet::new();
    let mut clients: Vec<Client> = (0..16).map(|_| gateway.connect()).collect();
    for number in 0..8 {
        let named = format!("session_id: session-{number}");
        let id = minted(&mut clients[number], CHAT, &[&named], "gpt5.4");
        for client in &mut clients {
            let seen = arrives(
                client,
                &origin,
                &request("POST", CHAT, &[&named], &body("gpt5.4", "hi")),
            );
            assert_eq!(session_fields(&seen), stamped(&id));
        }
        assert!(ids.insert(id));
    }
}

/// Decision S4: a derived session is shown and does not mint.
fn i11_s18_and_s4_without_a_named_session_there_is_no_new_one(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = start(driver, &origin);
    let mut client = gateway.connect();
    let sent = body("gpt5.4", "--newsession");
    let seen = arrives(&mut client, &origin, &request("POST", CHAT, &[], &sent));
    assert!(session_fields(&seen).is_empty());
    assert_eq!(
        json_of(&seen),
        json!({"model": "grok-code", "messages": [{"role": "user", "content": "--newsession"}]})
    );
    let auth = "Authorization: Bearer caller-stable";
    let derived = "derived-d8cf4c56e5f0f240dcc4b4a7fea9f0e2";
    let seen = arrives(&mut client, &origin, &request("POST", CHAT, &[auth], &sent));
    assert_eq!(session_fields(&seen), stamped(derived));
    let said = who(&mut client, CHAT, &[auth], "gpt5.4");
    assert_eq!(
        said,
        format!("Imposter: gpt5.4 → grok-code (auth: ApiKey, session: {derived})")
    );
}

fn s32_sessions_are_only_of_opted_in_routes(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = start(driver, &origin);
    let mut client = gateway.connect();
    let named = field("session_id", SESSION);
    for (path, model) in [(CHAT, "plain-1"), (CHAT, "other"), (MESSAGES, "other")] {
        let sent = body(model, "--newsession");
        let seen = arrives(
            &mut client,
            &origin,
            &request("POST", path, &[&named], &sent),
        );
        assert_eq!(
            session_fields(&seen),
            [("session_id".to_owned(), vec![SESSION.to_owned()])]
        );
        assert!(who(&mut client, path, &[&named], model).ends_with("session: null)"));
    }
    // Nothing was made: the session still goes by its own name.
    assert!(who(&mut client, CHAT, &[&named], "gpt5.4").ends_with("session: caller-session-1)"));
}

fn r6_other_paths_tell_the_session_in_the_head(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = start(driver, &origin);
    let mut client = gateway.connect();
    let json_type = "Content-Type: application/json";
    let sent = br#"{"input":"x","user":"alice","model":"gpt5.4"}"#;
    let seen = arrives(
        &mut client,
        &origin,
        &request("POST", "/v1/embeddings", &[json_type], sent),
    );
    assert_eq!(
        session_fields(&seen),
        stamped("derived-bf5b407db21018c0d604af3e82df5476")
    );
    assert_eq!(
        seen.body,
        br#"{"input":"x","user":"alice","model":"grok-code"}"#
    );
}

fn r9_r11_and_r13_an_opted_in_provider_is_told_the_session(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = start(driver, &origin);
    let mut client = gateway.connect();
    let derived = "derived-d8cf4c56e5f0f240dcc4b4a7fea9f0e2";
    let auth = "Authorization: Bearer caller-stable";
    for (fields, sent, id, arrived) in [
        // Row R9.
        (
            &["session_id: codex-session-1", auth][..],
            r#"{"model":"gpt5.4","x":1}"#,
            "codex-session-1",
            r#"{"session_id":"codex-session-1","model":"grok-code","x":1}"#,
        ),
        // Row R11.
        (
            &[auth],
            r#" { "x":1,"model":"gpt5.4"}"#,
            derived,
            r#" {"session_id":"derived-d8cf4c56e5f0f240dcc4b4a7fea9f0e2", "x":1,"model":"grok-code"}"#,
        ),
        // Row R13: in its place.
        (
            &["x-session-id: a\"b"],
            r#"{"model":"gpt5.4","session_id":7,"x":1}"#,
            "a\"b",
            r#"{"model":"grok-code","session_id":"a\"b","x":1}"#,
        ),
        (
            &[],
            r#"{"model":"gpt5.4","metadata":{"user_id":"u"},"session_id":"theirs"}"#,
            "u",
            r#"{"model":"grok-code","metadata":{"user_id":"u"},"session_id":"u"}"#,
        ),
    ] {
        for path in [CHAT, RESPONSES] {
            let seen = arrives(
                &mut client,
                &origin,
                &request("POST", path, fields, sent.as_bytes()),
            );
            assert_eq!(seen.head.values("x-opencode-session"), [id]);
            assert!(!seen.head.has("session_id"));
            assert_eq!(String::from_utf8(seen.body.clone()).unwrap(), arrived);
            assert_eq!(
                seen.head.value("content-length").unwrap(),
                arrived.len().to_string()
            );
        }
    }
    // What no field can carry is nobody's session (decision S10).
    let injected = r#"{"model":"gpt5.4","prompt_cache_key":"a\r\nx-evil: 1"}"#;
    let seen = arrives(
        &mut client,
        &origin,
        &request("POST", CHAT, &[auth], injected.as_bytes()),
    );
    assert!(
        session_fields(&seen).is_empty() && !seen.head.has("x-evil"),
        "{seen:#?}"
    );
    // Where it would be told, a second one is refused.
    for sent in [
        r#"{"model":"gpt5.4","session_id":"a","session_id":"b"}"#,
        r#"{"model":"gpt5.4","Session_ID":"a"}"#,
    ] {
        let answer = post(&mut client, CHAT, &["session_id: s"], sent.as_bytes());
        assert_eq!(
            (answer.status, answer.gateway_error().as_deref()),
            (400, Some("ambiguous_body"))
        );
    }
}

fn r10_and_r13_others_get_what_the_client_sent(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = start(driver, &origin);
    let mut client = gateway.connect();
    let fields = [
        "Session_Id: s",
        "x-opencode-session: o",
        "X-Session-Id: x",
        "conversation_id: c",
    ];
    for model in ["other", "plain-1"] {
        let sent = format!(r#"{{"session_id":"theirs","model":"{model}","session_id":"twice"}}"#);
        let seen = arrives(
            &mut client,
            &origin,
            &request("POST", CHAT, &fields, sent.as_bytes()),
        );
        let lines = seen.head.field_lines();
        for field in fields {
            assert!(
                lines.contains(&field.as_bytes().to_vec()),
                "{field} {seen:#?}"
            );
        }
        let arrived = sent.replace("plain-1", "x");
        assert_eq!(String::from_utf8(seen.body).unwrap(), arrived);
    }
}

fn r12_bodies_of_the_other_dialect_are_left_alone(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = start(driver, &origin);
    let mut client = gateway.connect();
    let sent = r#"{"model":"claude-haiku-3","session_id":"theirs","metadata":{"user_id":"user-1"},"messages":[]}"#;
    let seen = arrives(
        &mut client,
        &origin,
        &request("POST", MESSAGES, &["conversation_id:"], sent.as_bytes()),
    );
    // What is not translated stays.
    let mut expected = vec![("conversation_id".to_owned(), vec![String::new()])];
    expected.splice(0..0, stamped("user-1"));
    assert_eq!(session_fields(&seen), expected);
    let arrived = sent.replace("claude-haiku-3", "claude-3-5-haiku-latest");
    assert_eq!(String::from_utf8(seen.body).unwrap(), arrived);
}

fn r15_the_log_says_where_a_session_came_from_and_never_which(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = start(driver, &origin);
    let mut client = gateway.connect();
    let auth = "Authorization: Bearer caller-stable";
    let named = field("session_id", SESSION);
    let mut expected = Vec::new();
    for (fields, model, word) in [
        (&[auth, &named][..], "gpt5.4", "captured"),
        (&[auth], "gpt5.4", "derived"),
        (&[], "gpt5.4", "none"),
        (&[auth, &named], "other", "none"),
    ] {
        let _seen = arrives(
            &mut client,
            &origin,
            &request("POST", CHAT, fields, &body(model, "hi")),
        );
        expected.push(word);
        let count = expected.len();
        assert!(eventually(|| gateway.access_lines().len() == count));
        let lines = gateway.access_lines();
        assert_eq!(lines[count - 1]["session"], word);
        assert_eq!(lines[count - 1]["switch"], Value::Null);
    }
    let log = gateway.output();
    assert!(
        !log.contains(SESSION) && !log.contains("derived-") && !log.contains("caller-stable"),
        "{log}"
    );
}

fn a10_without_a_key_the_callers_credential_is_relayed(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = start(driver, &origin);
    let mut client = gateway.connect();
    for fields in [
        &["Authorization: Bearer mine"][..],
        &["x-api-key: mine"],
        &[],
    ] {
        let seen = arrives(
            &mut client,
            &origin,
            &request("POST", CHAT, fields, &body("other", "hi")),
        );
        for name in ["authorization", "x-api-key"] {
            let sent = fields
                .iter()
                .any(|field| field.to_ascii_lowercase().starts_with(name));
            assert_eq!(seen.head.has(name), sent, "{seen:#?}");
        }
        let seen = arrives(
            &mut client,
            &origin,
            &request("POST", CHAT, fields, &body("gpt5.4", "hi")),
        );
        assert_eq!(seen.head.value("x-api-key").unwrap(), SECRET);
        assert!(!seen.head.has("authorization"));
    }
}

fn clients_have_sessions_of_their_own(driver: Driver) {
    let origin = Origin::echoing();
    let (one, two) = ("first-key-of-the-tests", "second-key-of-the-tests");
    let gateway = setup(driver, &origin)
        .variable("LANEGATE_TEST_ONE", one)
        .variable("LANEGATE_TEST_TWO", two)
        .with("clients: [{ name: one, key_env: LANEGATE_TEST_ONE }, { name: two, key_env: LANEGATE_TEST_TWO }]")
        .start();
    let mut client = gateway.connect();
    let named = field("session_id", SESSION);
    let keys = [one, two].map(|key| field("X-Lanegate-Key", key));
    let ids = [0, 1].map(|number: usize| {
        let fields = [named.as_str(), &keys[number]];
        assert!(who(&mut client, CHAT, &fields, "gpt5.4").ends_with("session: caller-session-1)"));
        minted(&mut client, CHAT, &fields, "gpt5.4")
    });
    assert_ne!(ids[0], ids[1]);
    for (key, id) in keys.iter().zip(&ids) {
        let sent = request("POST", CHAT, &[&named, key], &body("gpt5.4", "hi"));
        let seen = arrives(&mut client, &origin, &sent);
        assert_eq!(session_fields(&seen), stamped(id));
    }
    for path in ["/lanegate/whoami?dialect=chat&model=m", "/lanegate/whoami"] {
        let answer = gateway
            .connect()
            .exchange("GET", &request("GET", path, &[], b""));
        assert_eq!(answer.status, 401, "{answer:#?}");
    }
}
