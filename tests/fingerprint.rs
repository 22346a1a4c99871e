//! The rows of the contract that concern fingerprints, by their numbers, and what else `fp1` promises.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use lanegate::dialect::Dialect;
use lanegate::peek::{Demand, Peek};
use serde_json::json;
use sha2::{Digest as _, Sha256};

fn peek(dialect: Dialect, demand: Demand, pieces: &[&[u8]]) -> u64 {
    let mut peek = Peek::new(dialect, demand);
    pieces
        .iter()
        .try_for_each(|piece| peek.push(piece))
        .unwrap();
    peek.fingerprint().unwrap()
}

fn of(dialect: Dialect, body: &str) -> u64 {
    let alone = peek(dialect, Demand::FINGERPRINT, &[body.as_bytes()]);
    // What else a body is read for changes nothing.
    assert_eq!(
        alone,
        peek(dialect, Demand::ALL, &[body.as_bytes()]),
        "{body}"
    );
    alone
}

/// The first eight bytes of a SHA-256, as `sha256sum` prints them.
fn sha(text: &[u8]) -> u64 {
    let digest: [u8; 32] = Sha256::digest(text).into();
    u64::from_be_bytes(digest[..8].try_into().unwrap())
}

fn chat(messages: &str) -> u64 {
    of(
        Dialect::Chat,
        &format!("{{\"model\":\"m\",\"messages\":{messages}}}"),
    )
}

#[test]
fn a02_a_system_text_gives_its_hash() {
    let key = chat(r#"[{"role":"system","content":"S"},{"role":"user","content":"u"}]"#);
    assert_eq!(key, sha(b"\x01S"));
}

#[test]
fn a17_the_same_text_in_three_dialects_is_one_conversation() {
    let expected = sha(b"\x01You are S.");
    for (dialect, body) in [
        (
            Dialect::Chat,
            json!({"messages": [{"role": "system", "content": "You are S."}, {"role": "user", "content": "a"}]}),
        ),
        (
            Dialect::Chat,
            json!({"messages": [{"role": "developer", "content": [{"type": "text", "text": "You are S."}]}]}),
        ),
        (
            Dialect::Messages,
            json!({"system": "You are S.", "messages": [{"role": "system", "content": "not this"}]}),
        ),
        (
            Dialect::Responses,
            json!({"instructions": "You are S.", "input": "hello"}),
        ),
        (
            Dialect::Responses,
            json!({"input": [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "You are S."}]}]}),
        ),
    ] {
        assert_eq!(of(dialect, &body.to_string()), expected, "{body}");
    }
}

#[test]
fn a18_spelling_and_form_of_a_text_do_not_matter() {
    let expected = sha("\x01é".as_bytes());
    for system in [
        "\"é\"",
        "\"\\u00e9\"",
        "\"\\u00E9\"",
        r#"[{"type":"text","text":"é"}]"#,
        r#"[ { "text" : "\u00e9" , "type" : "text" , "cache_control":{"type":"ephemeral"} } ]"#,
    ] {
        let body = format!("{{\"system\":{system},\"messages\":[]}}");
        assert_eq!(of(Dialect::Messages, &body), expected, "{body}");
    }
}

#[test]
fn a19_a_nonce_in_the_first_block_does_not_make_a_session() {
    let body = |nonce| {
        json!({"system": [
            {"type": "text", "text": format!("x-anthropic-billing-header: cc_version=2; cch={nonce};")},
            {"type": "text", "text": "You are Claude Code."},
        ], "messages": []})
        .to_string()
    };
    let (one, two) = (
        of(Dialect::Messages, &body(1)),
        of(Dialect::Messages, &body(2)),
    );
    assert_eq!(one, two);
    assert_eq!(one, sha(b"\x01You are Claude Code."));
    // What only begins like it counts.
    let like = r#"{"system":[{"type":"text","text":"x-anthropic"},{"type":"text","text":"b"}]}"#;
    assert_eq!(of(Dialect::Messages, like), sha(b"\x01x-anthropic\x1eb"));
}

#[test]
fn a20_the_order_of_the_keys_does_not_matter() {
    let first = r#"{"system":"S","messages":[{"role":"user","content":"u"}]}"#;
    let last = r#"{"messages":[{"content":"u","role":"user"}],"system":"S"}"#;
    assert_eq!(of(Dialect::Messages, first), of(Dialect::Messages, last));
    let content_first = r#"[{"content":"S","role":"system"},{"content":"u","role":"user"}]"#;
    assert_eq!(chat(content_first), sha(b"\x01S"));
}

