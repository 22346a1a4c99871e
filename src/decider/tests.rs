//! A scripted service on loopback, and what comes of each of its answers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::classify::*;
use crate::clock;
use crate::decider::{Decider, Question};
use crate::dialect::Dialect;
use crate::ledger::{Ledger, Place, Sessions, Storing};
use crate::runtime::Driver;
use crate::upstream::{self, Endpoint};

/// A variable that every process has; its value is what the service gets.
const VARIABLE: &str = "PATH";
const LIMIT: Duration = Duration::from_secs(20);

/// What the service does with one connection.
#[derive(Clone)]
enum Act {
    /// Sends these bytes and closes.
    Say(String),
    /// Sends these bytes and then nothing for a long time.
    Hang(String),
    /// Closes at once.
    Close,
}

/// A service that does one act after the other, the last one for ever. Keeps the requests that came.
struct Service {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    requests: Arc<crossbeam::queue::SegQueue<String>>,
}

impl Service {
    fn start(acts: Vec<Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::<AtomicUsize>::default();
        let requests = Arc::new(crossbeam::queue::SegQueue::new());
        let (count, kept) = (Arc::clone(&asked), Arc::clone(&requests));
        thread::spawn(move || {
            let mut held = Vec::new();
            for socket in listener.incoming() {
                let mut socket = socket.unwrap();
                let number = count.fetch_add(1, Ordering::SeqCst);
                let act = acts.get(number).or_else(|| acts.last()).unwrap().clone();
                if matches!(act, Act::Close) {
                    continue;
                }
                socket.set_read_timeout(Some(LIMIT)).unwrap();
                let mut request = Vec::new();
                let mut piece = [0; 16 * 1024];
                while !request.ends_with(b"}}}") {
                    let read = socket.read(&mut piece).unwrap();
                    assert!(read > 0);
                    request.extend_from_slice(&piece[..read]);
                }
                kept.push(String::from_utf8(request).unwrap());
                match act {
                    // Who asked may have seen enough.
                    Act::Say(text) => drop(socket.write_all(text.as_bytes())),
                    Act::Hang(text) => {
                        socket.write_all(text.as_bytes()).unwrap();
                        held.push(socket);
                    }
                    Act::Close => {}
                }
            }
        });
        Self {
            address,
            asked,
            requests,
        }
    }

