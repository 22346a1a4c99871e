//! Every clock of the gateway: it rings alone, it is told to the client and to the operator, and
//! nobody else waits meanwhile. All other clocks stand at an hour, so that only the order of events
//! can make a scenario pass.

use std::io::Read;
use std::time::Duration;

use crate::support::client::{BODY, CHAT, Client, chat, chunk, head, json_of, request};
use crate::support::gateway::{Driver, Gateway, Setup};
use crate::support::message::{End, Stop, settle};
use crate::support::on_both_drivers;
use crate::support::origin::{Caller, Origin, echo, unaccepting};

on_both_drivers!(
    a_slow_head,
    a_slow_body_that_nothing_waits_for,
    a_slow_body_that_a_provider_waits_for,
    a_slow_body_that_memory_waits_for,
    a_slow_provider_is_not_laid_at_the_clients_door,
    a_provider_that_takes_nothing,
    a_provider_that_never_answers,
    a_provider_that_falls_silent,
    a_slow_reader,
    a_provider_that_does_not_accept,
    a_name_that_does_not_resolve,
    a_provider_has_clocks_of_its_own,
);

/// An hour for every clock but the ones named in `short`.
fn clocks(short: &str) -> String {
    let long = [
        "connect",
        "handshake",
        "head",
        "idle",
        "request_progress",
        "client_write",
        "first_byte",
        "keepalive",
        "reservation",
    ];
    let long: Vec<_> = long
        .iter()
        .filter(|key| !short.contains(&format!("{key}:")))
        .map(|key| format!("{key}: 1h"))
        .collect();
    format!("timeouts: {{ {short}, {} }}", long.join(", "))
}

fn model(name: &str) -> Vec<u8> {
    let body = BODY.replace("\"m\"", &format!("\"{name}\""));
    request("POST", CHAT, &[], body.as_bytes())
}

/// The exchange ended for `reason`, and the client was told.
fn told(gateway: &Gateway, client: &mut Client, reason: &str, status: u16) {
    let answer = client.response("POST").unwrap();
    assert_eq!(answer.status, status, "{answer:#?}");
    assert_eq!(answer.end, End::Complete);
    let line = gateway.ended(reason);
    assert_eq!(line["status"], status, "{line}");
    assert_eq!(line["error"], answer.gateway_error().unwrap(), "{line}");
}

fn serves(gateway: &Gateway) {
    let answer = gateway.connect().exchange("POST", &chat(&[]));
    assert_eq!(answer.status, 200, "{answer:#?}");
}

fn a_slow_head(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = Setup::in_front_of(driver, &origin)
        .with(&clocks("head: 500ms"))
        .start();
    let mut client = gateway.connect();
    client.send(b"POST /v1/chat/compl").unwrap();
    serves(&gateway);
    told(&gateway, &mut client, "head_timeout", 408);
    assert_eq!(client.wire.ending(), Stop::Fin);
}

fn a_slow_body_that_nothing_waits_for(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = Setup::in_front_of(driver, &origin)
        .with(&clocks("idle: 500ms"))
        .start();
    let mut client = gateway.connect();
    let opening = head("POST", CHAT, &["Content-Length: 500"]) + "\r\n{\"model\"";
    client.send(opening.as_bytes()).unwrap();
    serves(&gateway);
    told(&gateway, &mut client, "client_idle_timeout", 408);
    origin.look(|log| assert_eq!(log.requests.len(), 1, "it never went upstream"));
}

fn a_slow_body_that_a_provider_waits_for(driver: Driver) {
    let origin = Origin::start(|caller| {
        while let Some(request) = caller.request() {
            caller.reply(&echo(&request)).unwrap();
        }
    });
    let gateway = Setup::in_front_of(driver, &origin)
        .with(&clocks("request_progress: 500ms"))
        .start();
    let mut client = gateway.connect();
    let opening = head("POST", CHAT, &["Content-Length: 4194304"]) + "\r\n";
    client.send(opening.as_bytes()).unwrap();
    client.send(&json_of(1 << 20)[..1 << 19]).unwrap();
    origin.wait("some of the body", |log| {
        log.requests.iter().any(|r| r.body_bytes > 0)
    });
    serves(&gateway);
    told(&gateway, &mut client, "request_progress_timeout", 408);
    origin.wait("the end of its connection", |log| log.has_ended(0));
    origin.look(|log| assert_eq!(log.complete().count(), 1, "the other one's"));
}

