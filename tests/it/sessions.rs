//! Classification of sessions, from outside.

use std::net::SocketAddr;

use rusqlite::Connection;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::client::{BODY, CHAT, Client, Response, head, request};
use crate::support::exposition::Exposition;
use crate::support::gateway::{Driver, Gateway, Setup};
use crate::support::message::eventually;
use crate::support::on_both_drivers;
use crate::support::origin::{Origin, json as answer};

on_both_drivers!(
    evidence_counts_for_the_turn_that_shows_it_and_for_those_after_it,
    two_clients_that_call_their_conversations_alike_have_two_sessions,
    a_token_of_the_gateway_is_a_session_and_any_other_is_none,
    a_feature_that_is_off_leaves_no_trace,
    reloads_change_the_policy_and_keep_what_is_known,
    neither_a_store_that_fails_nor_a_service_that_hangs_holds_a_request,
    a_store_that_is_locked_holds_no_request,
    a_turn_keeps_the_policy_that_admitted_it,
    a_session_outlives_changes_of_model_and_provider_and_retries,
    providers_get_the_same_bytes_with_and_without_the_features,
    what_a_body_talks_about_is_no_evidence,
    the_service_identifies_a_session_for_its_next_turn,
);

const KEYS: [&str; 2] = ["key-of-client-one-0001", "key-of-client-two-0002"];
const CLUSTER: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"read_file"}},{"type":"function","function":{"name":"edit"}},{"type":"function","function":{"name":"bash"}}]}"#;

