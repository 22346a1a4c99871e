//! Answers of providers through the gateway: byte-identical however they are cut into pieces and
//! framed, with their status and fields, and a cut that stays a cut.

use std::fs;
use std::io::ErrorKind;
use std::sync::Arc;

use serde_json::Value;

use crate::support::client::{Client, Response, chat};
use crate::support::gateway::{Driver, Setup};
use crate::support::message::{End, Stop, shown};
use crate::support::on_both_drivers;
use crate::support::origin::{Caller, Origin};

on_both_drivers!(
    whole,
    one_byte_a_piece,
    in_two_pieces_at_every_listed_offset,
    in_random_pieces,
    cut_at_every_listed_and_at_random_offsets,
);

/// Files in the table, so that a lost one is noticed.
const FILES: usize = 104;

/// Bytes one write carries at most when a large file is served one byte a chunk.
const SMALL_FILE_MAX: usize = 8 * 1024;

#[derive(Clone, Debug)]
struct Answer {
    file: String,
    status: u16,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
    /// The transport broke off after the last byte.
    is_cut: bool,
    offsets: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framed {
    Chunked,
    Length,
    Close,
}

const FRAMINGS: &[Framed] = &[Framed::Chunked, Framed::Length, Framed::Close];

/// One way to serve one file.
#[derive(Clone, Debug)]
struct Case {
    answer: usize,
    framed: Framed,
    /// Offsets at which one piece ends and the next begins.
    pieces: Vec<usize>,
    /// Break the transport off after so many bytes of the body.
    cut: Option<usize>,
}

fn answers() -> Vec<Answer> {
    let text = fs::read_to_string("tests/data/responses/responses.jsonl").unwrap();
    let answers: Vec<_> = text.lines().map(answer).collect();
    assert_eq!(answers.len(), FILES);
    answers
}

fn answer(line: &str) -> Answer {
    let row: Value = serde_json::from_str(line).unwrap();
    let file = row["file"].as_str().unwrap();
    let lists = ["event_ends", "cuts_inside_utf8", "cuts_inside_crlf"];
    let offsets = lists.iter().flat_map(|l| row[*l].as_array().unwrap());
    let fields = row["headers"].as_object().unwrap().iter();
    let answer = Answer {
        file: file.to_owned(),
        status: row["status"].as_u64().unwrap().try_into().unwrap(),
        fields: fields
            .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
            .collect(),
        body: fs::read(format!("tests/data/responses/{file}")).unwrap(),
        is_cut: row["end"] == "cut",
        offsets: offsets
            .map(|o| o.as_u64().unwrap().try_into().unwrap())
            .collect(),
    };
    assert_eq!(row["bytes"].as_u64().unwrap(), answer.body.len() as u64);
    answer
}

// ------------------------------------------------------------------------------------- the cases

fn whole(driver: Driver) {
    run(driver, |answers| {
        every(answers, FRAMINGS, |_| vec![Vec::new()])
    });
}

fn one_byte_a_piece(driver: Driver) {
    run(driver, |answers| {
        every(answers, FRAMINGS, |a| vec![(1..a.body.len()).collect()])
    });
}

fn in_two_pieces_at_every_listed_offset(driver: Driver) {
    run(driver, |answers| {
        every(answers, &[Framed::Chunked], |a| {
            a.offsets.iter().map(|o| vec![*o]).collect()
        })
    });
}

fn in_random_pieces(driver: Driver) {
    let mut random = Random::new();
    run(driver, |answers| {
        every(answers, FRAMINGS, |a| {
            let mut pieces: Vec<_> = (0..8).map(|_| random.below(a.body.len() + 1)).collect();
            pieces.sort_unstable();
            vec![pieces]
        })
    });
}

fn cut_at_every_listed_and_at_random_offsets(driver: Driver) {
    let mut random = Random::new();
    run(driver, |answers| {
        let mut framings = FRAMINGS.iter().cycle();
        let mut cases = Vec::new();
        for (index, a) in answers.iter().enumerate() {
            let chosen = (0..3).map(|_| random.below(a.body.len() + 1));
            let offsets = a.offsets.iter().copied().chain(chosen);
            cases.extend(offsets.map(|cut| Case {
                answer: index,
                framed: *framings.next().unwrap(),
                pieces: Vec::new(),
                cut: Some(cut),
            }));
        }
        cases
    });
}

fn every(
    answers: &[Answer],
    framings: &[Framed],
    mut ways: impl FnMut(&Answer) -> Vec<Vec<usize>>,
) -> Vec<Case> {
    let mut cases = Vec::new();
    for (index, a) in answers.iter().enumerate() {
        for framed in framings {
            let ways = ways(a).into_iter();
            cases.extend(ways.map(|pieces| Case {
                answer: index,
                framed: *framed,
                pieces,
                cut: a.is_cut.then_some(a.body.len()),
            }));
        }
    }
    cases
}

/// xorshift64*, seeded by the process id unless `LANEGATE_TEST_SEED` says otherwise; the seed is
/// shown when a test fails.
#[derive(Debug)]
struct Random {
    state: u64,
    seed: u64,
}

impl Random {
    fn new() -> Self {
        let given = std::env::var("LANEGATE_TEST_SEED").ok();
        let seed = given.map_or_else(|| u64::from(std::process::id()), |s| s.parse().unwrap());
        Self {
            state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            seed,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        let high = self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        usize::try_from(high).unwrap() % bound
    }
}

impl Drop for Random {
    #[expect(
        clippy::print_stderr,
        reason = "libtest shows it with the failing test only"
    )]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("LANEGATE_TEST_SEED={}", self.seed);
        }
    }
}

// ------------------------------------------------------------------------------------ both sides

