//! The access log from outside: a reader who stops reading stops nobody.

use lanegate::limits::{LOG_BATCH_RECORDS, LOG_BATCHES, RECORDS_QUEUED};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::ledger::{operator, scrape};
use crate::support::client::{Client, chat};
use crate::support::gateway::{Driver, Setup};
use crate::support::message::eventually;
use crate::support::on_both_drivers;
use crate::support::origin::Origin;

on_both_drivers!(
    a_log_that_nobody_reads_stops_no_exchange,
    every_exchange_has_one_line_and_no_line_a_secret,
);

/// The memory of a pipe. A line takes more than 64 bytes of it.
const PIPE_BYTES: usize = 64 * 1024;

/// So many records that one finds no place for its line, however they are put together: what the pipe takes,
/// the piece that the writer has in hand, those that wait for it, and one more.
const REQUESTS_MAX: usize = PIPE_BYTES / 64 + LOG_BATCH_RECORDS * (LOG_BATCHES + 2);

/// Requests that are sent in one piece.
const PIPELINED: usize = 64;

/// Sends requests, numbered from `first`, and reads their answers, which say whose they are; the id of the last one.
fn pipelined(client: &mut Client, first: usize) -> String {
    let cases: Vec<String> = (first..first + PIPELINED)
        .map(|number| number.to_string())
        .collect();
    let requests = cases.iter().map(|case| chat(&[&format!("x-case: {case}")]));
    client.send(&requests.collect::<Vec<_>>().concat()).unwrap();
    let mut id = None;
    for case in cases {
        let answer = client.response("POST").unwrap();
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((answer.status, &body["case"]), (200, &json!(case)));
        id = answer.head.value("x-lanegate-request-id");
    }
    id.unwrap()
}

fn a_log_that_nobody_reads_stops_no_exchange(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = Setup::in_front_of(driver, &origin)
        .with("admin: { listen: \"127.0.0.1:0\" }")
        .unread_log()
        .start();
    let mut client = gateway.connect();
    let unwritten = || scrape(&gateway).count("lanegate_log_lines_unwritten_total") > 0;
    let mut sent = 0;
    while !unwritten() && sent < REQUESTS_MAX {
        for _ in 0..8 {
            pipelined(&mut client, sent);
            sent += PIPELINED;
        }
        origin.forget();
    }
    assert!(eventually(unwritten), "{sent} lines found a place");
    // More than fit into the queue between the cores and the log: it is emptied all the same.
    let mut last = String::new();
    for number in 0..=RECORDS_QUEUED / PIPELINED {
        last = pipelined(&mut client, sent + number * PIPELINED);
        origin.forget();
    }
    let explained = || operator(&gateway, &format!("/admin/explain/{last}")).0 == 200;
    assert!(eventually(explained), "the last record stays in the queue");
    // Nor does it keep the process from ending.
    assert_eq!(gateway.signal(Signal::TERM).code(), Some(0));
}

fn every_exchange_has_one_line_and_no_line_a_secret(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = Setup::in_front_of(driver, &origin).start();
    let mut client = gateway.connect();
    let fields = [
        "User-Agent: agent-word",
        "Authorization: Bearer client-word",
        "x-session-id: session-word",
    ];
    for _ in 0..20 {
        assert_eq!(client.exchange("POST", &chat(&fields)).status, 200);
    }
    let answer = client.exchange("GET", b"GET /nowhere HTTP/1.1\r\nHost: gw.test\r\n\r\n");
    assert_eq!(answer.status, 404);
    gateway.ended("rejected");
    let lines = gateway.access_lines();
    assert_eq!(lines.len(), 21);
    let ids: std::collections::HashSet<_> = lines
        .iter()
        .map(|line| line["request_id"].as_str())
        .collect();
    assert_eq!(ids.len(), 21);
    let text = gateway.output();
    for word in [
        "agent-word",
        "client-word",
        "session-word",
        "managed-secret",
        "\"hi\"",
    ] {
        assert!(!text.contains(word), "{word} in the log");
    }
}
