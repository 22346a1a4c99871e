//! What one provider may take: connections, places in line, request buffers, handshakes.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::certificates::{Authority, VERSIONS};
use crate::support::client::{BODY, CHAT, Client, Response, chat, head, request};
use crate::support::gateway::{Driver, Gateway, Setup};
use crate::support::message::eventually;
use crate::support::on_both_drivers;
use crate::support::origin::{Caller, Origin, echo};

on_both_drivers!(
    aborted_streams_give_their_places_back,
    a_provider_that_never_answers_leaves_the_others_alone,
    waiters_are_served_in_order_on_the_connection_that_comes_back,
    a_waiter_that_left_is_passed_over,
    a_place_of_a_closed_connection_goes_to_the_next,
    uploads_to_a_provider_that_does_not_read_leave_memory_for_others,
    handshakes_with_clients_wait_their_turn,
);

/// A body for the provider of model `n`.
const OTHER: &str = r#"{"model":"n","messages":[{"role":"user","content":"hi"}]}"#;

/// Two providers: `bounded` with these keys for the model `m`, and an echoing one for `n`.
fn two(driver: Driver, bounded: &Origin, other: &Origin, keys: &str) -> Setup {
    let bounded_keys = format!(r#"models: [{{ from: "m", to: "m" }}], {keys}"#);
    Setup::new(driver)
        .provider("openai", bounded.address(), &bounded_keys)
        .provider(
            "openai",
            other.address(),
            r#"models: [{ from: "n", to: "n" }]"#,
        )
}

/// An exchange with the other provider: the core has seen by its end what was sent to it before.
fn other_is_served(gateway: &Gateway) {
    let ask = request("POST", CHAT, &[], OTHER.as_bytes());
    let answer = gateway.connect().exchange("POST", &ask);
    assert_eq!(answer.status, 200, "{answer:#?}");
}

/// A client that has sent its request, which the gateway has read.
fn asking(gateway: &Gateway, case: &str) -> Client {
    let client = gateway.connect();
    client.send(&chat(&[&format!("x-case: {case}")])).unwrap();
    other_is_served(gateway);
    client
}

fn assert_busy(answer: &Response) {
    assert_eq!(answer.status, 503, "{answer:#?}");
    assert_eq!(answer.gateway_error().as_deref(), Some("upstream_busy"));
    assert!(answer.head.value("retry-after").is_some(), "{answer:#?}");
}

/// Answers when the test says so, every request on its connection.
fn released(release: &Arc<AtomicBool>) -> impl Fn(&mut Caller) + Send + Sync + 'static {
    let release = Arc::clone(release);
    move |caller| {
        while let Some(request) = caller.request() {
            eventually(|| release.load(Ordering::SeqCst));
            if caller.reply(&echo(&request)).is_err() {
                return;
            }
        }
    }
}

fn aborted_streams_give_their_places_back(driver: Driver) {
    const STREAMS: usize = 1000;
    let origin = Origin::start(|caller| {
        while let Some(request) = caller.request() {
            if request.case() != "stream" {
                caller.reply(&echo(&request)).unwrap();
                continue;
            }
            let begun = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n";
            caller.reply(begun.as_bytes()).unwrap();
            return caller.until_closed();
        }
    });
    let other = Origin::echoing();
    let gateway = two(driver, &origin, &other, "connections: 100, waiting: 1").start();
    let stream = chat(&["x-case: stream"]);
    for aborted in 0..STREAMS {
        let mut client = gateway.connect();
        client.send(&stream).unwrap();
        let (_, head) = client.heads().unwrap();
        assert_eq!(head.status().unwrap(), 200, "after {aborted}");
        if aborted % 2 == 0 {
            client.wire.reset();
        }
    }
    origin.wait("the end of every stream", |log| log.ended.len() == STREAMS);
    let answer = gateway
        .connect()
        .exchange("POST", &chat(&["x-case: plain"]));
    assert_eq!(answer.status, 200, "{answer:#?}");
    // All of the cap is there again.
    let mut streams: Vec<_> = (0..100).map(|_| gateway.connect()).collect();
    for client in &mut streams {
        client.send(&stream).unwrap();
        assert_eq!(client.heads().unwrap().1.status().unwrap(), 200);
    }
}

fn a_provider_that_never_answers_leaves_the_others_alone(driver: Driver) {
    let origin = Origin::start(|caller| {
        let _request = caller.request();
        caller.until_closed();
    });
    let other = Origin::echoing();
    let keys = "connections: 2, waiting: 1, timeouts: { connection_wait: 2s }";
    let gateway = two(driver, &origin, &other, keys).start();
    let _stuck = [asking(&gateway, "first"), asking(&gateway, "second")];
    let mut waiting = asking(&gateway, "third");
    // The line has one place: who comes now is told at once, while the third still waits.
    let told = gateway.connect().exchange("POST", &chat(&[]));
    assert_busy(&told);
    waiting.wire.stream().set_nonblocking(true).unwrap();
    assert!(waiting.wire.stream().peek(&mut [0]).is_err());
    waiting.wire.stream().set_nonblocking(false).unwrap();
    assert_busy(&waiting.response("POST").unwrap());
    other_is_served(&gateway);
    origin.look(|log| assert_eq!((log.connections, log.requests.len()), (2, 2)));
    // Who was told may ask again on the same connection.
    waiting
        .send(&request("POST", CHAT, &[], OTHER.as_bytes()))
        .unwrap();
    assert_eq!(waiting.response("POST").unwrap().status, 200);
}

