//! Stale keep-alive connections: an origin that closes an idle connection just before its next use
//! costs the client nothing, and no request is ever run twice.
//!
//! The gateway may send a request again only while nothing shows that the first try was received
//! (architecture section 3, Retry). The origin therefore closes before the request is sent; the
//! tests tell it apart from an origin that has read something, where 502 is the right answer.

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::client::{CHAT, Response, json_of, request};
use crate::support::gateway::{Driver, Setup};
use crate::support::message::{eventually, settle};
use crate::support::on_both_drivers;
use crate::support::origin::{Caller, Incoming, Log, Origin, echo};

on_both_drivers!(
    stale_connections_with_small_bodies,
    stale_connections_with_large_bodies,
    races_with_small_bodies,
    races_with_large_bodies,
    a_request_that_was_read_is_not_sent_again,
    a_body_that_was_partly_read_is_not_sent_again,
    a_begun_answer_is_not_asked_for_again,
    a_fresh_connection_is_not_retried,
);

const SMALL: usize = 1 << 10;
const LARGE: usize = 4 << 20;

/// How the origin closes the idle connection before the next request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Close {
    /// The gateway has had time to notice.
    FinSeen,
    /// The FIN is there, and so is the next request.
    FinUnseen,
    Reset,
}

impl Close {
    fn of(number: usize) -> Self {
        [
            Self::FinUnseen,
            Self::Reset,
            Self::FinUnseen,
            Self::Reset,
            Self::FinSeen,
        ][number % 5]
    }
}

fn stale_connections_with_small_bodies(driver: Driver) {
    stale_connections(driver, 500, SMALL);
}

fn stale_connections_with_large_bodies(driver: Driver) {
    stale_connections(driver, 50, LARGE);
}

fn stale_connections(driver: Driver, tries: usize, body_bytes: usize) {
    let body = json_of(body_bytes);
    let origin = Origin::start({
        let body = body.clone();
        move |caller| serve_once(caller, &body)
    });
    let gateway = Setup::in_front_of(driver, &origin).start();
    let mut client = gateway.connect();
    for number in 0..tries {
        let asked = post(&number.to_string(), &body);
        let answer = client.exchange("POST", &asked);
        assert_eq!(answer.status, 200, "try {number}: {answer:#?}");
        assert!(!answer.closes(), "try {number}: {answer:#?}");
        origin.wait("its connection closed", |log| {
            log.closed.len() == log.connections
        });
        if Close::of(number) == Close::FinSeen {
            settle();
        }
    }
    let runs = origin.look(runs);
    assert_eq!(runs.len(), tries);
    let repeated: Vec<_> = runs.iter().filter(|(_, count)| **count != 1).collect();
    assert!(repeated.is_empty(), "runs: {repeated:?}");
}

/// One request a connection, then a close without `Connection: close`.
fn serve_once(caller: &mut Caller, body: &[u8]) {
    let Some(request) = caller.request() else {
        return;
    };
    assert_eq!(request.body, body);
    caller.reply(&echo(&request)).unwrap();
    if Close::of(request.case().parse().unwrap()) == Close::Reset {
        // A reset that overtakes the answer would be the origin's own fault.
        std::thread::sleep(Duration::from_millis(1));
        caller.reset_at_end();
    }
}

/// Whole requests at the origin, by case.
fn runs(log: &Log) -> BTreeMap<String, usize> {
    let mut runs = BTreeMap::new();
    for request in log.complete() {
        let case = request.head.value("x-case").unwrap();
        *runs.entry(case).or_default() += 1;
    }
    runs
}

fn post(case: &str, body: &[u8]) -> Vec<u8> {
    request("POST", CHAT, &[&format!("x-case: {case}")], body)
}

fn races_with_small_bodies(driver: Driver) {
    races(driver, 400, SMALL);
}

fn races_with_large_bodies(driver: Driver) {
    races(driver, 40, LARGE);
}

/// How a race for one idle connection went, told by the origin's kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Race {
    /// Nothing of the next request had arrived: it must be sent again.
    ClosedFirst,
    /// Some of it was acknowledged: only an error is safe.
    RequestFirst,
}

/// Starts the origin's countdown for one try, and takes how it went.
#[derive(Debug, Default)]
struct Starter {
    tries_begun: AtomicUsize,
    /// By how much the close comes after the sending (or before it, if negative). It follows the
    /// moment at which requests arrive, so that closes keep falling between the gateway's last
    /// look at the connection and its write.
    offset_us: AtomicI64,
    went: Mutex<BTreeMap<usize, Race>>,
}

/// The origin closes its idle connection while the next request is on its way to it. Without the
/// retry rule, a request that came too late is an error at the client; with too much of it, a
/// request that had arrived is sent twice.
fn races(driver: Driver, tries: usize, body_bytes: usize) {
    let body = json_of(body_bytes);
    let starter = Arc::new(Starter::default());
    let origin = Origin::start({
        let starter = Arc::clone(&starter);
        move |caller| serve_then_race(caller, &starter)
    });
    let gateway = Setup::in_front_of(driver, &origin).start();
    let mut client = gateway.connect();
    let mut served = 0;
    let mut has_idle = false;
    for number in 0..tries {
        let asked = post(&number.to_string(), &body);
        starter.tries_begun.store(number, Ordering::SeqCst);
        spin_us(-starter.offset_us.load(Ordering::SeqCst));
        // An early error ends the upload; the answer is what counts.
        let sent = client.send(&asked);
        let answer = client.response("POST").unwrap();
        if answer.closes() || sent.is_err() {
            client = gateway.connect();
        }
        let went = || starter.went.lock().unwrap().get(&number).copied();
        assert!(
            !has_idle || eventually(|| went().is_some()),
            "try {number} has no race"
        );
        has_idle = answer.status == 200;
        if has_idle {
            served += 1;
        } else {
            assert_eq!(
                went(),
                Some(Race::RequestFirst),
                "try {number}: {answer:#?}"
            );
            assert_own_502(&answer);
        }
    }
    let runs = origin.look(runs);
    assert!(runs.values().all(|count| *count == 1), "{runs:?}");
    assert_eq!(runs.len(), served);
    let went = starter.went.lock().unwrap();
    let closed_first = went.values().filter(|r| **r == Race::ClosedFirst).count();
    assert!(
        closed_first >= tries / 4,
        "{closed_first} of {tries} closed first"
    );
}

