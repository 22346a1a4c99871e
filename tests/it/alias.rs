//! Requests of real clients under another model name: only the name changes, and the length that
//! follows from it.

use std::net::SocketAddr;

use serde_json::Value;

use crate::captures::captures;
use crate::support::client::{CHAT, request};
use crate::support::gateway::{Driver, Gateway, Setup};
use crate::support::message::{Head, find, name_of};
use crate::support::on_both_drivers;
use crate::support::origin::{Origin, Seen};

on_both_drivers!(
    captured_requests_change_in_their_model_only,
    providers_get_the_models_of_their_turn,
);

const ALIAS: &str = "lanegate-alias-model-with-another-length";

/// Whether `seen` is `sent` with another string in the place of its model. Reads no offsets from the
/// gateway: what stands before and after the alias has to be the two ends of `sent`.
pub(crate) fn only_the_model_differs(
    sent: &[u8],
    seen: &[u8],
    model: &str,
    alias: &str,
) -> Result<(), String> {
    let quoted = format!("\"{alias}\"");
    let at = find(seen, quoted.as_bytes()).ok_or("the alias did not arrive")?;
    let (before, after) = (&seen[..at], &seen[at + quoted.len()..]);
    if !sent.starts_with(before) || !sent.ends_with(after) {
        return Err("bytes around the model differ".to_owned());
    }
    let Some(replaced) = sent.get(before.len()..sent.len() - after.len()) else {
        return Err("bytes around the model were repeated".to_owned());
    };
    match serde_json::from_slice::<Value>(replaced) {
        Ok(Value::String(name)) if name == model => Ok(()),
        other => Err(format!("replaced {other:?}")),
    }
}

/// A gateway in front of one provider of each dialect.
fn gateway(driver: Driver, at: SocketAddr, models: &str) -> Gateway {
    let mut setup = Setup::new(driver);
    for dialect in ["openai", "anthropic"] {
        setup = setup.provider(dialect, at, models);
    }
    setup.start()
}

fn arrived(gateway: &Gateway, origin: &Origin, bytes: &[u8]) -> Seen {
    origin.forget();
    let answer = gateway.connect().exchange("POST", bytes);
    assert_eq!(answer.status, 200, "{answer:#?}");
    origin.look(|log| {
        assert_eq!(log.requests.len(), 1, "{log:#?}");
        log.requests[0].clone()
    })
}

fn is_of_a_dialect(head: &Head) -> bool {
    let target = String::from_utf8_lossy(head.target()).into_owned();
    let path = target.split('?').next().unwrap_or_default();
    let endings = ["/chat/completions", "/messages", "/responses"];
    head.method() == "POST" && endings.iter().any(|ending| path.ends_with(ending))
}

fn lines_without_length(seen: &Seen) -> Vec<Vec<u8>> {
    let length = |line: &&Vec<u8>| !name_of(line).eq_ignore_ascii_case(b"content-length");
    seen.head
        .field_lines()
        .iter()
        .filter(length)
        .cloned()
        .collect()
}

fn captured_requests_change_in_their_model_only(driver: Driver) {
    let origin = Origin::echoing();
    let at = origin.address();
    let plain = gateway(driver, at, "default: true");
    let alias = gateway(
        driver,
        at,
        &format!(r#"models: [{{ from: "*", to: "{ALIAS}" }}]"#),
    );
    // Whatever the model: known at the head, or read because another mapping comes before.
    let same = [
        r#"models: [{ from: "*", to: "{model}" }]"#,
        r#"models: [{ from: "nobody-asks-for-this", to: "x" }, { from: "*", to: "{model}" }]"#,
    ]
    .map(|models| gateway(driver, at, models));
    let mut replayed = 0;
    for capture in captures() {
        let sent = Head::of(&capture.bytes);
        if !is_of_a_dialect(&sent) {
            continue;
        }
        let name = &capture.name;
        let before = arrived(&plain, &origin, &capture.bytes);
        if before.head.has("content-encoding") {
            let seen = arrived(&same[0], &origin, &capture.bytes);
            assert_eq!((seen.head, seen.body), (before.head, before.body), "{name}");
            let seen = arrived(&alias, &origin, &capture.bytes);
            assert!(!seen.head.has("content-encoding"), "{name}");
            continue;
        }
        let body: Value = serde_json::from_slice(&before.body).unwrap();
        for gateway in &same {
            let seen = arrived(gateway, &origin, &capture.bytes);
            assert_eq!(seen.head, before.head, "{name}");
            assert_eq!(seen.body, before.body, "{name}");
        }
        let seen = arrived(&alias, &origin, &capture.bytes);
        let model = body["model"].as_str().unwrap();
        let differs = only_the_model_differs(&before.body, &seen.body, model, ALIAS);
        assert_eq!(differs, Ok(()), "{name}");
        assert_eq!(seen.head.start(), before.head.start(), "{name}");
        assert_eq!(
            lines_without_length(&seen),
            lines_without_length(&before),
            "{name}"
        );
        let declared = seen.head.value("content-length");
        if before.head.has("content-length") {
            assert_eq!(declared, Some(seen.body_bytes.to_string()), "{name}");
        } else {
            assert_eq!(declared, None, "{name}");
        }
        replayed += 1;
    }
    assert!(replayed > 100, "only {replayed} captures");
}

fn providers_get_the_models_of_their_turn(driver: Driver) {
    let origins = [(); 3].map(|()| Origin::echoing());
    let gateway = Setup::new(driver)
        .provider(
            "openai",
            origins[0].address(),
            r#"models: [{ from: "gpt-5-mini", to: "small" }, { from: "gpt-5*", to: "up/{model}" }]"#,
        )
        .provider(
            "openai",
            origins[1].address(),
            r#"models: [{ from: "gpt-*", to: "{model}/{model}" }, { from: "gpt-5-mini", to: "never" }]"#,
        )
        .provider("openai", origins[2].address(), "default: true")
        .start();
    let mut client = gateway.connect();
    let cases = [
        ("gpt-5-mini", 0, "small"),
        ("GPT-5-Mini", 0, "small"),
        ("gpt-5-mini-2", 0, "up/gpt-5-mini-2"),
        ("gpt-5", 0, "up/gpt-5"),
        ("Gpt-4.1", 1, "Gpt-4.1/Gpt-4.1"),
        ("gpt-", 1, "gpt-/gpt-"),
        ("gpt", 2, "gpt"),
        ("xgpt-5", 2, "xgpt-5"),
    ];
    for (model, taker, name) in cases {
        for origin in &origins {
            origin.forget();
        }
        let body = |model: &str| format!(r#"{{"messages":[],"model":"{model}","n":1}}"#);
        let asked = request("POST", CHAT, &[], body(model).as_bytes());
        let answer = client.exchange("POST", &asked);
        assert_eq!(answer.status, 200, "{model}: {answer:#?}");
        for (number, origin) in origins.iter().enumerate() {
            let bodies: Vec<Vec<u8>> =
                origin.look(|log| log.requests.iter().map(|r| r.body.clone()).collect());
            let expected = if number == taker {
                vec![body(name).into_bytes()]
            } else {
                Vec::new()
            };
            assert_eq!(bodies, expected, "{model} at provider {number}");
        }
    }
}
