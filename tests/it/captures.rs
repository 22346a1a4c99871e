//! Requests of real clients through the gateway: what arrives at the provider is what was sent,
//! line by line and byte by byte, save the documented removals (decisions G8, G9, G14).

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::client::Client;
use crate::support::gateway::{Driver, Gateway, SECRET, Setup};
use crate::support::message::{Head, find, name_of, shown};
use crate::support::on_both_drivers;
use crate::support::origin::{Origin, Seen};

on_both_drivers!(
    arrive_unchanged_with_managed_credentials,
    arrive_unchanged_passed_through
);

/// Files in the folder, so that a lost one is noticed.
const CAPTURES: usize = 177;

/// Removed from every request; fields that `Connection` names come on top.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
];

/// The client's credential: removed on managed routes.
const CREDENTIALS: &[&str] = &["authorization", "x-api-key", "chatgpt-account-id"];

#[derive(Debug)]
pub(crate) struct Capture {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) fn captures() -> Vec<Capture> {
    let root = Path::new("tests/data/captures");
    let mut paths: Vec<PathBuf> = fs::read_dir(root)
        .unwrap()
        .map(|run| run.unwrap().path())
        .filter(|run| run.is_dir())
        .flat_map(|run| fs::read_dir(run).unwrap().map(|file| file.unwrap().path()))
        .filter(|file| file.extension().is_some_and(|e| e == "http"))
        .collect();
    paths.sort();
    assert_eq!(paths.len(), CAPTURES);
    let load = |path: &PathBuf| Capture {
        name: path.strip_prefix(root).unwrap().display().to_string(),
        bytes: fs::read(path).unwrap(),
    };
    paths.iter().map(load).collect()
}

fn arrive_unchanged_with_managed_credentials(driver: Driver) {
    replay(driver, "managed");
}

fn arrive_unchanged_passed_through(driver: Driver) {
    replay(driver, "passthrough");
}

fn replay(driver: Driver, auth: &'static str) {
    let origin = Origin::echoing();
    let gateway = Setup::in_front_of(driver, &origin)
        .workers(2)
        .auth(auth)
        .start();
    let failures: Vec<String> = captures()
        .iter()
        .filter_map(|capture| {
            let outcome = one(capture, &gateway, &origin, auth == "managed");
            outcome
                .err()
                .map(|what| format!("{}: {what}", capture.name))
        })
        .collect();
    let count = failures.len();
    assert!(
        failures.is_empty(),
        "{count} of {CAPTURES}:\n{}",
        failures.join("\n")
    );
}

fn one(capture: &Capture, gateway: &Gateway, origin: &Origin, managed: bool) -> Result<(), String> {
    origin.forget();
    let sent = Head::of(&capture.bytes);
    let mut client = gateway.connect();
    client.send(&capture.bytes).unwrap();
    let answer = client.response(&sent.method());
    let answer = answer.map_err(|stop| format!("no answer: {stop:?}"))?;
    if let Some(statuses) = answered_here(&sent) {
        let untouched = origin.look(|log| log.requests.is_empty());
        return (statuses.contains(&answer.status) && untouched)
            .then_some(())
            .ok_or_else(|| format!("not answered here: {answer:#?}"));
    }
    if answer.status != 200 {
        return Err(format!("{answer:#?}"));
    }
    if !answer.head.has("x-lanegate-request-id") {
        return Err("the answer has no x-lanegate-request-id".to_owned());
    }
    let body_at = find(&capture.bytes, b"\r\n\r\n").unwrap() + 4;
    let chunked = sent.has("transfer-encoding");
    let body = if chunked {
        dechunked(&capture.bytes)
    } else {
        capture.bytes[body_at..].to_vec()
    };
    origin.look(|log| match log.requests.as_slice() {
        [seen] => {
            if seen.body != body {
                return Err(format!("body {}", shown(&seen.body)));
            }
            same_lines(&sent, seen, origin, managed)
        }
        more => Err(format!("{} requests at the origin", more.len())),
    })
}

/// Statuses of requests that never reach a provider.
fn answered_here(sent: &Head) -> Option<&'static [u16]> {
    if sent.start() == "PRI * HTTP/2.0" {
        return Some(&[400, 505]);
    }
    if sent.method() == "HEAD" && sent.target() == b"/" {
        return Some(&[200]);
    }
    let websocket = sent.lists("upgrade", "websocket");
    (websocket && sent.target() == b"/v1/responses").then_some(&[426])
}

/// The plain body of a chunked capture, read back over a socket pair by the strict reader.
fn dechunked(message: &[u8]) -> Vec<u8> {
    let origin = Origin::echoing();
    let client = Client::connect(origin.address());
    client.send(message).unwrap();
    origin.wait("the capture", |log| log.complete().count() == 1);
    origin.look(|log| log.requests[0].body.clone())
}

fn same_lines(sent: &Head, seen: &Seen, origin: &Origin, managed: bool) -> Result<(), String> {
    let named = sent.values("connection");
    let removed = |name: &str| {
        let by_connection = named.iter().flat_map(|v| v.split(','));
        let mut by_connection = by_connection.map(|n| n.trim().to_ascii_lowercase());
        HOP_BY_HOP.contains(&name)
            || (managed && CREDENTIALS.contains(&name))
            || name.starts_with("x-router-")
            || name.starts_with("x-lanegate-")
            || name == "host"
            || by_connection.any(|n| n == name)
    };
    // Framing of a chunked request is the gateway's own: chunked again, or a length.
    let own = |name: &str| {
        name == "host"
            || (managed && CREDENTIALS.contains(&name))
            || (sent.has("transfer-encoding")
                && ["transfer-encoding", "content-length"].contains(&name))
    };
    let kept = |head: &Head, drop: &dyn Fn(&str) -> bool| -> Vec<String> {
        let lines = head.field_lines().iter().filter(|l| {
            let name = String::from_utf8_lossy(name_of(l)).to_ascii_lowercase();
            !drop(&name)
        });
        lines.map(|l| l.escape_ascii().to_string()).collect()
    };
    let (want, got) = (kept(sent, &removed), kept(&seen.head, &own));
    if want != got {
        return Err(format!("sent {want:#?}\nseen {got:#?}"));
    }
    if seen.head.start() != sent.start() {
        return Err(format!("start line {}", seen.head.start()));
    }
    if seen.head.value("host") != Some(origin.address().to_string()) {
        return Err(format!("Host is {:?}", seen.head.values("host")));
    }
    if managed && !has_only_the_managed_credential(&seen.head) {
        return Err(format!("credentials: {:?}", seen.head));
    }
    Ok(())
}

/// Bearer on the OpenAI paths, `x-api-key` on the Anthropic ones, and nothing else. `/v1/models` is
/// whose `anthropic-version` says (architecture section 11).
fn has_only_the_managed_credential(head: &Head) -> bool {
    let is_anthropic = head.target().starts_with(b"/v1/messages") || head.has("anthropic-version");
    let expected = if is_anthropic {
        ("x-api-key", SECRET.to_owned())
    } else {
        ("authorization", format!("Bearer {SECRET}"))
    };
    let count = |name: &str| head.values(name).len();
    head.value(expected.0) == Some(expected.1)
        && CREDENTIALS.iter().map(|n| count(n)).sum::<usize>() == 1
}
