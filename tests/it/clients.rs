//! Who is let in, what the others are told, and how much one client may have.

use std::process::Command;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Instant;

use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use crate::support::client::{BODY, CHAT, Client, Response, chat, head, request};
use crate::support::gateway::{Driver, Gateway, Setup};
use crate::support::message::{End, Flow, Framing, PATIENCE, eventually};
use crate::support::on_both_drivers;
use crate::support::origin::{Origin, echo};

on_both_drivers!(
    strangers_are_told_in_their_dialect,
    strangers_are_told_before_their_body_is_read,
    a_key_is_taken_in_each_place_and_dialect,
    the_reachability_check_needs_no_key,
    each_of_a_thousand_keys_opens_and_no_other,
    revoking_one_of_a_thousand_keys_is_a_reload,
    running_exchanges_count_across_reloads,
    a_rate_stops_its_client_and_nobody_else,
    access_lines_name_the_client,
    a_rate_holds_for_all_cores_together,
    running_exchanges_stop_the_next_until_one_ends,
    a_client_that_leaves_gives_its_slot_back,
    open_listeners_for_everybody_are_refused,
);

const FIRST: &str = "key-of-the-first-client";
const OTHER: &str = "key-of-the-other-client";
const WRONG: &str = "key-of-the-wrong-client";

