//! The end of the gateway: what runs finishes or is ended where its client sees it, and nothing that
//! the kernel accepted is lost.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use crate::support::client::{Client, chat, chunk};
use crate::support::gateway::{Driver, Gateway, Setup};
use crate::support::message::{End, PATIENCE, Stop, eventually, settle};
use crate::support::on_both_drivers;
use crate::support::origin::{Caller, Origin, echo};

on_both_drivers!(
    running_streams_finish,
    what_runs_too_long_ends_visibly,
    waiting_connections_are_served_and_idle_ones_end,
    connections_made_before_the_signal_are_served,
    connections_are_accepted_within_the_grace,
    second_signal_ends_it_at_once,
);

/// An origin whose streams (`x-case: stream`) last until they are let go.
struct Held {
    origin: Origin,
    go: Arc<AtomicBool>,
}

impl Held {
    fn start() -> Self {
        let go = Arc::new(AtomicBool::new(false));
        let waits = Arc::clone(&go);
        let origin = Origin::start(move |caller| {
            while let Some(request) = caller.request() {
                match request.case().as_str() {
                    "stream" => stream(caller, &waits),
                    "silent" => caller.stall_until_ended(),
                    _ => caller.reply(&echo(&request)).unwrap(),
                }
            }
        });
        Self { origin, go }
    }

    fn let_go(&self) {
        self.go.store(true, Ordering::SeqCst);
    }
}

