//! Classification of sessions, from outside.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::client::{BODY, CHAT, Client, Response, request};
use crate::support::exposition::Exposition;
use crate::support::gateway::{Driver, Gateway, Setup};
use crate::support::message::eventually;
use crate::support::on_both_drivers;
use crate::support::origin::{Origin, json as answer};

on_both_drivers!(
    evidence_counts_for_the_turn_that_shows_it_and_for_those_after_it,
    two_clients_that_call_their_conversations_alike_have_two_sessions,
    a_session_is_known_to_the_next_process_that_has_the_file_and_the_key,
    a_token_of_the_gateway_is_a_session_and_any_other_is_none,
    a_feature_that_is_off_leaves_no_trace,
    reloads_change_the_policy_and_keep_what_is_known,
    neither_a_store_that_fails_nor_a_service_that_hangs_holds_a_request,
    the_service_identifies_a_session_for_its_next_turn,
);

const KEYS: [&str; 2] = ["key-of-client-one-0001", "key-of-client-two-0002"];
const CLUSTER: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"read_file"}},{"type":"function","function":{"name":"edit"}},{"type":"function","function":{"name":"bash"}}]}"#;

fn provider() -> Origin {
    Origin::start(|caller| {
        while caller.request().is_some() {
            caller.reply(&answer(200, "{\"id\":\"a\"}")).unwrap();
        }
    })
}

fn clients() -> String {
    "admin: { listen: \"127.0.0.1:0\" }\nclients:\n  - { name: one, key_env: ONE }\n  - { name: two, key_env: TWO }"
        .to_owned()
}

fn feature(config: &str) -> String {
    format!(
        "plugins: {{ features: [{{ id: session-classification, enabled: true, config: {config} }}, {{ id: agent-family, enabled: true }}] }}"
    )
}

fn setup(driver: Driver, origin: &Origin) -> Setup {
    Setup::in_front_of(driver, origin)
        .with(&clients())
        .variable("ONE", KEYS[0])
        .variable("TWO", KEYS[1])
}

/// One turn of a client; its answer and its access line.
fn turn(gateway: &Gateway, client: &mut Client, fields: &[&str], body: &str) -> (Response, Value) {
    let answer = client.exchange("POST", &request("POST", CHAT, fields, body.as_bytes()));
    assert_eq!(answer.status, 200, "{answer:#?}");
    let id = answer.head.value("x-lanegate-request-id").unwrap();
    let line = gateway.access_line(&id, |line| line["request_id"] == id.as_str());
    (answer, line)
}

fn key(number: usize) -> String {
    format!("Authorization: Bearer {}", KEYS[number])
}

fn operator(gateway: &Gateway, path: &str) -> (u16, String) {
    let output = gateway.output();
    let (_, after) = output.split_once("admin on ").unwrap();
    let address: SocketAddr = after.split_whitespace().next().unwrap().parse().unwrap();
    let asked = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let answer = Client::connect(address).exchange("GET", asked.as_bytes());
    (answer.status, String::from_utf8(answer.body).unwrap())
}

fn metrics(gateway: &Gateway) -> String {
    operator(gateway, "/metrics").1
}

