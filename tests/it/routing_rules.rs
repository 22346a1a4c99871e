//! The routing rows of the specification, each as far as it shows on the wire; the tables of single
//! rules stand in `src/route/tests.rs`.

use std::io::Write;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::support::client::{BODY, CHAT, Client, Response, chunk, head, request};
use crate::support::gateway::{Driver, Gateway, Setup};
use crate::support::message::End;
use crate::support::on_both_drivers;
use crate::support::origin::{Origin, Seen};

on_both_drivers!(
    a1_patterns_are_literal_or_a_beginning_in_any_case,
    a2_every_model_token_of_a_target_is_expanded,
    a3_the_first_enabled_match_wins,
    a4_unmatched_models_go_to_the_default_unchanged_or_nowhere,
    a5_bodies_without_a_model_are_refused_in_the_dialect_of_the_client,
    a12_the_anthropic_version_is_filled_in_and_vendor_fields_pass,
    a13_a_get_without_a_body_stays_one,
    a14_dialect_prefixes_are_stripped,
    a17_model_lists_are_distinct_ordered_and_local,
    other_paths_are_routed_by_the_model_of_a_json_body,
    other_paths_take_any_body_to_the_default,
);

const PATHS: [&str; 3] = [CHAT, "/v1/messages", "/v1/responses"];

fn body_of(model: &str) -> String {
    json!({"model": model, "messages": [{"role": "user", "content": "hi"}]}).to_string()
}

fn post(client: &mut Client, path: &str, body: &[u8]) -> Response {
    let asked = request("POST", path, &["Content-Type: application/json"], body);
    let answer = client.exchange("POST", &asked);
    if answer.closes() {
        let again = client.wire.stream().peer_addr();
        // A reset connection no longer knows its peer; the next exchange then fails by itself.
        if let Ok(address) = again {
            *client = Client::connect(address);
        }
    }
    answer
}

fn last(origin: &Origin) -> Seen {
    origin.look(|log| log.requests.last().cloned()).unwrap()
}

fn count(origin: &Origin) -> usize {
    origin.look(|log| log.requests.len())
}

/// The model that the origin is asked for when a client asks for `model`; `None` where nobody is.
fn asked_for(gateway: &Gateway, origin: &Origin, model: &str) -> Option<String> {
    origin.forget();
    let answer = post(&mut gateway.connect(), CHAT, body_of(model).as_bytes());
    if count(origin) == 0 {
        return None;
    }
    assert_eq!(answer.status, 200, "{model}: {answer:#?}");
    let body: Value = serde_json::from_slice(&last(origin).body).unwrap();
    Some(body["model"].as_str().unwrap().to_owned())
}

fn a1_patterns_are_literal_or_a_beginning_in_any_case(driver: Driver) {
    let origin = Origin::echoing();
    let models = r#"models: [
        { from: "gpt5.4", to: "literal" },
        { from: "claude-haiku-*", to: "beginning" },
        { from: "größe", to: "umlaut" },
    ]"#
    .replace('\n', " ");
    let gateway = Setup::new(driver)
        .provider(
            "openai",
            origin.address(),
            &format!("{models}, default: false"),
        )
        .start();
    let cases = [
        ("gpt5.4", Some("literal")),
        ("GPT5.4", Some("literal")),
        ("gpt5.40", None),
        ("xgpt5.4", None),
        ("gpt5.", None),
        (" gpt5.4", None),
        ("claude-haiku-", Some("beginning")),
        ("Claude-HAIKU-4", Some("beginning")),
        ("claude-haiku", None),
        ("größe", Some("umlaut")),
        // Case is ASCII's only.
        ("GRÖßE", None),
    ];
    for (model, expected) in cases {
        let asked = asked_for(&gateway, &origin, model);
        assert_eq!(asked.as_deref(), expected, "{model}");
    }
}

