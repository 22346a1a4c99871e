//! A client that leaves ends its exchange in whatever phase it is: the provider's connection ends,
//! nothing of it stays behind, and the operator sees who left. All clocks stand at an hour, so that
//! only the client's leaving can end anything.

use std::net::SocketAddr;
use std::time::Duration;

use crate::relay::still_serves;
use crate::support::client::{BODY, CHAT, Client, chat, chunk, head, json_of, leave, request};
use crate::support::gateway::{Driver, Gateway, Setup};
use crate::support::message::{eventually, settle};
use crate::support::on_both_drivers;
use crate::support::origin::{Origin, echo, unaccepting};

on_both_drivers!(
    inside_the_head,
    inside_a_body_that_is_gathered,
    inside_a_body_that_is_held,
    while_a_body_streams,
    while_the_provider_takes_nothing,
    while_a_connection_is_opened,
    while_a_body_waits_for_memory,
    before_the_first_byte,
    before_the_first_byte_with_more_than_a_head_sent_behind,
    inside_the_response,
    inside_a_response_that_runs_beside_the_request,
    while_the_client_reads_nothing,
    a_thousand_streams_left_behind,
);

const PATIENT: &str = "timeouts: { connect: 1h, handshake: 1h, head: 1h, idle: 1h, \
    request_progress: 1h, client_write: 1h, first_byte: 1h, keepalive: 1h, reservation: 1h }";

/// Both ways to leave.
const WAYS: [bool; 2] = [false, true];

/// Runs `until`, which brings a client into a phase, then has it leave in both ways; the upstream
/// connection, if one is `open` by then, has to end, and all descriptors come back.
fn leaves(gateway: &Gateway, origin: &Origin, open: bool, until: impl Fn(&Gateway) -> Client) {
    still_serves(gateway);
    let idle = gateway.descriptors();
    for (number, reset) in WAYS.into_iter().enumerate() {
        let ended_before = origin.look(|log| log.ended.len());
        let client = until(gateway);
        settle();
        leave(client, reset);
        let came = eventually(|| {
            let lines = gateway.access_lines();
            lines
                .iter()
                .filter(|l| l["end_reason"] == "client_closed")
                .count()
                > number
        });
        assert!(came, "reset {reset}: nobody noticed that the client left");
        if open {
            origin.wait("the end of its connection", |log| {
                log.ended.len() > ended_before
            });
        }
    }
    still_serves(gateway);
    let back = eventually(|| gateway.descriptors() <= idle);
    assert!(back, "{} descriptors, {idle} before", gateway.descriptors());
}

fn opening(gateway: &Gateway, fields: &[&str], start: &[u8]) -> Client {
    let client = gateway.connect();
    let opening = head("POST", CHAT, fields) + "\r\n";
    client.send(opening.as_bytes()).unwrap();
    client.send(start).unwrap();
    client
}

/// Echoes, but never answers a case named `silent`.
fn origin() -> Origin {
    Origin::start(|caller| {
        while let Some(request) = caller.request() {
            if request.case() == "silent" {
                return caller.until_closed();
            }
            caller.reply(&echo(&request)).unwrap();
        }
    })
}

fn patient(driver: Driver, origin: &Origin) -> Gateway {
    Setup::in_front_of(driver, origin).with(PATIENT).start()
}

/// Nothing is known of an exchange before its head is there, and nothing is written down.
fn inside_the_head(driver: Driver) {
    let origin = origin();
    let gateway = patient(driver, &origin);
    still_serves(&gateway);
    let idle = gateway.descriptors();
    for reset in WAYS {
        let client = gateway.connect();
        client.send(b"POST /v1/chat/completions HTT").unwrap();
        settle();
        leave(client, reset);
    }
    assert!(eventually(|| gateway.descriptors() <= idle));
    still_serves(&gateway);
}

fn inside_a_body_that_is_gathered(driver: Driver) {
    let origin = origin();
    let gateway = patient(driver, &origin);
    leaves(&gateway, &origin, false, |gateway| {
        opening(gateway, &["Content-Length: 500"], b"{\"model\"")
    });
    origin.look(|log| assert!(log.requests.iter().all(|r| r.case_is("after"))));
}