fn evidence_counts_for_the_turn_that_shows_it_and_for_those_after_it(driver: Driver) {
    let origin = provider();
    let gateway = setup(driver, &origin)
        .with(&feature("{}"))
        .workers(2)
        .start();
    let one = key(0);
    let fields = |agent| [one.as_str(), "X-Router-Conversation: c", agent];
    let mut client = gateway.connect();
    let (_, weak) = turn(
        &gateway,
        &mut client,
        &fields("User-Agent: OpenAI/JS 1"),
        BODY,
    );
    assert_eq!(weak["session_kind"], "unknown");
    assert_eq!(weak["session_revision"], 0);
    let (_, first) = turn(
        &gateway,
        &mut client,
        &fields("User-Agent: OpenAI/JS 1"),
        CLUSTER,
    );
    assert_eq!(first["session_kind"], "coding_agent");
    assert_eq!(first["session_evidence"], "tooling.distinct_coding_cluster");
    assert_eq!(first["session_source"], "local_tooling");
    assert_eq!(first["agent_family"], "unnamed");
    // Later turns show less or other evidence, on this connection and on others.
    let (_, later) = turn(
        &gateway,
        &mut client,
        &fields("User-Agent: opencode/1"),
        BODY,
    );
    assert_eq!(later["session_evidence"], "tooling.distinct_coding_cluster");
    assert_eq!(later["agent_family"], "opencode");
    let known = eventually(|| {
        let (_, line) = turn(
            &gateway,
            &mut gateway.connect(),
            &fields("User-Agent: x"),
            BODY,
        );
        line["session_kind"] == "coding_agent"
    });
    assert!(known, "other connections learn of it");
    let (status, shown) = operator(&gateway, "/admin/sessions/c?principal=one");
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((status, &shown["revision"]), (200, &Value::from(1)));
    assert_eq!(shown["evidence"], "tooling.distinct_coding_cluster");
    let page = metrics(&gateway);
    let transition = "lip_session_classification_transitions_total{source=\"local_tooling\",confidence=\"high\",evidence=\"tooling.distinct_coding_cluster\"}";
    assert_eq!(Exposition::read(&page).count(transition), 1, "{page}");
    assert!(!page.contains("OpenAI/JS") && !page.contains("read_file"));
}

fn two_clients_that_call_their_conversations_alike_have_two_sessions(driver: Driver) {
    let origin = provider();
    let gateway = setup(driver, &origin).with(&feature("{}")).start();
    let same = "X-Router-Conversation: same";
    let mut client = gateway.connect();
    let codex = [&key(0), same, "User-Agent: codex_cli_rs/1"];
    let (_, one) = turn(&gateway, &mut client, &codex, BODY);
    assert_eq!(one["session_evidence"], "client_family.codex");
    // On the same connection even.
    let (_, two) = turn(&gateway, &mut client, &[&key(1), same], BODY);
    assert_eq!(two["session_kind"], "unknown");
    let (_, one) = turn(&gateway, &mut client, &[&key(0), same], BODY);
    assert_eq!(one["session_kind"], "coding_agent");
    let (_, other) = turn(
        &gateway,
        &mut client,
        &[&key(0), "X-Router-Conversation: b"],
        BODY,
    );
    assert_eq!(other["session_kind"], "unknown");
}

fn durable(folder: &TempDir) -> String {
    let key = folder.path().join("authority");
    std::fs::write(&key, [b'k'; 40]).unwrap();
    format!(
        "store: {{ url: \"sqlite:{}\", flush_interval: 10ms }}\nidentity: {{ authority_key_file: \"{}\" }}",
        folder.path().join("a.db").display(),
        key.display()
    )
}

fn a_session_is_known_to_the_next_process_that_has_the_file_and_the_key(driver: Driver) {
    let origin = provider();
    let folder = TempDir::new().unwrap();
    let setup = setup(driver, &origin)
        .with(&durable(&folder))
        .with(&feature("{}"));
    let fields = [&*key(0), "X-Router-Conversation: c"];
    let gateway = setup.start();
    let agent = [fields[0], fields[1], "User-Agent: roo-code/3"];
    turn(&gateway, &mut gateway.connect(), &agent, BODY);
    assert!(gateway.signal(rustix::process::Signal::TERM).success());
    let gateway = setup.start();
    let mut client = gateway.connect();
    let restored = eventually(|| {
        let (_, line) = turn(&gateway, &mut client, &fields, BODY);
        line["session_evidence"] == "client_family.roo"
    });
    assert!(restored);
    // The first process identified it.
    assert!(!metrics(&gateway).contains("transitions_total"));
}

