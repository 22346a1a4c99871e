//! A provider that runs a request when its root object closes, whatever comes behind: it never runs
//! one that the gateway then refuses, or that its client never finished.

use std::collections::BTreeMap;
use std::sync::Mutex;

use lanegate::mock::{Mock, Options, Recorded};

use crate::support::client::{BODY, CHAT, Client, Response, chunk, head, json_of};
use crate::support::gateway::{Driver, Gateway, Setup};
use crate::support::message::{PATIENCE, Stop};
use crate::support::on_both_drivers;

on_both_drivers!(
    refused_bodies_are_never_run_where_the_model_is_read,
    refused_bodies_are_never_run_where_the_head_decides,
    a_body_left_behind_its_closing_brace_is_never_run,
);

const KIB: usize = 1024;

/// Below a window, around the block that is read at once, and far above both.
const SIZES: [usize; 5] = [KIB, 64 * KIB, 300 * KIB, 1024 * KIB, 4096 * KIB];

/// More than a window holds of it.
const TOO_MANY_SPACES: usize = 300 * KIB;

/// As many as fit behind a body in any window.
const SOME_SPACES: usize = 100 * KIB;

/// What the client does with a body that is good up to its closing brace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Good,
    GoodWithSpaces,
    Garbage,
    SecondRoot,
    RepeatedModel,
    BrokenChunk,
    TooManySpaces,
    TrailingComma,
    /// Leaves where the framing promises more.
    Left,
}

const ENDINGS: [Ending; 9] = [
    Ending::Good,
    Ending::GoodWithSpaces,
    Ending::Garbage,
    Ending::SecondRoot,
    Ending::RepeatedModel,
    Ending::BrokenChunk,
    Ending::TooManySpaces,
    Ending::TrailingComma,
    Ending::Left,
];