fn inside_a_body_that_is_held(driver: Driver) {
    let origin = origin();
    let gateway = Setup::in_front_of(driver, &origin)
        .provider(
            "openai",
            origin.address(),
            r#"models: [{ from: "other", to: "{model}" }]"#,
        )
        .with(PATIENT)
        .start();
    leaves(&gateway, &origin, false, |gateway| {
        let client = opening(gateway, &["Content-Length: 4194304"], b"{\"messages\":\"");
        client.send(&vec![b'x'; 1 << 20]).unwrap();
        client
    });
    origin.look(|log| assert!(log.requests.iter().all(|r| r.case_is("after"))));
}

fn while_a_body_streams(driver: Driver) {
    let origin = origin();
    let gateway = patient(driver, &origin);
    leaves(&gateway, &origin, true, |gateway| {
        opening(
            gateway,
            &["Content-Length: 4194304"],
            &json_of(1 << 20)[..1 << 19],
        )
    });
}

/// More is in the kernel than anybody reads: a close hides behind it.
fn while_the_provider_takes_nothing(driver: Driver) {
    let origin = Origin::start(|caller| {
        while let Some(mut request) = caller.head() {
            if request.case() == "stalls" {
                caller.note("stalls");
                return caller.stall_until_ended();
            }
            caller.finish(&mut request);
            caller.reply(&echo(&request)).unwrap();
        }
    });
    let gateway = patient(driver, &origin);
    leaves(&gateway, &origin, false, |gateway| {
        let stalled = origin.look(|log| log.notes.len());
        let client = opening(
            gateway,
            &["x-case: stalls", "Content-Length: 31457280"],
            b"{\"model\":\"m\",\"messages\":\"",
        );
        origin.wait("the request", |log| log.notes.len() > stalled);
        // Until the gateway reads no more. What lies in its kernel then hides the end of the stream,
        // but leaves room for it: an end that finds no room never arrives.
        while !is_unread(&client) {
            client.send(&vec![b'x'; 1 << 16]).unwrap();
        }
        client
    });
}

/// Whether the gateway leaves what the client sent unread, for as long as the kernel takes to show it.
fn is_unread(client: &Client) -> bool {
    let stream = client.wire.stream();
    let port = |address: SocketAddr| format!(":{:04X}", address.port());
    let local = port(stream.peer_addr().unwrap());
    let remote = port(stream.local_addr().unwrap());
    let waits = || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        // Number, local address, remote address, state, queues as `sent:unread`.
        let fields = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let row = table
            .lines()
            .map(fields)
            .find(|row| row[1].ends_with(&local) && row[2].ends_with(&remote));
        row.is_some_and(|row| !row[4].ends_with(":00000000"))
    };
    (0..20).all(|_| {
        let waits = waits();
        if waits {
            std::thread::sleep(Duration::from_millis(10));
        }
        waits
    })
}

fn while_a_connection_is_opened(driver: Driver) {
    let (_listener, _queued, address) = unaccepting();
    let origin = origin();
    let gateway = Setup::in_front_of(driver, &origin)
        .provider(
            "openai",
            address,
            r#"models: [{ from: "full", to: "{model}" }]"#,
        )
        .with(PATIENT)
        .start();
    leaves(&gateway, &origin, false, |gateway| {
        let client = gateway.connect();
        let body = BODY.replace("\"m\"", "\"full\"");
        client
            .send(&request("POST", CHAT, &[], body.as_bytes()))
            .unwrap();
        client
    });
}

fn while_a_body_waits_for_memory(driver: Driver) {
    let origin = origin();
    let gateway = Setup::in_front_of(driver, &origin)
        .provider(
            "openai",
            origin.address(),
            r#"models: [{ from: "other", to: "{model}" }]"#,
        )
        .with(PATIENT)
        .with("limits: { memory_bytes: 24MiB, body_bytes: 8MiB, connections: 64 }")
        .start();
    let hold = |gateway: &Gateway| {
        let client = opening(gateway, &["Content-Length: 8388608"], b"{\"messages\":\"");
        client.send(&vec![b'x'; 100 * 1024]).unwrap();
        client
    };
    // Takes all there is.
    let _holder = hold(&gateway);
    settle();
    leaves(&gateway, &origin, false, hold);
}

fn before_the_first_byte(driver: Driver) {
    let origin = origin();
    let gateway = patient(driver, &origin);
    leaves(&gateway, &origin, true, |gateway| {
        let asked = origin.look(|log| log.complete().count());
        let client = gateway.connect();
        client.send(&chat(&["x-case: silent"])).unwrap();
        origin.wait("the request", |log| log.complete().count() > asked);
        client
    });
}