fn a_token_of_the_gateway_is_a_session_and_any_other_is_none(driver: Driver) {
    let origin = provider();
    let gateway = setup(driver, &origin).with(&feature("{}")).start();
    let one = key(0);
    let mut client = gateway.connect();
    let fields = [&*one, "X-Lanegate-Session: new", "User-Agent: pi/1"];
    let (first, line) = turn(&gateway, &mut client, &fields, BODY);
    assert_eq!(line["session_kind"], "coding_agent");
    let token = first.head.value("x-lanegate-session").unwrap();
    let echo = format!("X-Lanegate-Session: {token}");
    let (again, line) = turn(&gateway, &mut client, &[&one, &echo], BODY);
    assert_eq!(line["session_evidence"], "client_family.pi");
    assert!(!again.head.has("x-lanegate-session"));
    for (key, field) in [(key(1), &*echo), (one, "X-Lanegate-Session: v1.other")] {
        let fields = [&*key, field, "User-Agent: pi/1"];
        let (_, line) = turn(&gateway, &mut client, &fields, BODY);
        assert_eq!(line["session_kind"], "unknown");
    }
    origin.look(|log| {
        for seen in log.complete() {
            assert!(!seen.head.has("x-lanegate-session"));
        }
    });
}

fn a_feature_that_is_off_leaves_no_trace(driver: Driver) {
    let origin = provider();
    let folder = TempDir::new().unwrap();
    let off = feature("{}").replace("enabled: true", "enabled: false");
    let gateway = setup(driver, &origin)
        .with(&durable(&folder))
        .with(&off)
        .start();
    let fields = [
        &*key(0),
        "X-Router-Conversation: c",
        "User-Agent: codex_cli_rs/1",
    ];
    let (_, line) = turn(&gateway, &mut gateway.connect(), &fields, CLUSTER);
    assert!(line.get("session_kind").is_none() && line.get("agent_family").is_none());
    let page = metrics(&gateway);
    assert!(
        !page.contains("lip_") && !page.contains("agent_family"),
        "{page}"
    );
    assert_eq!(operator(&gateway, "/admin/sessions/c?principal=one").0, 404);
    assert!(gateway.signal(rustix::process::Signal::TERM).success());
    let file = rusqlite::Connection::open(folder.path().join("a.db")).unwrap();
    let tables = "SELECT name FROM sqlite_master WHERE name LIKE 'session_%'";
    assert!(!file.prepare(tables).unwrap().exists([]).unwrap());
}

fn reloads_change_the_policy_and_keep_what_is_known(driver: Driver) {
    let origin = provider();
    let base = setup(driver, &origin);
    let on = base.clone().with(&feature("{}"));
    let gateway = on.start();
    let one = key(0);
    let known = [
        &*one,
        "X-Router-Conversation: known",
        "User-Agent: codex_cli_rs/1",
    ];
    let fresh = |name: &str| format!("X-Router-Conversation: {name}");
    let mut client = gateway.connect();
    let (_, line) = turn(&gateway, &mut client, &known, BODY);
    assert_eq!(line["session_kind"], "coding_agent");
    // A bad candidate changes nothing.
    gateway.configure(&base.clone().with(&feature("{ mode: automatic }")));
    assert!(gateway.reload().contains("not reloaded"));
    let (_, line) = turn(&gateway, &mut client, &[&one, &fresh("b"), known[2]], BODY);
    assert_eq!(line["session_kind"], "coding_agent");
    // An exclusion holds for new sessions and takes nothing back.
    let ignoring = "{ heuristic: { ignored_user_agent_prefixes: [\"codex_cli_rs/\"] } }";
    gateway.configure(&base.clone().with(&feature(ignoring)));
    assert!(gateway.reload().contains("is in force"));
    let (_, line) = turn(&gateway, &mut client, &[&one, &fresh("c"), known[2]], BODY);
    assert_eq!(line["session_kind"], "unknown");
    let (_, line) = turn(&gateway, &mut client, &known, BODY);
    assert_eq!(line["session_kind"], "coding_agent");
    // Off: nothing is shown. On again: what was known is.
    gateway.configure(&base);
    assert!(gateway.reload().contains("is in force"));
    let (_, line) = turn(&gateway, &mut client, &known, BODY);
    assert!(line.get("session_kind").is_none());
    gateway.configure(&on);
    assert!(gateway.reload().contains("is in force"));
    let (_, line) = turn(&gateway, &mut client, &[&one, known[1]], BODY);
    assert_eq!(line["session_evidence"], "client_family.codex");
}

