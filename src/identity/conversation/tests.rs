//! The rows of the contract that concern fields, by their numbers, and the native ids.

use super::*;

/// What a head with these fields says.
fn of(fields: &[(&str, &str)]) -> Reading {
    reading(fields, false)
}

fn reading(fields: &[(&str, &str)], native: bool) -> Reading {
    let fields = fields
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    read(fields, native)
}

fn session(reading: Reading) -> Option<String> {
    let (_, key) = reading.identity?.session?;
    Some(key.as_str().to_owned())
}

fn parent(reading: Reading) -> Option<String> {
    Some(reading.identity?.parent?.as_str().to_owned())
}

fn agent(reading: Reading) -> Option<String> {
    Some(reading.identity?.agent?.as_str().to_owned())
}

const CONVERSATION: &str = "X-Router-Conversation";
const AGENT: &str = "X-Router-Agent";
const PARENT: &str = "X-Router-Parent";

#[test]
fn a01_a_valid_conversation_is_the_key() {
    assert_eq!(
        session(of(&[(CONVERSATION, "ses_abc")])).as_deref(),
        Some("c:ses_abc")
    );
}

#[test]
fn a03_an_id_of_128_bytes_is_valid_and_of_129_absent() {
    let longest = "a".repeat(128);
    assert_eq!(
        session(of(&[(CONVERSATION, &longest)])),
        Some(format!("c:{longest}"))
    );
    let beyond = of(&[(CONVERSATION, &"a".repeat(129))]);
    assert_eq!(
        (session(beyond), beyond.invalid),
        (None, [true, false, false])
    );
}

#[test]
fn a04_an_agent_of_64_bytes_is_kept_and_of_65_absent() {
    let longest = "b".repeat(64);
    assert_eq!(agent(of(&[(AGENT, &longest)])), Some(longest));
    let beyond = of(&[(AGENT, &"b".repeat(65))]);
    assert_eq!(
        (agent(beyond), beyond.invalid),
        (None, [false, true, false])
    );
}

#[test]
fn a05_an_empty_value_is_absent() {
    let empty = of(&[(CONVERSATION, "")]);
    assert_eq!(
        (session(empty), empty.invalid),
        (None, [true, false, false])
    );
}

#[test]
fn a06_a_byte_outside_the_set_makes_a_value_absent() {
    for value in ["a b", "a,b", "a/b", "a@b", "é", "a\tb", "a\n", "(a)", "a\0"] {
        assert_eq!(session(of(&[(CONVERSATION, value)])), None, "{value:?}");
    }
    for byte in 0..=u8::MAX {
        let allowed = byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
        assert_eq!(is_label(&[b'x', byte], 128), allowed, "{byte}");
    }
}

#[test]
fn a07_every_kind_of_allowed_byte_stays_as_it_is() {
    assert_eq!(
        session(of(&[(CONVERSATION, "a.b_c:d-E9")])).as_deref(),
        Some("c:a.b_c:d-E9")
    );
}

#[test]
fn a08_names_compare_without_letter_case() {
    assert_eq!(
        session(of(&[("X-ROUTER-CONVERSATION", "x")])).as_deref(),
        Some("c:x")
    );
}

#[test]
fn a09_the_first_of_two_fields_counts() {
    let two = of(&[(CONVERSATION, "one"), ("x-router-conversation", "two")]);
    assert_eq!(session(two).as_deref(), Some("c:one"));
}

#[test]
fn a10_an_invalid_first_field_is_not_replaced_by_a_valid_second() {
    let two = of(&[(CONVERSATION, "bad value"), (CONVERSATION, "good")]);
    assert_eq!((session(two), two.invalid), (None, [true, false, false]));
}

#[test]
fn a11_a_prefix_in_the_id_is_part_of_it() {
    assert_eq!(
        session(of(&[(CONVERSATION, "c:x")])).as_deref(),
        Some("c:c:x")
    );
}

#[test]
fn a12_an_id_that_looks_like_a_fingerprint_is_none() {
    let id = "0123456789abcdef";
    let key = session(of(&[(CONVERSATION, id)])).unwrap();
    assert_eq!(key, format!("c:{id}"));
    let fingerprint = Key::fingerprint(0x0123_4567_89ab_cdef);
    assert_eq!(fingerprint.as_str(), id);
    assert_ne!(key, fingerprint.as_str());
}

