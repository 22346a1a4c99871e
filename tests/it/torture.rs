//! Every row of `tests/data/http/http_torture.jsonl` through a running gateway.
//!
//! A request row is sent by a client, a response row by an origin; both ends are watched. After a
//! row the same connection is probed with an ordinary exchange, so that bytes left over from the
//! row cannot pass unnoticed. Failures are collected and reported together.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::Value;

use crate::support::client::{BODY, Client, Response, chat, request};
use crate::support::gateway::{Driver, Gateway, SECRET, Setup};
use crate::support::message::{PATIENCE, Stop, find, name_of, shown};
use crate::support::on_both_drivers;
use crate::support::origin::{Caller, Log, Origin, Seen, echo};

on_both_drivers!(request_rows, response_rows);

/// Gateways that share the rows; a row waits for its peer most of the time.
const LANES: usize = 4;

/// The body that both halves of the rows carry.
const ANSWER: &str = r#"{"id":"x"}"#;

/// Statuses beyond a row's own: id, status, and the rule that allows it.
const ALSO_RIGHT: &[(&str, u16, &str)] = &[(
    "cl-excess",
    408,
    "RFC 9110 §15.5.9: `garbage` without a line end is an unfinished request, which is malformed \
     only once more of it comes; the head limit ends the wait",
)];

#[derive(Clone, Debug)]
struct Row {
    id: String,
    input: Vec<u8>,
    eof_after: bool,
    expect: String,
    status: Vec<u16>,
    close: bool,
    origin: Option<Vec<Value>>,
    never: Option<String>,
    method: String,
}

impl Row {
    fn allows(&self, status: u16) -> bool {
        let mut more = ALSO_RIGHT.iter();
        self.status.contains(&status) || more.any(|(id, s, _)| *id == self.id && *s == status)
    }
}

/// Rows of each side in the file, so that a lost one is noticed.
const REQUEST_ROWS: usize = 167;
const RESPONSE_ROWS: usize = 33;

fn rows(side: &str) -> Vec<Row> {
    let text = fs::read_to_string("tests/data/http/http_torture.jsonl").unwrap();
    let parsed = text.lines().map(|l| serde_json::from_str(l).unwrap());
    parsed
        .filter(|row: &Value| row["side"] == side)
        .map(|row| Row {
            id: row["id"].as_str().unwrap().to_owned(),
            input: base64(row["input_b64"].as_str().unwrap()),
            eof_after: row["eof_after"].as_bool().unwrap(),
            expect: row["expect"].as_str().unwrap().to_owned(),
            status: serde_json::from_value(row["status"].clone()).unwrap(),
            close: row["close"].as_bool().unwrap_or(false),
            origin: row["origin"].as_array().cloned(),
            never: row["never"].as_str().map(str::to_owned),
            method: row["request_method"].as_str().unwrap_or("POST").to_owned(),
        })
        .collect()
}

/// RFC 4648 §4.
fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    let (mut held, mut bits) = (0_u32, 0);
    for c in text.bytes().filter(|c| *c != b'=') {
        let sextet = ALPHABET.iter().position(|a| *a == c).unwrap();
        held = held << 6 | u32::try_from(sextet).unwrap();
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(held >> bits & 0xFF).unwrap());
        }
    }
    bytes
}

/// Runs the rows over [`LANES`] gateways and fails with everything that went wrong.
fn run(rows: &[Row], lane: impl Fn(&[&Row]) -> Vec<String> + Sync) {
    let shares = (0..LANES).map(|n| rows.iter().skip(n).step_by(LANES).collect::<Vec<_>>());
    let failures: Vec<String> = std::thread::scope(|scope| {
        let lane = &lane;
        let lanes: Vec<_> = shares.map(|s| scope.spawn(move || lane(&s))).collect();
        lanes.into_iter().flat_map(|l| l.join().unwrap()).collect()
    });
    let count = failures.len();
    assert!(
        failures.is_empty(),
        "{count} of {} rows:\n{}",
        rows.len(),
        failures.join("\n")
    );
}

fn judged(row: &Row, judge: impl FnOnce() -> Result<(), String>) -> Option<String> {
    let start = Instant::now();
    let mut outcome = judge();
    if outcome.is_ok() && start.elapsed() >= PATIENCE {
        outcome = Err(format!("took {:?}", start.elapsed()));
    }
    let (expect, status, close) = (&row.expect, &row.status, row.close);
    let failure = |what| {
        format!(
            "{}: expect {expect} {status:?}, close {close}: {what}",
            row.id
        )
    };
    outcome.err().map(failure)
}

