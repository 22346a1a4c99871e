//! The gateway in front of `lanegate mock`: a provider that speaks the dialects, runs model calls
//! and keeps count of them.
//!
//! `captures`, `responses` and `retry` have origins of their own, which do what no provider would;
//! here the same promises are kept with the provider that users try the gateway with.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use lanegate::mock::{Mock, Options, Recorded};
use serde_json::Value;

use crate::captures::captures;
use crate::support::client::{BODY, CHAT, Client, Response, chunk, head, request};
use crate::support::gateway::{Driver, Gateway, Setup};
use crate::support::message::{End, Head, PATIENCE, Stop, find};
use crate::support::on_both_drivers;

on_both_drivers!(
    stored_answers_arrive_byte_identical,
    cut_answers_end_as_cuts,
    captured_calls_are_run_once_with_their_bodies,
    idle_closes_never_run_a_call_twice,
    no_call_runs_without_its_last_chunk,
);

/// Above the largest capture.
const RECORD_BODY_MAX: usize = 256 << 10;

fn mock() -> Mock {
    Mock::start(Options {
        responses: Some(PathBuf::from("tests/data/responses")),
        record_body_max: RECORD_BODY_MAX,
        ..Options::default()
    })
    .unwrap()
}

fn gateway(driver: Driver, mock: &Mock) -> Gateway {
    Setup::at(driver, mock.addr()).start()
}

/// Name, path of its dialect, status and bytes of every stored answer.
fn stored() -> Vec<(String, &'static str, u16, Vec<u8>)> {
    let text = fs::read_to_string("tests/data/responses/responses.jsonl").unwrap();
    let rows = text
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).unwrap());
    rows.map(|row| {
        let file = row["file"].as_str().unwrap().to_owned();
        let path = match row["dialect"].as_str().unwrap() {
            "chat" => CHAT,
            "messages" => "/v1/messages",
            _ => "/v1/responses",
        };
        let status = row["status"].as_u64().unwrap().try_into().unwrap();
        let bytes = fs::read(format!("tests/data/responses/{file}")).unwrap();
        (file, path, status, bytes)
    })
    .collect()
}

fn scripted(path: &str, script: &str) -> Vec<u8> {
    request(
        "POST",
        path,
        &[&format!("x-mock: {script}")],
        BODY.as_bytes(),
    )
}

fn stored_answers_arrive_byte_identical(driver: Driver) {
    let mock = mock();
    let gateway = gateway(driver, &mock);
    let mut client = gateway.connect();
    for (file, path, status, bytes) in stored() {
        for how in [
            "framing=chunked",
            "framing=length",
            "framing=close",
            "piece=7",
        ] {
            let script = format!("file={file}; {how}");
            let answer = client.exchange("POST", &scripted(path, &script));
            assert_eq!(answer.status, status, "{script}: {answer:#?}");
            assert!(answer.end.is_clean(), "{script}: {answer:#?}");
            assert_eq!(answer.body, bytes, "{script}");
            if answer.closes() {
                client = gateway.connect();
            }
        }
    }
}

fn cut_answers_end_as_cuts(driver: Driver) {
    let mock = mock();
    let gateway = gateway(driver, &mock);
    for (file, path, _, bytes) in stored() {
        for at in [0, bytes.len() / 3, bytes.len().saturating_sub(1)] {
            if bytes.is_empty() {
                continue;
            }
            let script = format!("file={file}; cut={at}");
            let answer = gateway.connect().exchange("POST", &scripted(path, &script));
            assert!(
                matches!(answer.end, End::Cut(Stop::Torn | Stop::Reset)),
                "{answer:#?}"
            );
            assert_eq!(answer.body, bytes[..at], "{script}");
        }
    }
}

