//! Bodies beyond the window, whose end decides, and bodies with a content coding.

use serde_json::{Value, json};

use crate::support::client::{CHAT, Client, Response, chunk, head, request};
use crate::support::gateway::{Driver, Setup};
use crate::support::message::{End, find};
use crate::support::on_both_drivers;
use crate::support::origin::{Caller, Incoming, Origin, json as json_answer};
use crate::switches::{
    ADMIN, KIB, arrives, body, post, scrape, session_fields, setup, stamped, start, text,
};

on_both_drivers!(
    large_bodies_are_answered_here_and_never_closed_for_the_provider,
    an_early_refusal_of_the_provider_does_not_beat_a_switch,
    late_session_fields_are_waited_for,
    a_late_second_session_key_is_refused,
    compressed_bodies_are_told_their_session,
);

/// A conversation of `bytes` bytes whose last user message says this, `model` first or last.
fn conversation(bytes: usize, model: &str, said: &str, model_first: bool) -> Vec<u8> {
    let model = format!(r#""model":"{model}""#);
    let (before, after) = if model_first {
        (format!("{model},"), String::new())
    } else {
        (String::new(), format!(",{model}"))
    };
    let start = format!(r#"{{{before}"messages":[{{"role":"user","content":""#);
    let end = format!(r#""}},{{"role":"user","content":"{said}"}}]{after}}}"#);
    let filler = bytes - start.len() - end.len();
    [start.as_bytes(), &vec![b'x'; filler], end.as_bytes()].concat()
}

/// Sends a large request in two pieces, and reads the answer.
fn sent_slowly(client: &mut Client, fields: &[&str], body: &[u8], chunked: bool) -> Response {
    let mut fields = fields.to_vec();
    let framing = if chunked {
        "Transfer-Encoding: chunked".to_owned()
    } else {
        format!("Content-Length: {}", body.len())
    };
    fields.push(&framing);
    client
        .send(format!("{}\r\n", head("POST", CHAT, &fields)).as_bytes())
        .unwrap();
    let half = body.len() - 100;
    for piece in [&body[..half], &body[half..]] {
        if chunked {
            client.send(&chunk(piece)).unwrap();
        } else {
            client.send(piece).unwrap();
        }
    }
    if chunked {
        client.send(b"0\r\n\r\n").unwrap();
    }
    client.response("POST").unwrap()
}

/// Decision S13: a provider may have had a part of it, and never its end.
fn large_bodies_are_answered_here_and_never_closed_for_the_provider(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = setup(driver, &origin).with(ADMIN).start();
    let decided = Setup::in_front_of(driver, &origin).start();
    let mut aborted = 0;
    for (gateway, model) in [(&gateway, "gpt5.4"), (&gateway, "other"), (&decided, "m")] {
        for bytes in [200 * KIB, 600 * KIB, 2048 * KIB] {
            for model_first in [true, false] {
                for chunked in [true, false] {
                    origin.forget();
                    let sent = conversation(bytes, model, "--who?", model_first);
                    let mut client = gateway.connect();
                    let answer = sent_slowly(&mut client, &["session_id: s"], &sent, chunked);
                    assert_eq!(answer.status, 200);
                    assert!(text(&answer).contains(": "), "{answer:#?}");
                    let (seen, whole) = origin.look(|log| {
                        (
                            log.requests.len(),
                            log.requests.iter().filter(|it| it.is_complete()).count(),
                        )
                    });
                    assert_eq!(whole, 0);
                    if bytes < 256 * KIB {
                        assert_eq!(seen, 0, "{model} {model_first} {chunked}");
                    }
                    // The connection goes on.
                    let again = post(&mut client, CHAT, &[], &body(model, "hi"));
                    assert_eq!(again.status, 200);
                    aborted += usize::from(seen > 0);
                    // The same conversation with another end arrives.
                    let sent = conversation(bytes, model, "--who? ", model_first);
                    let sent = [&sent[..sent.len() - 1], br#","stream":true}"#].concat();
                    let answer = sent_slowly(&mut client, &["session_id: s"], &sent, chunked);
                    assert_eq!(answer.status, 200);
                    assert!(find(&answer.body, b"Imposter").is_none());
                }
            }
        }
    }
    assert!(aborted > 0, "nothing was ever sent before the verdict");
    let page = scrape(&gateway);
    assert!(page.count("lanegate_switch_aborted_upstream_total") > 0);
    let line = gateway.access_line("an attempt", |line| {
        line["switch"] == "who" && line["attempts"] == 1
    });
    assert_eq!(
        (&line["lane"], &line["provider"]),
        (&json!("local"), &Value::Null)
    );
}

fn an_early_refusal_of_the_provider_does_not_beat_a_switch(driver: Driver) {
    let origin = Origin::start(|caller: &mut Caller| {
        let Some(mut incoming): Option<Incoming> = caller.head() else {
            return;
        };
        let _read = caller.at_least(&mut incoming, 1000);
        let _sent = caller.reply(&json_answer(429, "{}"));
        caller.stall();
    });
    let gateway = start(driver, &origin);
    for (said, status) in [("--who?", 200), ("hi", 429)] {
        let sent = conversation(600 * KIB, "gpt5.4", said, true);
        let length = format!("Content-Length: {}", sent.len());
        let head = head("POST", CHAT, &["session_id: s", &length]);
        let mut client = gateway.connect();
        client.send(format!("{head}\r\n").as_bytes()).unwrap();
        let half = sent.len() - 1000;
        client.send(&sent[..half]).unwrap();
        origin.wait("the refusal", |log| log.connections > 0);
        crate::support::message::settle();
        client.send(&sent[half..]).unwrap();
        let answer = client.response("POST").unwrap();
        assert_eq!(answer.status, status, "{said} {answer:#?}");
        origin.forget();
    }
}

/// Bodies beyond the window, whose session comes last: held until it is known, then sent with its length.
fn late_session_fields_are_waited_for(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = start(driver, &origin);
    for bytes in [100 * KIB, 700 * KIB] {
        for chunked in [true, false] {
            for (last, id) in [
                (r#","prompt_cache_key":"late""#, "late"),
                (r#","metadata":{"user_id":"late-user"}"#, "late-user"),
                (
                    r#","user":"alice""#,
                    "derived-bf5b407db21018c0d604af3e82df5476",
                ),
                (
                    r#","session_id":"theirs","prompt_cache_key":"late""#,
                    "late",
                ),
            ] {
                let sent = conversation(bytes, "gpt5.4", "hi", true);
                let sent = [&sent[..sent.len() - 1], last.as_bytes(), b"}"].concat();
                origin.forget();
                let answer = sent_slowly(&mut gateway.connect(), &[], &sent, chunked);
                assert_eq!(answer.status, 200, "{answer:#?}");
                let seen = origin.look(|log| log.requests[0].clone());
                assert_eq!(session_fields(&seen), stamped(id));
                assert_eq!(seen.end, Some(End::Complete));
                let expected = if last.contains("theirs") {
                    String::from_utf8(sent.clone())
                        .unwrap()
                        .replace("theirs", id)
                } else {
                    let text = String::from_utf8(sent.clone()).unwrap();
                    format!("{{\"session_id\":\"{id}\",{}", &text[1..])
                };
                let expected = expected.replace("gpt5.4", "grok-code");
                assert_eq!(seen.body_bytes, expected.len());
                // The record keeps the beginning of a long body.
                assert!(expected.as_bytes().starts_with(&seen.body));
            }
        }
    }
}

/// The session is known from the head, so that nothing is held; then the body brings a key of its own
/// behind what is sent already.
fn a_late_second_session_key_is_refused(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = start(driver, &origin);
    let sent = conversation(900 * KIB, "gpt5.4", "hi", true);
    let sent = [&sent[..sent.len() - 1], br#","session_id":"theirs"}"#].concat();
    let answer = sent_slowly(&mut gateway.connect(), &["session_id: s"], &sent, true);
    assert_eq!(
        (answer.status, answer.gateway_error().as_deref()),
        (400, Some("ambiguous_body"))
    );
    assert_eq!(origin.look(|log| log.complete().count()), 0);
}

fn compressed_bodies_are_told_their_session(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = start(driver, &origin);
    let mut client = gateway.connect();
    let gzip = |text: &[u8]| {
        use std::io::Write;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    };
    let fields = ["Content-Encoding: gzip", "session_id: s"];
    let sent = gzip(br#"{"model":"same-m","messages":[]}"#);
    let seen = arrives(&mut client, &origin, &request("POST", CHAT, &fields, &sent));
    assert_eq!(session_fields(&seen), stamped("s"));
    assert!(!seen.head.has("content-encoding"));
    assert_eq!(
        seen.body,
        br#"{"session_id":"s","model":"same-m","messages":[]}"#
    );
    // Where nothing in it is replaced it travels as it came.
    let sent = gzip(br#"{"model":"other","messages":[]}"#);
    let seen = arrives(&mut client, &origin, &request("POST", CHAT, &fields, &sent));
    assert_eq!(seen.body, sent);
    let sent = gzip(&body("gpt5.4", "--who?"));
    let answer = post(&mut client, CHAT, &fields, &sent);
    assert_eq!(
        text(&answer),
        "Imposter: gpt5.4 → grok-code (auth: ApiKey, session: s)"
    );
}
