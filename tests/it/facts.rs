//! Every body of the torture corpus through a gateway that has to read its `model`, in front of a
//! provider that runs a request at its closing brace: what is refused is never run, and what is run
//! is what was sent.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use flate2::read::GzDecoder;
use lanegate::mock::{Mock, Options, Recorded};
use serde_json::Value;

use crate::alias::only_the_model_differs;
use crate::support::client::{CHAT, Client, Response, chunk, head, request};
use crate::support::gateway::{Driver, Gateway, Setup};
use crate::support::on_both_drivers;

on_both_drivers!(
    bodies_are_refused_or_arrive_as_sent,
    bodies_are_refused_or_arrive_with_another_model,
);

/// Rows of the corpus, so that a lost one is noticed.
const ROWS: usize = 648;

/// Rows in which a key that decides about the request has two readings.
const AMBIGUOUS: [&str; 6] = [
    "dup-escaped-stream",
    "dup-messages",
    "dup-model",
    "dup-stream-ft",
    "dup-stream-tf",
    "key-case",
];

/// Above the largest row.
const RECORD_BODY_MAX: usize = 2 << 20;

const CLIENTS: usize = 4;

const ALIAS: &str = "the-model-of-another-name";

#[derive(Debug)]
struct Row {
    id: String,
    dialect: String,
    body: Vec<u8>,
    expect: Value,
    either: bool,
    limit_may_apply: bool,
}

impl Row {
    fn path(&self) -> &'static str {
        match self.dialect.as_str() {
            "chat" => CHAT,
            "messages" => "/v1/messages",
            _ => "/v1/responses",
        }
    }

    fn is_valid(&self) -> bool {
        self.expect["valid"] == true
    }

    /// Whether the gateway answers it: nobody is sent a session here, so that the other switch is none.
    fn is_switch(&self) -> bool {
        let text = self.expect["last_user_text"].as_str();
        let said = text.is_some_and(|text| text.trim() == "--who?");
        said && self.expect["stream"] == false && self.dialect != "responses"
    }

    /// The model that the body is routed by.
    fn model(&self) -> Option<&str> {
        let model = self.expect["model"].as_str();
        model.filter(|model| !model.trim().is_empty())
    }
}

fn rows() -> Vec<Row> {
    let text = fs::read_to_string("tests/data/json/json_torture.jsonl").unwrap();
    let rows: Vec<Row> = text.lines().map(row).collect();
    assert_eq!(rows.len(), ROWS);
    rows
}

fn row(line: &str) -> Row {
    let row: Value = serde_json::from_str(line).unwrap();
    let body = match row["body_gz_b64"].as_str() {
        Some(packed) => {
            let mut body = Vec::new();
            let packed = base64(packed);
            GzDecoder::new(&packed[..]).read_to_end(&mut body).unwrap();
            body
        }
        None => base64(row["body_b64"].as_str().unwrap()),
    };
    assert_eq!(row["bytes"], body.len());
    Row {
        id: row["id"].as_str().unwrap().to_owned(),
        dialect: row["dialect"].as_str().unwrap().to_owned(),
        body,
        expect: row["expect"].clone(),
        either: row["either"] == true,
        limit_may_apply: row["limit_may_apply"] == true,
    }
}

fn base64(text: &str) -> Vec<u8> {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for c in text.bytes().filter(|c| *c != b'=') {
        let digit = digits.iter().position(|d| *d == c).unwrap();
        (bits, held) = (bits << 6 | u32::try_from(digit).unwrap(), held + 6);
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from(bits >> held & 0xFF).unwrap());
        }
    }
    bytes
}

/// A provider takes what no row names, so that the model is required, and a default all the rest.
fn bodies_are_refused_or_arrive_as_sent(driver: Driver) {
    let unasked = r#"models: [{ from: "no-row-names-this*", to: "x" }]"#;
    every_row(driver, unasked, |row, seen| {
        (seen == row.body)
            .then_some(())
            .ok_or_else(|| "other bytes arrived".to_owned())
    });
}