impl Ending {
    /// The code of the refusal; `None` for a body that is run, or that nobody waits for.
    fn code(self) -> Option<&'static str> {
        match self {
            Self::Good | Self::GoodWithSpaces | Self::Left => None,
            Self::Garbage | Self::SecondRoot | Self::TrailingComma => Some("malformed_json"),
            Self::RepeatedModel => Some("ambiguous_body"),
            Self::BrokenChunk => Some("malformed_chunk"),
            Self::TooManySpaces => Some("trailing_space"),
        }
    }

    fn is_run(self) -> bool {
        matches!(self, Self::Good | Self::GoodWithSpaces)
    }

    /// The bytes of the body.
    fn body(self, bytes: usize) -> Vec<u8> {
        let mut body = json_of(bytes);
        match self {
            Self::Good | Self::BrokenChunk | Self::Left => {}
            Self::GoodWithSpaces => body.resize(bytes + SOME_SPACES, b' '),
            Self::TooManySpaces => body.resize(bytes + TOO_MANY_SPACES, b' '),
            Self::Garbage => body.push(b'x'),
            Self::SecondRoot => body.extend(BODY.as_bytes()),
            Self::RepeatedModel => {
                body.pop();
                body.extend(br#","model":"m"}"#);
            }
            Self::TrailingComma => {
                body.pop();
                body.extend(b",}");
            }
        }
        body
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    bytes: usize,
    chunked: bool,
    ending: Ending,
}

impl Case {
    fn name(self) -> String {
        let framing = if self.chunked { "chunked" } else { "length" };
        format!("{:?}-{}-{framing}", self.ending, self.bytes)
    }

    fn sent(self) -> Vec<u8> {
        let body = self.ending.body(self.bytes);
        let case = format!("x-case: {}", self.name());
        let opening = head("POST", CHAT, &[&case]);
        if !self.chunked {
            let promised = body.len() + if self.ending == Ending::Left { 1000 } else { 0 };
            let opening = format!("{opening}Content-Length: {promised}\r\n\r\n");
            return [opening.as_bytes(), &body].concat();
        }
        let mut sent = (opening + "Transfer-Encoding: chunked\r\n\r\n").into_bytes();
        for piece in body.chunks(50_000) {
            sent.extend(chunk(piece));
        }
        sent.extend(match self.ending {
            Ending::Left => &b""[..],
            Ending::BrokenChunk => b"zz\r\n",
            _ => b"0\r\n\r\n",
        });
        sent
    }
}

fn mock() -> Mock {
    Mock::start(Options {
        script: "execute=brace".parse().unwrap(),
        ..Options::default()
    })
    .unwrap()
}

fn refused_bodies_are_never_run_where_the_model_is_read(driver: Driver) {
    let mock = mock();
    let gateway = Setup::new(driver)
        .provider(
            "openai",
            mock.addr(),
            r#"models: [{ from: "m", to: "another" }]"#,
        )
        .start();
    every_case(&mock, &gateway, |_| true);
}

/// A repeated model is the provider's business there.
fn refused_bodies_are_never_run_where_the_head_decides(driver: Driver) {
    let mock = mock();
    let gateway = Setup::at(driver, mock.addr()).start();
    every_case(&mock, &gateway, |ending| ending != Ending::RepeatedModel);
}

fn every_case(mock: &Mock, gateway: &Gateway, applies: impl Fn(Ending) -> bool) {
    let mut cases = Vec::new();
    for bytes in SIZES {
        for chunked in [false, true] {
            let possible = |ending: &Ending| chunked || *ending != Ending::BrokenChunk;
            let endings = ENDINGS.into_iter().filter(possible).filter(|e| applies(*e));
            cases.extend(endings.map(|ending| Case {
                bytes,
                chunked,
                ending,
            }));
        }
    }
    let failures = Mutex::new(Vec::new());
    // Dealt out like cards, so that each thread gets small and large ones.
    let (cases, dealt) = (&cases, &failures);
    std::thread::scope(|scope| {
        for hand in 0..4 {
            scope.spawn(move || {
                for case in cases.iter().skip(hand).step_by(4) {
                    if let Err(what) = ask(gateway, *case) {
                        dealt.lock().unwrap().push(what);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    settled(mock);
    let mut runs: BTreeMap<String, u64> = BTreeMap::new();
    for record in mock.requests().iter().filter(|record| record.executed) {
        *runs.entry(record.header("x-case").unwrap()).or_default() += 1;
    }
    for case in cases {
        let ran = runs.get(&case.name()).copied().unwrap_or_default();
        assert_eq!(ran, u64::from(case.ending.is_run()), "{}", case.name());
    }
}

fn ask(gateway: &Gateway, case: Case) -> Result<(), String> {
    let mut client = gateway.connect();
    // A refusal may come, and the connection end, before all of it was sent.
    let sent = client.send(&case.sent());
    if case.ending == Ending::Left {
        sent.unwrap();
        return leave(client).map_err(|stop| format!("{}: {stop:?}", case.name()));
    }
    let answer = client.response("POST");
    let as_expected = |answer: &Response| match case.ending.code() {
        Some(code) => answer.status == 400 && answer.gateway_error().as_deref() == Some(code),
        None => answer.status == 200 && answer.end.is_clean(),
    };
    match answer {
        Ok(answer) if as_expected(&answer) => Ok(()),
        other => Err(format!("{}: {other:#?}", case.name())),
    }
}

/// Closes the sending side and waits until the gateway has noticed.
fn leave(mut client: Client) -> Result<(), Stop> {
    client.wire.half_close();
    match client.wire.ending() {
        Stop::Fin | Stop::Reset => Ok(()),
        other => Err(other),
    }
}

/// Waits until nothing is on its way to the provider any more.
fn settled(mock: &Mock) {
    let settled = |seen: &[Recorded]| seen.iter().all(|r| r.complete || r.peer_left);
    assert!(mock.wait_until(PATIENCE, settled), "{:#?}", mock.requests());
}

fn a_body_left_behind_its_closing_brace_is_never_run(driver: Driver) {
    let mock = mock();
    let read = Setup::new(driver)
        .provider("openai", mock.addr(), r#"models: [{ from: "*", to: "x" }]"#)
        .start();
    let decided = Setup::at(driver, mock.addr()).start();
    for gateway in [&read, &decided] {
        for promised in [BODY.len() + 1, 4096, 400 * KIB, 20 * KIB * KIB] {
            let client = gateway.connect();
            let opening = head("POST", CHAT, &[&format!("Content-Length: {promised}")]);
            let sent = [opening.as_bytes(), b"\r\n", BODY.as_bytes()].concat();
            client.send(&sent).unwrap();
            // The gateway may take its time and forward what it has.
            crate::support::message::settle();
            leave(client).unwrap();
        }
    }
    settled(&mock);
    assert_eq!(mock.executions(), 0, "{:#?}", mock.requests());
}
