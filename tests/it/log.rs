//! The access log from outside: a reader who stops reading stops nobody.

use rustix::process::Signal;

use crate::support::client::chat;
use crate::support::gateway::{Driver, Setup};
use crate::support::on_both_drivers;
use crate::support::origin::Origin;

on_both_drivers!(
    a_log_that_nobody_reads_stops_no_exchange,
    every_exchange_has_one_line_and_no_line_a_secret,
);

/// Some 1.2 MB of lines: a pipe takes 64 KiB.
const REQUESTS: usize = 3000;

fn a_log_that_nobody_reads_stops_no_exchange(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = Setup::in_front_of(driver, &origin).unread_log().start();
    let mut client = gateway.connect();
    for number in 0..REQUESTS {
        let answer = client.exchange("POST", &chat(&[]));
        assert_eq!(answer.status, 200, "request {number}");
        if number % 100 == 0 {
            origin.forget();
        }
    }
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
