//! Answers that come before the request is whole: the provider's errors, an early success, and the
//! gateway's own 413. The client must be able to read each; whatever it sends afterwards is never
//! a request; the provider connection is never used again.

use std::net::TcpStream;

use crate::support::client::{Client, chat, chunk, head, json_of};
use crate::support::gateway::{Driver, Gateway, Setup};
use crate::support::message::{End, Flow, Stop, Wire, settle};
use crate::support::on_both_drivers;
use crate::support::origin::{Caller, Incoming, Log, Origin, Seen, echo};

on_both_drivers!(
    upstream_errors_before_the_body_ended,
    early_success_pumps_both_directions,
    own_413_is_readable,
    what_follows_a_refused_head_is_no_request,
);

const BODY_BYTES: usize = 4 << 20;
/// More than the window in which a body of unknown length is held (architecture section 3).
const PIECE: usize = 320 << 10;
const ERROR: &str = r#"{"error":{"message":"m","type":"t"}}"#;
const SMUGGLED: &str = "x-case: smuggled";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framed {
    Length,
    Chunked,
}

/// What the client does once it has sent the first piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    SendsOn,
    Pauses,
    Finishes,
}

/// How the origin treats its connection after the early answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    StaysOpen,
    SaysClose,
    ClosesAtOnce,
}

type Row = (u16, Framed, Then, Framed, Behaviour);

/// Status, framing of the answer, what the origin does then, framing of the request, the client.
const ROWS: &[Row] = &[
    (
        401,
        Framed::Length,
        Then::StaysOpen,
        Framed::Length,
        Behaviour::SendsOn,
    ),
    (
        401,
        Framed::Chunked,
        Then::StaysOpen,
        Framed::Chunked,
        Behaviour::SendsOn,
    ),
    (
        401,
        Framed::Length,
        Then::SaysClose,
        Framed::Chunked,
        Behaviour::Finishes,
    ),
    (
        401,
        Framed::Length,
        Then::StaysOpen,
        Framed::Length,
        Behaviour::Finishes,
    ),
    (
        413,
        Framed::Length,
        Then::ClosesAtOnce,
        Framed::Length,
        Behaviour::SendsOn,
    ),
    (
        413,
        Framed::Chunked,
        Then::SaysClose,
        Framed::Chunked,
        Behaviour::SendsOn,
    ),
    (
        413,
        Framed::Chunked,
        Then::StaysOpen,
        Framed::Length,
        Behaviour::Pauses,
    ),
    (
        413,
        Framed::Length,
        Then::SaysClose,
        Framed::Chunked,
        Behaviour::Pauses,
    ),
    (
        429,
        Framed::Length,
        Then::StaysOpen,
        Framed::Chunked,
        Behaviour::Pauses,
    ),
    (
        429,
        Framed::Chunked,
        Then::SaysClose,
        Framed::Length,
        Behaviour::SendsOn,
    ),
    (
        429,
        Framed::Length,
        Then::ClosesAtOnce,
        Framed::Chunked,
        Behaviour::SendsOn,
    ),
    (
        429,
        Framed::Chunked,
        Then::StaysOpen,
        Framed::Chunked,
        Behaviour::Finishes,
    ),
];

fn upstream_errors_before_the_body_ended(driver: Driver) {
    std::thread::scope(|scope| {
        let rows: Vec<_> = ROWS
            .iter()
            .map(|row| (row, scope.spawn(move || upstream_error(driver, *row))))
            .collect();
        let failed: Vec<_> = rows
            .into_iter()
            .filter_map(|(row, run)| run.join().err().map(|_| row))
            .collect();
        assert!(failed.is_empty(), "failed rows: {failed:#?}");
    });
}

