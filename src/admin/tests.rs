use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::classify::Evidence;

/// A process that is said to be in some state.
struct Said {
    readiness: Readiness,
    is_alive: bool,
    has_clients: bool,
    reload: fn() -> Result<Reloaded, NotReloaded>,
    asked: AtomicUsize,
}

impl Operations for Said {
    fn is_alive(&self) -> bool {
        self.is_alive
    }
    fn readiness(&self) -> Readiness {
        self.readiness
    }
    fn metrics(&self) -> String {
        "x".repeat(8 << 20)
    }
    fn config(&self) -> String {
        "a: 1\n".to_owned()
    }
    fn explain(&self, request_id: &str) -> Option<Vec<u8>> {
        (request_id == "req_1").then(|| b"{}\n".to_vec())
    }
    fn has_clients(&self) -> bool {
        self.has_clients
    }
    fn session(&self, principal: &str, id: &str) -> Looked {
        match (principal, id) {
            ("p", "known") => Looked::Known(Classification::by(Evidence::Codex)),
            ("", "off") => Looked::Off,
            ("", "down") => Looked::Unavailable,
            ("", "token") => Looked::NoSuchToken,
            _ => Looked::Known(Classification::Unknown),
        }
    }

    fn conversations(&self, principal: &str, session: Option<&str>) -> Summed {
        match (principal, session) {
            ("", None) => Summed::NoLedger,
            ("ci", Some("c:a")) => Summed::Tree(Box::default()),
            _ => Summed::Unavailable,
        }
    }
    fn reload(&self) -> Result<Reloaded, NotReloaded> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        (self.reload)()
    }
}

fn said() -> Said {
    Said {
        readiness: Readiness::Ready,
        is_alive: true,
        has_clients: false,
        reload: || Err(NotReloaded::NoFile),
        asked: AtomicUsize::new(0),
    }
}

fn started(said: Said) -> (std::net::SocketAddr, Arc<Said>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let said = Arc::new(said);
    let operations: Arc<dyn Operations> = said.clone();
    let admin = Admin {
        listener,
        key: None,
        operations,
    };
    admin.start().unwrap();
    (address, said)
}

fn ask(address: std::net::SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn what_is_wrong_is_said_by_the_status_and_a_word() {
    let (address, _) = started(Said {
        readiness: Readiness::Stuck,
        is_alive: false,
        ..said()
    });
    let health = ask(address, "GET /healthz");
    assert!(health.starts_with("HTTP/1.1 503 ") && health.ends_with("\r\n\r\na core is stuck\n"));
    let ready = ask(address, "GET /readyz");
    assert!(
        ready.starts_with("HTTP/1.1 503 ") && ready.ends_with("\r\n\r\na core does not serve\n")
    );
}

#[test]
fn only_a_post_reloads() {
    let (address, said) = started(Said {
        reload: || Err(NotReloaded::Refused("config: a\nconfig: b".to_owned())),
        ..said()
    });
    for method in ["GET", "HEAD", "PUT", "DELETE"] {
        let answer = ask(address, &format!("{method} /admin/reload"));
        assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    }
    assert_eq!(said.asked.load(Ordering::SeqCst), 0);
    let answer = ask(address, "POST /admin/reload");
    assert!(answer.starts_with("HTTP/1.1 422 "), "{answer}");
    assert!(
        answer.contains("\"failures\":[\"config: a\",\"config: b\"]"),
        "{answer}"
    );
    let (address, _) = started(self::said());
    assert!(ask(address, "POST /admin/reload").starts_with("HTTP/1.1 409 "));
}

#[test]
fn an_answer_that_nobody_takes_keeps_nobody_waiting() {
    let (address, _) = started(said());
    // More than are heard at a time; with the six that follow fewer than are turned away, even where no
    // thread of those that were cut has ended yet.
    let many = crate::limits::ADMIN_CONNECTIONS * 3 / 2;
    let dead: Vec<_> = (0..many)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            // Eight MiB, which no socket takes at once. Refused where it was cut already.
            let _cut = write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
            stream
        })
        .collect();
    for _ in 0..3 {
        assert!(ask(address, "GET /readyz").ends_with("ready\n"));
        assert!(ask(address, "GET /metrics").ends_with('x'));
    }
    drop(dead);
}