fn gateway(driver: Driver, origin: &Origin) -> Gateway {
    // The head limit ends rows that leave an unfinished next request behind.
    Setup::in_front_of(driver, origin)
        .with("timeouts: { head: 2s }")
        .start()
}

// ---------------------------------------------------------------------------------- request rows

fn request_rows(driver: Driver) {
    let rows = rows("request");
    assert_eq!(rows.len(), REQUEST_ROWS);
    run(&rows, |share| {
        let origin = Origin::echoing();
        let gateway = gateway(driver, &origin);
        let judge = |row: &&Row| judged(row, || request_row(row, &gateway, &origin));
        share.iter().filter_map(judge).collect()
    });
}

fn request_row(row: &Row, gateway: &Gateway, origin: &Origin) -> Result<(), String> {
    origin.forget();
    let mut client = gateway.connect();
    // A refusal may reset the connection while the rest of the row is still being sent.
    let sent = client.send(&row.input);
    if row.eof_after {
        client.wire.half_close();
    }
    let (answers, stop) = answers(row, &mut client);
    drop(client);
    barrier(gateway, origin)?;
    let statuses: Vec<u16> = answers.iter().map(|a| a.status).collect();
    let came = format!("answers {statuses:?}, then {stop:?}; sending: {sent:?}");
    origin.look(|log| {
        request_verdict(row, &answers, stop.as_ref(), log)
            .and_then(|()| never_upstream(row, &answers, log, origin))
            .map_err(|what| format!("{what}; {came}; origin saw {:#?}", log.requests))
    })
}

/// All answers, and how the connection ended; `None` if it served a probe afterwards.
fn answers(row: &Row, client: &mut Client) -> (Vec<Response>, Option<Stop>) {
    let expected = row.origin.as_ref().map_or(1, |o| o.len().max(1));
    let mut answers = Vec::new();
    loop {
        match client.response("POST") {
            Ok(answer) => answers.push(answer),
            Err(stop) => return (answers, Some(stop)),
        }
        let last = answers.last().unwrap();
        let open = !row.close && !row.eof_after && !last.closes();
        if open && answers.len() == expected {
            return match probe(client) {
                Ok(()) => (answers, None),
                Err(what) => (answers, Some(Stop::Malformed(format!("probe: {what}")))),
            };
        }
    }
}

/// One ordinary exchange on the same connection: its answer must be its own.
fn probe(client: &mut Client) -> Result<(), String> {
    let sent = client.send(&request("GET", "/v1/models?probe", &[], b""));
    sent.map_err(|e| e.to_string())?;
    let answer = client.response("GET").map_err(|stop| format!("{stop:?}"))?;
    let own = find(&answer.body, b"/v1/models?probe").is_some();
    (answer.status == 200 && own)
        .then_some(())
        .ok_or_else(|| format!("{} {}", answer.status, shown(&answer.body)))
}

/// What the row sent upstream is there, whole or broken off, once a later exchange has passed.
fn barrier(gateway: &Gateway, origin: &Origin) -> Result<(), String> {
    probe(&mut gateway.connect()).map_err(|what| format!("the exchange after it: {what}"))?;
    origin.wait("the end of every request", |log| {
        log.requests.iter().all(|r| r.end.is_some())
    });
    Ok(())
}