fn run(driver: Driver, cases: impl FnOnce(&[Answer]) -> Vec<Case>) {
    let answers = Arc::new(answers());
    let cases = Arc::new(cases(&answers));
    assert!(cases.len() >= FILES, "only {} cases", cases.len());
    let origin = Origin::start({
        let (answers, cases) = (Arc::clone(&answers), Arc::clone(&cases));
        move |caller| serve(caller, &answers, &cases)
    });
    let gateway = Setup::in_front_of(driver, &origin).start();
    let mut client = gateway.connect();
    let mut failures = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let open = check(&mut client, number, case, &answers[case.answer]);
        if !matches!(open, Ok(true)) {
            client = gateway.connect();
        }
        failures.extend(open.err());
    }
    let count = failures.len();
    failures.truncate(20);
    assert!(
        failures.is_empty(),
        "{count} of {}:\n{}",
        cases.len(),
        failures.join("\n")
    );
}

/// Serves the case that the request names.
fn serve(caller: &mut Caller, answers: &[Answer], cases: &[Case]) {
    while let Some(request) = caller.request() {
        let case = &cases[request.case().parse::<usize>().unwrap()];
        let answer = &answers[case.answer];
        match serve_one(caller, answer, case) {
            Ok(()) if case.framed != Framed::Close && case.cut.is_none() => {}
            Ok(()) => {
                // Without a length or chunks only a reset can say that the body broke off.
                if case.framed == Framed::Close && case.cut.is_some() {
                    caller.reset_at_end();
                }
                return;
            }
            Err(kind) => {
                assert!(matches!(
                    kind,
                    ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
                ));
                return;
            }
        }
    }
}

fn serve_one(caller: &Caller, answer: &Answer, case: &Case) -> Result<(), ErrorKind> {
    let mut head = format!("HTTP/1.1 {} Served\r\n", answer.status);
    for (name, value) in &answer.fields {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&match case.framed {
        Framed::Chunked => "Transfer-Encoding: chunked\r\n\r\n".to_owned(),
        // One more than there is when it breaks off, because the last byte would complete it.
        Framed::Length => {
            let length = answer.body.len() + usize::from(case.cut.is_some());
            format!("Content-Length: {length}\r\n\r\n")
        }
        Framed::Close => "Connection: close\r\n\r\n".to_owned(),
    });
    let reply = |bytes: &[u8]| caller.reply(bytes).map_err(|e| e.kind());
    reply(head.as_bytes())?;
    let body = &answer.body[..case.cut.unwrap_or(answer.body.len())];
    let bounds = case.pieces.iter().copied().filter(|p| *p < body.len());
    let mut pending = Vec::new();
    let mut start = 0;
    for end in bounds.chain([body.len()]) {
        let piece = &body[start..end];
        start = end;
        if piece.is_empty() {
            continue;
        }
        match case.framed {
            Framed::Chunked => pending.extend(crate::support::client::chunk(piece)),
            Framed::Length | Framed::Close => pending.extend(piece),
        }
        // A write per piece; for the large file a write per kibibyte, still a chunk per piece.
        if body.len() <= SMALL_FILE_MAX || pending.len() >= 1024 {
            reply(&pending)?;
            pending.clear();
        }
    }
    if case.framed == Framed::Chunked && case.cut.is_none() {
        pending.extend(b"0\r\n\r\n");
    }
    reply(&pending)
}

/// Asks for one case; whether the connection can take the next, or what was wrong.
fn check(client: &mut Client, number: usize, case: &Case, answer: &Answer) -> Result<bool, String> {
    let asked = chat(&[&format!("x-case: {number}")]);
    client.send(&asked).map_err(|e| e.to_string())?;
    let outcome = client.response("POST");
    let shown_case = || {
        let (framed, cut) = (case.framed, case.cut);
        format!(
            "{} {framed:?}, {} pieces, cut {cut:?}",
            answer.file,
            case.pieces.len() + 1
        )
    };
    let verdict = match outcome {
        Ok(response) => verdict(case, answer, &response).map(|()| !response.closes()),
        // The reset of a close-delimited answer may overtake its head.
        Err(Stop::Reset | Stop::Fin | Stop::Torn) if reset_by_origin(case) => Ok(false),
        Err(stop) => Err(format!("no answer: {stop:?}")),
    };
    verdict.map_err(|what| format!("{}: {what}", shown_case()))
}

fn reset_by_origin(case: &Case) -> bool {
    case.framed == Framed::Close && case.cut.is_some()
}

fn verdict(case: &Case, answer: &Answer, response: &Response) -> Result<(), String> {
    if reset_by_origin(case) && response.gateway_error().is_some() && response.status == 502 {
        return Ok(());
    }
    if response.status != answer.status {
        return Err(format!("status {}", response.status));
    }
    for (name, value) in &answer.fields {
        if response.head.value(name).as_ref() != Some(value) {
            return Err(format!("{name}: {:?}", response.head.values(name)));
        }
    }
    let Some(cut) = case.cut else {
        let same = response.body == answer.body && response.end.is_clean();
        return same.then_some(()).ok_or_else(|| differs(response));
    };
    if response.end.is_clean() {
        return Err(format!(
            "a cut that looks like a clean end: {}",
            differs(response)
        ));
    }
    if let End::Cut(Stop::Silent | Stop::Malformed(_)) = response.end {
        return Err(differs(response));
    }
    // A reset may overtake bytes; an orderly close may not.
    let same = if reset_by_origin(case) {
        answer.body[..cut].starts_with(&response.body)
    } else {
        answer.body[..cut] == response.body
    };
    same.then_some(()).ok_or_else(|| differs(response))
}

fn differs(response: &Response) -> String {
    format!("{:?}, {}", response.end, shown(&response.body))
}
