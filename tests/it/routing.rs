//! What a request line leads to: a provider, an answer of the gateway's own, or an error that the
//! client can read.

use serde_json::Value;

use crate::support::client::{BODY, request};
use crate::support::gateway::{Driver, Setup};
use crate::support::message::{End, find};
use crate::support::on_both_drivers;
use crate::support::origin::Origin;

on_both_drivers!(
    routes_by_path,
    dot_segments_are_refused,
    absolute_form_is_routed_by_its_path,
    local_answers,
    errors_speak_the_dialect_of_the_client,
);

fn routes_by_path(driver: Driver) {
    let (openai, anthropic) = (Origin::echoing(), Origin::echoing());
    let gateway = Setup::in_front_of(driver, &openai)
        .anthropic(&anthropic)
        .start();
    let mut client = gateway.connect();
    let routes = [
        ("/v1/chat/completions", &openai, "/v1/chat/completions"),
        ("/v1/responses", &openai, "/v1/responses"),
        ("/v1/embeddings?a=b%20c", &openai, "/v1/embeddings?a=b%20c"),
        (
            "/openai/v1/chat/completions",
            &openai,
            "/v1/chat/completions",
        ),
        ("/openai/v1/messages", &openai, "/v1/messages"),
        (
            "/openai/anything/at%2Fall?x",
            &openai,
            "/anything/at%2Fall?x",
        ),
        ("/v1/messages", &anthropic, "/v1/messages"),
        (
            "/v1/messages?beta=true",
            &anthropic,
            "/v1/messages?beta=true",
        ),
        (
            "/v1/messages/count_tokens",
            &anthropic,
            "/v1/messages/count_tokens",
        ),
        ("/anthropic/v1/messages", &anthropic, "/v1/messages"),
        ("/anthropic/v1/models", &anthropic, "/v1/models"),
    ];
    for (asked, origin, arrives) in routes {
        let answer = client.exchange("POST", &request("POST", asked, &[], BODY.as_bytes()));
        assert_eq!(answer.status, 200, "{asked}: {answer:#?}");
        let seen = origin.look(|log| log.requests.last().map(|r| r.head.target().to_vec()));
        let seen = seen.map(|target| String::from_utf8(target).unwrap());
        assert_eq!(seen.as_deref(), Some(arrives), "{asked}");
    }
    let total = openai.look(|log| log.requests.len()) + anthropic.look(|log| log.requests.len());
    assert_eq!(total, routes.len());
    for asked in [
        "/",
        "/v2/chat/completions",
        "/v1",
        "/openaix/v1/chat/completions",
        "/favicon.ico",
    ] {
        let answer = client.exchange("GET", &request("GET", asked, &[], b""));
        assert_eq!(answer.status, 404, "{asked}: {answer:#?}");
        assert!(answer.gateway_error().is_some());
    }
}

fn dot_segments_are_refused(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = Setup::in_front_of(driver, &origin).start();
    let refused = [
        "/v1/../chat/completions",
        "/v1/./chat/completions",
        "/v1/chat/..",
        "/v1/chat/.",
        "/v1/%2e%2e/chat/completions",
        "/v1/%2E/chat/completions",
        "/v1/.%2e/chat/completions",
        "/v1/%2E./chat/completions",
        "/openai/../anthropic/v1/messages",
        "/openai/%2e%2E/v1/models",
        "/anthropic/v1/..?x=y",
    ];
    for target in refused {
        let answer = gateway
            .connect()
            .exchange("POST", &request("POST", target, &[], b""));
        assert_eq!(answer.status, 400, "{target}: {answer:#?}");
        assert!(answer.gateway_error().is_some());
    }
    origin.look(|log| assert!(log.requests.is_empty(), "{:#?}", log.requests));
    // Dots that are no segment, and those behind the question mark, are only bytes.
    for target in [
        "/v1/a..b/...",
        "/v1/.hidden",
        "/v1/models?x=/../y",
        "/v1/models?%2e%2e",
    ] {
        let answer = gateway
            .connect()
            .exchange("GET", &request("GET", target, &[], b""));
        assert_eq!(answer.status, 200, "{target}: {answer:#?}");
        let seen = origin.look(|log| log.requests.last().unwrap().head.target().to_vec());
        assert_eq!(seen, target.as_bytes());
    }
}

fn absolute_form_is_routed_by_its_path(driver: Driver) {
    let (openai, anthropic) = (Origin::echoing(), Origin::echoing());
    let gateway = Setup::in_front_of(driver, &openai)
        .anthropic(&anthropic)
        .start();
    let mut client = gateway.connect();
    let targets = [
        (
            "http://gw.test/v1/chat/completions?a=b",
            &openai,
            "/v1/chat/completions?a=b",
        ),
        (
            "http://api.invalid:99/anthropic/v1/messages",
            &anthropic,
            "/v1/messages",
        ),
        ("http://[::1]:8080/v1/messages", &anthropic, "/v1/messages"),
    ];
    for (target, origin, arrives) in targets {
        let answer = client.exchange("POST", &request("POST", target, &[], BODY.as_bytes()));
        assert_eq!(answer.status, 200, "{target}: {answer:#?}");
        origin.look(|log| {
            let seen = &log.requests.last().unwrap().head;
            assert_eq!(seen.start(), format!("POST {arrives} HTTP/1.1"));
            assert_eq!(seen.value("host"), Some(origin.address().to_string()));
        });
    }
}

fn local_answers(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = Setup::in_front_of(driver, &origin).start();
    let mut client = gateway.connect();
    let answer = client.exchange("HEAD", &request("HEAD", "/", &[], b""));
    assert_eq!(answer.status, 200, "{answer:#?}");
    let upgrade = [
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    ];
    for target in ["/v1/responses", "/openai/v1/responses"] {
        let mut client = gateway.connect();
        let answer = client.exchange("GET", &request("GET", target, &upgrade, b""));
        assert_eq!(answer.status, 426, "{target}: {answer:#?}");
        assert!(answer.gateway_error().is_some() && answer.end == End::Complete);
    }
    origin.look(|log| assert_eq!(log.connections, 0));
}

fn errors_speak_the_dialect_of_the_client(driver: Driver) {
    // Nothing listens there any more.
    let gone = Origin::echoing();
    let setup = Setup::in_front_of(driver, &gone);
    let address = gone.address().to_string();
    drop(gone);
    let gateway = setup.start();
    let mut client = gateway.connect();
    let mut ids = Vec::new();
    for (target, is_anthropic) in [
        ("/v1/chat/completions", false),
        ("/v1/responses", false),
        ("/openai/v1/models", false),
        ("/v1/messages", true),
        ("/anthropic/v1/models", true),
    ] {
        let answer = client.exchange("POST", &request("POST", target, &[], BODY.as_bytes()));
        assert_eq!(answer.status, 502, "{target}: {answer:#?}");
        assert_eq!(
            answer.head.value("content-type").as_deref(),
            Some("application/json")
        );
        assert!(answer.gateway_error().is_some(), "{answer:#?}");
        ids.extend(answer.head.value("x-lanegate-request-id"));
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(body["type"] == "error", is_anthropic, "{target}: {body}");
        assert!(body["error"]["type"].is_string(), "{body}");
        let message = body["error"]["message"].as_str().unwrap();
        for secret in [address.as_str(), "openai-origin", "anthropic-origin"] {
            assert!(find(&answer.body, secret.as_bytes()).is_none(), "{message}");
        }
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 5, "a request id of its own for each");
}