fn stream(caller: &Caller, go: &AtomicBool) {
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let first = [head.as_bytes(), &chunk(b"data: 1\n\n")].concat();
    caller.reply(&first).unwrap();
    let limit = PATIENCE.as_millis() / 10 * 3;
    for _ in 0..limit {
        if go.load(Ordering::SeqCst) {
            let rest = [chunk(b"data: 2\n\n"), b"0\r\n\r\n".to_vec()].concat();
            // The gateway is gone where the stream was not to last.
            let _cut_before = caller.reply(&rest);
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.let_go();
    }
}

const BOTH: &[u8] = b"data: 1\n\ndata: 2\n\n";

/// A client inside a stream.
fn inside(gateway: &Gateway) -> Client {
    let client = gateway.connect();
    client.send(&chat(&["x-case: stream"])).unwrap();
    client.wire.stream().peek(&mut [0]).unwrap();
    client
}

fn admin(gateway: &Gateway) -> SocketAddr {
    let output = gateway.output();
    let (_, after) = output.split_once("admin on ").unwrap();
    after.split_whitespace().next().unwrap().parse().unwrap()
}

fn readiness(admin: SocketAddr) -> u16 {
    let asked = format!("GET /readyz HTTP/1.1\r\nHost: {admin}\r\n\r\n");
    Client::connect(admin)
        .exchange("GET", asked.as_bytes())
        .status
}

fn is_refused(address: SocketAddr) -> bool {
    let connected = TcpStream::connect_timeout(&address, PATIENCE);
    connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

const SILENT_HEAD: &[u8] = b"HEAD /v1/files HTTP/1.1\r\nhost: a\r\nx-case: silent\r\n\r\n";

fn running_streams_finish(driver: Driver) {
    const STREAMS: usize = 200;
    let held = Held::start();
    let mut gateway = Setup::in_front_of(driver, &held.origin)
        .workers(2)
        .with("admin: { listen: \"127.0.0.1:0\" }")
        .start();
    let (address, admin) = (gateway.address(), admin(&gateway));
    let mut clients: Vec<_> = (0..STREAMS).map(|_| inside(&gateway)).collect();
    assert_eq!(readiness(admin), 200);
    gateway.tell(Signal::TERM);
    assert!(eventually(|| readiness(admin) == 503));
    gateway.said("told to stop: 200 exchanges run, with 900s to finish\n");
    assert!(eventually(|| is_refused(address)));
    assert_eq!(readiness(admin), 503);
    held.let_go();
    for client in &mut clients {
        let answer = client.response("POST").unwrap();
        assert_eq!(answer.body, BOTH);
        assert_eq!(answer.end, End::Complete);
    }
    assert_eq!(gateway.exit_status().code(), Some(0));
    let output = gateway.output();
    assert!(output.contains("lanegate: stopped: all exchanges have finished\n"));
    let lines = gateway.access_lines();
    assert_eq!(lines.len(), STREAMS);
    assert!(lines.iter().all(|line| line["end_reason"] == "complete"));
}

fn what_runs_too_long_ends_visibly(driver: Driver) {
    let held = Held::start();
    let mut gateway = Setup::in_front_of(driver, &held.origin)
        .with("timeouts: { drain: 500ms, linger: 400ms }")
        .start();
    let mut chunked = inside(&gateway);
    let mut until_close = gateway.connect();
    let old = chat(&["x-case: stream"]);
    let old = String::from_utf8(old).unwrap().replacen("1.1", "1.0", 1);
    until_close.send(old.as_bytes()).unwrap();
    until_close.wire.stream().peek(&mut [0]).unwrap();
    let mut unanswered = gateway.connect();
    unanswered.send(&chat(&["x-case: silent"])).unwrap();
    let mut unanswered_head = gateway.connect();
    unanswered_head.send(SILENT_HEAD).unwrap();
    held.origin.wait("all", |log| log.complete().count() == 4);
    gateway.tell(Signal::TERM);
    let answer = unanswered_head.response("HEAD").unwrap();
    assert_eq!((answer.status, answer.closes()), (503, true));
    assert_eq!(unanswered_head.wire.ending(), Stop::Fin);
    let answer = unanswered.response("POST").unwrap();
    assert_eq!((answer.status, answer.end.is_clean()), (503, true));
    assert_eq!(answer.gateway_error().unwrap(), "stopping");
    assert!(answer.head.has("retry-after"));
    drop(unanswered);
    let answer = chunked.response("POST").unwrap();
    assert!(matches!(answer.end, End::Cut(_)), "{answer:#?}");
    let answer = until_close.response("POST").unwrap();
    assert_eq!(answer.end, End::Cut(Stop::Reset), "{answer:#?}");
    assert_eq!(gateway.exit_status().code(), Some(0));
    let lines = gateway.access_lines();
    assert_eq!(lines.len(), 4);
    assert!(lines.iter().all(|line| line["end_reason"] == "drained"));
    let said = "lanegate: stopped: 4 exchanges were ended after 500ms\n";
    assert!(gateway.output().contains(said));
}

fn waiting_connections_are_served_and_idle_ones_end(driver: Driver) {
    let held = Held::start();
    let mut gateway = Setup::in_front_of(driver, &held.origin)
        .with("limits: { connections: 2 }")
        .start();
    let mut idle = gateway.connect();
    assert_eq!(idle.exchange("POST", &chat(&[])).status, 200);
    let mut running = inside(&gateway);
    // There is no room for these, so the kernel keeps them.
    let mut waiting: Vec<_> = (0..20).map(|_| gateway.connect()).collect();
    for client in &waiting {
        client.send(&chat(&["x-case: waiting"])).unwrap();
    }
    // Nor for these, which the gateway answers itself.
    let own = [
        ("HEAD", &b"HEAD / HTTP/1.1\r\nhost: a\r\n\r\n"[..], 200),
        ("GET", b"GET /nowhere HTTP/1.1\r\nhost: a\r\n\r\n", 404),
    ];
    let mut own = own.map(|(method, request, status)| {
        let client = gateway.connect();
        client.send(request).unwrap();
        (client, method, status)
    });
    settle();
    let has_come =
        |log: &crate::support::origin::Log| log.requests.iter().any(|seen| seen.case_is("waiting"));
    assert!(!held.origin.look(has_come));
    gateway.tell(Signal::TERM);
    assert_eq!(idle.wire.ending(), Stop::Fin);
    for client in &mut waiting {
        let answer = client.response("POST").unwrap();
        assert_eq!((answer.status, answer.closes()), (200, true));
        assert_eq!(client.wire.ending(), Stop::Fin);
    }
    for (client, method, status) in &mut own {
        let answer = client.response(method).unwrap();
        assert_eq!((answer.status, answer.closes()), (*status, true));
    }
    held.let_go();
    assert_eq!(running.response("POST").unwrap().body, BOTH);
    assert_eq!(gateway.exit_status().code(), Some(0));
}

fn connections_made_before_the_signal_are_served(driver: Driver) {
    let held = Held::start();
    let gateway = Setup::in_front_of(driver, &held.origin).workers(2).start();
    let mut clients: Vec<_> = (0..100).map(|_| gateway.connect()).collect();
    gateway.tell(Signal::INT);
    for client in &clients {
        client.send(&chat(&[])).unwrap();
    }
    for client in &mut clients {
        assert_eq!(client.response("POST").unwrap().status, 200);
    }
}

fn connections_are_accepted_within_the_grace(driver: Driver) {
    let held = Held::start();
    let mut gateway = Setup::in_front_of(driver, &held.origin)
        .with("timeouts: { grace: 2s }\nadmin: { listen: \"127.0.0.1:0\" }")
        .start();
    let (address, admin) = (gateway.address(), admin(&gateway));
    let mut running = inside(&gateway);
    gateway.tell(Signal::TERM);
    assert!(eventually(|| readiness(admin) == 503));
    assert_eq!(gateway.connect().exchange("POST", &chat(&[])).status, 200);
    gateway.said("; new connections are accepted for 2s\n");
    assert!(eventually(|| is_refused(address)));
    held.let_go();
    assert_eq!(running.response("POST").unwrap().body, BOTH);
    assert_eq!(gateway.exit_status().code(), Some(0));
}

fn second_signal_ends_it_at_once(driver: Driver) {
    let held = Held::start();
    let gateway = Setup::in_front_of(driver, &held.origin).start();
    let mut running = inside(&gateway);
    gateway.tell(Signal::TERM);
    gateway.said("told to stop: 1 exchange runs, with 900s to finish\n");
    gateway.said("stopping: 1 exchange runs, 89");
    assert_eq!(gateway.signal(Signal::INT).code(), Some(1));
    assert!(!running.response("POST").unwrap().end.is_clean());
}
