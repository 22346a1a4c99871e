//! TLS on either leg: what is relayed, which certificates are believed, and what an end means.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::relay::assert_case;
use crate::support::certificates::{Authority, Fault, VERSIONS};
use crate::support::client::{BODY, CHAT, Client, Response, chat, chunk, json_of, request};
use crate::support::gateway::{Driver, Setup};
use crate::support::message::{End, Flow, PATIENCE, Stop, settle};
use crate::support::on_both_drivers;
use crate::support::origin::{Caller, Origin, echo};

on_both_drivers!(
    requests_reach_an_encrypted_provider,
    sessions_are_resumed,
    a_provider_by_name_is_told_its_name,
    faulty_certificates_are_refused,
    a_provider_in_plain_text_is_no_tls_provider,
    a_handshake_that_never_ends_is_given_up,
    only_close_notify_ends_a_body_well,
    no_ciphertext_is_left_behind,
    idle_connections_that_were_closed_are_not_used,
    what_comes_on_an_idle_connection_decides_about_its_use,
    events_pass_both_encrypted_legs_as_they_come,
    clients_are_served_inside_tls,
    long_bodies_pass_a_slow_reader,
    an_upstream_cut_is_a_cut_inside_tls,
    a_client_that_leaves_cancels_inside_tls,
    plaintext_and_silence_on_an_encrypted_listener_are_closed,
);

const LARGE: usize = 4 << 20;

// ------------------------------------------------------------------------------------ to providers

fn requests_reach_an_encrypted_provider(driver: Driver) {
    let authority = Authority::new();
    for version in VERSIONS {
        let config = authority.leaf(None).server(&[version]);
        let origin = Origin::start_encrypted(config, Caller::echo_all);
        let gateway = Setup::in_front_of(driver, &origin)
            .encrypted(&authority.ca_file())
            .start();
        let mut client = gateway.connect();
        for number in 0..3 {
            let answer = client.exchange("POST", &chat(&[&format!("x-case: {number}")]));
            assert_case(&answer, &number.to_string());
        }
        let body = json_of(LARGE);
        let answer = client.exchange("POST", &request("POST", CHAT, &["x-case: large"], &body));
        assert_case(&answer, "large");
        origin.look(|log| {
            assert_eq!(log.connections, 1, "{version:?}");
            assert!(log.requests[..3].iter().all(|r| r.body == BODY.as_bytes()));
            assert_eq!(log.requests[3].body_bytes, LARGE);
            assert!(body.starts_with(&log.requests[3].body));
            let host = log.requests[0].head.value("host");
            assert_eq!(host, Some(origin.address().to_string()));
        });
    }
}

fn sessions_are_resumed(driver: Driver) {
    let authority = Authority::new();
    for version in VERSIONS {
        let config = authority.leaf(None).server(&[version]);
        let origin = Origin::start_encrypted(config, |caller| {
            let Some(request) = caller.request() else {
                return;
            };
            let resumed = caller.wire.was_resumed();
            caller.note(if resumed { "resumed" } else { "full" });
            let answer = String::from_utf8(echo(&request)).unwrap();
            let answer = answer.replacen("\r\n", "\r\nConnection: close\r\n", 1);
            caller.reply(answer.as_bytes()).unwrap();
            caller.wire.half_close();
        });
        let gateway = Setup::in_front_of(driver, &origin)
            .encrypted(&authority.ca_file())
            .start();
        for number in 0..3 {
            let answer = gateway
                .connect()
                .exchange("POST", &chat(&[&format!("x-case: {number}")]));
            assert_case(&answer, &number.to_string());
        }
        origin.look(|log| assert_eq!(log.notes, ["full", "resumed", "resumed"], "{version:?}"));
    }
}