#[test]
fn a_head_that_comes_in_pieces_is_read() {
    let (address, _) = started(said());
    let mut stream = TcpStream::connect(address).unwrap();
    for piece in [
        "GET /admin/ex",
        "plain/req_1 HTTP/1.1\r\nHo",
        "st: localhost\r\n",
        "\r\n",
    ] {
        stream.write_all(piece.as_bytes()).unwrap();
        std::thread::yield_now();
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\n{}\n"), "{answer}");
}

#[test]
fn conversations_are_asked_for_by_known_parameters_only() {
    let (address, _) = started(said());
    let long = "x".repeat(201);
    for (query, status) in [
        ("", 404),
        ("?principal=ci&conversation=a", 200),
        ("?session_key=c:a&principal=ci", 200),
        ("?conversation=b", 503),
        ("?conversation=", 400),
        ("?conversation=a%20b", 400),
        ("?conversation", 400),
        (&format!("?conversation={long}"), 400),
        ("?since=1", 400),
    ] {
        let answer = ask(address, &format!("GET /admin/conversations{query}"));
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{query}: {answer}"
        );
        assert_eq!(answer.contains("retry-after"), status == 503, "{query}");
    }
    assert!(ask(address, "POST /admin/conversations").starts_with("HTTP/1.1 405 "));
}

/// A conversation without the name of its client is another one, and its sums would all be zero.
#[test]
fn where_clients_have_names_the_one_is_needed() {
    let (address, _) = started(Said {
        has_clients: true,
        ..said()
    });
    for (asked, status) in [
        ("conversations?conversation=a", 400),
        ("conversations?session_key=c:a", 400),
        ("conversations?conversation=a&principal=ci", 200),
        ("conversations?conversation=a&principal=", 503),
        ("conversations", 400),
        ("conversations?principal=", 404),
        ("sessions/other", 400),
        ("sessions/other?principal=", 200),
        ("sessions/known?principal=p", 200),
    ] {
        let answer = ask(address, &format!("GET /admin/{asked}"));
        let begins = answer.starts_with(&format!("HTTP/1.1 {status} "));
        assert!(begins, "{asked}: {answer}");
        assert_eq!(answer.contains("principal=NAME"), status == 400, "{asked}");
    }
}

#[test]
fn a_gateway_whose_ledger_fails_is_ready_and_says_so() {
    let (address, _) = started(Said {
        readiness: Readiness::Unrecorded,
        ..said()
    });
    let ready = ask(address, "GET /readyz");
    assert!(ready.starts_with("HTTP/1.1 200 "), "{ready}");
    assert!(ready.ends_with("ready, but the ledger is not being stored\n"));
}

#[test]
fn a_session_is_shown_by_the_rule_that_identified_it_and_not_by_its_key() {
    let (address, _) = started(said());
    for (asked, status, part) in [
        (
            "known?principal=p",
            200,
            r#""evidence":"client_family.codex""#,
        ),
        ("other", 200, r#""kind":"unknown""#),
        ("off", 404, "not enabled"),
        ("token", 404, "not valid"),
        ("down", 503, "cannot be reached"),
        ("known?client=p", 400, "principal"),
        ("known?principal=p&principal=q", 400, "a value"),
        ("known?principal=a%20b", 400, "a value"),
        ("other?principal=", 200, r#""kind":"unknown""#),
        ("a%20b", 400, "a value"),
        ("", 400, "a value"),
    ] {
        let answer = ask(address, &format!("GET /admin/sessions/{asked}"));
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
        assert!(answer.contains(part), "{answer}");
    }
}