fn waiters_are_served_in_order_on_the_connection_that_comes_back(driver: Driver) {
    let release = Arc::new(AtomicBool::new(false));
    let origin = Origin::start(released(&release));
    let other = Origin::echoing();
    let gateway = two(driver, &origin, &other, "connections: 1").start();
    let cases = ["0", "1", "2", "3", "4", "5"];
    let mut clients: Vec<_> = cases.iter().map(|case| asking(&gateway, case)).collect();
    release.store(true, Ordering::SeqCst);
    for client in &mut clients {
        assert_eq!(client.response("POST").unwrap().status, 200);
    }
    origin.look(|log| {
        let seen: Vec<_> = log
            .requests
            .iter()
            .map(|it| it.head.value("x-case").unwrap())
            .collect();
        assert_eq!(seen, cases);
        assert_eq!(log.connections, 1, "handed over, not closed and opened");
    });
}

fn a_waiter_that_left_is_passed_over(driver: Driver) {
    let release = Arc::new(AtomicBool::new(false));
    let origin = Origin::start(released(&release));
    let other = Origin::echoing();
    let gateway = two(driver, &origin, &other, "connections: 1, waiting: 2").start();
    let mut first = asking(&gateway, "first");
    let leaves = asking(&gateway, "leaves");
    let mut stays = asking(&gateway, "stays");
    drop(leaves);
    other_is_served(&gateway);
    // Its place in line is free: of two places one is taken.
    let mut last = asking(&gateway, "last");
    release.store(true, Ordering::SeqCst);
    for client in [&mut first, &mut stays, &mut last] {
        assert_eq!(client.response("POST").unwrap().status, 200);
    }
    origin.look(|log| {
        let cases = log
            .requests
            .iter()
            .map(|it| it.head.value("x-case").unwrap());
        assert_eq!(cases.collect::<Vec<_>>(), ["first", "stays", "last"]);
    });
}

fn a_place_of_a_closed_connection_goes_to_the_next(driver: Driver) {
    let release = Arc::new(AtomicBool::new(false));
    let held = Arc::clone(&release);
    // One answer a connection, then its end: by the length, or by a cut.
    let origin = Origin::start(move |caller| {
        let Some(request) = caller.request() else {
            return;
        };
        eventually(|| held.load(Ordering::SeqCst));
        if request.case() != "cut" {
            let closing = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
            caller.reply(closing.as_bytes()).unwrap();
        }
    });
    let other = Origin::echoing();
    let gateway = two(driver, &origin, &other, "connections: 1").start();
    let mut clients: Vec<_> = ["plain", "cut", "plain", "cut", "plain"]
        .iter()
        .map(|case| asking(&gateway, case))
        .collect();
    release.store(true, Ordering::SeqCst);
    let statuses: Vec<_> = clients
        .iter_mut()
        .map(|client| client.response("POST").unwrap().status)
        .collect();
    assert_eq!(statuses, [200, 502, 200, 502, 200]);
    origin.look(|log| assert_eq!(log.connections, 5));
}

/// 100 uploads to a provider that reads heads alone. Half of the request pool has room for 64 blocks.
fn uploads_to_a_provider_that_does_not_read_leave_memory_for_others(driver: Driver) {
    const UPLOADS: usize = 100;
    const FIT: usize = 64;
    let origin = Origin::start(|caller| {
        let _request = caller.head();
        caller.stall();
    });
    let other = Origin::echoing();
    let gateway = two(driver, &origin, &other, "connections: 1000")
        .with("limits: { memory_bytes: 7MiB, connections: 192, body_bytes: 1MiB, window_bytes: 64KiB }")
        .start();
    let length = format!("Content-Length: {}", 512 << 10);
    let body = BODY.replace("hi", &"x".repeat(100_000));
    let begun = &body.as_bytes()[..100_000];
    let upload = [head("POST", CHAT, &[&length]).as_bytes(), b"\r\n", begun].concat();
    let mut uploads: Vec<_> = (0..UPLOADS).map(|_| gateway.connect()).collect();
    for client in &uploads {
        client.send(&upload).unwrap();
    }
    let mut told = Vec::new();
    eventually(|| {
        let (busy, open) = std::mem::take(&mut uploads)
            .into_iter()
            .partition(Client::has_answer);
        told.extend::<Vec<Client>>(busy);
        uploads = open;
        uploads.len() <= FIT
    });
    assert!(
        (1..=FIT).contains(&uploads.len()),
        "{} are being sent",
        uploads.len()
    );
    for client in &mut told {
        assert_busy(&client.response("POST").unwrap());
    }
    other_is_served(&gateway);
    // Memory comes back with the clients.
    drop(uploads);
    assert!(eventually(|| {
        let client = gateway.connect();
        client.send(&upload).unwrap();
        other_is_served(&gateway);
        !client.has_answer()
    }));
}

fn handshakes_with_clients_wait_their_turn(driver: Driver) {
    let origin = Origin::echoing();
    let authority = Authority::new();
    let (certificate, key) = authority.files();
    let gateway = Setup::in_front_of(driver, &origin)
        .listen_encrypted(&certificate, &key)
        .with("limits: { handshakes: 1 }\ntimeouts: { handshake: 1m }")
        .start();
    let silent = TcpStream::connect(gateway.address()).unwrap();
    let served = Arc::new(AtomicBool::new(false));
    let second = std::thread::spawn({
        let (served, address, trust) = (
            Arc::clone(&served),
            gateway.address(),
            authority.client(&VERSIONS),
        );
        move || {
            let mut client = Client::connect_encrypted(address, &trust);
            let answer = client.exchange("POST", &chat(&[]));
            served.store(true, Ordering::SeqCst);
            answer.status
        }
    });
    std::thread::sleep(Duration::from_millis(300));
    assert!(!served.load(Ordering::SeqCst), "one handshake at a time");
    drop(silent);
    assert_eq!(second.join().unwrap(), 200);
}