fn request_verdict(
    row: &Row,
    answers: &[Response],
    stop: Option<&Stop>,
    log: &Log,
) -> Result<(), String> {
    match stop {
        Some(Stop::Malformed(what)) => return Err(format!("client read {what}")),
        Some(Stop::Silent) => return Err("hangs".to_owned()),
        Some(Stop::Torn) => return Err("an answer broke off".to_owned()),
        Some(Stop::Fin | Stop::Reset) | None => {}
    }
    if row.close && stop.is_none() {
        return Err("the connection stays open".to_owned());
    }
    let seen = served(log);
    match (row.expect.as_str(), answers.first()) {
        ("incomplete", first) => {
            if first.is_some_and(|a| a.status < 400) {
                return Err("answered as if complete".to_owned());
            }
            nothing_complete(log)
        }
        (_, None) => Err("no answer".to_owned()),
        ("accept" | "either", Some(first)) if first.status == 200 => {
            let expected = match &row.origin {
                // Raw bytes beyond ASCII: refused, or passed on as they are.
                Some(list) if list.is_empty() && row.expect == "either" => {
                    return untouched_target(row, &seen);
                }
                Some(list) => list,
                None => return Err("served, though no origin may see it".to_owned()),
            };
            origin_saw(expected, &seen)?;
            afterwards(row, &answers[expected.len().min(answers.len())..])
        }
        ("accept" | "either" | "reject", Some(first)) => {
            let code = first.gateway_error();
            if !row.allows(first.status) {
                return Err(format!("status {} ({code:?})", first.status));
            }
            if answers.len() > 1 {
                return Err("more than one answer".to_owned());
            }
            if code.is_none() && first.status >= 400 {
                return Err("an error without x-lanegate-error".to_owned());
            }
            nothing_complete(log)
        }
        (other, _) => Err(format!("unknown expectation {other}")),
    }
}

/// Requests that came from the row itself.
fn served(log: &Log) -> Vec<&Seen> {
    let own = |seen: &&Seen| !seen.head.target().ends_with(b"?probe");
    log.requests.iter().filter(own).collect()
}

fn origin_saw(expected: &[Value], seen: &[&Seen]) -> Result<(), String> {
    if expected.len() != seen.len() {
        return Err(format!("{} requests at the origin", seen.len()));
    }
    for (want, got) in expected.iter().zip(seen) {
        let target = String::from_utf8_lossy(got.head.target());
        let bytes = u64::try_from(got.body_bytes).unwrap();
        let same = want["method"] == got.head.method()
            && want["target"] == *target
            && want["body_len"] == bytes
            && got.is_complete();
        if !same {
            return Err(format!("the origin should have seen {want}"));
        }
        if got.body_bytes == BODY.len() && got.body != BODY.as_bytes() {
            return Err("the body changed".to_owned());
        }
    }
    Ok(())
}

/// Answers beyond the expected ones: at most one, a refusal that the row allows.
fn afterwards(row: &Row, more: &[Response]) -> Result<(), String> {
    match more {
        [] => Ok(()),
        [refusal] if refusal.status != 200 && row.allows(refusal.status) => Ok(()),
        _ => Err("answers nobody asked for".to_owned()),
    }
}

fn untouched_target(row: &Row, seen: &[&Seen]) -> Result<(), String> {
    let sent = row.input.split(|b| *b == b' ').nth(1);
    let same = seen.len() == 1 && Some(seen[0].head.target()) == sent;
    same.then_some(())
        .ok_or_else(|| "the target changed".to_owned())
}

/// Neither a whole request nor the byte that closes the root value (architecture: verdict before
/// the body closes) may have reached the origin.
fn nothing_complete(log: &Log) -> Result<(), String> {
    for seen in served(log) {
        if seen.is_complete() {
            return Err("a whole request reached the origin".to_owned());
        }
        if find(&seen.body, BODY.as_bytes()).is_some() {
            return Err("the byte that closes the root reached the origin".to_owned());
        }
    }
    Ok(())
}

/// Fields that may never reach an origin (RFC 9110 §7.6.1; decisions G8, G9).
const NOT_UPSTREAM: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "te",
    "upgrade",
    "http2-settings",
    "expect",
    "x-hop",
    "x-router-conversation",
];

/// What holds for every row, and the row's own `never`.
fn never_upstream(
    row: &Row,
    answers: &[Response],
    log: &Log,
    origin: &Origin,
) -> Result<(), String> {
    // The strict reader refuses folds, bare CR or LF and two framings, and notes why it stopped.
    for (_, stop) in &log.ended {
        if let Stop::Malformed(what) = stop {
            return Err(format!("the origin got {what}"));
        }
    }
    for seen in &log.requests {
        let head = &seen.head;
        for name in NOT_UPSTREAM {
            if head.has(name) {
                return Err(format!("{name} reached the origin"));
            }
        }
        if head.value("host") != Some(origin.address().to_string()) {
            return Err(format!("Host is {:?}", head.values("host")));
        }
        let credential = if head.target().starts_with(b"/v1/messages") {
            (
                head.values("x-api-key"),
                vec![SECRET.to_owned()],
                "authorization",
            )
        } else {
            (
                head.values("authorization"),
                vec![format!("Bearer {SECRET}")],
                "x-api-key",
            )
        };
        if credential.0 != credential.1 || head.has(credential.2) {
            return Err("not exactly the configured credential".to_owned());
        }
        if !seen.trailers.is_empty() {
            return Err("trailers reached the origin".to_owned());
        }
    }
    let interim = answers.iter().flat_map(|a| &a.interim).count();
    match row.never.as_deref() {
        None => Ok(()),
        // 1xx answers are in `interim`; no status list allows 101.
        Some("101" | "100 first" | "a 100 to HTTP/1.0") => match interim {
            0 => Ok(()),
            _ => Err("an informational answer".to_owned()),
        },
        Some(never) if NEVER_BY_CONSTRUCTION.contains(&never) => Ok(()),
        Some(never) => Err(format!("no check for never: {never}")),
    }
}