#[test]
fn a13_a_parent_alone_is_kept_and_names_no_conversation() {
    let only = of(&[(PARENT, "p")]);
    assert_eq!(session(only), None);
    assert_eq!(parent(only).as_deref(), Some("c:p"));
}

#[test]
fn a14_a_conversation_may_be_its_own_parent() {
    let own = of(&[(CONVERSATION, "x"), (PARENT, "x")]);
    assert_eq!(session(own), parent(own));
}

#[test]
fn a15_the_fields_are_judged_each_on_its_own() {
    let mixed = of(&[(CONVERSATION, "x"), (AGENT, "Atlas (Plan)"), (PARENT, "p")]);
    assert_eq!(session(mixed).as_deref(), Some("c:x"));
    assert_eq!(parent(mixed).as_deref(), Some("c:p"));
    assert_eq!((agent(mixed), mixed.invalid), (None, [false, true, false]));
}

#[test]
fn nothing_is_said_by_other_fields() {
    let silent = of(&[
        ("Host", "a"),
        ("X-Router-Conversatiom", "a"),
        ("x-session-id", "a"),
    ]);
    assert_eq!(silent.identity, None);
    assert_eq!(silent.invalid, [false; 3]);
}

#[test]
fn a44_sub_agents_of_claude_code_never_blend_with_their_session() {
    let main = [("X-Claude-Code-Session-Id", "S")];
    let sub = [main[0], ("x-claude-code-agent-id", "X@é")];
    let deeper = [
        main[0],
        ("x-claude-code-agent-id", "Y"),
        ("x-claude-code-parent-agent-id", "X@é"),
    ];
    assert_eq!(session(of(&main)), None, "off unless asked for");
    let (main, sub, deeper) = (
        reading(&main, true),
        reading(&sub, true),
        reading(&deeper, true),
    );
    assert_eq!(session(main).as_deref(), Some("n:S"));
    assert_eq!(parent(main), None);
    let key = session(sub).unwrap();
    // printf 'X@\xc3\xa9' | sha256sum
    assert_eq!(key.len(), "n:S:".len() + 16);
    assert_eq!(key, format!("n:S:{:016x}", hash("X@é".as_bytes())));
    assert_eq!(parent(sub).as_deref(), Some("n:S"));
    assert_eq!(parent(deeper), Some(key));
    assert_ne!(session(deeper), session(sub));
}

#[test]
fn the_fields_of_the_contract_go_before_native_ids() {
    let both = reading(
        &[
            ("thread-id", "t"),
            ("x-codex-parent-thread-id", "p"),
            (CONVERSATION, "c"),
        ],
        true,
    );
    assert_eq!(session(both).as_deref(), Some("c:c"));
    assert_eq!(
        parent(both),
        None,
        "a native parent belongs to a native key"
    );
    let kind = both.identity.unwrap().session.unwrap().0;
    assert_eq!(kind, KeyKind::Client);
}

#[test]
fn every_agent_is_known_by_its_own_field() {
    for (fields, key, above) in [
        (&[("thread-id", "t"), ("session-id", "s")][..], "n:t", None),
        (
            &[("thread-id", "t"), ("x-codex-parent-thread-id", "s")],
            "n:t",
            Some("n:s"),
        ),
        (&[("session_id", "s")], "n:s", None),
        (&[("x-opencode-session", "o")], "n:o", None),
        (
            &[("x-session-affinity", "o"), ("x-parent-session-id", "p")],
            "n:o",
            Some("n:p"),
        ),
        (
            &[("X-Session-Id", "no good"), ("session-id", "s")],
            "n:s",
            None,
        ),
    ] {
        let reading = reading(fields, true);
        assert_eq!(session(reading).as_deref(), Some(key), "{fields:?}");
        assert_eq!(parent(reading).as_deref(), above, "{fields:?}");
    }
}

#[test]
fn the_longest_native_key_fits() {
    let id = "s".repeat(128);
    let fields = [
        ("x-claude-code-session-id", id.as_str()),
        ("x-claude-code-agent-id", "a"),
    ];
    assert_eq!(
        session(reading(&fields, true)).unwrap().len(),
        KEY_BYTES_MAX
    );
}

#[test]
fn nothing_shows_an_id_by_accident() {
    let shown = format!("{:?}", of(&[(CONVERSATION, "secret-id"), (AGENT, "agent")]));
    assert!(
        !shown.contains("secret-id") && !shown.contains("agent\""),
        "{shown}"
    );
}