fn digest(key: &str) -> String {
    let bytes = Sha256::digest(key.as_bytes());
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A line of `clients`, with a key of its own.
fn line(name: &str, key: &str, rest: &str) -> String {
    format!(
        "  - {{ name: {name}, key_sha256: \"{}\"{rest} }}\n",
        digest(key)
    )
}

/// Two clients; `limits` is what the first one may have.
fn two_clients(setup: Setup, limits: &str) -> Setup {
    let first = line("first", FIRST, &format!(", limits: {{ {limits} }}"));
    setup.with(&format!("clients:\n{first}{}", line("other", OTHER, "")))
}

fn bearer(key: &str) -> String {
    format!("Authorization: Bearer {key}")
}

fn ask(client: &mut Client, key: &str) -> Response {
    client.exchange("POST", &chat(&[&bearer(key)]))
}

/// One request on a connection of its own.
fn ask_anew(gateway: &Gateway, key: &str) -> Response {
    ask(&mut gateway.connect(), key)
}

fn count(origin: &Origin) -> usize {
    origin.look(|log| log.requests.len())
}

fn assert_limited(answer: &Response, code: &str, within: std::ops::RangeInclusive<u64>) {
    assert_eq!(answer.status, 429, "{answer:#?}");
    assert_eq!(answer.gateway_error().as_deref(), Some(code));
    let wait = answer.head.value("retry-after").unwrap().parse().unwrap();
    assert!(within.contains(&wait), "{answer:#?}");
    assert!(!answer.head.has("x-should-retry"), "a retry helps");
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(body["error"]["type"], "rate_limit_error", "{body}");
}

fn strangers_are_told_in_their_dialect(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = two_clients(Setup::in_front_of(driver, &origin), "").start();
    let version = "anthropic-version: 2023-06-01";
    let absolute = "http://gw.test/anthropic/v1/messages";
    for (method, target, field, is_anthropic) in [
        ("POST", CHAT, "", false),
        ("POST", "/v1/responses", "", false),
        ("POST", "/v1/messages", version, true),
        ("POST", "/anthropic/v1/messages/count_tokens", "", true),
        ("POST", absolute, "", true),
        ("GET", "/v1/models", "", false),
        ("GET", "/v1/models", version, true),
        ("DELETE", "/openai/v1/files/x", "", false),
    ] {
        for key in [
            String::new(),
            bearer(WRONG),
            format!("X-Lanegate-Key: {WRONG}"),
        ] {
            let fields: Vec<&str> = [field, &key]
                .into_iter()
                .filter(|f| !f.is_empty())
                .collect();
            let asked = request(method, target, &fields, b"");
            let mut client = gateway.connect();
            let answer = client.exchange(method, &asked);
            assert_eq!(answer.status, 401, "{target}: {answer:#?}");
            assert_eq!(answer.gateway_error().as_deref(), Some("unauthorized"));
            let challenge = answer.head.value("www-authenticate");
            assert_eq!(challenge.as_deref(), Some("Bearer realm=\"lanegate\""));
            assert_eq!(
                answer.head.value("x-should-retry").as_deref(),
                Some("false")
            );
            assert!(answer.head.has("x-lanegate-request-id"));
            let body: Value = serde_json::from_slice(&answer.body).unwrap();
            let kind = if is_anthropic {
                "authentication_error"
            } else {
                "invalid_request_error"
            };
            assert_eq!(body["error"]["type"], kind, "{target}: {body}");
            assert_eq!(body["type"] == "error", is_anthropic, "{target}: {body}");
            assert_eq!(
                body["error"]["code"] == "unauthorized",
                !is_anthropic,
                "{body}"
            );
            // Nothing of it is left unread, so the connection serves on.
            assert!(!answer.closes(), "{answer:#?}");
            assert_eq!(ask(&mut client, FIRST).status, 200);
        }
    }
    let mut client = gateway.connect();
    let answer = client.exchange("HEAD", &request("HEAD", "/v1/models", &[], b""));
    assert_eq!((answer.status, answer.body.len()), (401, 0), "{answer:#?}");
    assert_eq!(ask(&mut client, OTHER).status, 200);
    origin.look(|log| assert!(log.requests.iter().all(|seen| seen.head.method() == "POST")));
}

fn strangers_are_told_before_their_body_is_read(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = two_clients(Setup::in_front_of(driver, &origin), "").start();
    let wrong = bearer(WRONG);
    for fields in [
        &[
            wrong.as_str(),
            "Content-Length: 4000000",
            "Expect: 100-continue",
        ][..],
        &["Content-Length: 4000000"],
        &[&wrong, "Transfer-Encoding: chunked", "Expect: 100-continue"],
        &["Transfer-Encoding: chunked"],
        // More than may be sent at all: a stranger is told that it is one.
        &["Content-Length: 999999999999"],
    ] {
        let mut client = gateway.connect();
        client
            .send(format!("{}\r\n", head("POST", CHAT, fields)).as_bytes())
            .unwrap();
        let answer = client.response("POST").unwrap();
        assert_eq!(
            (answer.status, answer.interim.len()),
            (401, 0),
            "{answer:#?}"
        );
        assert!(answer.head.lists("connection", "close"), "{answer:#?}");
        assert_eq!(answer.end, End::Complete);
    }
    assert_eq!(origin.look(|log| log.connections), 0);
}

fn a_key_is_taken_in_each_place_and_dialect(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = two_clients(Setup::in_front_of(driver, &origin), "").start();
    let mut client = gateway.connect();
    for target in [CHAT, "/v1/messages", "/v1/responses", "/v1/embeddings"] {
        for field in ["Authorization: Bearer ", "x-api-key: ", "X-Lanegate-Key: "] {
            for key in [FIRST, OTHER] {
                let field = format!("{field}{key}");
                let asked = request("POST", target, &[&field], BODY.as_bytes());
                let answer = client.exchange("POST", &asked);
                assert_eq!(answer.status, 200, "{target} {field}: {answer:#?}");
            }
        }
    }
    assert_eq!(count(&origin), 24);
}

fn the_reachability_check_needs_no_key(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = Setup::in_front_of(driver, &origin)
        .with("clients: []")
        .start();
    let mut client = gateway.connect();
    let answer = client.exchange("HEAD", &request("HEAD", "/", &[], b""));
    assert_eq!(answer.status, 200, "{answer:#?}");
    // An empty list lets nobody in.
    assert_eq!(ask(&mut client, FIRST).status, 401);
}

fn fleet_key(n: usize) -> String {
    format!("key-of-client-number-{n:04}")
}

/// The section `clients` with these numbers.
fn fleet(numbers: impl Iterator<Item = usize>) -> String {
    let client = |n| line(&format!("c{n}"), &fleet_key(n), "");
    format!("clients:\n{}", numbers.map(client).collect::<String>())
}

fn each_of_a_thousand_keys_opens_and_no_other(driver: Driver) {
    let origin = Origin::echoing();
    let clients = fleet(0..1000);
    let gateway = Setup::in_front_of(driver, &origin).with(&clients).start();
    let mut client = gateway.connect();
    let models = |key: &str| request("GET", "/v1/models", &[&bearer(key)], b"");
    for n in 0..1000 {
        let answer = client.exchange("GET", &models(&fleet_key(n)));
        assert_eq!(answer.status, 200, "{n}: {answer:#?}");
    }
    let first = fleet_key(0);
    for wrong in [
        &fleet_key(1000),
        &fleet_key(9999),
        &first.to_uppercase(),
        &first[..24],
        &digest(&first),
    ] {
        // The connection is closed only where a body is left unread.
        let answer = client.exchange("GET", &models(wrong));
        assert_eq!(answer.status, 401, "{wrong}: {answer:#?}");
    }
    assert_eq!(count(&origin), 1000);
}

/// On connections that are open, too: a key is looked up for each request.
fn revoking_one_of_a_thousand_keys_is_a_reload(driver: Driver) {
    const REVOKED: usize = 500;
    let origin = Origin::echoing();
    let setup = Setup::in_front_of(driver, &origin).workers(2);
    let gateway = setup.clone().with(&fleet(0..1000)).start();
    let ask = |client: &mut Client, n: usize| {
        let asked = request("GET", "/v1/models", &[&bearer(&fleet_key(n))], b"");
        client.exchange("GET", &asked).status
    };
    let mut open: Vec<_> = (0..8).map(|_| gateway.connect()).collect();
    for client in &mut open {
        assert_eq!(ask(client, REVOKED), 200);
    }
    let rest = fleet((0..1000).filter(|n| *n != REVOKED));
    gateway.configure(&setup.with(&rest));
    let said = gateway.reload();
    assert!(said.contains("is in force"), "{said}");
    for client in &mut open {
        assert_eq!(ask(client, REVOKED), 401);
        assert_eq!(ask(client, REVOKED + 1), 200);
        assert_eq!(ask(&mut gateway.connect(), REVOKED), 401);
        assert_eq!(ask(&mut gateway.connect(), REVOKED - 1), 200);
    }
}

fn running_exchanges_count_across_reloads(driver: Driver) {
    let origin = Origin::start(|caller| {
        if caller.request().is_some() {
            let _cancelled = caller.reply(BEGUN);
            caller.note("begun");
            caller.until_closed();
        }
    });
    let setup = Setup::in_front_of(driver, &origin);
    let gateway = two_clients(setup.clone(), "concurrency: 1").start();
    let first = begin(&gateway, &origin, 1);
    gateway.configure(&two_clients(
        setup,
        "concurrency: 2, requests_per_minute: 1000",
    ));
    let said = gateway.reload();
    assert!(said.contains("is in force"), "{said}");
    // The one from before counts, so there is room for one more.
    let second = begin(&gateway, &origin, 2);
    assert_limited(&ask_anew(&gateway, FIRST), "concurrency_limited", 1..=1);
    drop((first, second));
    origin.wait("both cancels", |log| log.ended.len() == 2);
}

fn a_rate_stops_its_client_and_nobody_else(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = two_clients(
        Setup::in_front_of(driver, &origin),
        "requests_per_minute: 3, concurrency: 1",
    )
    .start();
    // Strangers and the reachability check use up nothing of it.
    assert_eq!(ask_anew(&gateway, WRONG).status, 401);
    gateway
        .connect()
        .exchange("HEAD", &request("HEAD", "/", &[], b""));
    let mut client = gateway.connect();
    for _ in 0..3 {
        assert_eq!(ask(&mut client, FIRST).status, 200);
    }
    for target in [CHAT, "/v1/messages"] {
        let key = bearer(FIRST);
        let asked = request(
            "POST",
            target,
            &[&key, "Expect: 100-continue"],
            BODY.as_bytes(),
        );
        let mut client = gateway.connect();
        let answer = client.exchange("POST", &asked);
        // One every 20 s.
        assert_limited(&answer, "rate_limited", 1..=20);
        assert!(answer.closes() && answer.interim.is_empty(), "{answer:#?}");
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(body["type"] == "error", target == "/v1/messages");
    }
    for _ in 0..10 {
        assert_eq!(ask(&mut client, OTHER).status, 200);
    }
    assert_eq!(count(&origin), 13);
}

/// Also of those that are refused for its limits: they are what an operator looks for.
fn access_lines_name_the_client(driver: Driver) {
    let origin = Origin::echoing();
    let setup = Setup::in_front_of(driver, &origin);
    let gateway = two_clients(setup, "requests_per_minute: 1").start();
    for key in [OTHER, FIRST, FIRST, WRONG] {
        ask_anew(&gateway, key);
    }
    let lines = || -> Vec<Value> {
        let output = gateway.output();
        let json = |line: &str| serde_json::from_str(line).ok();
        output.lines().filter_map(json).collect()
    };
    assert!(eventually(|| lines().len() == 4), "{}", gateway.output());
    let named: Vec<_> = lines()
        .iter()
        .map(|line| (line["client"].clone(), line["error"].clone()))
        .collect();
    let expected = [
        (Value::from("other"), Value::Null),
        (Value::from("first"), Value::Null),
        (Value::from("first"), Value::from("rate_limited")),
        (Value::Null, Value::from("unauthorized")),
    ];
    assert_eq!(named, expected);
}

fn a_rate_holds_for_all_cores_together(driver: Driver) {
    const LIMIT: usize = 12;
    let origin = Origin::echoing();
    let start = Instant::now();
    let gateway = two_clients(
        Setup::in_front_of(driver, &origin).workers(2),
        &format!("requests_per_minute: {LIMIT}"),
    )
    .start();
    // Which core takes a connection is the kernel's choice: with 40 of them, both do.
    let answers: Vec<u16> = (0..40).map(|_| ask_anew(&gateway, FIRST).status).collect();
    let passed = answers.iter().filter(|status| **status == 200).count();
    let earned = usize::try_from(start.elapsed().as_secs() / 5 + 1).unwrap();
    assert!((LIMIT..=LIMIT + earned).contains(&passed), "{answers:?}");
    assert!(
        answers.iter().all(|status| matches!(status, 200 | 429)),
        "{answers:?}"
    );
}

fn running_exchanges_stop_the_next_until_one_ends(driver: Driver) {
    let (end, may_end) = channel();
    let may_end = Mutex::new(may_end);
    let origin = Origin::start(move |caller| {
        while let Some(request) = caller.request() {
            if caller.reply(BEGUN).is_err() {
                return;
            }
            if request.case() == "long" {
                caller.note("begun");
                may_end.lock().unwrap().recv_timeout(PATIENCE).unwrap();
            }
            if caller.reply(b"ended").is_err() {
                return;
            }
        }
    });
    let gateway = two_clients(Setup::in_front_of(driver, &origin), "concurrency: 1").start();
    let mut long = begin(&gateway, &origin, 1);
    for _ in 0..3 {
        assert_limited(&ask_anew(&gateway, FIRST), "concurrency_limited", 1..=1);
        assert_eq!(ask_anew(&gateway, OTHER).status, 200);
    }
    // The head came long ago; the exchange counts until its last byte.
    end.send(()).unwrap();
    let (body, how) = Flow::new(Framing::Length(10)).collect(&mut long.wire);
    assert_eq!((body.as_slice(), how), (&b"begunended"[..], End::Complete));
    // On the same connection the next one begins after it.
    for _ in 0..3 {
        assert_eq!(ask(&mut long, FIRST).status, 200);
    }
    assert_eq!(count(&origin), 7);
}

/// The first half of an answer whose second is `ended`.
const BEGUN: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbegun";

/// Begins an exchange of the first client that does not end by itself, the `nth` at this origin.
fn begin(gateway: &Gateway, origin: &Origin, nth: usize) -> Client {
    let mut client = gateway.connect();
    let asked = chat(&[&bearer(FIRST), "x-case: long"]);
    client.send(&asked).unwrap();
    origin.wait("the long exchange", |log| log.notes.len() == nth);
    assert_eq!(client.heads().unwrap().1.status(), Ok(200));
    client
}

fn a_client_that_leaves_gives_its_slot_back(driver: Driver) {
    let origin = Origin::start(|caller| {
        while let Some(request) = caller.request() {
            if request.case() == "long" {
                let _cancelled = caller.reply(BEGUN);
                caller.note("begun");
                return caller.until_closed();
            }
            if caller.reply(&echo(&request)).is_err() {
                return;
            }
        }
    });
    let gateway = two_clients(Setup::in_front_of(driver, &origin), "concurrency: 1").start();
    let long = begin(&gateway, &origin, 1);
    assert_limited(&ask_anew(&gateway, FIRST), "concurrency_limited", 1..=1);
    drop(long);
    origin.wait("the cancel", |log| !log.ended.is_empty());
    let freed = eventually(|| ask_anew(&gateway, FIRST).status == 200);
    assert!(
        freed,
        "the slot of the client that left is never given back"
    );
    // One was given back, not more.
    let _long = begin(&gateway, &origin, 2);
    assert_limited(&ask_anew(&gateway, FIRST), "concurrency_limited", 1..=1);
}

fn open_listeners_for_everybody_are_refused(driver: Driver) {
    let origin = Origin::echoing();
    let setup = Setup::in_front_of(driver, &origin);
    let (status, output) = setup.listen("0.0.0.0:0".parse().unwrap()).run_to_end();
    assert_eq!(status.code(), Some(64), "{output}");
    assert!(
        output.contains("line 1: server.listen: 0.0.0.0:0 can be reached"),
        "{output}"
    );
    // The flag is held to the same as the file, and so is a gateway without one.
    let config = NamedTempFile::with_suffix(".yaml").unwrap();
    let yaml = format!(
        "providers: [{{ name: p, dialect: openai, base_url: \"http://{}\", auth: none }}]\n",
        origin.address()
    );
    std::fs::write(config.path(), yaml).unwrap();
    let path = config.path().to_str().unwrap();
    for arguments in [&["--config", path][..], &[]] {
        let output = Command::new(env!("CARGO_BIN_EXE_lanegate"))
            .arg("serve")
            .args(arguments)
            .args(["--listen", "[::]:0"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(64), "{output:?}");
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(words.contains("--listen: [::]:0 can be reached"), "{words}");
    }
}
