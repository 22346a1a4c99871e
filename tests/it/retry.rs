//! Stale keep-alive connections: an origin that closes an idle connection just before its next use
//! costs the client nothing, and no request is ever run twice.
//!
//! The gateway may send a request again only while nothing shows that the first try was received
//! (architecture section 3, Retry). The origin therefore closes before the request is sent; the
//! tests tell it apart from an origin that has read something, where 502 is the right answer.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::client::{CHAT, Response, json_of, request};
use crate::support::gateway::{Driver, Setup};
use crate::support::message::settle;
use crate::support::on_both_drivers;
use crate::support::origin::{Caller, Incoming, Log, Origin, echo};

on_both_drivers!(
    stale_connections_with_small_bodies,
    stale_connections_with_large_bodies,
    close_that_races_with_the_request,
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

/// A close that may fall before, into or after the sending of the request: an error is right only
/// as the gateway's own 502, and nothing is ever run twice.
fn close_that_races_with_the_request(driver: Driver) {
    const TRIES: usize = 200;
    let origin = Origin::start(|caller| {
        let Some(request) = caller.request() else {
            return;
        };
        caller.reply(&echo(&request)).unwrap();
        let number: u64 = request.case().parse().unwrap();
        std::thread::sleep(Duration::from_micros(number * 7 % 400));
    });
    let gateway = Setup::in_front_of(driver, &origin).start();
    let body = json_of(SMALL);
    let mut served = 0;
    for number in 0..TRIES {
        let mut client = gateway.connect();
        let answer = client.exchange("POST", &post(&number.to_string(), &body));
        match answer.status {
            200 => served += 1,
            _ => assert_own_502(&answer),
        }
    }
    let runs = origin.look(runs);
    assert!(runs.values().all(|count| *count == 1), "{runs:?}");
    assert!(served >= TRIES / 2, "only {served} of {TRIES} served");
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