fn before_the_first_byte_with_more_than_a_head_sent_behind(driver: Driver) {
    let origin = origin();
    let gateway = patient(driver, &origin);
    leaves(&gateway, &origin, true, |gateway| {
        let asked = origin.look(|log| log.complete().count());
        let client = gateway.connect();
        client.send(&chat(&["x-case: silent"])).unwrap();
        client
            .send(&chat(&[&format!("x-long: {}", "y".repeat(60_000))]))
            .unwrap();
        // Little enough for the kernel to have room for the end of the stream behind it.
        client.send(&json_of(30_000)).unwrap();
        origin.wait("the request", |log| log.complete().count() > asked);
        client
    });
}

/// Answers `streams` with a first event and no more; a request of another case with an echo.
fn streaming() -> Origin {
    Origin::start(|caller| {
        while let Some(request) = caller.request() {
            if request.case() != "streams" {
                caller.reply(&echo(&request)).unwrap();
                continue;
            }
            let opening = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            caller.reply(opening.as_bytes()).unwrap();
            caller.reply(&chunk(b"data: 1\n\n")).unwrap();
            return caller.until_closed();
        }
    })
}

fn inside_the_response(driver: Driver) {
    let origin = streaming();
    let gateway = patient(driver, &origin);
    leaves(&gateway, &origin, true, |gateway| {
        let mut client = gateway.connect();
        client.send(&chat(&["x-case: streams"])).unwrap();
        client.heads().unwrap();
        client
    });
}

fn inside_a_response_that_runs_beside_the_request(driver: Driver) {
    let origin = Origin::start(|caller| {
        while let Some(mut request) = caller.head() {
            if request.case() != "early" {
                caller.finish(&mut request);
                caller.reply(&echo(&request)).unwrap();
                continue;
            }
            let opening = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            caller.reply(opening.as_bytes()).unwrap();
            caller.reply(&chunk(b"data: 1\n\n")).unwrap();
            caller.finish(&mut request);
            return caller.until_closed();
        }
    });
    // Once inside the request, once when it was sent whole.
    for whole in [false, true] {
        let gateway = patient(driver, &origin);
        let body = json_of(1 << 20);
        leaves(&gateway, &origin, true, |gateway| {
            let length = format!("Content-Length: {}", body.len());
            let (start, rest) = body.split_at(700_000);
            let mut client = opening(gateway, &["x-case: early", &length], start);
            client.heads().unwrap();
            if whole {
                client.send(rest).unwrap();
            }
            client
        });
    }
}

/// A response that nobody takes fills every buffer on its way.
fn while_the_client_reads_nothing(driver: Driver) {
    let origin = Origin::start(|caller| {
        while let Some(request) = caller.request() {
            if request.case() != "floods" {
                caller.reply(&echo(&request)).unwrap();
                continue;
            }
            let opening = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            caller.reply(opening.as_bytes()).unwrap();
            let piece = chunk(&vec![b'x'; 1 << 20]);
            while caller.reply(&piece).is_ok() {}
            caller.note("ended");
            return;
        }
    });
    let gateway = patient(driver, &origin);
    leaves(&gateway, &origin, false, |gateway| {
        let client = gateway.connect();
        client.send(&chat(&["x-case: floods"])).unwrap();
        client
    });
    origin.wait("the end of both", |log| log.notes.len() == 2);
}

fn a_thousand_streams_left_behind(driver: Driver) {
    let origin = streaming();
    let gateway = Setup::in_front_of(driver, &origin)
        .with(PATIENT)
        .with("limits: { connections: 100 }")
        .start();
    still_serves(&gateway);
    let idle = gateway.descriptors();
    for round in 0..20 {
        let clients: Vec<_> = (0..50)
            .map(|_| {
                let mut client = gateway.connect();
                client.send(&chat(&["x-case: streams"])).unwrap();
                client.heads().unwrap();
                client
            })
            .collect();
        for client in clients {
            leave(client, round % 2 == 0);
        }
    }
    origin.wait("the end of a thousand connections", |log| {
        log.ended.len() >= 1000
    });
    still_serves(&gateway);
    let back = eventually(|| gateway.descriptors() <= idle);
    assert!(back, "{} descriptors, {idle} before", gateway.descriptors());
}