fn captured_calls_are_run_once_with_their_bodies(driver: Driver) {
    let mock = mock();
    let gateway = gateway(driver, &mock);
    let mut calls = 0;
    for capture in captures() {
        let sent = Head::of(&capture.bytes);
        if sent.method() != "POST" {
            continue;
        }
        mock.clear();
        let mut client = gateway.connect();
        let answer = client.exchange("POST", &capture.bytes);
        assert_eq!(answer.status, 200, "{}: {answer:#?}", capture.name);
        assert_eq!(answer.end, End::Complete, "{}", capture.name);
        let seen = mock.requests();
        let [seen] = seen.as_slice() else {
            unreachable!("{}: {} requests", capture.name, seen.len())
        };
        if !sent.has("transfer-encoding") {
            let at = find(&capture.bytes, b"\r\n\r\n").unwrap() + 4;
            assert_eq!(seen.body, capture.bytes[at..], "{}", capture.name);
        }
        let is_call = !sent.start().contains("count_tokens");
        assert_eq!(seen.executed, is_call, "{}", capture.name);
        assert_eq!(mock.executions(), u64::from(is_call), "{}", capture.name);
        calls += usize::from(is_call);
    }
    assert!(calls > 100, "only {calls} calls");
}

/// The mock closes a connection after it was idle for about as long as the client waits before the
/// next call, so that the close falls before, into and after the sending of a request.
fn idle_closes_never_run_a_call_twice(driver: Driver) {
    const TRIES: usize = 150;
    let mock = mock();
    let gateway = gateway(driver, &mock);
    let mut client = gateway.connect();
    let mut statuses = BTreeMap::new();
    for number in 0..TRIES {
        let (case, script) = (format!("x-case: {number}"), "x-mock: close=idle:3ms");
        let asked = request("POST", CHAT, &[&case, script], BODY.as_bytes());
        let answer = client.exchange("POST", &asked);
        assert!(is_own_or_served(&answer), "{answer:#?}");
        if answer.closes() {
            client = gateway.connect();
        }
        *statuses.entry(answer.status).or_insert(0) += 1;
        std::thread::sleep(Duration::from_micros(2_700 + 10 * (number as u64 % 60)));
    }
    let mut runs = BTreeMap::new();
    for seen in mock.requests().iter().filter(|r| r.executed) {
        *runs.entry(seen.header("x-case").unwrap()).or_insert(0) += 1;
    }
    assert!(
        runs.values().all(|count| *count == 1),
        "run twice: {runs:?}"
    );
    let served = statuses.get(&200).copied().unwrap_or(0);
    assert!(served >= TRIES * 9 / 10, "{statuses:?}");
}

fn is_own_or_served(answer: &Response) -> bool {
    let own_502 = answer.status == 502 && answer.gateway_error().is_some();
    answer.end.is_clean() && (answer.status == 200 || own_502)
}

/// A provider may run a call as soon as the root object closes, before the framing ends: a body
/// of unknown length within the window stays here until its last chunk is there.
fn no_call_runs_without_its_last_chunk(driver: Driver) {
    let mock = Mock::start(Options {
        script: "execute=brace".parse().unwrap(),
        ..Options::default()
    })
    .unwrap();
    let gateway = gateway(driver, &mock);
    let chunked = ["Transfer-Encoding: chunked"];
    let opening = head("POST", CHAT, &chunked) + "\r\n";
    for ending in ["", "0\r\n", "0\r\nX-T: 1\r\n"] {
        let client = gateway.connect();
        let body = [
            opening.as_bytes(),
            &chunk(BODY.as_bytes()),
            ending.as_bytes(),
        ];
        client.send(&body.concat()).unwrap();
        leave(client, &mock);
        let seen = mock.requests();
        assert_eq!(mock.executions(), 0, "after {ending:?}: {seen:#?}");
    }
}

/// Closes the client and waits until what it sent has gone wherever it goes.
fn leave(mut client: Client, mock: &Mock) {
    client.wire.half_close();
    let stop = client.wire.ending();
    assert!(!matches!(stop, Stop::Silent), "{stop:?}");
    let settled = |seen: &[Recorded]| seen.iter().all(|r| r.complete || r.peer_left);
    assert!(mock.wait_until(PATIENCE, settled), "{:#?}", mock.requests());
}