fn upstream_error(driver: Driver, row: Row) {
    let (status, answer_framing, then, request_framing, behaviour) = row;
    let origin = Origin::start(move |caller| answer_early(caller, row));
    let gateway = Setup::in_front_of(driver, &origin).start();
    let mut client = gateway.connect();
    let body_bytes = if behaviour == Behaviour::Finishes {
        3 * PIECE
    } else {
        BODY_BYTES
    };
    let body = json_of(body_bytes);
    let mut opening = head("POST", "/v1/chat/completions", &["x-case: early"]);
    opening.push_str(&match request_framing {
        Framed::Length => format!("Content-Length: {body_bytes}\r\n\r\n"),
        Framed::Chunked => "Transfer-Encoding: chunked\r\n\r\n".to_owned(),
    });
    client.send(opening.as_bytes()).unwrap();
    send_piece(client.wire.stream(), request_framing, &body[..PIECE]).unwrap();
    origin.wait("the first bytes", |log| log.has_note("answered"));
    settle();
    let sender = (behaviour != Behaviour::Pauses).then(|| {
        let stream = client.wire.stream().try_clone().unwrap();
        std::thread::spawn(move || {
            for piece in body[PIECE..].chunks(PIECE) {
                send_piece(&stream, request_framing, piece)?;
            }
            match request_framing {
                Framed::Length => Ok(()),
                Framed::Chunked => Wire::new(stream).send(b"0\r\n\r\n"),
            }
        })
    });
    let response = client.response("POST").unwrap();
    assert_eq!(response.status, status, "{response:#?}");
    assert_eq!(response.body, ERROR.as_bytes(), "{response:#?}");
    assert_eq!(response.end, End::Complete, "{response:#?}");
    assert_eq!(response.head.value("Retry-After").as_deref(), Some("7"));
    assert!(
        response.gateway_error().is_none(),
        "it is the provider's error"
    );
    // Sending may have failed: the gateway reads no further than `linger`.
    let _sent = sender.map(|s| s.join().unwrap());
    nothing_follows(&mut client);
    assert_eq!(
        answer_framing == Framed::Chunked,
        response.head.has("transfer-encoding")
    );

    if then == Then::StaysOpen {
        origin.wait("the end of its connection", |log| log.has_ended(0));
    }
    let next = gateway.connect().exchange("POST", &chat(&["x-case: next"]));
    assert_eq!(next.status, 200);
    origin.look(|log| {
        assert_not_smuggled(log);
        let early = &log.requests[0];
        assert!(!early.is_complete(), "an early error ends the sending");
        let next = log
            .complete()
            .find(|r| r.head.value("x-case").as_deref() == Some("next"));
        assert_ne!(next.unwrap().connection, 0, "the connection was used again");
    });
}

fn send_piece(stream: &TcpStream, framed: Framed, piece: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    match framed {
        Framed::Length => (&mut &*stream).write_all(piece),
        Framed::Chunked => (&mut &*stream).write_all(&chunk(piece)),
    }
}

fn answer_early(caller: &mut Caller, row: Row) {
    while let Some(mut request) = caller.head() {
        if request.case() == "early" {
            return answer_before_the_end(caller, request, row);
        }
        caller.finish(&mut request);
        if caller.reply(&echo(&request)).is_err() {
            return;
        }
    }
}

fn answer_before_the_end(
    caller: &mut Caller,
    mut request: Incoming,
    (status, framed, then, ..): Row,
) {
    if caller.at_least(&mut request, 1).is_err() {
        return;
    }
    let mut answer = format!("HTTP/1.1 {status} Early\r\nRetry-After: 7\r\n");
    if then != Then::StaysOpen {
        answer.push_str("Connection: close\r\n");
    }
    answer.push_str(&match framed {
        Framed::Length => format!("Content-Length: {}\r\n\r\n{ERROR}", ERROR.len()),
        Framed::Chunked => {
            let body = String::from_utf8(chunk(ERROR.as_bytes())).unwrap();
            format!("Transfer-Encoding: chunked\r\n\r\n{body}0\r\n\r\n")
        }
    });
    caller.reply(answer.as_bytes()).unwrap();
    caller.note("answered");
    match then {
        // Unread bytes make this close a reset, which must not cost the client the answer.
        Then::ClosesAtOnce => {}
        Then::SaysClose => {
            caller.wire.half_close();
            caller.finish(&mut request);
        }
        Then::StaysOpen => {
            caller.finish(&mut request);
        }
    }
}

/// The connection ends, and what the client still sends is never a request, even where the body
/// came to its end in time.
fn nothing_follows(client: &mut Client) {
    // Refused when the gateway has closed already.
    let _refused = client.send(&chat(&[SMUGGLED]));
    let stop = client.wire.ending();
    assert!(matches!(stop, Stop::Fin | Stop::Reset), "{stop:?}");
}

fn assert_not_smuggled(log: &Log) {
    let found = log.requests.iter().find(|r| is_smuggled(r));
    assert!(found.is_none(), "parsed as a request: {found:#?}");
}

fn is_smuggled(request: &Seen) -> bool {
    request.head.value("x-case").as_deref() == Some("smuggled")
}

// --------------------------------------------------------------------------------- early success

fn early_success_pumps_both_directions(driver: Driver) {
    for framed in [Framed::Length, Framed::Chunked] {
        early_success(driver, framed);
    }
}

