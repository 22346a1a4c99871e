//! What answers cost, as the access log and the metrics of a running gateway say it, while every byte
//! passes as it came.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;
use lanegate::mock::{Mock, Options};
use serde_json::{Value, json};

use crate::admin::{ADMIN, admin, scrape_after};
use crate::ledger::operator;
use crate::support::client::{BODY, CHAT, Response, leave, request};
use crate::support::exposition::Exposition;
use crate::support::gateway::{Driver, Gateway, Setup};
use crate::support::message::{Flow, eventually};
use crate::support::on_both_drivers;

on_both_drivers!(
    stored_answers_are_logged_with_what_their_manifest_says,
    answers_that_break_off_are_partial,
    only_successful_answers_in_a_dialect_are_read,
    compressed_answers_are_read_and_left_as_they_are,
    tokens_are_counted_by_agent_and_conversation,
    tokens_are_counted_by_provider_and_kind,
    what_came_is_with_the_client_before_more_is_read,
);

const MESSAGES: &str = "/v1/messages";

fn mock() -> Mock {
    Mock::start(Options {
        responses: Some(PathBuf::from("tests/data/responses")),
        ..Options::default()
    })
    .unwrap()
}

fn scripted(path: &str, script: &str) -> Vec<u8> {
    let script = format!("x-mock: {script}");
    request("POST", path, &[&script], BODY.as_bytes())
}

/// The access line of the exchange that gave this answer.
fn line_of(gateway: &Gateway, answer: &Response) -> Value {
    let id = answer.head.value("x-lanegate-request-id").unwrap();
    gateway.access_line(&id, |line| line["request_id"] == id.as_str())
}

/// What an access line says of an answer's cost.
fn cost(line: &Value) -> Value {
    let keys = [
        "usage",
        "input_tokens",
        "output_tokens",
        "cached_tokens",
        "cache_write_tokens",
    ];
    keys.iter().map(|key| line[*key].clone()).collect()
}

/// The same from a row of the manifest.
fn expected(row: &Value) -> Value {
    let usage = &row["usage"];
    if usage.is_null() {
        return json!(["absent", null, null, null, null]);
    }
    let (input, output, details) = match row["dialect"].as_str().unwrap() {
        "chat" => (
            "prompt_tokens",
            "completion_tokens",
            "prompt_tokens_details",
        ),
        "messages" => {
            return json!([
                "complete",
                usage["input_tokens"],
                usage["output_tokens"],
                usage["cache_read_input_tokens"],
                usage["cache_creation_input_tokens"],
            ]);
        }
        _ => ("input_tokens", "output_tokens", "input_tokens_details"),
    };
    let cached = &usage[details]["cached_tokens"];
    let fresh = usage[input].as_u64().unwrap() - cached.as_u64().unwrap_or(0);
    json!(["complete", fresh, usage[output], cached, null])
}

fn path(row: &Value) -> &'static str {
    match row["dialect"].as_str().unwrap() {
        "chat" => CHAT,
        "messages" => MESSAGES,
        _ => "/v1/responses",
    }
}

fn stored_answers_are_logged_with_what_their_manifest_says(driver: Driver) {
    let mock = mock();
    let gateway = Setup::at(driver, mock.addr()).start();
    let mut client = gateway.connect();
    let manifest = fs::read_to_string("tests/data/responses/responses.jsonl").unwrap();
    let mut asked = Vec::new();
    for row in manifest.lines() {
        let row: Value = serde_json::from_str(row).unwrap();
        if row["status"] != 200 || row["end"] == "cut" {
            continue;
        }
        let file = row["file"].as_str().unwrap();
        let bytes = fs::read(format!("tests/data/responses/{file}")).unwrap();
        for how in ["framing=chunked", "framing=length", "piece=100"] {
            let script = format!("file={file}; {how}");
            let answer = client.exchange("POST", &scripted(path(&row), &script));
            assert_eq!(answer.body, bytes, "{script}");
            asked.push((script, row.clone(), answer));
        }
    }
    assert!(asked.len() > 3 * 75, "{}", asked.len());
    // Lines come in the order in which exchanges end, so the last one is waited for.
    let (.., last) = asked.last().unwrap();
    line_of(&gateway, last);
    let lines = gateway.access_lines();
    assert_eq!(lines.len(), asked.len());
    for (line, (script, row, _)) in lines.iter().zip(&asked) {
        assert_eq!(cost(line), expected(row), "{script}: {line}");
        let (said, stop) = (&line["stop_reason"], &row["stop"]);
        assert_eq!(said.is_null(), stop.is_null(), "{script}: {line}");
    }
}

