//! The relay from outside: connections, framing, order of bytes in time, cancellation.

use serde_json::Value;

use crate::support::client::{BODY, CHAT, Response, chat, chunk, head, json_of, leave, request};
use crate::support::gateway::{Driver, Gateway, Setup};
use crate::support::message::{End, Flow, Head, PATIENCE, Stop, name_of, settle};
use crate::support::on_both_drivers;
use crate::support::origin::{Origin, echo, json};

on_both_drivers!(
    keep_alive_on_both_sides,
    pipelined_requests_are_served_one_at_a_time,
    answers_without_a_body,
    informational_answers,
    expect_is_answered_here,
    http10_clients_are_answered_and_closed,
    trailers_only_for_clients_that_ask,
    fields_of_answers_are_kept,
    events_are_relayed_as_they_come,
    upstream_cut_is_a_cut,
    client_that_leaves_cancels_the_upload,
    client_that_leaves_cancels_the_answer,
    half_close_cancels_unless_tolerated,
);

// ------------------------------------------------------------------------ connections and framing

fn keep_alive_on_both_sides(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = Setup::in_front_of(driver, &origin).start();
    let mut client = gateway.connect();
    let fields = ["x-case: chunked", "Transfer-Encoding: chunked"];
    let opening = head("POST", CHAT, &fields) + "\r\n";
    for n in 0..5 {
        let answer = client.exchange("POST", &chat(&[&format!("x-case: {n}")]));
        assert_case(&answer, &n.to_string());
        let as_chunks = [
            opening.as_bytes(),
            &chunk(&BODY.as_bytes()[..20]),
            &chunk(&BODY.as_bytes()[20..]),
            b"0\r\n\r\n",
        ];
        let answer = client.exchange("POST", &as_chunks.concat());
        assert_case(&answer, "chunked");
    }
    origin.look(|log| {
        assert_eq!(
            log.connections, 1,
            "one client at a time needs one connection"
        );
        assert!(log.requests.iter().all(|r| r.body == BODY.as_bytes()));
    });
    let answer = client.exchange("POST", &chat(&["Connection: close", "x-case: last"]));
    assert_case(&answer, "last");
    assert_eq!(client.wire.ending(), Stop::Fin);
}

pub(crate) fn assert_case(answer: &Response, case: &str) {
    assert_eq!(
        (answer.status, &answer.end),
        (200, &End::Complete),
        "{answer:#?}"
    );
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(body["case"], case, "{answer:#?}");
}

fn pipelined_requests_are_served_one_at_a_time(driver: Driver) {
    let origin = Origin::start(|caller| {
        while let Some(request) = caller.request() {
            caller.note(&format!("in {}", request.case()));
            settle();
            caller.note(&format!("out {}", request.case()));
            if caller.reply(&echo(&request)).is_err() {
                return;
            }
        }
    });
    let gateway = Setup::in_front_of(driver, &origin).start();
    let mut client = gateway.connect();
    let cases = ["a", "b", "c"];
    let all = cases.map(|case| chat(&[&format!("x-case: {case}")]));
    client.send(&all.concat()).unwrap();
    for case in cases {
        assert_case(&client.response("POST").unwrap(), case);
    }
    origin.look(|log| {
        assert_eq!(
            log.notes,
            ["in a", "out a", "in b", "out b", "in c", "out c"]
        )
    });
}