/// `never` sentences that the checks above cover for every row: by the strict reader, the exact
/// list of requests, the list of forbidden fields, the exact credential, the probe, the deadline.
const NEVER_BY_CONSTRUCTION: &[&str] = &[
    "forwarding the bare LF upstream",
    "routing by the wrong Host",
    "treating evil.test as the upstream",
    "waiting for more bytes for ever",
    "forwarding the fold",
    "a value that holds LF",
    "checking one value and forwarding the other",
    "two length fields upstream",
    "treating the body as complete upstream",
    "forwarding the extra bytes as body",
    "reading abc as the next request",
    "a final zero chunk upstream",
    "merging the trailer into the header",
    "using or forwarding the trailer's credential",
    "X-Hop upstream",
    "an upstream call without the configured credential, or the client's key upstream",
    "an upstream call with wrong framing",
    "Keep-Alive, Proxy-Connection, Proxy-Authorization upstream",
    "Upgrade or HTTP2-Settings upstream",
];

// --------------------------------------------------------------------------------- response rows

/// What the origin answers next, and whether it then closes.
type Scripted = Arc<Mutex<Option<(Vec<u8>, bool)>>>;

fn response_rows(driver: Driver) {
    let rows = rows("response");
    assert_eq!(rows.len(), RESPONSE_ROWS);
    run(&rows, |share| {
        let scripted = Scripted::default();
        let origin = Origin::start({
            let scripted = Arc::clone(&scripted);
            move |caller| answer_scripted(caller, &scripted)
        });
        let gateway = gateway(driver, &origin);
        let judge = |row: &&Row| judged(row, || response_row(row, &gateway, &origin, &scripted));
        share.iter().filter_map(judge).collect()
    });
}

fn answer_scripted(caller: &mut Caller, scripted: &Scripted) {
    while let Some(request) = caller.request() {
        let special = scripted.lock().unwrap().take();
        let (bytes, close) = special.unwrap_or_else(|| (echo(&request), false));
        if caller.reply(&bytes).is_err() || close {
            return;
        }
    }
}

fn response_row(
    row: &Row,
    gateway: &Gateway,
    origin: &Origin,
    scripted: &Scripted,
) -> Result<(), String> {
    origin.forget();
    *scripted.lock().unwrap() = Some((row.input.clone(), row.eof_after));
    let mut client = gateway.connect();
    let asked = match row.method.as_str() {
        "HEAD" => request("HEAD", "/v1/models", &[], b""),
        _ => chat(&["x-case: first"]),
    };
    client.send(&asked).unwrap();
    let answer = client.response(&row.method);
    let answer = answer.map_err(|stop| format!("no answer: {stop:?}"))?;
    response_verdict(row, &answer).map_err(|what| format!("{what}; client got {answer:#?}"))?;

    // A second exchange, on the same connection where that is still open, gets its own answer.
    if answer.closes() {
        client = gateway.connect();
    }
    client.send(&chat(&["x-case: second"])).unwrap();
    let second = client.response("POST");
    let second = second.map_err(|stop| format!("the next exchange: {stop:?}"))?;
    if second.status != 200 || find(&second.body, br#""case":"second""#).is_none() {
        return Err(format!("the next exchange got {second:#?}"));
    }
    let used = origin.look(|log| log.requests[0].connection);
    if row.close && !row.eof_after {
        origin.wait(&format!("{}: its connection ended", row.id), |log| {
            log.has_ended(used)
        });
    }
    Ok(())
}