fn a2_every_model_token_of_a_target_is_expanded(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = Setup::new(driver)
        .provider(
            "openai",
            origin.address(),
            r#"models: [{ from: "one-*", to: "org/{model}" }, { from: "two-*", to: "{model}:{model}" }, { from: "none-*", to: "fixed" }]"#,
        )
        .start();
    let cases = [
        ("One-A", "org/One-A"),
        ("two-b", "two-b:two-b"),
        ("none-c", "fixed"),
        // The name goes into JSON text, whatever is in it.
        ("one-\"\\\n\u{1F600}", "org/one-\"\\\n\u{1F600}"),
        ("one-{model}", "org/one-{model}"),
    ];
    for (model, expected) in cases {
        let asked = asked_for(&gateway, &origin, model);
        assert_eq!(asked.as_deref(), Some(expected), "{model}");
    }
}

fn a3_the_first_enabled_match_wins(driver: Driver) {
    let [disabled, first, second] = [(); 3].map(|()| Origin::echoing());
    let gateway = Setup::new(driver)
        .provider(
            "openai",
            disabled.address(),
            r#"enabled: false, default: true, models: [{ from: "*", to: "never" }]"#,
        )
        .provider(
            "openai",
            first.address(),
            r#"models: [{ from: "m*", to: "first" }]"#,
        )
        .provider(
            "openai",
            second.address(),
            r#"models: [{ from: "m", to: "second" }], default: false"#,
        )
        .start();
    assert_eq!(asked_for(&gateway, &first, "m").as_deref(), Some("first"));
    let answer = post(&mut gateway.connect(), CHAT, body_of("other").as_bytes());
    assert_eq!(answer.gateway_error().as_deref(), Some("unknown_model"));
    assert_eq!((count(&disabled), count(&second)), (0, 0));
}

fn a4_unmatched_models_go_to_the_default_unchanged_or_nowhere(driver: Driver) {
    let (mapped, default) = (Origin::echoing(), Origin::echoing());
    let models = r#"models: [{ from: "mine", to: "x" }]"#;
    let with = Setup::new(driver)
        .provider("openai", mapped.address(), models)
        .provider("openai", default.address(), "default: true")
        .start();
    let odd = r#" { "temperature" : 1.0e2,"mod\u0065l":"Someth\u0069ng","model_":null } "#;
    let answer = post(&mut with.connect(), CHAT, odd.as_bytes());
    assert_eq!(answer.status, 200, "{answer:#?}");
    assert_eq!(last(&default).body, odd.as_bytes());
    assert_eq!(count(&mapped), 0);
    let without = Setup::new(driver)
        .provider(
            "openai",
            mapped.address(),
            &format!("{models}, default: false"),
        )
        .provider(
            "anthropic",
            default.address(),
            &format!("{models}, default: false"),
        )
        .start();
    for path in PATHS {
        let answer = post(&mut without.connect(), path, body_of("other").as_bytes());
        refused(&answer, 404, "unknown_model", path);
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        let message = "no provider of this API is configured for this model";
        assert_eq!(body["error"]["message"], message, "{path}");
    }
    assert_eq!((count(&mapped), count(&default)), (0, 1));
}

/// An error of the gateway's own, in the shape of the client's API.
fn refused(answer: &Response, status: u16, code: &str, path: &str) {
    assert_eq!(answer.status, status, "{path}: {answer:#?}");
    assert_eq!(answer.gateway_error().as_deref(), Some(code), "{path}");
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    let is_anthropic = path.contains("/messages");
    assert_eq!(body["type"] == "error", is_anthropic, "{path}: {body}");
    assert!(body["error"]["type"].is_string(), "{path}: {body}");
    assert!(body["error"]["message"].is_string(), "{path}: {body}");
    assert_eq!(answer.end, End::Complete, "{path}");
}

