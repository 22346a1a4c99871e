//! The admin listener of a running gateway: what it says, to whom, and what it costs others.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::relay::still_serves;
use crate::support::client::{BODY, CHAT, Client, Response, chat, request};
use crate::support::exposition::Exposition;
use crate::support::gateway::{Driver, Gateway, SECRET, Setup};
use crate::support::message::eventually;
use crate::support::on_both_drivers;
use crate::support::origin::{Origin, echo, json};

on_both_drivers!(
    every_endpoint_answers,
    an_exchange_is_explained,
    everything_else_is_refused,
    counters_are_what_was_sent,
    refusals_are_those_of_the_provider,
    levels_fall_to_zero_and_no_series_is_born,
    declines_of_the_wire_lane_are_counted,
    times_are_measured,
    hostile_callers_make_no_series,
    dead_callers_cost_nobody_anything,
    a_key_is_asked_for,
    a_stopping_process_is_not_ready,
    a_reload_is_asked_for_over_http,
    numbers_of_a_provider_outlive_a_reload,
);

pub(crate) const ADMIN: &str = "admin: { listen: \"127.0.0.1:0\" }";

/// A gateway in front of `origin`, with an admin listener on any port.
fn setup(driver: Driver, origin: &Origin) -> Setup {
    Setup::in_front_of(driver, origin).with(ADMIN)
}

/// Where the gateway says that operators may ask.
pub(crate) fn admin(gateway: &Gateway) -> SocketAddr {
    let output = gateway.output();
    let (_, after) = output.split_once("admin on ").unwrap();
    after.split_whitespace().next().unwrap().parse().unwrap()
}

/// One request to the admin listener, whose `Host` is its address.
fn ask(address: SocketAddr, method: &str, path: &str, fields: &[&str]) -> Response {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n");
    for field in fields {
        head.push_str(field);
        head.push_str("\r\n");
    }
    Client::connect(address).exchange(method, format!("{head}\r\n").as_bytes())
}

fn text(response: &Response) -> String {
    String::from_utf8(response.body.clone()).unwrap()
}

fn scrape(address: SocketAddr) -> Exposition {
    let response = ask(address, "GET", "/metrics", &[]);
    assert_eq!(response.status, 200);
    let kind = response.head.value("content-type").unwrap();
    assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
    Exposition::read(&text(&response))
}

/// The first scrape that shows so many exchanges: a core counts after the last byte was written.
pub(crate) fn scrape_after(address: SocketAddr, exchanges: u64) -> Exposition {
    let mut last = Exposition::default();
    let counted = eventually(|| {
        last = scrape(address);
        last.sum("lanegate_requests_total") >= exchanges
    });
    assert!(counted, "{last:?}");
    last
}

fn every_endpoint_answers(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = setup(driver, &origin).start();
    let admin = admin(&gateway);
    for (path, expected) in [("/healthz", "alive\n"), ("/readyz", "ready\n")] {
        let response = ask(admin, "GET", path, &[]);
        assert_eq!((response.status, text(&response).as_str()), (200, expected));
        assert!(response.closes());
        let head = ask(admin, "HEAD", path, &[]);
        assert_eq!((head.status, head.body.as_slice()), (200, &b""[..]));
    }
    let shown = text(&ask(admin, "GET", "/admin/config?pretty", &[]));
    assert!(
        shown.contains("set (from env LANEGATE_TEST_KEY)"),
        "{shown}"
    );
    assert!(!shown.contains(SECRET));
    let now = scrape(admin);
    assert_eq!(now.count("lanegate_ready"), 1);
    assert_eq!(now.count("lanegate_draining"), 0);
    assert_eq!(now.count("lanegate_cores"), 1);
    assert_eq!(now.count("lanegate_config_generation"), 1);
    assert_eq!(
        now.sum("lanegate_requests_total"),
        0,
        "who asks here is no client"
    );
}