fn a_provider_by_name_is_told_its_name(driver: Driver) {
    let authority = Authority::new();
    let origin = Origin::start_encrypted(authority.server(), Caller::echo_all);
    let gateway = Setup::in_front_of(driver, &origin)
        .encrypted(&authority.ca_file())
        .host("localhost")
        .start();
    let answer = gateway
        .connect()
        .exchange("POST", &chat(&["x-case: named"]));
    assert_case(&answer, "named");
    let host = format!("localhost:{}", origin.address().port());
    origin.look(|log| assert_eq!(log.requests[0].head.value("host"), Some(host)));
}

fn faulty_certificates_are_refused(driver: Driver) {
    let believed = Authority::new();
    let stranger = Authority::named("stranger");
    // Another key under the same name, as after a private authority was made anew.
    let namesake = Authority::new();
    for (issuer, fault, code) in [
        (
            &believed,
            Some(Fault::Expired),
            "upstream_certificate_expired",
        ),
        (
            &believed,
            Some(Fault::NotYetValid),
            "upstream_certificate_expired",
        ),
        (
            &believed,
            Some(Fault::OtherName),
            "upstream_certificate_name",
        ),
        (&stranger, None, "upstream_certificate_unknown_issuer"),
        (&namesake, None, "upstream_certificate_unknown_issuer"),
    ] {
        let config = issuer.leaf(fault).server(&VERSIONS);
        let origin = Origin::start_encrypted(config, Caller::echo_all);
        let gateway = Setup::in_front_of(driver, &origin)
            .encrypted(&believed.ca_file())
            .start();
        let mut client = gateway.connect();
        for _ in 0..2 {
            let answer = client.exchange("POST", &chat(&[]));
            assert_refused(&answer, 502, code);
        }
        origin.look(|log| assert!(log.requests.is_empty(), "{log:#?}"));
    }
}

fn assert_refused(answer: &Response, status: u16, code: &str) {
    assert_eq!(answer.status, status, "{answer:#?}");
    assert_eq!(answer.gateway_error().as_deref(), Some(code), "{answer:#?}");
    assert_eq!(answer.end, End::Complete, "{answer:#?}");
    let text = String::from_utf8(answer.body.clone()).unwrap();
    assert!(!text.contains("127.0.0.1"), "names the provider: {text}");
}