fn a_slow_body_that_memory_waits_for(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = Setup::new(driver)
        .provider(
            "openai",
            origin.address(),
            r#"models: [{ from: "m", to: "{model}" }], default: false"#,
        )
        .with(&clocks("request_progress: 500ms"))
        .start();
    let mut client = gateway.connect();
    let opening = head("POST", CHAT, &["Content-Length: 4194304"]) + "\r\n{\"messages\":\"";
    client.send(opening.as_bytes()).unwrap();
    client.send(&vec![b'x'; 1 << 20]).unwrap();
    told(&gateway, &mut client, "request_progress_timeout", 408);
    origin.look(|log| assert!(log.requests.is_empty()));
}

/// The client's clock stands still while the provider takes nothing.
fn a_slow_provider_is_not_laid_at_the_clients_door(driver: Driver) {
    let origin = Origin::start(|caller| {
        let Some(mut request) = caller.head() else {
            return;
        };
        // Several times the clock that must not ring.
        std::thread::sleep(Duration::from_millis(1500));
        caller.note("reads on");
        assert!(caller.finish(&mut request).is_clean());
        caller.reply(&echo(&request)).unwrap();
        caller.until_closed();
    });
    let gateway = Setup::in_front_of(driver, &origin)
        .with(&clocks("request_progress: 300ms"))
        .start();
    let mut client = gateway.connect();
    // More than all socket buffers on the way hold.
    let body = json_of(24 << 20);
    let answer = client.exchange("POST", &request("POST", CHAT, &[], &body));
    assert_eq!(answer.status, 200, "{answer:#?}");
    origin.look(|log| assert!(log.has_note("reads on")));
    assert_eq!(gateway.ended("complete")["request_bytes"], body.len());
}

fn a_provider_that_takes_nothing(driver: Driver) {
    let origin = Origin::start(|caller| {
        if caller
            .head()
            .is_some_and(|request| request.case() == "stalls")
        {
            caller.stall();
        }
    });
    let gateway = Setup::in_front_of(driver, &origin)
        .with(&clocks("idle: 500ms"))
        .start();
    let client = gateway.connect();
    let mut reader = Client {
        wire: crate::support::message::Wire::new(client.wire.stream().try_clone().unwrap()),
    };
    let body = json_of(24 << 20);
    let sent = &request("POST", CHAT, &["x-case: stalls"], &body);
    std::thread::scope(|scope| {
        // Breaks off once the gateway has given up.
        scope.spawn(move || client.send(sent));
        told(&gateway, &mut reader, "upstream_write_timeout", 504);
    });
}

fn a_provider_that_never_answers(driver: Driver) {
    let silent = Origin::start(|caller| {
        if caller.request().is_some() {
            caller.until_closed();
        }
    });
    let other = Origin::echoing();
    let gateway = Setup::in_front_of(driver, &other)
        .provider(
            "openai",
            silent.address(),
            r#"models: [{ from: "silent", to: "{model}" }]"#,
        )
        .with(&clocks("first_byte: 700ms"))
        .start();
    let mut client = gateway.connect();
    client.send(&model("silent")).unwrap();
    silent.wait("the request", |log| log.complete().count() == 1);
    for _ in 0..20 {
        serves(&gateway);
    }
    silent.look(|log| assert!(!log.has_ended(0), "others were served meanwhile"));
    told(&gateway, &mut client, "first_byte_timeout", 504);
    silent.wait("the end of its connection", |log| log.has_ended(0));
}