fn serve_then_race(caller: &mut Caller, starter: &Starter) {
    let Some(request) = caller.request() else {
        return;
    };
    let next = request.case().parse::<usize>().unwrap() + 1;
    caller.reply(&echo(&request)).unwrap();
    if !eventually_soon(|| starter.tries_begun.load(Ordering::SeqCst) >= next) {
        return; // that was the last try
    }
    spin_us(starter.offset_us.load(Ordering::SeqCst));
    // From here on the kernel answers data with a reset; what it acknowledged before is in the
    // receive queue.
    let _reset_already = caller.wire.stream().shutdown(Shutdown::Both);
    let arrived = caller.wire.stream().peek(&mut [0]).is_ok_and(|n| n > 0);
    // Two steps back for one forward: a lost race teaches nothing about the retry.
    let (race, step) = if arrived {
        (Race::RequestFirst, -20)
    } else {
        (Race::ClosedFirst, 10)
    };
    starter.offset_us.fetch_add(step, Ordering::SeqCst);
    starter.went.lock().unwrap().insert(next, race);
}

/// Spins, because a sleep would be longer than the race.
fn spin_us(microseconds: i64) {
    let wait = Duration::from_micros(u64::try_from(microseconds).unwrap_or(0));
    let start = Instant::now();
    while start.elapsed() < wait {
        std::thread::yield_now();
    }
}

/// Spins, as [`spin_us`], until `done`.
fn eventually_soon(done: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        if done() {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

// ------------------------------------------------------------------------ what is not sent again

fn a_request_that_was_read_is_not_sent_again(driver: Driver) {
    for body_bytes in [SMALL, LARGE] {
        let log = fails_once(driver, body_bytes, |caller, mut request| {
            caller.finish(&mut request);
        });
        assert_eq!(
            log,
            vec![("warm".to_owned(), true), ("fails".to_owned(), true)]
        );
    }
}

fn a_body_that_was_partly_read_is_not_sent_again(driver: Driver) {
    for reset in [false, true] {
        let log = fails_once(driver, LARGE, move |caller, mut request| {
            caller.at_least(&mut request, LARGE / 4).unwrap();
            if reset {
                caller.reset_at_end();
            }
        });
        assert_eq!(
            log,
            vec![("warm".to_owned(), true), ("fails".to_owned(), false)]
        );
    }
}

fn a_begun_answer_is_not_asked_for_again(driver: Driver) {
    let log = fails_once(driver, SMALL, |caller, mut request| {
        caller.finish(&mut request);
        caller.reply(b"HTTP/1.1 2").unwrap();
    });
    assert_eq!(
        log,
        vec![("warm".to_owned(), true), ("fails".to_owned(), true)]
    );
}

/// Warms a connection, fails the next request on it as `fail` does, and gives the requests that the
/// origin saw, each with whether it was whole.
fn fails_once(
    driver: Driver,
    body_bytes: usize,
    fail: impl Fn(&mut Caller, Incoming) + Send + Sync + 'static,
) -> Vec<(String, bool)> {
    let origin = Origin::start(move |caller| {
        while let Some(mut request) = caller.head() {
            if request.case() == "fails" {
                return fail(caller, request);
            }
            caller.finish(&mut request);
            caller.reply(&echo(&request)).unwrap();
        }
    });
    let gateway = Setup::in_front_of(driver, &origin).start();
    let mut client = gateway.connect();
    let warm = client.exchange("POST", &post("warm", &json_of(SMALL)));
    assert_eq!(warm.status, 200, "{warm:#?}");
    // The upload may end early; the answer is what counts.
    let _sent = client.send(&post("fails", &json_of(body_bytes)));
    assert_own_502(&client.response("POST").unwrap());
    origin.look(|log| {
        let connections: Vec<_> = log.requests.iter().map(|r| r.connection).collect();
        assert_eq!(
            connections,
            vec![0, 0],
            "the second used the idle connection"
        );
        let case = |r: &crate::support::origin::Seen| r.head.value("x-case").unwrap();
        log.requests
            .iter()
            .map(|r| (case(r), r.is_complete()))
            .collect()
    })
}

fn a_fresh_connection_is_not_retried(driver: Driver) {
    let origin = Origin::start(|caller| {
        // Closed with the head read and the connection new: nothing says that it was stale.
        caller.head();
    });
    let gateway = Setup::in_front_of(driver, &origin).start();
    let mut client = gateway.connect();
    assert_own_502(&client.exchange("POST", &post("fresh", &json_of(SMALL))));
    origin.look(|log| assert_eq!(log.connections, 1));
}

fn assert_own_502(answer: &Response) {
    assert_eq!(answer.status, 502, "{answer:#?}");
    assert!(answer.gateway_error().is_some(), "{answer:#?}");
    assert!(answer.end.is_clean(), "{answer:#?}");
}