/// Each event is sent only after the next piece of the request arrived, and each piece only after
/// the event before it: neither direction may wait for the end of the other.
fn early_success(driver: Driver, framed: Framed) {
    let origin = Origin::start(|caller| {
        let Some(mut request) = caller.head() else {
            return;
        };
        caller.at_least(&mut request, 1).unwrap();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        caller.reply(head.as_bytes()).unwrap();
        for n in 1..=4 {
            if caller
                .at_least(&mut request, n * PIECE - PIECE / 2)
                .is_err()
            {
                return;
            }
            caller
                .reply(&chunk(format!("data: {n}\n\n").as_bytes()))
                .unwrap();
        }
        assert_eq!(caller.finish(&mut request), End::Complete);
        assert_eq!(request.body, json_of(4 * PIECE));
        caller.reply(b"0\r\n\r\n").unwrap();
        caller.until_closed();
    });
    let gateway = Setup::in_front_of(driver, &origin).start();
    let mut client = gateway.connect();
    let body = json_of(4 * PIECE);
    let mut opening = head("POST", "/v1/chat/completions", &[]);
    opening.push_str(&match framed {
        Framed::Length => format!("Content-Length: {}\r\n\r\n", body.len()),
        Framed::Chunked => "Transfer-Encoding: chunked\r\n\r\n".to_owned(),
    });
    client.send(opening.as_bytes()).unwrap();
    let mut flow = None;
    for (n, piece) in (1..).zip(body.chunks(PIECE)) {
        send_piece(client.wire.stream(), framed, piece).unwrap();
        let flow = flow.get_or_insert_with(|| {
            let (_, head) = client.heads().unwrap();
            assert_eq!(head.status().unwrap(), 200);
            Flow::new(head.response_framing("POST").unwrap())
        });
        if n < 4 {
            assert_eq!(
                flow.piece(&mut client.wire).unwrap(),
                format!("data: {n}\n\n").as_bytes()
            );
        }
    }
    if framed == Framed::Chunked {
        client.send(b"0\r\n\r\n").unwrap();
    }
    let (rest, end) = flow.unwrap().collect(&mut client.wire);
    assert_eq!((rest.as_slice(), end), (&b"data: 4\n\n"[..], End::Complete));
}

// --------------------------------------------------------------------------------------- own 413

/// A plain close after the answer loses it to a client that keeps sending; often enough to see it.
const TRIES: usize = 10;
const SMALL_PIECE: usize = 64 << 10;

fn own_413_is_readable(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = Setup::in_front_of(driver, &origin)
        .with("limits: { body_bytes: 1MiB }")
        .start();
    for _ in 0..TRIES {
        own_413_declared(&gateway);
        own_413_chunked(&gateway);
    }
    origin.look(|log| {
        assert_not_smuggled(log);
        assert_eq!(log.complete().count(), 0, "{:#?}", log.requests);
    });
}

/// The head decides; the client sends 768 KiB before it looks.
fn own_413_declared(gateway: &Gateway) {
    let mut client = gateway.connect();
    let mut opening = head("POST", "/v1/chat/completions", &[]);
    opening.push_str(&format!("Content-Length: {BODY_BYTES}\r\n\r\n"));
    client.send(opening.as_bytes()).unwrap();
    for _ in 0..12 {
        client.send(&json_of(SMALL_PIECE)).unwrap();
    }
    assert_own_413(&mut client);
}

/// The overrun is found in the body; the client sends 1.75 MiB before it looks.
fn own_413_chunked(gateway: &Gateway) {
    let mut client = gateway.connect();
    let mut opening = head("POST", "/v1/chat/completions", &[]);
    opening.push_str("Transfer-Encoding: chunked\r\n\r\n");
    client.send(opening.as_bytes()).unwrap();
    let body = json_of(28 * SMALL_PIECE);
    for piece in body.chunks(SMALL_PIECE) {
        client.send(&chunk(piece)).unwrap();
    }
    client.send(b"0\r\n\r\n").unwrap();
    assert_own_413(&mut client);
}

fn assert_own_413(client: &mut Client) {
    let response = client.response("POST").unwrap();
    assert_eq!(response.status, 413, "{response:#?}");
    assert!(response.gateway_error().is_some(), "{response:#?}");
    assert!(response.interim.is_empty(), "{response:#?}");
    assert!(
        response.closes() && response.end == End::Complete,
        "{response:#?}"
    );
    let body: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
    assert!(body["error"]["message"].is_string(), "{body}");
    nothing_follows(client);
}

fn what_follows_a_refused_head_is_no_request(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = Setup::in_front_of(driver, &origin).start();
    let refused = [
        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 0\r\n\r\n",
        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nX-A : b\r\nContent-Length: 0\r\n\r\n",
    ];
    for first in refused {
        let mut client = gateway.connect();
        client
            .send(&[first.as_bytes(), &chat(&[SMUGGLED])].concat())
            .unwrap();
        let response = client.response("POST").unwrap();
        assert_eq!(response.status, 400, "{response:#?}");
        assert!(response.closes());
        nothing_follows(&mut client);
    }
    origin.look(|log| assert!(log.requests.is_empty(), "{:#?}", log.requests));
}