fn answers_without_a_body(driver: Driver) {
    let origin = Origin::start(|caller| {
        while let Some(request) = caller.request() {
            let answer = match request.case().as_str() {
                "head" => "HTTP/1.1 200 OK\r\nContent-Length: 100\r\nX-A: b\r\n\r\n",
                "204" => "HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n",
                "304" => "HTTP/1.1 304 Not Modified\r\nETag: \"e\"\r\nX-A: b\r\n\r\n",
                "empty" => "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-A: b\r\n\r\n",
                _ => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n0\r\n\r\n",
            };
            if caller.reply(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    let gateway = Setup::in_front_of(driver, &origin).start();
    let mut client = gateway.connect();
    let cases = [
        ("HEAD", "head"),
        ("GET", "204"),
        ("GET", "304"),
        ("GET", "empty"),
        ("GET", "none"),
    ];
    for (method, case) in cases {
        let asked = request(method, "/v1/models", &[&format!("x-case: {case}")], b"");
        let answer = client.exchange(method, &asked);
        assert!(
            answer.body.is_empty() && answer.end == End::Complete,
            "{answer:#?}"
        );
        assert!(!answer.closes(), "{answer:#?}");
        assert_eq!(answer.head.value("X-A").as_deref(), Some("b"));
        let length = answer.head.value("content-length");
        match case {
            "head" => assert_eq!(length.as_deref(), Some("100")),
            // RFC 9110 §8.6 forbids it, RFC 9112 §6.1 the coding.
            "204" => assert!(length.is_none() && !answer.head.has("transfer-encoding")),
            _ => {}
        }
    }
    origin.look(|log| assert_eq!(log.connections, 1));
}

fn informational_answers(driver: Driver) {
    let origin = Origin::start(|caller| {
        while let Some(request) = caller.request() {
            let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
            if caller.reply(hints.repeat(2).as_bytes()).is_err() {
                return;
            }
            // The gateway may end the connection of a client that went away.
            let _sent = caller.reply(&echo(&request));
        }
    });
    let gateway = Setup::in_front_of(driver, &origin).start();
    let mut client = gateway.connect();
    let answer = client.exchange("POST", &chat(&["x-case: new"]));
    assert_case(&answer, "new");
    let passed: Vec<_> = answer.interim.iter().map(Head::status).collect();
    assert_eq!(passed, [Ok(103), Ok(103)]);
    assert_eq!(answer.interim[0].value("link").as_deref(), Some("</a>"));

    let mut old = gateway.connect();
    let asked = String::from_utf8(chat(&["x-case: old"])).unwrap();
    let answer = old.exchange("POST", asked.replace("HTTP/1.1", "HTTP/1.0").as_bytes());
    assert!(
        answer.interim.is_empty(),
        "none to HTTP/1.0 (RFC 9110 §15.2): {answer:#?}"
    );
    assert_eq!(answer.status, 200);
}

fn expect_is_answered_here(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = Setup::in_front_of(driver, &origin)
        .with("limits: { body_bytes: 1MiB }")
        .start();
    let opening = |bytes: usize| {
        let length = format!("Content-Length: {bytes}");
        let fields = ["Expect: 100-continue", "x-case: expect", &length];
        head("POST", CHAT, &fields) + "\r\n"
    };
    let mut client = gateway.connect();
    for _ in 0..2 {
        client.send(opening(BODY.len()).as_bytes()).unwrap();
        assert_eq!(client.wire.head().unwrap().status(), Ok(100));
        client.send(BODY.as_bytes()).unwrap();
        let answer = client.response("POST").unwrap();
        assert_case(&answer, "expect");
        assert!(answer.interim.is_empty(), "{answer:#?}");
    }
    origin.look(|log| assert!(log.requests.iter().all(|r| !r.head.has("expect"))));
    client.send(opening(2 << 20).as_bytes()).unwrap();
    let answer = client.response("POST").unwrap();
    assert_eq!(
        (answer.status, answer.interim.len()),
        (413, 0),
        "{answer:#?}"
    );
    origin.look(|log| assert_eq!(log.requests.len(), 2));
}

fn http10_clients_are_answered_and_closed(driver: Driver) {
    let origin = Origin::start(|caller| {
        while let Some(request) = caller.request() {
            let answer = if request.case() == "chunked" {
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
                    .to_vec()
            } else {
                json(200, "abcde")
            };
            if caller.reply(&answer).is_err() {
                return;
            }
        }
    });
    let gateway = Setup::in_front_of(driver, &origin).start();
    for (case, connection) in [
        ("chunked", "close"),
        ("chunked", "keep-alive"),
        ("length", "close"),
        ("length", "keep-alive"),
    ] {
        let mut client = gateway.connect();
        let fields = [
            format!("x-case: {case}"),
            format!("Connection: {connection}"),
        ];
        let asked = chat(&[&fields[0], &fields[1]]);
        let asked = String::from_utf8(asked).unwrap();
        let answer = client.exchange("POST", asked.replace("HTTP/1.1", "HTTP/1.0").as_bytes());
        assert_eq!(answer.body, b"abcde", "{answer:#?}");
        assert!(!answer.head.has("transfer-encoding"), "{answer:#?}");
        assert!(answer.end.is_clean());
        assert_eq!(client.wire.ending(), Stop::Fin);
    }
    // A client that does not know chunks is no reason to lose the upstream connection.
    origin.look(|log| assert_eq!(log.connections, 1));
}

fn trailers_only_for_clients_that_ask(driver: Driver) {
    let origin = Origin::start(|caller| {
        while let Some(_request) = caller.request() {
            let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n\
                          3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n";
            if caller.reply(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    let gateway = Setup::in_front_of(driver, &origin).start();
    let mut client = gateway.connect();
    for (fields, expected) in [
        (
            &["TE: trailers", "Connection: TE"][..],
            vec![b"X-T: 1".to_vec()],
        ),
        (&[][..], Vec::new()),
    ] {
        let answer = client.exchange("POST", &chat(fields));
        assert_eq!(
            (answer.body.as_slice(), &answer.end),
            (&b"abc"[..], &End::Complete)
        );
        assert_eq!(answer.trailers, expected, "with {fields:?}");
    }
    // Those of a request are read, bounded and dropped.
    let opening = head("POST", CHAT, &["Transfer-Encoding: chunked"]) + "\r\n";
    let body = [
        opening.as_bytes(),
        &chunk(BODY.as_bytes()),
        b"0\r\nX-T: 1\r\n\r\n",
    ];
    assert_eq!(client.exchange("POST", &body.concat()).status, 200);
    origin.look(|log| assert!(log.requests.iter().all(|r| r.trailers.is_empty())));
}

fn fields_of_answers_are_kept(driver: Driver) {
    let kept = [
        "X-Zeta: 1",
        "content-TYPE: text/event-stream",
        "Set-Cookie: a=1",
        "x_under_score: caf\u{e9}",
        "Set-Cookie: b=2",
        "X-Empty:",
        "X-Close:no space",
        "X-Wide:\t  white space",
        "Date: Mon, 30 Nov 2026 10:00:00 GMT",
        "x-ratelimit-remaining: 5",
    ];
    let origin = Origin::start(move |caller| {
        while let Some(_request) = caller.request() {
            let lines = kept.join("\r\n");
            let answer = format!(
                "HTTP/1.1 203 Some Reason\r\n{lines}\r\nX-Hop: 1\r\nConnection: keep-alive, X-Hop\r\n\
                 Keep-Alive: timeout=60\r\nContent-Length: 2\r\n\r\nok"
            );
            if caller.reply(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    let gateway = Setup::in_front_of(driver, &origin).start();
    let answer = gateway.connect().exchange("POST", &chat(&[]));
    let own = ["x-lanegate-request-id", "content-length", "connection"];
    let is_own = |line: &&Vec<u8>| {
        let name = String::from_utf8_lossy(name_of(line)).to_ascii_lowercase();
        own.contains(&name.as_str())
    };
    let shown = |line: &Vec<u8>| String::from_utf8_lossy(line).into_owned();
    let lines = answer.head.field_lines().iter().filter(|l| !is_own(l));
    let got: Vec<_> = lines.map(shown).collect();
    assert_eq!(got, kept, "{:?}", answer.head);
    assert_eq!(answer.head.start(), "HTTP/1.1 203 Some Reason");
    assert_eq!(answer.head.values("x-lanegate-request-id").len(), 1);
}

// ----------------------------------------------------------------------------- time and departure

/// The origin sends each event only after the client has confirmed the one before.
fn events_are_relayed_as_they_come(driver: Driver) {
    const EVENTS: usize = 20;
    let (confirm, confirmed) = std::sync::mpsc::channel::<usize>();
    let confirmed = std::sync::Mutex::new(confirmed);
    let origin = Origin::start(move |caller| {
        if caller.request().is_none() {
            return;
        }
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        caller.reply(head.as_bytes()).unwrap();
        let confirmed = confirmed.lock().unwrap();
        for n in 0..=EVENTS {
            let last = confirmed.recv_timeout(PATIENCE);
            assert_eq!(last, Ok(n), "what the client has seen");
            let event = format!("data: {n}\n\n");
            caller.reply(&chunk(event.as_bytes())).unwrap();
        }
        caller.reply(b"0\r\n\r\n").unwrap();
    });
    let gateway = Setup::in_front_of(driver, &origin).start();
    let mut client = gateway.connect();
    client.send(&chat(&[])).unwrap();
    let (_, head) = client.heads().unwrap();
    let mut flow = Flow::new(head.response_framing("POST").unwrap());
    for n in 0..=EVENTS {
        confirm.send(n).unwrap();
        let event = flow.piece(&mut client.wire).unwrap();
        assert_eq!(event, format!("data: {n}\n\n").as_bytes());
    }
    assert_eq!(flow.collect(&mut client.wire), (Vec::new(), End::Complete));
}

fn upstream_cut_is_a_cut(driver: Driver) {
    let origin = Origin::start(|caller| {
        let Some(request) = caller.request() else {
            return;
        };
        let answer = match request.case().as_str() {
            "chunked" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
            "length" => "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
            "head" => "HTTP/1.1 200 OK\r\nContent-Le",
            _ => "",
        };
        caller.reply(answer.as_bytes()).unwrap();
    });
    let gateway = Setup::in_front_of(driver, &origin).start();
    for case in ["chunked", "length"] {
        let mut client = gateway.connect();
        let answer = client.exchange("POST", &chat(&[&format!("x-case: {case}")]));
        assert_eq!(
            (answer.status, answer.body.as_slice()),
            (200, &b"ab"[..]),
            "{answer:#?}"
        );
        assert!(
            matches!(answer.end, End::Cut(Stop::Torn | Stop::Reset)),
            "{answer:#?}"
        );
    }
    for case in ["head", "nothing"] {
        let answer = gateway
            .connect()
            .exchange("POST", &chat(&[&format!("x-case: {case}")]));
        assert_eq!(answer.status, 502, "{answer:#?}");
        assert!(answer.gateway_error().is_some() && answer.end == End::Complete);
    }
}

fn client_that_leaves_cancels_the_upload(driver: Driver) {
    for reset in [false, true] {
        let origin = Origin::echoing();
        let gateway = Setup::in_front_of(driver, &origin).start();
        let client = gateway.connect();
        let opening = head("POST", CHAT, &["Content-Length: 4194304"]) + "\r\n";
        client.send(opening.as_bytes()).unwrap();
        client.send(&json_of(1 << 20)).unwrap();
        origin.wait("some of the body", |log| {
            log.requests.iter().any(|r| r.body_bytes > 0)
        });
        leave(client, reset);
        origin.wait("the end of its connection", |log| log.has_ended(0));
        origin.look(|log| assert_eq!(log.complete().count(), 0));
        still_serves(&gateway);
    }
}

fn client_that_leaves_cancels_the_answer(driver: Driver) {
    for reset in [false, true] {
        let origin = Origin::start(|caller| {
            while let Some(request) = caller.request() {
                if request.case() == "leaves" {
                    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
                    caller.reply(head.as_bytes()).unwrap();
                    caller.reply(&chunk(b"data: 1\n\n")).unwrap();
                    // Nothing more to say: only the gateway can end this.
                    return caller.until_closed();
                }
                caller.reply(&echo(&request)).unwrap();
            }
        });
        let gateway = Setup::in_front_of(driver, &origin).start();
        let mut client = gateway.connect();
        client.send(&chat(&["x-case: leaves"])).unwrap();
        let (_, head) = client.heads().unwrap();
        let mut flow = Flow::new(head.response_framing("POST").unwrap());
        assert_eq!(flow.piece(&mut client.wire).unwrap(), b"data: 1\n\n");
        leave(client, reset);
        origin.wait("the end of its connection", |log| log.has_ended(0));
        still_serves(&gateway);
    }
}

/// Decision G13: on the wire a half-close looks like a close.
fn half_close_cancels_unless_tolerated(driver: Driver) {
    for (setting, is_served) in [("cancel", false), ("tolerate", true)] {
        let origin = Origin::start(|caller| {
            let Some(request) = caller.request() else {
                return;
            };
            settle();
            // Refused when the gateway has cancelled already.
            let _sent = caller.reply(&echo(&request));
            caller.until_closed();
        });
        let setup = Setup::in_front_of(driver, &origin).half_close(setting);
        let gateway = setup.start();
        let mut client = gateway.connect();
        client.send(&chat(&["x-case: half"])).unwrap();
        origin.wait("the request", |log| log.complete().count() == 1);
        client.wire.half_close();
        let answer = client.response("POST");
        if is_served {
            assert_case(&answer.unwrap(), "half");
        } else {
            assert!(
                matches!(answer, Err(Stop::Fin | Stop::Reset)),
                "{answer:#?}"
            );
            origin.wait("the end of its connection", |log| log.has_ended(0));
        }
    }
}

pub(crate) fn still_serves(gateway: &Gateway) {
    let answer = gateway
        .connect()
        .exchange("POST", &chat(&["x-case: after"]));
    assert_case(&answer, "after");
}