fn a_provider_that_falls_silent(driver: Driver) {
    let origin = Origin::start(|caller| {
        while let Some(request) = caller.request() {
            if request.case() != "falls" {
                caller.reply(&echo(&request)).unwrap();
                continue;
            }
            let opening = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            caller.reply(opening.as_bytes()).unwrap();
            caller.reply(&chunk(b"data: 1\n\n")).unwrap();
            return caller.until_closed();
        }
    });
    let gateway = Setup::in_front_of(driver, &origin)
        .with(&clocks("idle: 700ms"))
        .start();
    let mut client = gateway.connect();
    client.send(&chat(&["x-case: falls"])).unwrap();
    serves(&gateway);
    let answer = client.response("POST").unwrap();
    assert_eq!(answer.body, b"data: 1\n\n");
    assert!(matches!(answer.end, End::Cut(_)), "{answer:#?}");
    let line = gateway.ended("upstream_idle_timeout");
    assert_eq!(line["status"], 200, "{line}");
    origin.wait("the end of its connection", |log| log.has_ended(0));
}

fn a_slow_reader(driver: Driver) {
    let origin = Origin::start(|caller| {
        let Some(request) = caller.request() else {
            return;
        };
        if request.case() != "floods" {
            caller.reply(&echo(&request)).unwrap();
            return caller.until_closed();
        }
        let opening = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        caller.reply(opening.as_bytes()).unwrap();
        let piece = chunk(&vec![b'x'; 1 << 20]);
        // Until the gateway gives up.
        while caller.reply(&piece).is_ok() {}
        caller.note("given up");
    });
    let gateway = Setup::in_front_of(driver, &origin)
        .with(&clocks("client_write: 500ms"))
        .start();
    let client = gateway.connect();
    client.send(&chat(&["x-case: floods"])).unwrap();
    serves(&gateway);
    let line = gateway.ended("client_write_timeout");
    assert_eq!(line["status"], 200, "{line}");
    origin.wait("that the gateway gave up", |log| log.has_note("given up"));
    // What it had not read yet ends in a cut.
    let mut rest = Vec::new();
    let read = client.wire.stream().read_to_end(&mut rest);
    assert!(read.is_err() || !rest.ends_with(b"0\r\n\r\n"));
}

fn a_provider_that_does_not_accept(driver: Driver) {
    let (_listener, _queued, address) = unaccepting();
    let other = Origin::echoing();
    let gateway = Setup::in_front_of(driver, &other)
        .provider(
            "openai",
            address,
            r#"models: [{ from: "full", to: "{model}" }]"#,
        )
        .with(&clocks("connect: 700ms"))
        .start();
    let mut client = gateway.connect();
    client.send(&model("full")).unwrap();
    settle();
    serves(&gateway);
    told(&gateway, &mut client, "connect_timeout", 504);
}

fn a_name_that_does_not_resolve(driver: Driver) {
    let other = Origin::echoing();
    let gateway = Setup::at(driver, other.address())
        .with(&clocks("connect: 700ms"))
        .named_provider(
            "does-not-exist.invalid",
            r#"models: [{ from: "nowhere", to: "{model}" }]"#,
        )
        .start();
    let mut client = gateway.connect();
    client.send(&model("nowhere")).unwrap();
    settle();
    serves(&gateway);
    told(&gateway, &mut client, "connect_timeout", 504);
}

fn a_provider_has_clocks_of_its_own(driver: Driver) {
    let silent = Origin::start(|caller| {
        if caller.request().is_some() {
            caller.until_closed();
        }
    });
    let falling = Origin::start(|caller: &mut Caller| {
        if caller.request().is_some() {
            let opening = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab";
            caller.reply(opening.as_bytes()).unwrap();
            caller.until_closed();
        }
    });
    let gateway = Setup::in_front_of(driver, &Origin::echoing())
        .provider(
            "openai",
            silent.address(),
            r#"models: [{ from: "silent", to: "{model}" }], timeouts: { first_byte: 300ms }"#,
        )
        .provider(
            "openai",
            falling.address(),
            r#"models: [{ from: "falling", to: "{model}" }], timeouts: { idle: 300ms }"#,
        )
        .with(&clocks("drain: 1h"))
        .start();
    let mut client = gateway.connect();
    client.send(&model("silent")).unwrap();
    told(&gateway, &mut client, "first_byte_timeout", 504);
    let answer = gateway.connect().exchange("POST", &model("falling"));
    assert!(matches!(answer.end, End::Cut(_)), "{answer:#?}");
    gateway.ended("upstream_idle_timeout");
}