fn bodies_are_refused_or_arrive_with_another_model(driver: Driver) {
    let alias = format!(r#"models: [{{ from: "*", to: "{ALIAS}" }}]"#);
    every_row(driver, &alias, |row, seen| {
        only_the_model_differs(&row.body, seen, row.model().unwrap(), ALIAS)
    });
}

fn every_row(driver: Driver, first: &str, arrived: impl Fn(&Row, &[u8]) -> Result<(), String>) {
    let mock = Mock::start(Options {
        script: "execute=brace".parse().unwrap(),
        record_body_max: RECORD_BODY_MAX,
        ..Options::default()
    })
    .unwrap();
    let mut setup = Setup::new(driver);
    for dialect in ["openai", "anthropic"] {
        setup = setup.provider(dialect, mock.addr(), first).provider(
            dialect,
            mock.addr(),
            "default: true",
        );
    }
    let gateway = setup.start();
    let rows = rows();
    for chunked in [false, true] {
        mock.clear();
        let answers = ask_all(&gateway, &rows, chunked);
        let seen = mock.requests();
        let mut by_case: BTreeMap<String, Vec<&Recorded>> = BTreeMap::new();
        for record in &seen {
            by_case
                .entry(record.header("x-case").unwrap())
                .or_default()
                .push(record);
        }
        let failures: Vec<String> = rows
            .iter()
            .filter_map(|row| {
                let records = by_case.get(&row.id).map_or(&[][..], Vec::as_slice);
                let outcome = judge(row, &answers[&row.id], records, &arrived);
                outcome.err().map(|what| format!("{}: {what}", row.id))
            })
            .collect();
        let count = failures.len();
        assert!(
            failures.is_empty(),
            "chunked {chunked}: {count} of {ROWS}:\n{}",
            failures.join("\n")
        );
    }
}

/// Sends every row on a few connections at a time; the answers by row.
fn ask_all(gateway: &Gateway, rows: &[Row], chunked: bool) -> BTreeMap<String, Response> {
    let answers = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for rows in rows.chunks(rows.len().div_ceil(CLIENTS)) {
            let answers = &answers;
            scope.spawn(move || {
                let mut client = gateway.connect();
                for row in rows {
                    let answer = ask(&mut client, row, chunked);
                    if answer.closes() {
                        client = gateway.connect();
                    }
                    answers.lock().unwrap().insert(row.id.clone(), answer);
                }
            });
        }
    });
    answers.into_inner().unwrap()
}

fn ask(client: &mut Client, row: &Row, chunked: bool) -> Response {
    let case = format!("x-case: {}", row.id);
    let fields = ["Content-Type: application/json", &case];
    let sent = if chunked {
        let opening = head("POST", row.path(), &fields) + "Transfer-Encoding: chunked\r\n\r\n";
        let mut sent = opening.into_bytes();
        // A prime, so that the cuts meet the blocks of the gateway nowhere.
        for piece in row.body.chunks(6007) {
            sent.extend(chunk(piece));
        }
        sent.extend(b"0\r\n\r\n");
        sent
    } else {
        request("POST", row.path(), &fields, &row.body)
    };
    // A refusal may come, and the connection end, before all of it was sent.
    let _cut_short = client.send(&sent);
    let answer = client.response("POST");
    answer.unwrap_or_else(|stop| unreachable!("{}: no answer: {stop:?}", row.id))
}

fn judge(
    row: &Row,
    answer: &Response,
    records: &[&Recorded],
    arrived: &impl Fn(&Row, &[u8]) -> Result<(), String>,
) -> Result<(), String> {
    let refused_by = answer.gateway_error();
    let executed = records.iter().filter(|record| record.executed).count();
    let wrong = |what: &str| Err(format!("{what}, {executed} executions: {answer:#?}"));
    if refused_by.is_some() && executed > 0 {
        return wrong("executed and then refused");
    }
    let refused_for = |code: &str| answer.status == 400 && refused_by.as_deref() == Some(code);
    if !row.is_valid() {
        return match refused_for("malformed_json") {
            true => Ok(()),
            false => wrong("a broken body was not refused"),
        };
    }
    if AMBIGUOUS.contains(&row.id.as_str()) {
        return match refused_for("ambiguous_body") {
            true => Ok(()),
            false => wrong("an ambiguous body was not refused"),
        };
    }
    if row.limit_may_apply && (refused_for("model_too_long") || refused_for("malformed_json")) {
        return Ok(());
    }
    // A byte order mark, which RFC 8259 §8.1 lets a reader ignore or refuse.
    if row.either && refused_for("malformed_json") {
        return Ok(());
    }
    if row.model().is_none() {
        return match refused_for("no_model") {
            true => Ok(()),
            false => wrong("a body without a model was not refused"),
        };
    }
    if row.is_switch() {
        return match (refused_by, records) {
            (None, []) if answer.status == 200 => Ok(()),
            // A message with two readings has no text.
            (None, [record]) if row.either => arrived(row, &record.body),
            _ => wrong("a switch was not answered here"),
        };
    }
    match records {
        [record] if refused_by.is_none() && executed == 1 && record.complete => {
            arrived(row, &record.body)
        }
        _ => wrong(&format!("a good body met {} requests", records.len())),
    }
}

#[test]
fn peek_reports_every_row_as_expected() {
    let rows: Vec<Row> = rows();
    let strict: Vec<&Row> = rows
        .iter()
        .filter(|row| !row.either && !row.limit_may_apply)
        .collect();
    assert_eq!(strict.len(), 621);
    std::thread::scope(|scope| {
        for rows in strict.chunks(strict.len().div_ceil(CLIENTS)) {
            scope.spawn(move || rows.iter().for_each(|row| peeked(row)));
        }
    });
}

fn peeked(row: &Row) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_lanegate"))
        .args(["peek", "--dialect", &row.dialect])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&row.body).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}: {output:?}", row.id);
    let line = String::from_utf8(output.stdout).unwrap();
    assert_eq!(line.lines().count(), 1, "{}: {line}", row.id);
    let facts: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(facts["valid"], row.expect["valid"], "{}: {line}", row.id);
    if row.is_valid() {
        for key in ["model", "stream", "last_user_text", "tool_names"] {
            assert_eq!(facts[key], row.expect[key], "{} {key}: {line}", row.id);
        }
    }
}
