//! Conversations, the ledger and reports of outcomes, from outside.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::captures::{Capture, captures};
use crate::support::client::{BODY, CHAT, Client, Response, chunk, head, request};
use crate::support::exposition::Exposition;
use crate::support::gateway::{Driver, Gateway, Setup};
use crate::support::ledger::{Kept, lines_of};
use crate::support::message::{Head, eventually};
use crate::support::on_both_drivers;
use crate::support::origin::{Origin, json as answer};

on_both_drivers!(
    an_outcome_follows_the_last_byte,
    reports_have_the_status_of_the_contract,
    a_report_comes_in_any_framing,
    a_principal_sees_only_its_own,
    identity_never_leaves_the_gateway,
    traffic_without_names_leaves_the_rows_of_the_fixture,
    sub_agents_of_real_clients_are_conversations_of_their_own,
    adoption_is_counted,
    no_line_and_no_column_holds_text_of_a_message,
    a_killed_process_loses_at_most_one_interval,
    a_full_disk_stops_no_exchange,
    a_damaged_file_stops_no_exchange,
    without_a_ledger_there_is_no_such_path,
);

/// Answers everything like a provider, with a stream where one is asked for.
pub(crate) fn provider() -> Origin {
    Origin::start(|caller| {
        while let Some(request) = caller.request() {
            let reply = match request.case().as_str() {
                "stream" => {
                    let frames = "data: {\"a\":1}\n\n".repeat(20) + "data: [DONE]\n\n";
                    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
                    [head.as_bytes(), &chunk(frames.as_bytes()), b"0\r\n\r\n"].concat()
                }
                "refused" => answer(429, "{\"error\":{}}"),
                _ => answer(200, "{\"id\":\"a\"}"),
            };
            caller.reply(&reply).unwrap();
        }
    })
}

fn on_every_store(driver: Driver, test: impl Fn(Setup, &Origin)) {
    let kept = Kept::each();
    let [file, database] = kept.each_ref().map(Kept::lines);
    for lines in [lines_of("memory:"), file, database] {
        let origin = provider();
        test(
            Setup::in_front_of(driver, &origin).workers(2).with(&lines),
            &origin,
        );
    }
}

pub(crate) fn ask(client: &mut Client, fields: &[&str]) -> String {
    let answer = client.exchange("POST", &request("POST", CHAT, fields, BODY.as_bytes()));
    assert!(answer.status < 500, "{answer:#?}");
    answer.head.value("x-lanegate-request-id").unwrap()
}

pub(crate) fn report(client: &mut Client, body: &str) -> (u16, Value) {
    report_with(client, &[], body)
}

fn report_with(client: &mut Client, fields: &[&str], body: &str) -> (u16, Value) {
    let answer = client.exchange(
        "POST",
        &request("POST", "/outcome", fields, body.as_bytes()),
    );
    (answer.status, body_of(&answer))
}

fn body_of(answer: &Response) -> Value {
    serde_json::from_slice(&answer.body).unwrap()
}

fn admin(gateway: &Gateway) -> SocketAddr {
    let output = gateway.output();
    let (_, after) = output.split_once("admin on ").unwrap();
    after.split_whitespace().next().unwrap().parse().unwrap()
}

pub(crate) fn operator(gateway: &Gateway, path: &str) -> (u16, String) {
    let address = admin(gateway);
    let asked = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let answer = Client::connect(address).exchange("GET", asked.as_bytes());
    (answer.status, String::from_utf8(answer.body).unwrap())
}