fn asking(at: SocketAddr) -> String {
    feature(&format!(
        "{{ mode: hybrid, remote: {{ provider: jev, api_key_env: ONE, timeout: 10s, max_attempts_per_session: 1, \
         lease_ttl: 20s, retry_backoff: 0s, positive_threshold: 0.9, endpoint: \"http://{at}/v1/systemone\" }} }}"
    ))
}

fn neither_a_store_that_fails_nor_a_service_that_hangs_holds_a_request(driver: Driver) {
    let origin = provider();
    let service = Origin::start(|caller| {
        caller.request();
        caller.stall();
    });
    let folder = TempDir::new().unwrap();
    // No such folder, so no such file.
    let store = durable(&folder).replace("a.db", "absent/a.db");
    let broken = setup(driver, &origin)
        .with(&store)
        .with(&asking(service.address()));
    let gateway = broken.start();
    let began = Instant::now();
    let mut client = gateway.connect();
    for number in 0..20 {
        let name = format!("X-Router-Conversation: c{number}");
        let (_, line) = turn(&gateway, &mut client, &[&key(0), &name], BODY);
        assert_eq!(line["session_kind"], "unknown");
    }
    assert!(began.elapsed() < Duration::from_secs(9));
    drop(gateway);
    let hanging = setup(driver, &origin).with(&asking(service.address()));
    let gateway = hanging.start();
    let began = Instant::now();
    let mut client = gateway.connect();
    for _ in 0..20 {
        let fields = [&*key(0), "X-Router-Conversation: c"];
        let (_, line) = turn(&gateway, &mut client, &fields, BODY);
        assert_eq!(line["session_kind"], "unknown");
    }
    assert!(began.elapsed() < Duration::from_secs(9));
    service.wait("a question", |log| log.complete().count() == 1);
    let busy = "lip_session_classification_remote_total{outcome=\"lease_busy\"}";
    let refused = eventually(|| {
        Exposition::read(&metrics(&gateway)).sum("lip_session_classification_remote_total") > 0
    });
    assert!(refused && Exposition::read(&metrics(&gateway)).count(busy) > 0);
}

fn the_service_identifies_a_session_for_its_next_turn(driver: Driver) {
    let origin = provider();
    let service = Origin::start(|caller| {
        while caller.request().is_some() {
            let said = r#"{"model":"m","answers":{"is_coding_agent_session":{"type":"noul","noul":0.95}},"usage":{}}"#;
            caller.reply(&answer(200, said)).unwrap();
        }
    });
    let gateway = setup(driver, &origin)
        .with(&asking(service.address()))
        .start();
    let fields = [&*key(0), "X-Router-Conversation: c"];
    let mut client = gateway.connect();
    let (_, first) = turn(&gateway, &mut client, &fields, BODY);
    assert_eq!(first["session_kind"], "unknown");
    let identified = eventually(|| {
        let (_, line) = turn(&gateway, &mut client, &fields, BODY);
        line["session_evidence"] == "remote.above_threshold"
    });
    assert!(identified);
    for _ in 0..5 {
        turn(&gateway, &mut client, &fields, BODY);
    }
    service.look(|log| assert_eq!(log.complete().count(), 1));
}