fn a_provider_in_plain_text_is_no_tls_provider(driver: Driver) {
    let authority = Authority::new();
    let origin = Origin::start(|caller| {
        caller
            .reply(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            .unwrap();
        caller.until_closed();
    });
    let gateway = Setup::in_front_of(driver, &origin)
        .encrypted(&authority.ca_file())
        .start();
    let answer = gateway.connect().exchange("POST", &chat(&[]));
    assert_refused(&answer, 502, "upstream_tls");
}

fn a_handshake_that_never_ends_is_given_up(driver: Driver) {
    let authority = Authority::new();
    let silent = Origin::start(|caller| caller.stall());
    let origin = Origin::start_encrypted(authority.server(), Caller::echo_all);
    let gateway = Setup::in_front_of(driver, &silent)
        .anthropic(&origin)
        .encrypted(&authority.ca_file())
        .with("timeouts: { handshake: 2s }")
        .start();
    let mut stuck = gateway.connect();
    stuck.send(&chat(&[])).unwrap();
    silent.wait("a connection", |log| log.connections == 1);
    // Served while the other still waits, or the silent provider would come first.
    let mut other = gateway.connect();
    for _ in 0..5 {
        let asked = request("POST", "/v1/messages", &[], BODY.as_bytes());
        assert_eq!(other.exchange("POST", &asked).status, 200);
    }
    assert_refused(
        &stuck.response("POST").unwrap(),
        504,
        "upstream_handshake_timeout",
    );
}

fn only_close_notify_ends_a_body_well(driver: Driver) {
    let authority = Authority::new();
    let origin = Origin::start_encrypted(authority.server(), |caller| {
        let Some(request) = caller.request() else {
            return;
        };
        caller.reply(b"HTTP/1.1 200 OK\r\n\r\nsome").unwrap();
        if request.case() == "meant" {
            caller.wire.half_close();
            caller.until_closed();
        }
    });
    let gateway = Setup::in_front_of(driver, &origin)
        .encrypted(&authority.ca_file())
        .start();
    let asks = |case: &str| {
        let asked = chat(&[&format!("x-case: {case}")]);
        let answer = gateway.connect().exchange("POST", &asked);
        assert_eq!((answer.status, &answer.body[..]), (200, &b"some"[..]));
        answer.end
    };
    assert_eq!(asks("meant"), End::Complete);
    let end = asks("cut");
    assert!(
        matches!(end, End::Cut(Stop::Torn | Stop::Reset)),
        "taken for whole: {end:?}"
    );
}

/// Whatever length fills the buffers of the socket to the brim, the last bytes come too. Each body goes
/// out in one write, and the lengths are closer to each other than what may wait in the gateway.
fn no_ciphertext_is_left_behind(driver: Driver) {
    const STEP: usize = 48 << 10;
    let authority = Authority::new();
    let origin = Origin::start_encrypted(authority.server(), |caller| {
        // So that the brim is within the lengths below.
        let socket = socket2::SockRef::from(caller.wire.stream());
        socket.set_recv_buffer_size(64 << 10).unwrap();
        while let Some(mut request) = caller.head() {
            std::thread::sleep(Duration::from_millis(20));
            if caller.finish(&mut request) != End::Complete {
                return;
            }
            caller.reply(&echo(&request)).unwrap();
        }
    });
    let gateway = Setup::in_front_of(driver, &origin)
        .encrypted(&authority.ca_file())
        .with("limits: { window_bytes: 8MiB, memory_bytes: 1GiB }")
        .start();
    let mut client = gateway.connect();
    for step in 4..100 {
        let case = step.to_string();
        let body = json_of(step * STEP);
        let asked = request("POST", CHAT, &[&format!("x-case: {case}")], &body);
        assert_case(&client.exchange("POST", &asked), &case);
    }
}

/// The provider closes after each answer without having said so in it, with and without TLS's own
/// word for it; no client notices, and nothing is run twice.
fn idle_connections_that_were_closed_are_not_used(driver: Driver) {
    const TRIES: usize = 60;
    let authority = Authority::new();
    let origin = Origin::start_encrypted(authority.server(), |caller| {
        let Some(request) = caller.request() else {
            return;
        };
        caller.reply(&echo(&request)).unwrap();
        if caller.connection.is_multiple_of(2) {
            caller.wire.half_close();
        }
    });
    let gateway = Setup::in_front_of(driver, &origin)
        .encrypted(&authority.ca_file())
        .start();
    let mut client = gateway.connect();
    for number in 0..TRIES {
        let answer = client.exchange("POST", &chat(&[&format!("x-case: {number}")]));
        assert_case(&answer, &number.to_string());
        origin.wait("its connection closed", |log| {
            log.closed.len() == log.connections
        });
        if number % 3 == 0 {
            settle();
        }
    }
    origin.look(|log| assert_eq!(log.complete().count(), TRIES));
}

/// New keys are no words of the provider's; an answer that nobody asked for is.
fn what_comes_on_an_idle_connection_decides_about_its_use(driver: Driver) {
    let authority = Authority::new();
    let config = authority.leaf(None).server(&[VERSIONS[1]]);
    let origin = Origin::start_encrypted(config, |caller| {
        while let Some(request) = caller.request() {
            caller.reply(&echo(&request)).unwrap();
            match request.case().as_str() {
                "keys" => caller.wire.renew_keys(),
                "desync" => caller.reply(&echo(&request)).unwrap(),
                _ => {}
            }
            caller.note(&request.case());
        }
    });
    let gateway = Setup::in_front_of(driver, &origin)
        .encrypted(&authority.ca_file())
        .start();
    let mut client = gateway.connect();
    for (case, connection) in [("keys", 0), ("keys", 0), ("desync", 0), ("last", 1)] {
        let answer = client.exchange("POST", &chat(&[&format!("x-case: {case}")]));
        assert_case(&answer, case);
        origin.wait("what it sends afterwards", |log| {
            log.notes.len() == log.requests.len()
        });
        settle();
        let used = origin.look(|log| log.requests.last().map(|seen| seen.connection));
        assert_eq!(used, Some(connection), "{case}");
    }
}

// ------------------------------------------------------------------------------------ from clients

/// A gateway inside TLS in front of an encrypted origin.
fn encrypted_setup(driver: Driver, origin: &Origin, authority: &Authority) -> Setup {
    let (certificate, key) = authority.files();
    Setup::in_front_of(driver, origin)
        .encrypted(&authority.ca_file())
        .listen_encrypted(&certificate, &key)
}

fn events_pass_both_encrypted_legs_as_they_come(driver: Driver) {
    const EVENTS: usize = 20;
    let authority = Authority::new();
    let (confirm, confirmed) = channel::<usize>();
    let confirmed = Mutex::new(confirmed);
    let origin = Origin::start_encrypted(authority.server(), move |caller| {
        if caller.request().is_none() {
            return;
        }
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        caller.reply(head.as_bytes()).unwrap();
        let confirmed = confirmed.lock().unwrap();
        for n in 0..=EVENTS {
            let last = confirmed.recv_timeout(PATIENCE);
            assert_eq!(last, Ok(n), "what the client has seen");
            caller
                .reply(&chunk(format!("data: {n}\n\n").as_bytes()))
                .unwrap();
        }
        caller.reply(b"0\r\n\r\n").unwrap();
    });
    let gateway = encrypted_setup(driver, &origin, &authority).start();
    let mut client = Client::connect_encrypted(gateway.address(), &authority.client(&VERSIONS));
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

fn clients_are_served_inside_tls(driver: Driver) {
    let authority = Authority::new();
    let origin = Origin::start_encrypted(authority.server(), Caller::echo_all);
    let gateway = encrypted_setup(driver, &origin, &authority).start();
    let body = json_of(LARGE);
    for version in VERSIONS {
        let config = authority.client(&[version]);
        for resumes in [false, true] {
            let mut client = Client::connect_encrypted(gateway.address(), &config);
            for number in 0..3 {
                let answer = client.exchange("POST", &chat(&[&format!("x-case: {number}")]));
                assert_case(&answer, &number.to_string());
            }
            assert_eq!(client.wire.was_resumed(), resumes, "{version:?}");
            let asked = request("POST", CHAT, &["x-case: large"], &body);
            assert_case(&client.exchange("POST", &asked), "large");
            let last = chat(&["x-case: last", "Connection: close"]);
            assert_case(&client.exchange("POST", &last), "last");
            // With close_notify: the strict reader calls anything else torn.
            assert_eq!(client.wire.ending(), Stop::Fin);
        }
    }
    origin.look(|log| {
        let large = log.requests.iter().filter(|r| r.body_bytes == LARGE);
        assert_eq!(large.count(), 4);
    });
}

/// More than all buffers on the way hold, both ways, and the reader starts late.
fn long_bodies_pass_a_slow_reader(driver: Driver) {
    const BYTES: usize = 16 << 20;
    let authority = Authority::new();
    let byte = |at: usize| b'a' + u8::try_from(at % 23).unwrap();
    let origin = Origin::start_encrypted(authority.server(), move |caller| {
        if caller.request().is_none() {
            return;
        }
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n");
        let body: Vec<u8> = (0..BYTES).map(byte).collect();
        caller.reply(&[head.as_bytes(), &body].concat()).unwrap();
        caller.note("sent");
    });
    let gateway = encrypted_setup(driver, &origin, &authority).start();
    let mut client = Client::connect_encrypted(gateway.address(), &authority.client(&VERSIONS));
    client.send(&chat(&[])).unwrap();
    settle();
    let answer = client.response("POST").unwrap();
    assert_eq!(
        (answer.status, answer.body.len(), answer.end),
        (200, BYTES, End::Complete)
    );
    assert!(answer.body.iter().enumerate().all(|(at, b)| *b == byte(at)));
}

fn an_upstream_cut_is_a_cut_inside_tls(driver: Driver) {
    let authority = Authority::new();
    let origin = Origin::start_encrypted(authority.server(), |caller| {
        if let Some(request) = caller.request() {
            let framing = match request.case().as_str() {
                "length" => "Content-Length: 9\r\n",
                _ => "",
            };
            let answer = format!("HTTP/1.1 200 OK\r\n{framing}\r\nsome");
            caller.reply(answer.as_bytes()).unwrap();
        }
    });
    let gateway = encrypted_setup(driver, &origin, &authority).start();
    let config = authority.client(&VERSIONS);
    for (case, version) in [("length", "1.1"), ("close", "1.1"), ("close", "1.0")] {
        let mut client = Client::connect_encrypted(gateway.address(), &config);
        let asked = String::from_utf8(chat(&[&format!("x-case: {case}")])).unwrap();
        let asked = asked.replacen("HTTP/1.1", &format!("HTTP/{version}"), 1);
        let answer = client.exchange("POST", asked.as_bytes());
        assert_eq!(answer.status, 200, "{answer:#?}");
        assert!(
            matches!(answer.end, End::Cut(Stop::Torn | Stop::Reset)),
            "{case} {version}: {answer:#?}"
        );
    }
}

/// Before the answer and inside it, with and without TLS's own word for it.
fn a_client_that_leaves_cancels_inside_tls(driver: Driver) {
    let authority = Authority::new();
    let origin = Origin::start_encrypted(authority.server(), |caller| {
        let Some(request) = caller.request() else {
            return;
        };
        if request.case() == "inside" {
            caller
                .reply(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nsome")
                .unwrap();
        }
        caller.note("asked");
        caller.until_closed();
    });
    let gateway = encrypted_setup(driver, &origin, &authority).start();
    let config = authority.client(&VERSIONS);
    let ways = [
        ("before", false),
        ("before", true),
        ("inside", false),
        ("inside", true),
    ];
    for (number, (case, notifies)) in ways.into_iter().enumerate() {
        let mut client = Client::connect_encrypted(gateway.address(), &config);
        client.send(&chat(&[&format!("x-case: {case}")])).unwrap();
        if case == "inside" {
            client.heads().unwrap();
        }
        origin.wait("the request", |log| log.notes.len() > number);
        if notifies {
            client.wire.half_close();
        } else {
            drop(client);
        }
        origin.wait("the end", |log| log.has_ended(number));
    }
}

fn plaintext_and_silence_on_an_encrypted_listener_are_closed(driver: Driver) {
    let authority = Authority::new();
    let origin = Origin::start_encrypted(authority.server(), Caller::echo_all);
    let gateway = encrypted_setup(driver, &origin, &authority)
        .with("timeouts: { handshake: 500ms }")
        .start();
    for opening in [&chat(&[])[..], b""] {
        let mut stream = TcpStream::connect(gateway.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(opening).unwrap();
        let mut came = Vec::new();
        // A reset is an end too: the request in plain text was not read to its end.
        if let Err(error) = stream.read_to_end(&mut came) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
        // At most one alert (RFC 8446 §6), which is 7 bytes in plain text.
        assert!(came.len() <= 7 && !came.starts_with(b"HTTP"), "{came:?}");
    }
    origin.look(|log| assert_eq!(log.connections, 0));
    let config = authority.client(&VERSIONS);
    let mut client = Client::connect_encrypted(gateway.address(), &config);
    assert_case(&client.exchange("POST", &chat(&["x-case: good"])), "good");
}