    fn endpoint(&self) -> Arc<Endpoint> {
        let long = LIMIT;
        Arc::new(Endpoint::new(upstream::Settings {
            host: self.address.ip().to_string(),
            port: self.address.port(),
            authority: self.address.to_string(),
            prefix: "/v1/systemone".to_owned(),
            connect: long,
            tls: None,
            handshake: long,
            first_byte: long,
            idle: long,
            request_progress: long,
            client_write: long,
            connections: 4,
            waiting: 4,
            connection_wait: long,
            keepalive_idle: long,
        }))
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn said(status: &str, body: &str) -> Act {
    let length = body.len();
    Act::Say(format!(
        "HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}"
    ))
}

fn probability(noul: &str) -> String {
    format!(
        r#"{{"model":"m","answers":{{"is_coding_agent_session":{{"type":"noul","noul":{noul}}}}},"usage":{{}}}}"#
    )
}

fn remote() -> RemotePolicy {
    RemotePolicy {
        api_key_env: VARIABLE.into(),
        timeout: Duration::from_secs(5),
        attempts_max: 1,
        lease: Duration::from_secs(60),
        backoff: Duration::ZERO,
        threshold: Threshold::new(0.9).unwrap(),
    }
}

const INPUT: RemoteInput = RemoteInput {
    operation: Operation::Chat,
    family: None,
    ambiguous: true,
    tools: ToolSet::EMPTY,
    marked: false,
    local: None,
};

/// A gateway's parts, and the service that they ask.
struct Site {
    service: Service,
    endpoint: Arc<Endpoint>,
    sessions: Sessions,
    decider: Decider,
    ledger: Ledger,
}

impl Site {
    fn new(acts: Vec<Act>) -> Self {
        let storing = Storing {
            place: Place::Memory,
            retention: Duration::from_hours(1),
            bytes_max: 1 << 20,
            flush_interval: Duration::from_millis(10),
        };
        let ledger = Ledger::start(storing, LIMIT, 1).unwrap();
        let service = Service::start(acts);
        let sessions = ledger.sessions();
        let decider = Decider::new(Driver::Epoll, sessions.clone());
        Self {
            endpoint: service.endpoint(),
            service,
            sessions,
            decider,
            ledger,
        }
    }

    fn ask(&self, number: u8, remote: RemotePolicy) -> Key {
        let key = Key::new(Scope::ALeg, [number; 32]);
        let policy = Policy {
            mode: Mode::Jev,
            remote: Some(remote),
            ..Policy::default()
        };
        self.decider.start();
        assert!(self.decider.ask(Question {
            key,
            input: INPUT,
            policy: Arc::new(policy),
            endpoint: Arc::clone(&self.endpoint),
        }));
        key
    }

    fn count(&self, outcome: RemoteOutcome) -> u64 {
        self.decider.tally().of(outcome).unwrap().0
    }

    /// Waits until as many outcomes were counted.
    fn wait(&self, outcomes: u64) {
        let began = clock::now();
        loop {
            let seen: u64 = RemoteOutcome::ALL
                .into_iter()
                .map(|it| self.count(it))
                .sum();
            if seen >= outcomes {
                assert_eq!(seen, outcomes);
                return;
            }
            assert!(clock::now() < began + LIMIT, "{seen} of {outcomes}");
            thread::yield_now();
        }
    }

    /// What one question leads to.
    fn outcome(&self, number: u8, remote: RemotePolicy) -> (RemoteOutcome, Classification) {
        let before = RemoteOutcome::ALL.map(|it| self.count(it));
        let key = self.ask(number, remote);
        self.wait(before.iter().sum::<u64>() + 1);
        let changed = RemoteOutcome::ALL.into_iter().zip(before);
        let (outcome, _) = changed
            .into_iter()
            .find(|(it, old)| self.count(*it) > *old)
            .unwrap();
        (outcome, self.look(key))
    }

    fn look(&self, key: Key) -> Classification {
        self.sessions.look(key).unwrap().wait(LIMIT).unwrap()
    }
}

#[test]
fn row_54_an_answer_above_the_threshold_identifies_once_and_is_not_asked_for_again() {
    let site = Site::new(vec![said("200 OK", &probability("0.97"))]);
    let found = Classification::by(Evidence::AboveThreshold);
    let (outcome, known) = site.outcome(1, remote());
    assert_eq!((outcome, known), (RemoteOutcome::Positive, found));
    // A later turn that did not know it yet.
    assert_eq!(site.outcome(1, remote()), (RemoteOutcome::Positive, found));
    assert_eq!(site.service.asked(), 1);
    assert_eq!(
        site.sessions.tally().transitions(Evidence::AboveThreshold),
        1
    );
    let request = site.service.requests.pop().unwrap();
    assert!(request.starts_with("POST /v1/systemone HTTP/1.1\r\n"));
    let key = std::env::var(VARIABLE).unwrap();
    assert!(request.contains(&format!("\r\nauthorization: Bearer {key}\r\n")));
    assert!(request.ends_with(&String::from_utf8(INPUT.document().unwrap()).unwrap()));
    site.ledger.finish();
}

#[test]
fn rows_55_to_58_and_60_every_failure_has_its_outcome_and_leaves_the_session_unknown() {
    let long = " ".repeat(ANSWER_BYTES_MAX + 1);
    let fits = {
        let answer = probability("0.1");
        format!("{answer}{}", " ".repeat(ANSWER_BYTES_MAX - answer.len()))
    };
    let redirect =
        "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{";
    let cases = [
        (
            said("200 OK", &probability("0.89")),
            RemoteOutcome::BelowThreshold,
        ),
        (said("200 OK", &fits), RemoteOutcome::BelowThreshold),
        (
            said("200 OK", &probability("1.5")),
            RemoteOutcome::Malformed,
        ),
        (said("200 OK", "{}"), RemoteOutcome::Malformed),
        (said("200 OK", &long), RemoteOutcome::Malformed),
        (said("401 Unauthorized", ""), RemoteOutcome::Skipped),
        (said("403 Forbidden", ""), RemoteOutcome::Skipped),
        (
            said("422 Unprocessable Content", ""),
            RemoteOutcome::Skipped,
        ),
        (said("304 Not Modified", ""), RemoteOutcome::Skipped),
        (
            said("201 Created", &probability("1")),
            RemoteOutcome::Skipped,
        ),
        (Act::Say(redirect.to_owned()), RemoteOutcome::Skipped),
        (
            said("429 Too Many Requests", ""),
            RemoteOutcome::RateLimited,
        ),
        (
            said("500 Internal Server Error", ""),
            RemoteOutcome::ServerError,
        ),
        (said("529 Overloaded", ""), RemoteOutcome::ServerError),
        // As long as the end of the connection says.
        (
            Act::Say(format!("HTTP/1.1 200 OK\r\n\r\n{long}")),
            RemoteOutcome::Malformed,
        ),
        (
            Act::Say(format!("HTTP/1.1 200 OK\r\n\r\n{fits}")),
            RemoteOutcome::BelowThreshold,
        ),
        (Act::Say(cut.to_owned()), RemoteOutcome::NetworkError),
        (Act::Close, RemoteOutcome::NetworkError),
        (
            Act::Say("nonsense\r\n\r\n".to_owned()),
            RemoteOutcome::Malformed,
        ),
    ];
    let site = Site::new(cases.iter().map(|(act, _)| act.clone()).collect());
    for (number, (_, expected)) in cases.iter().enumerate() {
        let number = u8::try_from(number).unwrap();
        let (outcome, known) = site.outcome(number, remote());
        assert_eq!(outcome, *expected, "case {number}");
        assert_eq!(known, Classification::Unknown, "case {number}");
    }
    assert_eq!(site.service.asked(), cases.len());
    // The one attempt of each of them was used up.
    let (outcome, _) = site.outcome(0, remote());
    assert_eq!(outcome, RemoteOutcome::BudgetExhausted);
}

#[test]
fn row_60_a_slow_body_and_a_slow_head_are_timeouts() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{";
    let site = Site::new(vec![Act::Hang(head.to_owned()), Act::Hang(String::new())]);
    let short = || RemotePolicy {
        timeout: Duration::from_millis(50),
        ..remote()
    };
    for number in 0..2 {
        let (outcome, known) = site.outcome(number, short());
        assert_eq!(
            (outcome, known),
            (RemoteOutcome::Timeout, Classification::Unknown)
        );
    }
}

#[test]
fn a_failure_that_passes_is_tried_again_within_the_budget() {
    let site = Site::new(vec![
        said("503 Service Unavailable", ""),
        Act::Close,
        said("200 OK", &probability("0.9")),
    ]);
    let remote = RemotePolicy {
        attempts_max: 3,
        backoff: Duration::from_millis(1),
        ..remote()
    };
    let key = site.ask(1, remote);
    site.wait(3);
    assert_eq!(site.count(RemoteOutcome::ServerError), 1);
    assert_eq!(site.count(RemoteOutcome::NetworkError), 1);
    assert_eq!(site.count(RemoteOutcome::Positive), 1);
    assert_eq!(site.look(key), Classification::by(Evidence::AboveThreshold));
}

#[test]
fn without_a_credential_nothing_is_sent() {
    let site = Site::new(vec![said("200 OK", &probability("1"))]);
    let remote = RemotePolicy {
        api_key_env: "LANEGATE_A_VARIABLE_THAT_IS_UNSET".into(),
        ..remote()
    };
    assert_eq!(site.outcome(1, remote).0, RemoteOutcome::Skipped);
    assert_eq!(site.service.asked(), 0);
}

#[test]
fn row_61_while_the_service_hangs_the_store_answers_and_others_find_the_lease_taken() {
    let site = Site::new(vec![Act::Hang(String::new())]);
    let key = site.ask(1, remote());
    let began = clock::now();
    while site.service.asked() == 0 {
        assert!(clock::now() < began + LIMIT);
        thread::yield_now();
    }
    assert_eq!(site.look(key), Classification::Unknown);
    let (outcome, _) = site.outcome(1, remote());
    assert_eq!(outcome, RemoteOutcome::LeaseBusy);
    // Local evidence does not wait for the service either.
    assert!(site.sessions.promote(key, Evidence::CodingCluster));
    assert_eq!(site.look(key).evidence(), Some(Evidence::CodingCluster));
    assert_eq!(site.count(RemoteOutcome::Timeout), 0);
}

#[test]
fn words_and_positions_of_outcomes_agree() {
    for (position, outcome) in RemoteOutcome::ALL.into_iter().enumerate() {
        assert_eq!(outcome as usize, position);
    }
    assert_eq!(Operation::from(Dialect::Messages), Operation::Messages);
}