fn answers_that_break_off_are_partial(driver: Driver) {
    let mock = mock();
    let gateway = Setup::at(driver, mock.addr()).start();
    let started = json!(["partial", 12, 1, 100, 5]);
    let cut = scripted(MESSAGES, "file=messages-text.sse; cut=900");
    gateway.connect().exchange("POST", &cut);
    assert_eq!(cost(&gateway.ended("upstream_cut")), started);

    let silent = scripted(MESSAGES, "file=messages-text.sse; silence=900");
    let mut client = gateway.connect();
    client.send(&silent).unwrap();
    client.heads().unwrap();
    leave(client, false);
    assert_eq!(cost(&gateway.ended("client_closed")), started);
}

fn only_successful_answers_in_a_dialect_are_read(driver: Driver) {
    let mock = mock();
    let gateway = Setup::at(driver, mock.addr()).start();
    let usage = "body=%7B\"usage\":%7B\"prompt_tokens\":12%7D%7D";
    for (path, script, read) in [
        (CHAT, usage.to_owned(), true),
        (CHAT, format!("status=400; {usage}"), false),
        ("/v1/embeddings", usage.to_owned(), false),
    ] {
        let answer = gateway.connect().exchange("POST", &scripted(path, &script));
        let line = line_of(&gateway, &answer);
        let wanted = if read {
            json!(["complete", 12, null, null, null])
        } else {
            json!([null, null, null, null, null])
        };
        assert_eq!(cost(&line), wanted, "{path} {script}: {line}");
    }
}

fn compressed_answers_are_read_and_left_as_they_are(driver: Driver) {
    let mock = mock();
    let gateway = Setup::at(driver, mock.addr()).start();
    let plain = fs::read("tests/data/responses/chat-json-text.json").unwrap();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&plain).unwrap();
    let packed = encoder.finish().unwrap();
    let spelled = packed.iter().fold(String::new(), |mut text, byte| {
        write!(text, "%{byte:02X}").unwrap();
        text
    });
    for (coding, wanted) in [
        ("gzip", json!(["complete", 12, 7, null, null])),
        ("br", json!(["absent", null, null, null, null])),
        ("gzip, gzip", json!(["absent", null, null, null, null])),
    ] {
        let script = format!("header=Content-Encoding:{coding}; piece=10; body={spelled}");
        let answer = gateway.connect().exchange("POST", &scripted(CHAT, &script));
        assert_eq!(answer.body, packed);
        let line = line_of(&gateway, &answer);
        assert_eq!(cost(&line), wanted, "{coding}: {line}");
    }
}

/// Four answers, two of which say what they cost.
fn asked_as_agents(gateway: &Gateway) {
    let mut client = gateway.connect();
    for (path, file, agent) in [
        (CHAT, "chat-text-usage-cached.sse", "build"),
        (CHAT, "chat-text.sse", "title"),
        (MESSAGES, "messages-text.sse", "build"),
        (MESSAGES, "messages-error-529.json", "build"),
    ] {
        let script = format!("x-mock: file={file}");
        let agent = format!("X-Router-Agent: {agent}");
        let fields = [&*script, &*agent, "X-Router-Conversation: a"];
        client.exchange("POST", &request("POST", path, &fields, BODY.as_bytes()));
    }
}

const KINDS: [&str; 4] = ["input", "output", "cached", "cache_write"];