fn conversations(gateway: &Gateway, query: &str) -> Value {
    let (status, body) = operator(gateway, &format!("/admin/conversations?{query}"));
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

pub(crate) fn scrape(gateway: &Gateway) -> Exposition {
    Exposition::read(&operator(gateway, "/metrics").1)
}

fn an_outcome_follows_the_last_byte(driver: Driver) {
    on_every_store(driver, |setup, _| {
        // An address that is no loopback one, and leads there all the same.
        for setup in [setup.clone(), setup.host("0.0.0.0")] {
            let gateway = setup.start();
            let mut reporting = gateway.connect();
            for turn in 0..40 {
                let mut client = gateway.connect();
                let name = format!("X-Router-Conversation: turn-{turn}");
                let id = ask(&mut client, &[&name, "x-case: stream"]);
                let body = format!("{{\"outcome\":\"pass\",\"conversation_id\":\"turn-{turn}\"}}");
                let (status, told) = report(&mut reporting, &body);
                assert_eq!(status, 200, "a37, turn {turn}: {told}");
                let expected = json!({"status": "recorded", "request_id": id,
                    "session_key": format!("c:turn-{turn}")});
                assert_eq!(told, expected);
            }
        }
    });
}

/// Rows of the contract, what is reported and the status of the answer; `SECOND` is the exchange of conversation b.
const REPORTS: [(&str, &str, u16); 14] = [
    ("a24", r#"{"outcome":"pass","conversation_id":"a"}"#, 200),
    (
        "a25",
        r#"{"outcome":"pass","conversation_id":"x","source":"openai-origin"}"#,
        404,
    ),
    (
        "a26",
        r#"{"outcome":"pass","conversation_id":"b","request_id":"req_x"}"#,
        200,
    ),
    ("a27", r#"{"outcome":"pass","request_id":"req_x"}"#, 404),
    (
        "a28",
        r#"{"outcome":"pass","request_id":"SECOND","conversation_id":"a"}"#,
        200,
    ),
    ("a32", r#"{"outcome":"pass"}"#, 409),
    ("a32", r#"{"outcome":"pass","source":"openai-origin"}"#, 409),
    ("a33", r#"{"outcome":"pass","conversation_id":"a b"}"#, 422),
    ("a34", r#"{"outcome":"pass","conversation_id":null}"#, 409),
    (
        "a35",
        r#"{"outcome":"pass","x":[1],"request_id":"SECOND"}"#,
        200,
    ),
    ("a36", r#"{"outcome":"pass","request_id":"SECOND"}"#, 200),
    ("D12", r#"{"outcome":"fail","request_id":"SECOND"}"#, 409),
    ("400", "not JSON", 400),
    ("400", "{}", 400),
];

fn reports_have_the_status_of_the_contract(driver: Driver) {
    on_every_store(driver, |setup, _| {
        let gateway = setup.start();
        let mut client = gateway.connect();
        let pass = "{\"outcome\":\"pass\"}";
        assert_eq!(report(&mut client, pass).0, 404, "nothing was answered yet");
        let first = ask(&mut client, &["X-Router-Conversation: a"]);
        let (status, told) = report(&mut client, pass);
        assert_eq!((status, &told["request_id"]), (200, &json!(first)), "a31");
        // A refusal of the provider does not take the place of the answer.
        ask(
            &mut client,
            &["X-Router-Conversation: a", "x-case: refused"],
        );
        let second = ask(&mut client, &["X-Router-Conversation: b"]);
        for (row, body, expected) in REPORTS {
            let body = body.replace("SECOND", &second);
            let (status, told) = report(&mut client, &body);
            assert_eq!(status, expected, "{row} {body}: {told}");
            if row == "a36" {
                assert_eq!(told["duplicate"], true);
            }
        }
        let long = format!(
            "{{\"outcome\":\"pass\",\"x\":\"{}\"}}",
            "y".repeat(16 * 1024)
        );
        assert_eq!(report(&mut gateway.connect(), &long).0, 413);
        let now = scrape(&gateway);
        assert_eq!(now.count("lanegate_outcome_id_conflicts_total"), 1);
        assert_eq!(now.sum("lanegate_outcomes_total"), 17);
        let get = client.exchange("GET", b"GET /outcome HTTP/1.1\r\nHost: gw.test\r\n\r\n");
        assert_eq!(get.status, 404);
    });
}

fn a_report_comes_in_any_framing(driver: Driver) {
    let origin = provider();
    let gateway = Setup::in_front_of(driver, &origin).start();
    let mut client = gateway.connect();
    ask(&mut client, &["X-Router-Conversation: a"]);
    let body = b"{\"outcome\":\"fail\",\"conversation_id\":\"a\"}";
    let mut chunked = head("POST", "/outcome", &["Transfer-Encoding: chunked"]).into_bytes();
    chunked.extend_from_slice(b"\r\n");
    for byte in body {
        chunked.extend(chunk(&[*byte]));
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    assert_eq!(client.exchange("POST", &chunked).status, 200);
    let fields = [
        format!("Content-Length: {}", body.len()),
        "Expect: 100-continue".to_owned(),
    ];
    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    let expecting = head("POST", "/outcome", &fields) + "\r\n";
    client.send(expecting.as_bytes()).unwrap();
    let interim = client.wire.head().unwrap();
    assert_eq!(interim.status().unwrap(), 100);
    let answer = client.exchange("POST", body);
    assert_eq!(answer.status, 200);
    assert!(!answer.closes(), "{answer:#?}");
    // One without an end is refused at its bound, and the connection ends.
    let mut endless = head("POST", "/outcome", &["Transfer-Encoding: chunked"]).into_bytes();
    endless.extend_from_slice(b"\r\n");
    endless.extend(chunk(&vec![b' '; 17 * 1024]));
    let answer = client.exchange("POST", &endless);
    assert_eq!((answer.status, answer.closes()), (413, true));
    // Who leaves inside one costs nothing.
    let leaving = gateway.connect();
    leaving
        .send(b"POST /outcome HTTP/1.1\r\nHost: gw.test\r\nContent-Length: 9\r\n\r\n{")
        .unwrap();
    drop(leaving);
    gateway.ended("client_closed");
}

fn a_principal_sees_only_its_own(driver: Driver) {
    on_every_store(driver, |setup, _| {
        let keys = [
            "key-of-the-first-client-0123",
            "key-of-the-other-client-4567",
        ];
        let clients = "clients:\n  - { name: one, key_env: LANEGATE_KEY_ONE }\n  - { name: two, key_env: LANEGATE_KEY_TWO }";
        let gateway = setup
            .with(clients)
            .variable("LANEGATE_KEY_ONE", keys[0])
            .variable("LANEGATE_KEY_TWO", keys[1])
            .start();
        let bearer = keys.map(|key| format!("Authorization: Bearer {key}"));
        let mut client = gateway.connect();
        let name = "X-Router-Conversation: same";
        let ids = [0, 1].map(|it: usize| ask(&mut client, &[name, &bearer[it]]));
        let body = "{\"outcome\":\"pass\",\"conversation_id\":\"same\"}";
        for (mine, id) in bearer.iter().zip(&ids) {
            let (status, told) = report_with(&mut client, &[mine], body);
            assert_eq!((status, &told["request_id"]), (200, &json!(id)));
        }
        let theirs = format!("{{\"outcome\":\"pass\",\"request_id\":\"{}\"}}", ids[1]);
        assert_eq!(report_with(&mut client, &[&bearer[0]], &theirs).0, 404);
        assert_eq!(report(&mut gateway.connect(), body).0, 401);
        let requests = |query: &str| conversations(&gateway, query)["total"]["requests"].clone();
        assert!(eventually(
            || requests("conversation=same&principal=one") == 1
        ));
        assert_eq!(requests("conversation=same&principal="), 0);
        let unnamed = "/admin/conversations?conversation=same";
        assert_eq!(operator(&gateway, unnamed).0, 400);
    });
}

fn identity_never_leaves_the_gateway(driver: Driver) {
    let origin = provider();
    let gateway = Setup::in_front_of(driver, &origin).start();
    let mut client = gateway.connect();
    let fields = [
        "X-Router-Conversation: a",
        "x-router-agent: b",
        "X-ROUTER-PARENT: bad value",
        "X-Router-Else: c",
        "x-session-id: s",
    ];
    ask(&mut client, &fields);
    ask(&mut client, &["x-session-id: s"]);
    origin.look(|log| {
        assert_eq!(log.requests.len(), 2);
        let (with, without) = (&log.requests[0], &log.requests[1]);
        // a41
        assert_eq!(with.head.field_lines(), without.head.field_lines());
        assert_eq!(with.body, without.body);
        assert!(with.head.has("x-session-id"));
    });
}

const DECISION: &str = "principal, session_key, agent, parent_key, dialect, face, route, provider, \
    model, lane, status, request_bytes, end_reason";

fn traffic_without_names_leaves_the_rows_of_the_fixture(driver: Driver) {
    let fixture = fs::read_to_string("tests/data/ledger/unnamed.json").unwrap();
    let fixture: Value = serde_json::from_str(&fixture).unwrap();
    for kept in Kept::each() {
        let origin = provider();
        let setup = Setup::in_front_of(driver, &origin).with(&kept.lines());
        let gateway = setup.start();
        let mut client = gateway.connect();
        for exchange in fixture["requests"].as_array().unwrap() {
            let body = exchange["body"].as_str().unwrap();
            let target = exchange["target"].as_str().unwrap();
            let sent = request("POST", target, &[], body.as_bytes());
            assert_eq!(client.exchange("POST", &sent).status, 200, "{exchange}");
            let seen = origin.look(|log| log.requests.last().unwrap().body.clone());
            assert_eq!(seen, body.as_bytes());
            // Rows are ordered by the moment of their end.
            std::thread::sleep(Duration::from_millis(3));
        }
        assert_eq!(gateway.signal(Signal::TERM).code(), Some(0));
        let decisions = kept.rows("route_decisions", DECISION);
        assert_eq!(Value::from(decisions), fixture["route_decisions"]);
        let columns = "principal, session_key, source, client_outcome";
        let local = kept.rows("local_energy_observations", columns);
        assert_eq!(Value::from(local), fixture["local_energy_observations"]);
        assert!(kept.rows("energy_observations", columns).is_empty());
    }
}

fn sub_agents_of_real_clients_are_conversations_of_their_own(driver: Driver) {
    let all = captures();
    let runs = [
        "claude-code-subagent",
        "codex-subagent",
        "opencode-mock-subagent",
    ];
    for run in runs {
        let of_run: Vec<&Capture> = all.iter().filter(|it| it.name.starts_with(run)).collect();
        for kept in Kept::each() {
            run_has_one_child(driver, &kept, run, &of_run);
        }
    }
}

/// Sends the requests of a run again: they are of two conversations, one of them the parent of the other.
fn run_has_one_child(driver: Driver, kept: &Kept, run: &str, requests: &[&Capture]) {
    let origin = Origin::echoing();
    let lines = format!("{}\nidentity: {{ native: true }}", kept.lines());
    let gateway = Setup::in_front_of(driver, &origin)
        .auth("passthrough")
        .with(&lines)
        .start();
    for capture in requests {
        let method = Head::of(&capture.bytes).method();
        let mut client = gateway.connect();
        client.send(&capture.bytes).unwrap();
        let answer = client.response(&method).unwrap();
        assert_eq!(answer.status, 200, "{}", capture.name);
    }
    assert_eq!(gateway.signal(Signal::TERM).code(), Some(0));
    let rows = kept.rows("route_decisions", "session_key, parent_key");
    assert!(rows.len() >= 3, "{run}: {rows:?}");
    let mut keys: Vec<&str> = rows
        .iter()
        .map(|it| it["session_key"].as_str().unwrap())
        .collect();
    assert!(
        keys.iter().all(|key| key.starts_with("n:")),
        "{run}: {rows:?}"
    );
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 2, "{run}: {rows:?}");
    let (parents, children): (Vec<&Value>, Vec<&Value>) =
        rows.iter().partition(|it| it["parent_key"].is_null());
    assert!(!children.is_empty(), "{run}: {rows:?}");
    for child in children {
        assert_eq!(child["parent_key"], parents[0]["session_key"], "{run}");
        assert_ne!(child["session_key"], parents[0]["session_key"], "{run}");
    }
}

fn adoption_is_counted(driver: Driver) {
    on_every_store(driver, |setup, _| counts_adoption(&setup.start()));
}

fn counts_adoption(gateway: &Gateway) {
    let before = scrape(gateway);
    assert_eq!(before.sum("lanegate_conversations_distinct"), 0);
    let share = || {
        let page = operator(gateway, "/metrics").1;
        let line = page
            .lines()
            .find(|it| it.starts_with("lanegate_identity_client_share "));
        line.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
    };
    assert_eq!(share(), None, "absent, not 0");
    let mut client = gateway.connect();
    for _ in 0..5 {
        for name in ["a", "b", "c"] {
            ask(&mut client, &[&format!("X-Router-Conversation: {name}")]);
        }
        ask(&mut client, &["X-Router-Agent: Atlas (Plan Executor)"]);
    }
    // a38, a15
    let counted = eventually(|| scrape(gateway).sum("lanegate_identity_decisions") == 20);
    assert!(counted, "{:?}", scrape(gateway));
    let now = scrape(gateway);
    assert_eq!(now.sum("lanegate_conversations_distinct"), 4);
    assert_eq!(now.sum("lanegate_identity_header_invalid_total"), 5);
    assert_eq!(share(), Some(0.75));
}

fn no_line_and_no_column_holds_text_of_a_message(driver: Driver) {
    for kept in Kept::each() {
        no_line_and_no_column_of(driver, &kept);
    }
}

fn no_line_and_no_column_of(driver: Driver, kept: &Kept) {
    let origin = provider();
    let gateway = Setup::in_front_of(driver, &origin)
        .with(&kept.lines())
        .start();
    let mut client = gateway.connect();
    let body = r#"{"model":"m","messages":[{"role":"system","content":"word-of-the-system"},{"role":"user","content":"word-of-the-user"}]}"#;
    let names = [
        "X-Router-Conversation: id-of-the-client",
        "X-Router-Agent: agent-of-the-client",
        "X-Router-Parent: parent-of-the-client",
    ];
    for fields in [&names[..], &[]] {
        let sent = request("POST", CHAT, fields, body.as_bytes());
        assert_eq!(client.exchange("POST", &sent).status, 200);
    }
    let told = "{\"outcome\":\"pass\",\"conversation_id\":\"id-of-the-client\",\"kind\":\"some free text\"}";
    assert_eq!(report(&mut client, told).0, 200);
    let broken = request("POST", CHAT, &names, &body.as_bytes()[..90]);
    assert_eq!(gateway.connect().exchange("POST", &broken).status, 400);
    gateway.ended("rejected");
    let output = gateway.output();
    // a42: the log has neither.
    for word in ["of-the-client", "word-of-the", "free text"] {
        assert!(!output.contains(word), "{word}: {output}");
    }
    let conversation = conversations(&gateway, "conversation=id-of-the-client").to_string();
    assert_eq!(gateway.signal(Signal::TERM).code(), Some(0));
    let mut stored = String::new();
    for table in [
        "route_decisions",
        "energy_observations",
        "local_energy_observations",
    ] {
        for row in kept.rows(table, "*") {
            stored.push_str(&row.to_string());
        }
    }
    assert!(stored.contains("c:id-of-the-client") && stored.contains("agent-of-the-client"));
    for text in [&stored, &conversation] {
        assert!(
            !text.contains("word-of-the") && !text.contains("free text"),
            "{text}"
        );
    }
}

fn a_killed_process_loses_at_most_one_interval(driver: Driver) {
    for kept in Kept::each() {
        let origin = provider();
        let setup = Setup::in_front_of(driver, &origin).with(&kept.lines());
        loses_at_most_one_interval(&setup);
    }
}

fn loses_at_most_one_interval(setup: &Setup) {
    let gateway = setup.start();
    let mut client = gateway.connect();
    let mut sent: Vec<(String, Instant)> = Vec::new();
    while sent.len() < 150 {
        let id = ask(&mut client, &["X-Router-Conversation: a"]);
        sent.push((id, Instant::now()));
        std::thread::sleep(Duration::from_millis(5));
    }
    let killed = Instant::now();
    gateway.signal(Signal::KILL);
    let gateway = setup.start();
    let tree = conversations(&gateway, "conversation=a");
    let kept = usize::try_from(tree["total"]["requests"].as_i64().unwrap()).unwrap();
    // The interval, two looks at queues, and what a busy machine of the tests adds.
    let slack = Duration::from_millis(100 + 20 + 20 + 100 + 250);
    let old = sent
        .iter()
        .filter(|(_, at)| killed.duration_since(*at) > slack)
        .count();
    assert!(
        kept >= old,
        "{kept} of {} rows, {old} older than the interval",
        sent.len()
    );
    let (first, _) = &sent[0];
    let body = format!("{{\"outcome\":\"pass\",\"request_id\":\"{first}\"}}");
    assert_eq!(report(&mut gateway.connect(), &body).0, 200);
}

/// Traffic goes on and reports are refused while the store fails.
fn fails_softly(gateway: &Gateway) {
    let mut client = gateway.connect();
    let name = "X-Router-Conversation: a";
    ask(&mut client, &[name]);
    let failing = eventually(|| {
        ask(&mut client, &[name]);
        scrape(gateway).count("lanegate_ledger_available") == 0
    });
    assert!(failing, "the store does not fail");
    for _ in 0..20 {
        let sent = request("POST", CHAT, &[name], BODY.as_bytes());
        assert_eq!(client.exchange("POST", &sent).status, 200);
    }
    let body = "{\"outcome\":\"pass\",\"conversation_id\":\"a\"}";
    let asked = request("POST", "/outcome", &[], body.as_bytes());
    let answer = client.exchange("POST", &asked);
    assert_eq!(answer.status, 503, "{answer:#?}");
    assert!(answer.head.has("retry-after"));
    assert_eq!(
        answer.gateway_error().as_deref(),
        Some("ledger_unavailable")
    );
    let ready = operator(gateway, "/readyz");
    assert_eq!(
        ready,
        (
            200,
            "ready, but the ledger is not being stored\n".to_owned()
        )
    );
    assert_eq!(
        operator(gateway, "/admin/conversations?conversation=a").0,
        503
    );
    gateway.said("the ledger is not being stored: ");
}

fn a_full_disk_stops_no_exchange(driver: Driver) {
    let kept = Kept::in_file();
    let origin = provider();
    let setup = Setup::in_front_of(driver, &origin).with(&kept.lines());
    // No file of the process may grow beyond 64 blocks of 512 bytes, less than the tables take.
    let gateway = setup.within("trap '' XFSZ; ulimit -f 64").start();
    fails_softly(&gateway);
    assert_eq!(gateway.signal(Signal::TERM).code(), Some(0));
}

fn a_damaged_file_stops_no_exchange(driver: Driver) {
    let kept = Kept::in_file();
    let content = "not a database\n".repeat(1000);
    fs::write(kept.file(), &content).unwrap();
    let origin = provider();
    let gateway = Setup::in_front_of(driver, &origin)
        .with(&kept.lines())
        .start();
    fails_softly(&gateway);
    assert_eq!(gateway.signal(Signal::TERM).code(), Some(0));
    assert_eq!(fs::read_to_string(kept.file()).unwrap(), content);
}

fn without_a_ledger_there_is_no_such_path(driver: Driver) {
    let origin = provider();
    let lines = "store: { url: none }\nadmin: { listen: \"127.0.0.1:0\" }";
    let gateway = Setup::in_front_of(driver, &origin).with(lines).start();
    let mut client = gateway.connect();
    ask(&mut client, &["X-Router-Conversation: a"]);
    let (status, told) = report(
        &mut client,
        "{\"outcome\":\"pass\",\"conversation_id\":\"a\"}",
    );
    assert_eq!((status, &told["error"]["code"]), (404, &json!("no_route")));
    assert_eq!(operator(&gateway, "/admin/conversations").0, 404);
    assert_eq!(operator(&gateway, "/readyz").1, "ready\n");
}