fn a5_bodies_without_a_model_are_refused_in_the_dialect_of_the_client(driver: Driver) {
    let origin = Origin::echoing();
    let models = r#"models: [{ from: "*", to: "x" }]"#;
    let gateway = Setup::new(driver)
        .provider("openai", origin.address(), models)
        .provider("anthropic", origin.address(), models)
        .start();
    let bodies = [
        (r#"{"model":"","messages":[]}"#, "no_model"),
        (r#"{"model":" \t\n","messages":[]}"#, "no_model"),
        (r#"{"model":"\u0020","messages":[]}"#, "no_model"),
        (r#"{"messages":[]}"#, "no_model"),
        (r#"{"model":null,"messages":[]}"#, "no_model"),
        (r#"{"model":5,"messages":[]}"#, "no_model"),
        (r#"{"model":["m"],"messages":[]}"#, "no_model"),
        (r#"{"model":{"model":"m"},"messages":[]}"#, "no_model"),
        (r#"{"messages":[{"model":"m"}]}"#, "no_model"),
        ("{}", "no_model"),
        ("[]", "malformed_json"),
        (r#""m""#, "malformed_json"),
        (r#"{"model":"m""#, "malformed_json"),
        (r#"{"model":"m",}"#, "malformed_json"),
        (r#"{'model':'m'}"#, "malformed_json"),
        ("", "malformed_json"),
        ("  ", "malformed_json"),
        (r#"{"model":"m","model":"n"}"#, "ambiguous_body"),
    ];
    for path in PATHS {
        for (body, code) in bodies {
            let answer = post(&mut gateway.connect(), path, body.as_bytes());
            refused(&answer, 400, code, path);
            let opening = head("POST", path, &["Transfer-Encoding: chunked"]) + "\r\n";
            let data = match body {
                "" => Vec::new(),
                _ => chunk(body.as_bytes()),
            };
            let chunked = [opening.as_bytes(), &data, b"0\r\n\r\n"].concat();
            let answer = gateway.connect().exchange("POST", &chunked);
            refused(&answer, 400, code, path);
        }
    }
    assert_eq!(count(&origin), 0);
}

fn a12_the_anthropic_version_is_filled_in_and_vendor_fields_pass(driver: Driver) {
    let origin = Origin::echoing();
    let models = r#"models: [{ from: "m", to: "x" }], default: true"#;
    let gateway = Setup::new(driver)
        .provider("anthropic", origin.address(), models)
        .provider("openai", origin.address(), models)
        .start();
    let ask = |path: &str, fields: &[&str]| {
        let asked = request("POST", path, fields, BODY.as_bytes());
        let answer = gateway.connect().exchange("POST", &asked);
        assert_eq!(answer.status, 200, "{path}: {answer:#?}");
        last(&origin).head
    };
    let vendor = [
        "anthropic-beta: a-2025-01-01,b-2025-02-02",
        "Anthropic-Beta: c",
        "x-stainless-lang: rust",
        "X-Stainless-Retry-Count: 0",
        "anthropic-dangerous-direct-browser-access: true",
    ];
    let seen = ask("/v1/messages?beta=true", &vendor);
    assert_eq!(seen.values("anthropic-version"), ["2023-06-01"]);
    assert_eq!(seen.target(), b"/v1/messages?beta=true");
    for field in vendor {
        let passed = seen
            .field_lines()
            .iter()
            .any(|line| line == field.as_bytes());
        assert!(passed, "{field}: {seen:?}");
    }
    let seen = ask("/v1/messages", &["Anthropic-Version: 2099-01-01"]);
    assert_eq!(seen.values("anthropic-version"), ["2099-01-01"]);
    assert!(!ask(CHAT, &[]).has("anthropic-version"));
}

fn a13_a_get_without_a_body_stays_one(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = Setup::new(driver)
        .provider(
            "openai",
            origin.address(),
            r#"models: [{ from: "m", to: "x" }], default: true"#,
        )
        .start();
    let mut client = gateway.connect();
    for path in [
        "/v1/files?limit=2",
        "/v1/models/m",
        "/v1/responses/resp_1",
        CHAT,
    ] {
        let answer = client.exchange("GET", &request("GET", path, &[], b""));
        assert_eq!(answer.status, 200, "{path}: {answer:#?}");
        let seen = last(&origin);
        assert_eq!(seen.head.start(), format!("GET {path} HTTP/1.1"));
        assert_eq!(seen.body_bytes, 0);
        for field in ["content-length", "transfer-encoding", "content-type"] {
            assert!(!seen.head.has(field), "{path}: {:?}", seen.head);
        }
    }
}

fn a14_dialect_prefixes_are_stripped(driver: Driver) {
    let (openai, anthropic) = (Origin::echoing(), Origin::echoing());
    let models = r#"models: [{ from: "m", to: "x" }]"#;
    let gateway = Setup::new(driver)
        .provider("openai", openai.address(), models)
        .provider("anthropic", anthropic.address(), models)
        .start();
    let mut client = gateway.connect();
    for (path, origin, arrives) in [
        ("/openai/v1/chat/completions", &openai, CHAT),
        ("/openai/v1/responses?a=b", &openai, "/v1/responses?a=b"),
        ("/anthropic/v1/messages", &anthropic, "/v1/messages"),
    ] {
        let answer = post(&mut client, path, BODY.as_bytes());
        assert_eq!(answer.status, 200, "{path}: {answer:#?}");
        let seen = last(origin);
        assert_eq!(seen.head.target(), arrives.as_bytes());
        assert_eq!(seen.body, BODY.replace(r#""m""#, r#""x""#).as_bytes());
    }
}

fn a17_model_lists_are_distinct_ordered_and_local(driver: Driver) {
    let origin = Origin::echoing();
    let at = origin.address();
    let gateway = Setup::new(driver)
        .provider(
            "openai",
            at,
            r#"models: [{ from: "zeta", to: "x" }, { from: "gpt-*", to: "{model}" }, { from: "alpha", to: "y" }], list: ["gpt-5", "zeta"]"#,
        )
        .provider(
            "openai",
            at,
            r#"models: [{ from: "alpha", to: "z" }, { from: "beta", to: "z" }], list: ["gpt-4"], default: true"#,
        )
        .provider("openai", at, r#"enabled: false, models: [{ from: "hidden", to: "z" }]"#)
        .provider("anthropic", at, r#"models: [{ from: "claude", to: "z" }]"#)
        .start();
    let names = |answer: &Response| -> Vec<String> {
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        let entries = body["data"].as_array().unwrap();
        let name = |entry: &Value| entry["id"].as_str().unwrap().to_owned();
        entries.iter().map(name).collect()
    };
    let list = |path: &str, fields: &[&str]| {
        let ask = || {
            gateway
                .connect()
                .exchange("GET", &request("GET", path, fields, b""))
        };
        let (once, twice) = (ask(), ask());
        assert_eq!(once.status, 200, "{path}: {once:#?}");
        assert_eq!(once.body, twice.body, "{path}");
        once
    };
    let openai = ["zeta", "alpha", "gpt-5", "beta", "gpt-4"];
    for path in ["/v1/models", "/openai/v1/models", "/v1/models?limit=1"] {
        let answer = list(path, &[]);
        assert_eq!(names(&answer), openai, "{path}");
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(body["object"], "list");
        assert_eq!(body["data"][0]["object"], "model");
        assert_eq!(body["data"][0]["owned_by"], "listed-0");
    }
    let version = ["anthropic-version: 2023-06-01"];
    for (path, fields) in [("/v1/models", &version[..]), ("/anthropic/v1/models", &[])] {
        let answer = list(path, fields);
        assert_eq!(names(&answer), ["claude"], "{path}");
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(body["data"][0]["type"], "model");
        assert_eq!(body["has_more"], false);
        assert_eq!(body["first_id"], "claude");
        assert_eq!(body["last_id"], "claude");
    }
    origin.look(|log| assert_eq!(log.connections, 0, "a list asked a provider"));
    let answer = post(
        &mut gateway.connect(),
        "/v1/models",
        body_of("beta").as_bytes(),
    );
    assert_eq!(answer.status, 200, "{answer:#?}");
    assert_eq!(last(&origin).head.start(), "POST /v1/models HTTP/1.1");
}

fn other_paths_are_routed_by_the_model_of_a_json_body(driver: Driver) {
    let (mapped, default) = (Origin::echoing(), Origin::echoing());
    let gateway = Setup::new(driver)
        .provider(
            "openai",
            mapped.address(),
            r#"models: [{ from: "embed-*", to: "org/{model}" }]"#,
        )
        .provider("openai", default.address(), "default: true")
        .start();
    let mut client = gateway.connect();
    let body = r#"{"input":["a","b"],"model":"embed-3"}"#;
    for kind in [
        "Content-Type: application/json",
        "Content-Type: Application/JSON; charset=utf-8",
        "Content-Type: application/x+json",
        // What curl says unless it is told otherwise, and nothing.
        "Content-Type: application/x-www-form-urlencoded",
        "X-No-Type: 1",
    ] {
        mapped.forget();
        let asked = request("POST", "/v1/embeddings", &[kind], body.as_bytes());
        let answer = client.exchange("POST", &asked);
        assert_eq!(answer.status, 200, "{kind}: {answer:#?}");
        let expected = body.replace("embed-3", "org/embed-3");
        assert_eq!(last(&mapped).body, expected.as_bytes(), "{kind}");
    }
    let answer = post(&mut client, "/v1/embeddings", body_of("another").as_bytes());
    assert_eq!(answer.status, 200, "{answer:#?}");
    assert_eq!(last(&default).body, body_of("another").as_bytes());
    for (kind, body) in [
        ("Content-Type: text/plain", body),
        (
            "Content-Type: application/x-www-form-urlencoded",
            "model=embed-3",
        ),
        ("X-No-Type: 1", "--part\r\nmodel: embed-3"),
    ] {
        let asked = request("POST", "/v1/embeddings", &[kind], body.as_bytes());
        assert_eq!(client.exchange("POST", &asked).status, 200, "{kind}");
        assert_eq!(last(&default).body, body.as_bytes(), "{kind}");
    }
    // OpenAI's Python client puts `input` first.
    let long = body.replace(r#""a""#, &format!(r#""{}""#, "a".repeat(2 << 20)));
    let opening = head(
        "POST",
        "/v1/embeddings",
        &[
            "Content-Type: application/json",
            "Transfer-Encoding: chunked",
        ],
    );
    let chunked = [
        opening.as_bytes(),
        b"\r\n",
        &chunk(long.as_bytes()),
        b"0\r\n\r\n",
    ]
    .concat();
    let fields = ["Content-Type: application/json"];
    let whole = request("POST", "/v1/embeddings", &fields, long.as_bytes());
    for asked in [whole, chunked] {
        mapped.forget();
        let answer = client.exchange("POST", &asked);
        assert_eq!(answer.status, 200, "{answer:#?}");
        assert_eq!(last(&mapped).body_bytes, long.len() + "org/".len());
    }
    assert_eq!(count(&default), 4);
}

fn other_paths_take_any_body_to_the_default(driver: Driver) {
    let (mapped, default) = (Origin::echoing(), Origin::echoing());
    let gateway = Setup::new(driver)
        .provider(
            "openai",
            mapped.address(),
            r#"models: [{ from: "*", to: "x" }]"#,
        )
        .provider("openai", default.address(), "default: true")
        .start();
    let long = format!(r#"{{"input":"{}"}}"#, "x".repeat(400 << 10));
    let cases: [(&str, &[u8]); 11] = [
        (
            "multipart/form-data; boundary=b",
            b"--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b--\r\n",
        ),
        ("audio/wav", &[0, 255, 10, 13, 0]),
        ("text/plain", br#"{"model":"m"}"#),
        ("application/json", br#"{"model":"m","#),
        ("application/json", br#"[{"model":"m"}]"#),
        ("application/json", br#"{"input":"no model"}"#),
        ("application/json", br#"{"model":5}"#),
        ("application/json", b"not json at all"),
        // Keys of the dialects mean nothing there.
        ("application/json", br#"{"messages":1,"messages":2}"#),
        ("application/json", br#"{"stream":true,"stream":false}"#),
        ("application/json", long.as_bytes()),
    ];
    for chunked in [false, true] {
        for (kind, body) in cases {
            default.forget();
            let fields = format!("Content-Type: {kind}");
            let asked = if chunked {
                let opening = head(
                    "POST",
                    "/v1/files",
                    &[&fields, "Transfer-Encoding: chunked"],
                );
                [opening.as_bytes(), b"\r\n", &chunk(body), b"0\r\n\r\n"].concat()
            } else {
                request("POST", "/v1/files", &[&fields], body)
            };
            let answer = gateway.connect().exchange("POST", &asked);
            assert_eq!(answer.status, 200, "{kind}: {answer:#?}");
            let seen = last(&default);
            let kept = body.len().min(seen.body.len());
            assert_eq!(seen.body_bytes, body.len(), "{kind}");
            assert!(kept > 0 && seen.body[..kept] == body[..kept], "{kind}");
        }
    }
    assert_eq!(count(&mapped), 0);
}

fn check(yaml: &str) -> Output {
    let mut file = NamedTempFile::with_suffix(".yaml").unwrap();
    file.write_all(yaml.as_bytes()).unwrap();
    Command::new(env!("CARGO_BIN_EXE_lanegate"))
        .args(["check", "--config"])
        .arg(file.path())
        .env_remove("LANEGATE_TEST_KEY")
        .output()
        .unwrap()
}

/// One provider, and what is added to it.
fn provider(rest: &str) -> String {
    let comma = if rest.is_empty() { "" } else { ", " };
    let base = "name: a, dialect: openai, base_url: \"http://127.0.0.1:1\"";
    format!("  - {{ {base}{comma}{rest} }}\n")
}

fn named(name: &str, rest: &str) -> String {
    provider(rest).replace("name: a", &format!("name: {name}"))
}

/// A list of providers that has to be refused, with the key that the refusal has to name.
type Contradiction = (&'static str, String, &'static str);

fn contradictory_providers() -> Vec<Contradiction> {
    let good = provider("");
    let default = "default: true";
    let managed = "auth: managed, secret_env: LANEGATE_TEST_KEY";
    vec![
        ("a numeric key", format!("  0:\n  {good}"), "providers"),
        (
            "two cases of a name",
            good.clone() + &named("A", ""),
            "name",
        ),
        ("a blank name", named("\" \"", ""), "name"),
        ("a bad dialect", good.replace("openai", "other"), "dialect"),
        ("a bad URL", good.replace("http:", "ftp:"), "base_url"),
        (
            "a bad scheme",
            provider("auth_scheme: basic"),
            "auth_scheme",
        ),
        (
            "a bad header",
            provider("auth_header: \"a b\""),
            "auth_header",
        ),
        ("our header", provider("auth_header: Host"), "auth_header"),
        (
            "two defaults",
            provider(default) + &named("b", default),
            "default",
        ),
        ("no secret", provider(managed), "credential"),
    ]
}

fn contradictory_models() -> Vec<Contradiction> {
    let models = |entry: &str| provider(&format!("models: [{{ {entry} }}]"));
    vec![
        ("an empty pattern", models("from: \"\", to: x"), "from"),
        ("an inner star", models("from: \"a*b\", to: x"), "from"),
        ("no target", models("from: a"), "models[0].to"),
        ("a star in a target", models("from: a, to: \"b*\""), "to"),
        ("another token", models("from: a, to: \"{name}\""), "to"),
    ]
}

#[test]
fn a19_contradictory_registries_refuse_to_start() {
    let listed = contradictory_providers()
        .into_iter()
        .chain(contradictory_models());
    let listed = listed.map(|(what, list, key)| (what, format!("providers:\n{list}"), key));
    let empty = [("an empty file", ""), ("no providers", "providers: []\n")];
    let empty = empty.map(|(what, yaml)| (what, yaml.to_owned(), "providers"));
    for (what, yaml, key) in listed.chain(empty) {
        let output = check(&yaml);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(64), "{what}: {output:?}");
        assert!(said.contains(key), "{what}: {said}");
    }
    let (first, second) = (
        provider("default: true"),
        named("b", "default: true, enabled: false"),
    );
    let output = check(&format!("providers:\n{first}{second}"));
    assert_eq!(
        output.status.code(),
        Some(0),
        "a disabled second default: {output:?}"
    );
}