fn tokens_are_counted_by_provider_and_kind(driver: Driver) {
    let mock = mock();
    let gateway = Setup::at(driver, mock.addr()).with(ADMIN).start();
    asked_as_agents(&gateway);
    let page = scrape_after(admin(&gateway), 4);
    let tokens = |provider, kind| {
        page.count(&format!(
            "lanegate_tokens_total{{provider=\"{provider}\",kind=\"{kind}\"}}"
        ))
    };
    assert_eq!(
        KINDS.map(|kind| tokens("openai-origin", kind)),
        [4, 7, 8, 0]
    );
    assert_eq!(
        KINDS.map(|kind| tokens("anthropic-origin", kind)),
        [12, 9, 100, 5]
    );
    let answers = |provider, usage| {
        page.count(&format!(
            "lanegate_answers_total{{provider=\"{provider}\",usage=\"{usage}\"}}"
        ))
    };
    assert_eq!(
        (
            answers("openai-origin", "complete"),
            answers("openai-origin", "absent")
        ),
        (1, 1)
    );
    assert_eq!(answers("anthropic-origin", "complete"), 1);
    assert_eq!(page.sum("lanegate_answers_total"), 3);
}

/// As of the four answers of [`asked_as_agents`].
fn tokens_are_counted_by_agent_and_conversation(driver: Driver) {
    let mock = mock();
    let gateway = Setup::at(driver, mock.addr()).with(ADMIN).start();
    asked_as_agents(&gateway);
    // The ledger's thread counts them a little later.
    let mut page = Exposition::default();
    assert!(eventually(|| {
        page = scrape_after(admin(&gateway), 4);
        page.sum("lanegate_agent_tokens_total") == 145
    }));
    let agent = |agent, kind| {
        page.count(&format!(
            "lanegate_agent_tokens_total{{agent=\"{agent}\",kind=\"{kind}\"}}"
        ))
    };
    assert_eq!(KINDS.map(|kind| agent("build", kind)), [16, 16, 108, 5]);
    assert_eq!(KINDS.map(|kind| agent("title", kind)), [0; 4]);
    let share = page.value("lanegate_agent_cache_share{agent=\"build\"}");
    assert!((share - 0.837).abs() < 1e-9, "{share}");
    let of_title = "lanegate_agent_cache_share{agent=\"title\"}";
    assert!(!page.names().contains(of_title), "it said nothing of input");
    let mut sums = Value::Null;
    assert!(eventually(|| {
        let (status, body) = operator(&gateway, "/admin/conversations?conversation=a");
        assert_eq!(status, 200, "{body}");
        sums = serde_json::from_str(&body).unwrap();
        sums["total"]["requests"] == 4
    }));
    let total = &sums["total"];
    let of_total = [
        "input_tokens",
        "output_tokens",
        "cached_tokens",
        "cache_write_tokens",
        "metered",
    ];
    let of_total: Vec<_> = of_total.iter().map(|key| total[*key].as_i64()).collect();
    assert_eq!(of_total, [16, 16, 108, 5, 2].map(Some));
    assert_eq!(sums["cache_share"], 0.837);
}

/// The provider stops inside an event: all that it sent is with the client, though the event that the
/// tap waits for never ends.
fn what_came_is_with_the_client_before_more_is_read(driver: Driver) {
    let mock = mock();
    let gateway = Setup::at(driver, mock.addr()).start();
    let bytes = fs::read("tests/data/responses/chat-text-usage.sse").unwrap();
    for at in [1, 190, 300, 1100] {
        let mut client = gateway.connect();
        let script = format!("file=chat-text-usage.sse; framing=chunked; silence={at}");
        client.send(&scripted(CHAT, &script)).unwrap();
        let (_, head) = client.heads().unwrap();
        let mut flow = Flow::new(head.response_framing("POST").unwrap());
        let mut came = Vec::new();
        while came.len() < at {
            came.extend(flow.piece(&mut client.wire).unwrap());
        }
        assert_eq!(came, bytes[..at]);
        leave(client, false);
    }
}