pub(crate) fn provider() -> Origin {
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

pub(crate) fn feature(config: &str) -> String {
    format!(
        "plugins: {{ features: [{{ id: session-classification, enabled: true, config: {config} }}, {{ id: agent-family, enabled: true }}] }}"
    )
}

pub(crate) fn setup(driver: Driver, origin: &Origin) -> Setup {
    Setup::in_front_of(driver, origin)
        .with(&clients())
        .variable("ONE", KEYS[0])
        .variable("TWO", KEYS[1])
}

/// One turn of a client; its answer and its access line.
pub(crate) fn turn(
    gateway: &Gateway,
    client: &mut Client,
    fields: &[&str],
    body: &str,
) -> (Response, Value) {
    let answer = client.exchange("POST", &request("POST", CHAT, fields, body.as_bytes()));
    assert_eq!(answer.status, 200, "{answer:#?}");
    let id = answer.head.value("x-lanegate-request-id").unwrap();
    let line = gateway.access_line(&id, |line| line["request_id"] == id.as_str());
    (answer, line)
}

pub(crate) fn key(number: usize) -> String {
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

pub(crate) fn metrics(gateway: &Gateway) -> String {
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

pub(crate) fn durable(folder: &TempDir) -> String {
    let file = folder.path().join("a.db");
    kept_at(&format!("sqlite:{}", file.display()), folder)
}

pub(crate) fn kept_at(url: &str, folder: &TempDir) -> String {
    let key = folder.path().join("authority");
    std::fs::write(&key, [b'k'; 40]).unwrap();
    format!(
        "store: {{ url: \"{url}\", flush_interval: 10ms }}\nidentity: {{ authority_key_file: \"{}\" }}",
        key.display()
    )
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
    let file = Connection::open(folder.path().join("a.db")).unwrap();
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

pub(crate) fn asking(at: SocketAddr) -> String {
    feature(&format!(
        "{{ mode: hybrid, remote: {{ provider: jev, api_key_env: ONE, timeout: 10s, max_attempts_per_session: 1, \
         lease_ttl: 20s, retry_backoff: 0s, positive_threshold: 0.9, endpoint: \"http://{at}/v1/systemone\" }} }}"
    ))
}

fn neither_a_store_that_fails_nor_a_service_that_hangs_holds_a_request(driver: Driver) {
    let origin = provider();
    let service = Origin::start(|caller| {
        caller.request();
        caller.until_closed();
    });
    let folder = TempDir::new().unwrap();
    // No such folder, so no such file.
    let store = durable(&folder).replace("a.db", "absent/a.db");
    let broken = setup(driver, &origin)
        .with(&store)
        .with(&asking(service.address()));
    let gateway = broken.start();
    let mut client = gateway.connect();
    for number in 0..20 {
        let name = format!("X-Router-Conversation: c{number}");
        let (_, line) = turn(&gateway, &mut client, &[&key(0), &name], BODY);
        assert_eq!(line["session_kind"], "unknown");
    }
    assert!(metrics(&gateway).contains("outcome=\"state_unavailable\""));
    drop(gateway);
    let hanging = setup(driver, &origin)
        .with(&durable(&folder))
        .with(&asking(service.address()));
    let gateway = hanging.start();
    let mut client = gateway.connect();
    let mut asking = || {
        let fields = [&*key(0), "X-Router-Conversation: c"];
        let (_, line) = turn(&gateway, &mut client, &fields, BODY);
        assert_eq!(line["session_kind"], "unknown");
    };
    asking();
    service.wait("a question", |log| log.complete().count() == 1);
    (0..20).for_each(|_| asking());
    // Row 61: who asks holds nothing of the store.
    let file = Connection::open(folder.path().join("a.db")).unwrap();
    assert!(eventually(|| file
        .execute_batch("BEGIN IMMEDIATE; ROLLBACK")
        .is_ok()));
    // The first question is still open, so no turn has waited for its end.
    service.look(|log| assert!(log.ended.is_empty(), "{log:#?}"));
    let busy = "lip_session_classification_remote_total{outcome=\"lease_busy\"}";
    let refused = eventually(|| {
        Exposition::read(&metrics(&gateway)).sum("lip_session_classification_remote_total") > 0
    });
    assert!(refused && Exposition::read(&metrics(&gateway)).count(busy) > 0);
}

pub(crate) const IDENTIFIES: &str =
    r#"{"model":"m","answers":{"is_coding_agent_session":{"type":"noul","noul":0.95}},"usage":{}}"#;

fn the_service_identifies_a_session_for_its_next_turn(driver: Driver) {
    let origin = provider();
    let service = Origin::start(|caller| {
        while caller.request().is_some() {
            caller.reply(&answer(200, IDENTIFIES)).unwrap();
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

fn a_store_that_is_locked_holds_no_request(driver: Driver) {
    let origin = provider();
    let folder = TempDir::new().unwrap();
    let gateway = setup(driver, &origin)
        .with(&durable(&folder))
        .with(&feature("{}"))
        .start();
    let fields = [&*key(0), "X-Router-Conversation: c"];
    let agent = [fields[0], fields[1], "User-Agent: codex_cli_rs/1"];
    let file = Connection::open(folder.path().join("a.db")).unwrap();
    let kept = || {
        let rows = "SELECT count(*) FROM session_classification WHERE kind = 'coding_agent'";
        let mut statement = file.prepare(rows).unwrap();
        let mut found = statement.query([]).unwrap();
        let row = found.next().unwrap().unwrap();
        row.get::<_, u32>(0).unwrap()
    };
    let ready = "lip_session_classification_store_ready";
    let is_open = || Exposition::read(&metrics(&gateway)).value(ready) > 0.0;
    assert!(eventually(is_open));
    file.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut client = gateway.connect();
    let (_, line) = turn(&gateway, &mut client, &agent, BODY);
    assert_eq!(line["session_kind"], "coding_agent");
    let (_, line) = turn(&gateway, &mut gateway.connect(), &fields, BODY);
    assert_eq!(
        line["session_kind"], "unknown",
        "other connections do not know yet"
    );
    assert_eq!(
        kept(),
        0,
        "the turns were over before the store could take anything"
    );
    file.execute_batch("COMMIT").unwrap();
    // Whether the waiting change was still made or was given up: who knows the session says so again.
    let known = eventually(|| {
        let (_, line) = turn(&gateway, &mut client, &fields, BODY);
        assert_eq!(line["session_kind"], "coding_agent");
        let (_, line) = turn(&gateway, &mut gateway.connect(), &fields, BODY);
        line["session_kind"] == "coding_agent"
    });
    assert!(known && kept() == 1);
}

/// A client that sends the head of [`CLUSTER`] and is invited to send the rest: its turn has begun.
fn begun(gateway: &Gateway, conversation: &str) -> Client {
    let mut client = gateway.connect();
    let length = format!("Content-Length: {}", CLUSTER.len());
    let one = key(0);
    let fields = [&*one, conversation, &length, "Expect: 100-continue"];
    let head = head("POST", CHAT, &fields);
    client.send(format!("{head}\r\n").as_bytes()).unwrap();
    assert_eq!(client.wire.head().unwrap().status(), Ok(100));
    client
}

/// The rest of what [`begun`] began, and its access line.
fn ended(gateway: &Gateway, mut client: Client) -> Value {
    client.send(CLUSTER.as_bytes()).unwrap();
    let answer = client.response("POST").unwrap();
    assert_eq!(answer.status, 200, "{answer:#?}");
    let id = answer.head.value("x-lanegate-request-id").unwrap();
    gateway.access_line(&id, |line| line["request_id"] == id.as_str())
}

fn a_turn_keeps_the_policy_that_admitted_it(driver: Driver) {
    let origin = provider();
    let base = setup(driver, &origin);
    let gateway = base.clone().with(&feature("{}")).start();
    let first = begun(&gateway, "X-Router-Conversation: a");
    gateway.configure(&base);
    assert!(gateway.reload().contains("is in force"));
    let second = begun(&gateway, "X-Router-Conversation: b");
    let line = ended(&gateway, first);
    assert_eq!(line["session_evidence"], "tooling.distinct_coding_cluster");
    gateway.configure(&base.with(&feature("{}")));
    assert!(gateway.reload().contains("is in force"));
    let line = ended(&gateway, second);
    assert!(line.get("session_kind").is_none(), "{line}");
}

fn a_session_outlives_changes_of_model_and_provider_and_retries(driver: Driver) {
    let (one, two) = (provider(), provider());
    // Answers once on each connection, and closes it: the next request finds it stale.
    let stale = Origin::start(|caller| {
        caller.request();
        caller.reply(&answer(200, "{}")).unwrap();
    });
    let setup = |third: &Origin| {
        Setup::new(driver)
            .with(&clients())
            .with(&feature("{}"))
            .variable("ONE", KEYS[0])
            .variable("TWO", KEYS[1])
            .provider(
                "openai",
                one.address(),
                r#"models: [{ from: "m", to: "m" }]"#,
            )
            .provider(
                "openai",
                two.address(),
                r#"models: [{ from: "n", to: "n" }]"#,
            )
            .provider(
                "openai",
                third.address(),
                r#"models: [{ from: "o", to: "o" }]"#,
            )
    };
    let gateway = setup(&stale).start();
    let fields = [&*key(0), "X-Router-Conversation: c"];
    let agent = [fields[0], fields[1], "User-Agent: droid/1"];
    let mut client = gateway.connect();
    turn(&gateway, &mut client, &agent, BODY);
    let mut known = |model: &str| {
        let body = BODY.replace("\"m\"", &format!("\"{model}\""));
        let (_, line) = turn(&gateway, &mut client, &fields, &body);
        assert_eq!(line["session_evidence"], "client_family.droid", "{line}");
        assert_eq!(line["session_revision"], 1);
    };
    for model in ["n", "o", "o", "o", "m"] {
        known(model);
    }
    gateway.configure(&setup(&two));
    assert!(gateway.reload().contains("is in force"));
    known("o");
    let page = Exposition::read(&metrics(&gateway));
    assert_eq!(page.sum("lip_session_classification_transitions_total"), 1);
}

fn providers_get_the_same_bytes_with_and_without_the_features(driver: Driver) {
    let origin = provider();
    let (on, off) = (
        setup(driver, &origin).with(&feature("{}")).start(),
        setup(driver, &origin).start(),
    );
    let one = key(0);
    for gateway in [&on, &off] {
        let mut client = gateway.connect();
        for (agent, body) in [
            ("User-Agent: x", BODY),
            ("User-Agent: codex_cli_rs/1", BODY),
            ("User-Agent: x", CLUSTER),
        ] {
            let fields = [
                &*one,
                "X-Router-Conversation: c",
                "X-Lanegate-Session: new",
                "X-Lanegate-Workspace-Markers: go.mod",
                agent,
            ];
            let answer = client.exchange("POST", &request("POST", CHAT, &fields, body.as_bytes()));
            assert_eq!(answer.status, 200, "{answer:#?}");
        }
    }
    origin.look(|log| {
        let seen: Vec<_> = log.complete().map(|it| (&it.head, &it.body)).collect();
        let (with, without) = seen.split_at(3);
        assert_eq!(with, without);
        assert!(!with[0].0.has("x-lanegate-workspace-markers"));
    });
}

/// Rows 20 and 22.
fn what_a_body_talks_about_is_no_evidence(driver: Driver) {
    let origin = provider();
    let gateway = setup(driver, &origin).with(&feature("{}")).start();
    let talk = "codex_cli_rs/1 opencode read_file edit bash src/main.rs ```rust fn main``` go.mod <summary>compacted</summary>";
    let bodies = [
        format!(r#"{{"model":"gpt-5-codex","messages":[{{"role":"user","content":"{talk}"}}]}}"#),
        format!(r#"{{"model":"m","messages":[{{"role":"system","content":"{talk}"}}],"tools":[{{"type":"function","function":{{"name":"ask","description":"{talk}","parameters":{{"properties":{{"read":{{"name":"read"}},"edit":{{"name":"edit"}},"bash":{{"name":"bash"}}}}}}}}}}]}}"#),
        r#"{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"read","arguments":"{}"}},{"id":"2","type":"function","function":{"name":"edit","arguments":"{}"}},{"id":"3","type":"function","function":{"name":"bash","arguments":"{}"}}]}]}"#
            .to_owned(),
    ];
    let mut client = gateway.connect();
    for (number, body) in bodies.iter().enumerate() {
        let conversation = format!("X-Router-Conversation: c{number}");
        let fields = [&*key(0), &conversation, "User-Agent: OpenAI/JS 1"];
        let (_, line) = turn(&gateway, &mut client, &fields, body);
        assert_eq!(line["session_kind"], "unknown", "{body}");
        assert!(line.get("agent_evidence").is_none(), "{body}");
    }
    let page = metrics(&gateway);
    assert!(!page.contains("transitions_total"), "{page}");
}