fn response_verdict(row: &Row, answer: &Response) -> Result<(), String> {
    let accepted = row.expect == "accept" && (row.status.is_empty() || answer.status != 502);
    if accepted {
        if answer.status != final_status(&row.input) {
            return Err(format!("status {}", answer.status));
        }
        if answer.body != expected_body(row) || !answer.end.is_clean() {
            return Err("another body".to_owned());
        }
        return fields_kept(row, answer);
    }
    if row.expect == "incomplete" && answer.status != 502 {
        let cut = !answer.end.is_clean() && ANSWER.as_bytes().starts_with(&answer.body);
        return cut
            .then_some(())
            .ok_or_else(|| "an incomplete answer looks complete".to_owned());
    }
    if answer.status != 502 || answer.gateway_error().is_none() || !answer.end.is_clean() {
        return Err("not the gateway's own 502".to_owned());
    }
    if answer.interim.len() > 8 {
        return Err("more than 8 informational answers".to_owned());
    }
    serde_json::from_slice::<Value>(&answer.body)
        .map(drop)
        .map_err(|e| format!("the 502 is no JSON: {e}"))
}

/// The first status that is not informational.
fn final_status(input: &[u8]) -> u16 {
    let text = String::from_utf8_lossy(input);
    let codes = text.split("HTTP/1.").skip(1);
    let codes = codes.map(|rest| rest[2..5].parse().unwrap());
    codes.into_iter().find(|code| *code >= 200).unwrap()
}

fn expected_body(row: &Row) -> Vec<u8> {
    if row.method == "HEAD" || matches!(final_status(&row.input), 204 | 304) {
        return Vec::new();
    }
    if find(&row.input, ANSWER.as_bytes()).is_some() {
        return ANSWER.as_bytes().to_vec();
    }
    let start = find(&row.input, b"\r\n\r\n").unwrap() + 4;
    let (head, rest) = row.input.split_at(start);
    if find(head, b"Transfer-Encoding").is_none() {
        return rest.to_vec();
    }
    // The compressed row: one chunk.
    let line = find(rest, b"\r\n").unwrap();
    let digits = std::str::from_utf8(&rest[..line]).unwrap();
    let size = usize::from_str_radix(digits, 16).unwrap();
    rest[line + 2..line + 2 + size].to_vec()
}

/// Every end-to-end field of the final head is there as it was sent, the others are not.
fn fields_kept(row: &Row, answer: &Response) -> Result<(), String> {
    let final_head = format!(" {} ", final_status(&row.input));
    let from = find(&row.input, final_head.as_bytes()).unwrap_or(0);
    let head = &row.input[from..];
    let head = &head[..find(head, b"\r\n\r\n").unwrap()];
    let got = &answer.head;
    for line in String::from_utf8_lossy(head).split("\r\n").skip(1) {
        let (name, value) = line.split_once(':').unwrap();
        let (name, value) = (name.trim_end(), value.trim());
        let framing = ["content-length", "transfer-encoding"];
        let hop = ["connection", "keep-alive", "x-hop"];
        let lower = name.to_ascii_lowercase();
        if framing.contains(&lower.as_str()) {
            continue;
        }
        let there = got.values(name).iter().any(|v| v == value)
            && got
                .field_lines()
                .iter()
                .any(|l| name_of(l) == name.as_bytes());
        if hop.contains(&lower.as_str()) && got.has(name) && lower != "connection" {
            return Err(format!("{name} downstream"));
        }
        if !hop.contains(&lower.as_str()) && !there {
            return Err(format!("{name}: {value} was lost"));
        }
    }
    match row.never.as_deref() {
        None => Ok(()),
        Some(never) if NEVER_DOWNSTREAM_BY_CONSTRUCTION.contains(&never) => Ok(()),
        Some(never) => Err(format!("no check for never: {never}")),
    }
}

/// As [`NEVER_BY_CONSTRUCTION`]: by the strict reader, the exact body, the second exchange and the
/// fields that must be there or must not.
const NEVER_DOWNSTREAM_BY_CONSTRUCTION: &[&str] = &[
    "two length fields downstream",
    "reading hello as the next answer",
    "giving the second answer to another request",
    "forwarding the space",
    "X-Hop or Keep-Alive downstream",
    "dropping Content-Encoding while keeping coded bytes",
];