fn an_exchange_is_explained(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = setup(driver, &origin).start();
    let said = explained(&gateway, &chat(&[]));
    for part in [
        "\"lane\":\"wire\"",
        "\"route\":\"passthrough\"",
        "\"provider\":\"openai-origin\"",
        "\"end_reason\":\"complete\"",
        "\"body\":{",
        "\"complete\":true",
        "\"stream\":\"absent\"",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let mapped = Setup::new(driver)
        .with(ADMIN)
        .provider(
            "openai",
            origin.address(),
            r#"models: [{ from: "small", to: "a-model" }, { from: "plain", to: "{model}" }]"#,
        )
        .start();
    for (model, target) in [("small", Value::from("a-model")), ("plain", Value::Null)] {
        let body =
            format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"hi"}}]}}"#);
        let asked = request("POST", CHAT, &[], body.as_bytes());
        let said: Value = serde_json::from_str(&explained(&mapped, &asked)).unwrap();
        assert_eq!(said["route"], "imposter");
        assert_eq!(said["model"], model);
        assert_eq!(said["target_model"], target);
        let facts = &said["body"]["facts"];
        assert_eq!(facts["model"], "found");
        assert_eq!(facts["last_user_text"], "no_switch");
    }
    let broken = request("POST", CHAT, &[], br#"{"model":"small","messages":[}"#);
    let said: Value = serde_json::from_str(&explained(&mapped, &broken)).unwrap();
    assert_eq!(
        (&said["status"], &said["error"]),
        (&Value::from(400), &Value::from("malformed_json"))
    );
    assert_eq!(
        (&said["model"], said.get("provider")),
        (&Value::from("small"), Some(&Value::Null))
    );
}

/// What is said of this request, once it is over.
fn explained(gateway: &Gateway, asked: &[u8]) -> String {
    let answer = gateway.connect().exchange("POST", asked);
    let id = answer.head.value("x-lanegate-request-id").unwrap();
    let admin = admin(gateway);
    let mut explained = String::new();
    let found = eventually(|| {
        let response = ask(admin, "GET", &format!("/admin/explain/{id}"), &[]);
        explained = text(&response);
        response.status == 200
    });
    assert!(found, "{explained}");
    assert!(explained.contains(&format!("\"request_id\":\"{id}\"")));
    explained
}

