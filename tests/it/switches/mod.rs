//! Switches and sessions from outside: what is answered here, what a provider sees of a session, and
//! that nothing else of a request changes.
//!
//! Rows of the specification's test tables and where they are tested:
//!
//! | rows | where |
//! |---|---|
//! | S1-S3, S5-S13, S15-S17, S21-S31 | `src/switch/tests.rs`; over sockets here by name |
//! | X1-X7 | `src/switch/dictionary.rs`, X7 as documentation that must not compile |
//! | R1-R8 | `src/identity/session/tests.rs`, R6 over sockets here |
//! | A1-A5, A12-A14, A17, A19 | `routing_rules.rs`, by row |
//! | A6-A9, A11 | `src/auth/tests.rs`, and `credentials.rs` over sockets (every placement of every credential) |
//! | A10 | here, and `credentials.rs` |
//! | A16 | `relay.rs` (bytes of streams), `cancel.rs` (a client that leaves) |
//! | A20 | `tests/config_environment.rs` |
//! | S4 (stored credentials), A15, A18, R14 | not in this product: there are no stored credentials, retries are those of docs/ARCHITECTURE.md, nothing is translated down |

mod answers;
mod large;
mod sessions;

use serde_json::{Value, json};

use crate::support::client::{Client, Response, request};
use crate::support::exposition::Exposition;
use crate::support::gateway::{Driver, Gateway, Setup};
use crate::support::origin::{Origin, Seen};

pub(crate) const MESSAGES: &str = "/v1/messages";

pub(crate) const RESPONSES: &str = "/v1/responses";

/// A session as its client names it.
pub(crate) const SESSION: &str = "caller-session-1";

pub(crate) const KIB: usize = 1024;

/// Five providers at one origin: of each dialect one that is told sessions and a default, and one that
/// takes models and is told nothing.
pub(crate) fn setup(driver: Driver, origin: &Origin) -> Setup {
    let at = format!("base_url: \"http://{}\"", origin.address());
    let keyed = "secret_env: LANEGATE_TEST_KEY";
    let told = "session_forwarding: opencode-go";
    Setup::new(driver)
        .provider_as(&format!(
            "name: go, dialect: openai, {at}, {keyed}, auth_scheme: api_key, {told}, \
             models: [{{ from: \"gpt5.4\", to: grok-code }}, {{ from: \"same-*\", to: \"{{model}}\" }}]"
        ))
        .provider_as(&format!(
            "name: plain, dialect: openai, {at}, {keyed}, models: [{{ from: \"plain-*\", to: x }}]"
        ))
        .provider_as(&format!("name: rest, dialect: openai, {at}, default: true"))
        .provider_as(&format!(
            "name: go-anthropic, dialect: anthropic, {at}, {keyed}, {told}, \
             models: [{{ from: \"claude-haiku-3\", to: claude-3-5-haiku-latest }}]"
        ))
        .provider_as(&format!("name: rest-anthropic, dialect: anthropic, {at}, default: true"))
}

pub(crate) fn start(driver: Driver, origin: &Origin) -> Gateway {
    setup(driver, origin).start()
}

/// A body of one user message.
pub(crate) fn body(model: &str, said: &str) -> Vec<u8> {
    json!({"model": model, "messages": [{"role": "user", "content": said}]})
        .to_string()
        .into_bytes()
}

pub(crate) fn post(client: &mut Client, path: &str, fields: &[&str], body: &[u8]) -> Response {
    client.exchange("POST", &request("POST", path, fields, body))
}

/// The text of an answer in either dialect.
pub(crate) fn text(answer: &Response) -> String {
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    let chat = body["choices"][0]["message"]["content"].as_str();
    let message = body["content"][0]["text"].as_str();
    let response = body["output"][0]["content"][0]["text"].as_str();
    let text = chat.or(message).or(response);
    assert!(text.is_some(), "no text in {answer:#?}");
    text.unwrap().to_owned()
}

/// What `--who?` says of a request with these fields.
pub(crate) fn who(client: &mut Client, path: &str, fields: &[&str], model: &str) -> String {
    let answer = post(client, path, fields, &body(model, "--who?"));
    assert_eq!(answer.status, 200, "{answer:#?}");
    text(&answer)
}

/// Makes a new session for the one that the fields name; its id.
pub(crate) fn minted(client: &mut Client, path: &str, fields: &[&str], model: &str) -> String {
    let answer = post(client, path, fields, &body(model, "--newsession"));
    let text = text(&answer);
    let (_, id) = text
        .strip_prefix("Session: ")
        .unwrap()
        .split_once(" → ")
        .unwrap();
    assert_eq!(id.len(), 32, "{text}");
    id.to_owned()
}

pub(crate) fn requests(origin: &Origin) -> usize {
    origin.look(|log| log.requests.len())
}

pub(crate) fn connections(origin: &Origin) -> usize {
    origin.look(|log| log.connections)
}

/// The request that arrives for one that is sent; its answer is the origin's.
pub(crate) fn arrives(client: &mut Client, origin: &Origin, sent: &[u8]) -> Seen {
    origin.forget();
    let answer = client.exchange("POST", sent);
    assert_eq!(answer.status, 200, "{answer:#?}");
    origin.look(|log| {
        assert_eq!(log.requests.len(), 1, "{log:#?}");
        log.requests[0].clone()
    })
}

pub(crate) fn json_of(seen: &Seen) -> Value {
    serde_json::from_slice(&seen.body).unwrap()
}

/// The fields in which a session may be, as they arrived.
pub(crate) fn session_fields(seen: &Seen) -> Vec<(String, Vec<String>)> {
    [
        "session_id",
        "x-opencode-session",
        "x-session-id",
        "conversation_id",
    ]
    .into_iter()
    .map(|name| (name.to_owned(), seen.head.values(name)))
    .filter(|(_, values)| !values.is_empty())
    .collect()
}

pub(crate) fn stamped(id: &str) -> Vec<(String, Vec<String>)> {
    vec![("x-opencode-session".to_owned(), vec![id.to_owned()])]
}

pub(crate) fn field(name: &str, value: &str) -> String {
    format!("{name}: {value}")
}

pub(crate) const ADMIN: &str = "admin: { listen: \"127.0.0.1:0\" }";

pub(crate) fn scrape(gateway: &Gateway) -> Exposition {
    let output = gateway.output();
    let (_, after) = output.split_once("admin on ").unwrap();
    let address = after.split_whitespace().next().unwrap().parse().unwrap();
    let ask = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let answer = Client::connect(address).exchange("GET", ask.as_bytes());
    Exposition::read(&String::from_utf8(answer.body).unwrap())
}