#[test]
fn a21_without_a_system_text_the_first_user_text_counts() {
    let (one, two) = (
        chat(r#"[{"role":"user","content":"one"},{"role":"user","content":"x"}]"#),
        chat(r#"[{"role":"user","content":[{"type":"image_url"},{"type":"text","text":"two"}]}]"#),
    );
    assert_eq!((one, two), (sha(b"\x02one"), sha(b"\x02two")));
    let long = "y".repeat(5000);
    let of_long = chat(&format!("[{{\"role\":\"user\",\"content\":\"{long}\"}}]"));
    assert_eq!(of_long, sha(format!("\x02{}", &long[..4096]).as_bytes()));
}

#[test]
fn without_any_text_there_is_one_key() {
    let nothing = lanegate::ledger::NOTHING_READ;
    assert_eq!(nothing, sha(b"\0"));
    for messages in [
        "[]",
        "null",
        r#"[{"role":"assistant","content":"a"}]"#,
        r#"[{"role":"user"}]"#,
    ] {
        assert_eq!(chat(messages), nothing, "{messages}");
    }
}

#[test]
fn only_messages_at_the_head_are_system_text() {
    let split = chat(
        r#"[{"role":"system","content":"a"},{"role":"developer","content":["x",{"type":"text","text":"b"}]},
            {"role":"user","content":"u"},{"role":"system","content":"c"}]"#,
    );
    assert_eq!(split, sha(b"\x01a\x1eb"));
    let later = chat(r#"[{"role":"user","content":"u"},{"role":"system","content":"c"}]"#);
    assert_eq!(later, sha(b"\x02u"));
}

#[test]
fn a22_a_long_system_text_is_bounded_and_stable() {
    let long = "s".repeat(10 << 20);
    let body = format!("{{\"system\":\"{long}\",\"messages\":[]}}");
    let expected = sha(format!("\x01{}\x04", &long[..65_536]).as_bytes());
    let pieces: Vec<&[u8]> = body.as_bytes().chunks(16 * 1024).collect();
    assert_eq!(
        peek(Dialect::Messages, Demand::FINGERPRINT, &pieces),
        expected
    );
    let exact = format!("{{\"system\":\"{}\"}}", &long[..65_536]);
    assert_eq!(
        of(Dialect::Messages, &exact),
        sha(format!("\x01{}", &long[..65_536]).as_bytes())
    );
}

#[test]
fn a23_every_cut_gives_the_same() {
    for (dialect, body) in [
        (
            Dialect::Messages,
            r#"{"messages":[{"content":[{"text":"u\ud83d\ude00","type":"text"}],"role":"user"}],"system":[{"text":"x-anthropic-billing-header: 1","type":"text"},{"type":"text","text":"S\u00e9\udc00"}]}"#,
        ),
        (
            Dialect::Chat,
            r#"{"messages":[{"role":"system","content":"a"},{"content":"b","role":"developer"},{"role":"user","content":"u"}]}"#,
        ),
        (
            Dialect::Responses,
            r#"{"input":"hello","instructions":"x-anthropic"}"#,
        ),
    ] {
        let whole = of(dialect, body);
        let bytes = body.as_bytes();
        for at in 0..=bytes.len() {
            let cut = peek(dialect, Demand::FINGERPRINT, &[&bytes[..at], &bytes[at..]]);
            assert_eq!(cut, whole, "{body} cut at {at}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(peek(dialect, Demand::FINGERPRINT, &single), whole);
    }
}

#[test]
fn a_lone_surrogate_counts_in_its_three_bytes() {
    let key = of(Dialect::Messages, r#"{"system":"\ud800x\udc01"}"#);
    assert_eq!(key, sha(b"\x01\xed\xa0\x80x\xed\xb0\x81"));
}

#[test]
fn a_part_of_a_body_never_equals_a_whole_one() {
    let body = r#"{"system":"S","messages":[]}"#;
    let whole = of(Dialect::Messages, body);
    let part = peek(
        Dialect::Messages,
        Demand::FINGERPRINT,
        &[&body.as_bytes()[..body.len() - 1]],
    );
    assert_ne!(part, whole);
    assert_eq!(part, sha(&[&[3], &whole.to_be_bytes()[..]].concat()));
}

#[test]
fn what_has_no_single_reading_has_no_text() {
    let nothing = sha(b"\0");
    for body in [
        r#"{"system":"a","system":"b"}"#,
        r#"{"system":"a","SYSTEM":"b"}"#,
        r#"{"system":"a","messages":[],"messages":[]}"#,
    ] {
        assert_eq!(of(Dialect::Messages, body), nothing, "{body}");
    }
    let twice = r#"[{"role":"system","role":"user","content":"a"},{"role":"user","content":"u"}]"#;
    assert_eq!(chat(twice), sha(b"\x02u"));
}

#[test]
fn who_does_not_ask_gets_none() {
    let mut peek = Peek::new(Dialect::Chat, Demand::MODEL);
    peek.push(br#"{"messages":[{"role":"user","content":"u"}]}"#)
        .unwrap();
    assert_eq!(peek.fingerprint(), None);
}