fn everything_else_is_refused(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = setup(driver, &origin).start();
    let admin = admin(&gateway);
    for (method, path, status) in [
        ("GET", "/", 404),
        ("GET", "/admin/explain/req_0", 404),
        ("GET", "/admin/explain/", 404),
        ("GET", "/admin/explain/%00", 404),
        ("GET", CHAT, 404),
        ("POST", "/metrics", 405),
        ("DELETE", "/admin/config", 405),
        ("GET", "/admin/reload", 405),
        ("OPTIONS", "/healthz", 405),
    ] {
        let response = ask(admin, method, path, &[]);
        assert_eq!(response.status, status, "{method} {path}");
        assert_eq!(response.head.value("allow").is_some(), status == 405);
    }
    let reload = "POST /admin/reload HTTP/1.1\r\nHost: localhost\r\n";
    let health = "GET /healthz HTTP/1.1\r\n";
    for (hostile, status) in [
        ("GET /metrics HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("nonsense\r\n\r\n".to_owned(), 400),
        (format!("GET /{} HTTP/1.1\r\n", "a".repeat(20_000)), 414),
        (format!("{health}Host: a b\r\n\r\n"), 400),
        (format!("{reload}Content-Length: 9999\r\n\r\n"), 413),
        (format!("{reload}Transfer-Encoding: chunked\r\n\r\n"), 413),
        (format!("{health}Host: rebound.example\r\n\r\n"), 403),
        (
            format!("{health}Host: localhost\r\nOrigin: http://localhost\r\n\r\n"),
            403,
        ),
        (format!("{health}Host: localhost\r\n\r\n"), 200),
        (format!("{health}Host: LocalHost:1\r\n\r\n"), 200),
        (format!("{health}Host: 127.0.0.1\r\n\r\n"), 200),
        (format!("{health}Host: [::1]:9901\r\n\r\n"), 200),
        (format!("{health}Host: [::1]\r\n\r\n"), 200),
    ] {
        let response = Client::connect(admin).exchange("GET", hostile.as_bytes());
        assert_eq!(response.status, status, "{hostile:.60}");
    }
}

/// An origin that also knows how to be overloaded and how to break off.
fn moody() -> Origin {
    Origin::start(|caller| {
        while let Some(incoming) = caller.request() {
            let answer = match incoming.case().as_str() {
                "overloaded" => json(529, "{}"),
                "cut" => b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc".to_vec(),
                _ => echo(&incoming),
            };
            caller.reply(&answer).unwrap();
            if incoming.case() == "cut" {
                return;
            }
        }
    })
}

/// Ten exchanges of every kind on three connections, the first of which stays open.
fn ten_exchanges(gateway: &Gateway) -> Client {
    let mut client = gateway.connect();
    for _ in 0..3 {
        client.exchange("POST", &chat(&[]));
    }
    client.exchange("POST", &chat(&["x-case: overloaded"]));
    client.exchange(
        "POST",
        &request("POST", "/v1/messages", &[], BODY.as_bytes()),
    );
    client.exchange("HEAD", &request("HEAD", "/", &[], b""));
    client.exchange("GET", &request("GET", "/nowhere", &[], b""));
    client.exchange("POST", &request("POST", CHAT, &[], b"no json"));
    gateway.connect().exchange("POST", &chat(&["x-case: cut"]));
    gateway.connect().exchange("GET", b"broken\r\n\r\n");
    client
}

fn counters_are_what_was_sent(driver: Driver) {
    let origin = moody();
    let gateway = setup(driver, &origin).workers(2).start();
    let admin = admin(&gateway);
    let _open = ten_exchanges(&gateway);
    let now = scrape_after(admin, 10);
    for (dialect, class, lane, expected) in [
        // The cut one began as a success.
        ("chat", "2xx", "wire", 4),
        ("chat", "5xx", "wire", 1),
        ("messages", "2xx", "wire", 1),
        ("none", "2xx", "local", 1),
        // No route, and no request.
        ("none", "4xx", "local", 2),
        ("chat", "4xx", "local", 1),
    ] {
        let labels = format!("dialect=\"{dialect}\",status_class=\"{class}\",lane=\"{lane}\"");
        let series = format!("lanegate_requests_total{{{labels}}}");
        assert_eq!(now.count(&series), expected, "{series}");
    }
    assert_eq!(now.sum("lanegate_requests_total"), 10);
    for (end, expected) in [("complete", 6), ("rejected", 3), ("upstream_cut", 1)] {
        let series = format!("lanegate_exchanges_ended_total{{end_reason=\"{end}\"}}");
        assert_eq!(now.count(&series), expected, "{series}");
    }
    assert_eq!(now.sum("lanegate_exchanges_ended_total"), 10);
    let bodies = (6 * BODY.len() + "no json".len()) as u64;
    assert_eq!(now.count("lanegate_request_body_bytes_total"), bodies);
    assert!(now.count("lanegate_response_bytes_total") > 1000);
    assert_eq!(now.count("lanegate_client_connections_accepted_total"), 3);
    for (provider, class, expected) in [
        ("openai-origin", "2xx", 4),
        ("openai-origin", "5xx", 1),
        ("anthropic-origin", "2xx", 1),
        ("anthropic-origin", "none", 0),
    ] {
        let labels = format!("provider=\"{provider}\",status_class=\"{class}\"");
        let series = format!("lanegate_upstream_exchanges_total{{{labels}}}");
        assert_eq!(now.count(&series), expected, "{series}");
    }
    let openai = |name: &str| {
        now.count(&format!(
            "lanegate_upstream_{name}{{provider=\"openai-origin\"}}"
        ))
    };
    let (opened, reused) = (
        openai("connections_opened_total"),
        openai("connections_reused_total"),
    );
    assert_eq!(opened + reused, 5);
    assert_eq!(
        (openai("connect_failures_total"), openai("retries_total")),
        (0, 0)
    );
}

fn levels_fall_to_zero_and_no_series_is_born(driver: Driver) {
    let origin = moody();
    let gateway = setup(driver, &origin).workers(2).start();
    let admin = admin(&gateway);
    let before = scrape(admin);
    let open = ten_exchanges(&gateway);
    let held = eventually(|| scrape(admin).count("lanegate_client_connections") == 1);
    assert!(held, "the open connection is seen");
    drop(open);
    let mut now = before.clone();
    let calm = eventually(|| {
        now = scrape(admin);
        now.count("lanegate_client_connections") == 0
            && now.count("lanegate_exchanges_running") == 0
            && now.count("lanegate_block_bytes") == 0
            && now.count("lanegate_reserved_bytes") == 0
            // Idle connections end with `keepalive_idle`, 4 s.
            && now.sum("lanegate_upstream_connections") == 0
    });
    assert!(calm, "levels fall to zero: {now:?}");
    assert_eq!(now.names(), before.names());
}

fn declines_of_the_wire_lane_are_counted(driver: Driver) {
    let origin = Origin::echoing();
    let models = "models: [{ from: \"m\", to: \"n\" }], default: false";
    let gateway = Setup::new(driver)
        .with(ADMIN)
        .provider("openai", origin.address(), models)
        .start();
    let fields = ["Content-Encoding: compress"];
    let unreadable = request("POST", CHAT, &fields, BODY.as_bytes());
    assert_eq!(gateway.connect().exchange("POST", &unreadable).status, 415);
    assert_eq!(gateway.connect().exchange("POST", &chat(&[])).status, 200);
    let now = scrape_after(admin(&gateway), 2);
    assert_eq!(
        now.count("lanegate_declines_total{reason=\"fact_on_unreadable\"}"),
        1
    );
    assert_eq!(now.sum("lanegate_declines_total"), 1);
}

fn times_are_measured(driver: Driver) {
    const SLOW: Duration = Duration::from_millis(300);
    let origin = Origin::start(|caller| {
        while caller.request().is_some() {
            std::thread::sleep(SLOW);
            caller
                .reply(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                .unwrap();
            for _ in 0..4 {
                caller.reply(b"1\r\na\r\n").unwrap();
                std::thread::sleep(SLOW);
            }
            caller.reply(b"0\r\n\r\n").unwrap();
        }
    });
    let gateway = setup(driver, &origin).start();
    let mut client = gateway.connect();
    client.exchange("POST", &chat(&[]));
    client.exchange("POST", &chat(&[]));
    let now = scrape_after(admin(&gateway), 2);
    let count = |name: &str| now.count(&format!("lanegate_{name}_seconds_count"));
    let sum = |name: &str| now.value(&format!("lanegate_{name}_seconds_sum"));
    let slow = SLOW.as_secs_f64();
    let of = |part: &str, provider: &str| {
        format!("lanegate_first_byte_seconds_{part}{{provider=\"{provider}-origin\"}}")
    };
    let begun = ["openai", "anthropic"].map(|it| now.count(&of("count", it)));
    assert_eq!((begun, count("exchange_duration")), ([2, 0], 2));
    let first_bytes = now.value(&of("sum", "openai"));
    assert!(
        first_bytes >= 2.0 * slow && first_bytes < 4.0 * slow,
        "{now:?}"
    );
    assert!(sum("exchange_duration") >= 10.0 * slow);
    // The first of four pieces may come with the head; the end comes last.
    assert!(
        (6..=10).contains(&count("response_gap")),
        "{}",
        count("response_gap")
    );
    assert!(sum("response_gap") >= 7.0 * slow);
    assert_eq!(
        count("connect"),
        1,
        "the second request took the idle connection"
    );
    for to in ["request", "response"] {
        let of = |part: &str| format!("lanegate_added_latency_seconds_{part}{{to=\"{to}\"}}");
        assert_eq!(now.count(&of("count")), 2);
        assert!(
            now.value(&of("sum")) < slow,
            "what the provider takes is not the gateway's: {now:?}"
        );
    }
}

/// 100,000 requests on one driver and a tenth of them on the other, none like another in path, model,
/// fields and User-Agent; a few of them reach the provider. A third names conversations and agents, and a
/// third tries to: of agents 64 have series, and all others one together.
fn hostile_callers_make_no_series(driver: Driver) {
    const CONNECTIONS: usize = 4;
    const BATCH: usize = 50;
    let each: usize = match driver {
        Driver::Epoll => 25_000,
        Driver::IoUring => 2_500,
    };
    let origin = Origin::echoing();
    let models = "models: [{ from: \"m-1*\", to: \"{model}\" }]";
    let gateway = Setup::new(driver)
        .with(ADMIN)
        .with("log: { access: none }")
        .provider("openai", origin.address(), models)
        .workers(2)
        .start();
    let admin = admin(&gateway);
    let before = scrape(admin);
    std::thread::scope(|scope| {
        for connection in 0..CONNECTIONS {
            let gateway = &gateway;
            scope.spawn(move || {
                let mut client = gateway.connect();
                for batch in 0..each / BATCH {
                    let requests: Vec<_> = (0..BATCH)
                        .map(|at| hostile((connection * each + batch * BATCH + at) as u64))
                        .collect();
                    client.send(&requests.concat()).unwrap();
                    for _ in 0..BATCH {
                        client.response("POST").unwrap();
                    }
                }
            });
        }
    });
    let all = (each * CONNECTIONS) as u64;
    let now = scrape_after(admin, all);
    assert_eq!(now.sum("lanegate_requests_total"), all);
    assert!(
        now.sum("lanegate_upstream_exchanges_total") > all / 200,
        "some are forwarded"
    );
    let mut now = now;
    // Half of them are on the paths of dialects: a decision and an answer each.
    let all_are_kept = eventually(|| {
        now = scrape(admin);
        let rows = [
            "ledger_rows_written",
            "ledger_rows_lost",
            "log_records_lost",
        ];
        let counts = rows.map(|it| now.count(&format!("lanegate_{it}_total")));
        counts.into_iter().sum::<u64>() >= all
    });
    assert!(all_are_kept, "{now:?}");
    let named = agents(&now);
    assert_eq!(named.len(), 65, "{named:?}");
    let as_sent = |agent: &&str| agent.starts_with("robot-") || *agent == "other";
    assert!(named.contains("other") && named.iter().all(as_sent));
    let is_of_agents = |name: &str| name.starts_with("lanegate_agent_");
    let (of_agents, others): (BTreeSet<_>, BTreeSet<_>) =
        now.names().into_iter().partition(|name| is_of_agents(name));
    // Four kinds of tokens each; the share is absent, because the answers say nothing of their cost.
    assert_eq!(of_agents.len(), 65 * 4);
    assert_eq!(others, before.names());
}

/// The values of the label `agent`.
fn agents(page: &Exposition) -> BTreeSet<&str> {
    let names = page.names().into_iter();
    let labels = names.filter_map(|it| it.strip_prefix("lanegate_agent_tokens_total{agent=\""));
    labels.filter_map(|it| it.split('"').next()).collect()
}

/// The request of this number; the same each time.
fn hostile(number: u64) -> Vec<u8> {
    // SplitMix64.
    let mut noise = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    noise = (noise ^ (noise >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    noise ^= noise >> 31;
    let mut fields = vec![
        format!("User-Agent: agent-{noise:x}/{number}"),
        format!("x-{noise:x}: {{le=\"{number}\"}} \\n"),
        format!("traceparent: 00-{noise:032x}-{number:016x}-01"),
    ];
    match noise % 3 {
        0 => fields.extend([
            format!("X-Router-Conversation: talk-{noise:x}"),
            format!("X-Router-Agent: robot-{number}.{noise:x}"),
            format!("X-Router-Parent: parent-{noise:x}"),
        ]),
        1 => fields.extend([
            format!("X-Router-Conversation: talk {noise:x}"),
            format!("X-Router-Agent: robot\",kind=\"{noise:x}\\"),
            format!("X-Router-Parent: {noise:0400x}"),
        ]),
        _ => {}
    }
    let fields: Vec<_> = fields.iter().map(String::as_str).collect();
    let body = format!("{{\"model\":\"m-{noise}\",\"messages\":[],\"user\":\"u{number}\"}}");
    match number % 4 {
        0 => request("POST", CHAT, &fields, body.as_bytes()),
        1 => request(
            "POST",
            "/v1/responses",
            &fields,
            body.replace("m-", "x-").as_bytes(),
        ),
        2 => request(
            "POST",
            &format!("/{noise:x}/{number}?model={noise}"),
            &fields,
            b"",
        ),
        _ => request("POST", &format!("/v1/{number}%22{noise:x}"), &fields, b""),
    }
}

/// Callers that send nothing, half a head, or never read their answer: exchanges go on, and so do
/// other callers.
fn dead_callers_cost_nobody_anything(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = setup(driver, &origin).start();
    let admin = admin(&gateway);
    let mut dead = Vec::new();
    for number in 0..100 {
        let client = Client::connect(admin);
        match number % 3 {
            0 => {}
            // Sending fails where the gateway has cut it already.
            1 => drop(client.send(b"GET /metrics HTTP/1.1\r\nHost: local")),
            _ => drop(client.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")),
        }
        dead.push(client);
    }
    // Of a burst the newest are turned away while the threads of those that were cut have not ended.
    // Who is answered behind it knows that all before were accepted.
    let heard = || {
        let mut client = Client::connect(admin);
        let asked = client.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
        asked.is_ok()
            && client
                .response("GET")
                .is_ok_and(|answer| answer.status == 200)
    };
    assert!(eventually(heard));
    let threads = || gateway.proc_status("Threads");
    assert!(eventually(|| threads() < 30), "{} threads", threads());
    let start = Instant::now();
    for _ in 0..5 {
        still_serves(&gateway);
        assert_eq!(ask(admin, "GET", "/healthz", &[]).status, 200);
        scrape(admin);
    }
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "{:?}",
        start.elapsed()
    );
    // Those that were not cut to make room run out of time.
    let many = threads();
    assert!(many < 60, "{many} threads");
    drop(dead);
    assert!(
        eventually(|| threads() < many),
        "threads of dead callers end"
    );
}

fn a_key_is_asked_for(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = Setup::in_front_of(driver, &origin)
        .with("admin: { listen: \"127.0.0.1:0\", key_env: LANEGATE_TEST_KEY }")
        .start();
    let admin = admin(&gateway);
    let right = format!("Authorization: Bearer {SECRET}");
    let lower = format!("authorization: bearer {SECRET}");
    let short = format!("Authorization: Bearer {}", &SECRET[1..]);
    let long = format!("Authorization: Bearer {SECRET}x");
    let other = format!("Authorization: Basic {SECRET}");
    let bare = format!("Authorization: {SECRET}");
    for path in [
        "/metrics",
        "/admin/config",
        "/admin/explain/req_1",
        "/admin/reload",
    ] {
        for fields in [
            &[][..],
            &[short.as_str()],
            &[long.as_str()],
            &[other.as_str()],
            &[bare.as_str()],
            &["Authorization: Bearer"],
        ] {
            let response = ask(admin, "GET", path, fields);
            assert_eq!(response.status, 401, "{path} {fields:?}");
            assert_eq!(
                response.head.value("www-authenticate").as_deref(),
                Some("Bearer")
            );
        }
    }
    for field in [&right, &lower] {
        assert_eq!(ask(admin, "GET", "/metrics", &[field]).status, 200);
    }
    // Who has the key may come from anywhere.
    assert_eq!(
        ask(admin, "GET", "/metrics", &[&right, "Origin: http://a"]).status,
        200
    );
    for path in ["/healthz", "/readyz"] {
        assert_eq!(ask(admin, "GET", path, &[]).status, 200, "{path}");
    }
    assert!(!text(&ask(admin, "GET", "/admin/config", &[&right])).contains(SECRET));
}

fn a_stopping_process_is_not_ready(driver: Driver) {
    let origin = Origin::start(|caller| {
        if caller.request().is_some() {
            caller.stall();
        }
    });
    let gateway = setup(driver, &origin).start();
    let admin = admin(&gateway);
    let client = gateway.connect();
    client.send(&chat(&[])).unwrap();
    origin.wait("the request", |log| log.complete().count() == 1);
    assert_eq!(ask(admin, "GET", "/readyz", &[]).status, 200);
    kill_process(
        Pid::from_raw(i32::try_from(gateway.id()).unwrap()).unwrap(),
        Signal::TERM,
    )
    .unwrap();
    let stopping = eventually(|| ask(admin, "GET", "/readyz", &[]).status == 503);
    assert!(stopping, "not ready after SIGTERM");
    assert_eq!(text(&ask(admin, "GET", "/readyz", &[])), "stopping\n");
    assert_eq!(
        ask(admin, "GET", "/healthz", &[]).status,
        200,
        "and still alive"
    );
    let now = scrape(admin);
    assert_eq!(now.count("lanegate_ready"), 0);
    assert_eq!(now.count("lanegate_draining"), 1);
}

fn a_reload_is_asked_for_over_http(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = setup(driver, &origin).start();
    let admin = admin(&gateway);
    let post = |path| ask(admin, "POST", path, &["Content-Length: 0"]);
    let done = post("/admin/reload");
    assert_eq!(done.status, 200);
    assert_eq!(text(&done), "{\"generation\":2,\"needs_restart\":[]}\n");
    gateway.said("lanegate: generation 2 is in force\n");
    gateway.configure(&setup(driver, &origin).with("log: { access: none }"));
    assert_eq!(
        text(&post("/admin/reload")),
        "{\"generation\":3,\"needs_restart\":[\"log.access\"]}\n"
    );
    gateway.configure_with("providers: 7\n");
    let refused = post("/admin/reload");
    assert_eq!(refused.status, 422);
    assert!(
        text(&refused).contains("config: line 1: providers: expected a list, got 7"),
        "{}",
        text(&refused)
    );
    gateway.said("lanegate: not reloaded, nothing changed:\n");
    assert_eq!(scrape(admin).count("lanegate_config_generation"), 3);
    still_serves(&gateway);
}

/// What the provider says is a refusal of its own; a 503 that the gateway made in its place is none.
fn refusals_are_those_of_the_provider(driver: Driver) {
    let origin = Origin::start(|caller| {
        while let Some(incoming) = caller.request() {
            match incoming.case().as_str() {
                "" => return caller.stall(),
                status => caller.reply(&json(status.parse().unwrap(), "{}")).unwrap(),
            }
        }
    });
    let gateway = Setup::new(driver)
        .with(ADMIN)
        .provider("openai", origin.address(), "connections: 1, waiting: 1")
        .start();
    let mut client = gateway.connect();
    let answered = [200, 400, 401, 402, 403, 403, 404, 429, 500, 503, 529];
    for status in answered {
        let answer = client.exchange("POST", &chat(&[&format!("x-case: {status}")]));
        assert_eq!(answer.status, status);
    }
    let admin = admin(&gateway);
    let others = [gateway.connect(), gateway.connect()];
    others[0].send(&chat(&[])).unwrap();
    origin.wait("the request", |log| {
        log.complete().count() == answered.len() + 1
    });
    others[1].send(&chat(&[])).unwrap();
    let waits = || scrape(admin).sum("lanegate_upstream_waiting") == 1;
    assert!(eventually(waits));
    let busy = gateway.connect().exchange("POST", &chat(&[]));
    assert_eq!(busy.gateway_error().as_deref(), Some("upstream_busy"));
    assert_eq!(busy.status, 503);
    let now = scrape_after(admin, answered.len() as u64 + 1);
    let of = |reason: &str| {
        let labels = format!("provider=\"listed-0\",reason=\"{reason}\"");
        now.count(&format!("lanegate_upstream_refusals_total{{{labels}}}"))
    };
    assert_eq!(["credential", "quota", "overload"].map(of), [3, 2, 2]);
    let own = "lanegate_upstream_exchanges_total{provider=\"listed-0\",status_class=\"5xx\"}";
    assert_eq!(
        now.count(own),
        4,
        "three of the provider, one of the gateway"
    );
}

fn numbers_of_a_provider_outlive_a_reload(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = setup(driver, &origin).start();
    let admin = admin(&gateway);
    gateway.connect().exchange("POST", &chat(&[]));
    scrape_after(admin, 1);
    gateway.configure(&setup(driver, &origin).keys("keepalive_idle: 9s").provider(
        "openai",
        origin.address(),
        "",
    ));
    assert_eq!(ask(admin, "POST", "/admin/reload", &[]).status, 200);
    gateway.connect().exchange("POST", &chat(&[]));
    let now = scrape_after(admin, 2);
    let of = |provider: &str| {
        now.count(&format!(
            "lanegate_upstream_exchanges_total{{provider=\"{provider}\",status_class=\"2xx\"}}"
        ))
    };
    assert_eq!((of("openai-origin"), of("listed-0")), (2, 0));
    let named: BTreeSet<_> = now
        .names()
        .into_iter()
        .filter(|name| name.contains("listed-0"))
        .map(str::to_owned)
        .collect();
    gateway.configure(&setup(driver, &origin));
    assert_eq!(ask(admin, "POST", "/admin/reload", &[]).status, 200);
    let after = scrape(admin);
    assert!(!named.is_empty() && after.names().iter().all(|name| !named.contains(*name)));
}
