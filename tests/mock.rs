//! The scripted provider over real sockets: what it promises to the tests that stand on it.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use lanegate::mock::{Mock, Options, Recorded};
use serde_json::{Value, json};

/// Bound of every wait; reached only when a test fails.
const PATIENCE: Duration = Duration::from_secs(10);
const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/responses");

/// A client that shows how bytes came: one chunk is one write of the mock.
struct Client {
    stream: TcpStream,
    ahead: Vec<u8>,
}

#[derive(Debug, Default)]
struct Reply {
    status: u16,
    head: String,
    body: Vec<u8>,
    chunks: Vec<usize>,
    end: End,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum End {
    /// The framing came to its end.
    #[default]
    Framed,
    /// The connection closed; for a body without framing this is its end.
    Closed,
    Reset,
}

impl Client {
    fn new(mock: &Mock) -> Self {
        let stream = TcpStream::connect(mock.addr()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            ahead: Vec::new(),
        }
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    fn post(&mut self, path: &str, script: &str, body: &str) -> Reply {
        self.send(request(path, script, body));
        self.reply()
    }

    fn more(&mut self) -> Result<(), End> {
        let mut buffer = [0; 4096];
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(End::Closed),
            Ok(read) => {
                self.ahead.extend_from_slice(&buffer[..read]);
                Ok(())
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
                Err(End::Reset)
            }
        }
    }

    fn until(&mut self, mark: &str) -> Result<Vec<u8>, End> {
        loop {
            let found = self
                .ahead
                .windows(mark.len())
                .position(|bytes| bytes == mark.as_bytes());
            if let Some(at) = found {
                return Ok(self.ahead.drain(..at + mark.len()).collect());
            }
            self.more()?;
        }
    }

    fn exactly(&mut self, count: usize, into: &mut Vec<u8>) -> Result<(), End> {
        let wanted = into.len() + count;
        loop {
            let taken = self.ahead.len().min(wanted - into.len());
            into.extend(self.ahead.drain(..taken));
            if into.len() == wanted {
                return Ok(());
            }
            self.more()?;
        }
    }

    fn head(&mut self) -> Result<Reply, End> {
        let head = String::from_utf8(self.until("\r\n\r\n")?).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Ok(Reply {
            status,
            head,
            ..Reply::default()
        })
    }

    fn reply(&mut self) -> Reply {
        let mut reply = match self.head() {
            Ok(reply) => reply,
            Err(end) => {
                return Reply {
                    end,
                    ..Reply::default()
                };
            }
        };
        reply.end = self.body(&mut reply).err().unwrap_or_default();
        reply
    }

    fn body(&mut self, reply: &mut Reply) -> Result<(), End> {
        if reply.header("transfer-encoding").is_some() {
            loop {
                let line = String::from_utf8(self.until("\r\n")?).unwrap();
                let size = usize::from_str_radix(line.trim_end(), 16).unwrap();
                self.exactly(size, &mut reply.body)?;
                assert_eq!(self.until("\r\n")?, b"\r\n");
                if size == 0 {
                    return Ok(());
                }
                reply.chunks.push(size);
            }
        }
        match reply.header("content-length") {
            Some(length) => self.exactly(length.parse().unwrap(), &mut reply.body),
            None if reply.status == 204 => Ok(()),
            None => loop {
                reply.body.append(&mut self.ahead);
                self.more()?;
            },
        }
    }

    /// The connection is at its end and nothing more came.
    fn at_end(&mut self) -> bool {
        self.ahead.is_empty() && self.more() == Err(End::Closed)
    }
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.split("\r\n").skip(1).find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// Data of the events; `[DONE]` as a text.
    fn events(&self) -> Vec<Value> {
        let data = self
            .text()
            .lines()
            .filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).unwrap_or_else(|_| json!(data)))
            .collect()
    }

    fn event_names(&self) -> Vec<&str> {
        self.text()
            .lines()
            .filter_map(|line| line.strip_prefix("event: "))
            .collect()
    }
}

fn mock() -> Mock {
    Mock::start(Options {
        responses: Some(FOLDER.into()),
        ..Options::default()
    })
    .unwrap()
}

fn head(path: &str, script: &str, framing: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: mock\r\nx-mock: {script}\r\n{framing}\r\n\r\n")
}

fn request(path: &str, script: &str, body: &str) -> String {
    head(path, script, &format!("Content-Length: {}", body.len())) + body
}

fn get(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: mock\r\n{fields}\r\n")
}

fn streaming() -> String {
    json!({"model": "m", "stream": true}).to_string()
}

/// One request on a connection of its own.
fn ask(mock: &Mock, path: &str, script: &str, body: &str) -> Reply {
    Client::new(mock).post(path, script, body)
}

fn wait_for(mock: &Mock, holds: impl Fn(&Recorded) -> bool) {
    let held = mock.wait_until(PATIENCE, |all| all.last().is_some_and(&holds));
    assert!(held, "{:?}", mock.requests().last());
}

#[test]
fn json_answers_have_the_shape_of_their_dialect() {
    let mock = mock();
    let said = "The lanegate mock says hello.";
    let chat = ask(
        &mock,
        "/any/prefix/chat/completions?x=1",
        "",
        r#"{"model":"m"}"#,
    );
    assert_eq!(
        (chat.status, chat.header("content-type")),
        (200, Some("application/json"))
    );
    assert_eq!(chat.json()["choices"][0]["message"]["content"], said);
    assert_eq!(chat.json()["usage"]["total_tokens"], 17);
    let messages = ask(&mock, MESSAGES, "", r#"{"model":"m","stream":false}"#).json();
    assert_eq!(messages["content"][0]["text"], said);
    assert_eq!(messages["stop_reason"], "end_turn");
    let responses = ask(&mock, RESPONSES, "", r#"{"model":"m"}"#).json();
    assert_eq!(responses["output"][0]["content"][0]["text"], said);
    assert_eq!(responses["status"], "completed");
    assert_eq!(mock.executions(), 3);
}

#[test]
fn chat_stream_has_its_order_and_usage_only_if_asked() {
    let mock = mock();
    let plain = ask(&mock, CHAT, "events=2", &streaming());
    assert_eq!(
        plain.header("content-type"),
        Some("text/event-stream; charset=utf-8")
    );
    let events = plain.events();
    assert_eq!(events.len(), 5);
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(events[1]["choices"][0]["delta"]["content"], "The ");
    assert_eq!(events[3]["choices"][0]["finish_reason"], "stop");
    assert_eq!(events[4], "[DONE]");
    assert_eq!(plain.chunks.len(), events.len(), "one event a write");
    assert!(!plain.text().contains("usage"));

    let asked = r#"{"model":"m","stream":true,"stream_options":{"include_usage":true}}"#;
    let events = ask(&mock, CHAT, "events=2", asked).events();
    assert!(events[0]["usage"].is_null());
    assert_eq!(events[4]["choices"], json!([]));
    assert_eq!(events[4]["usage"]["completion_tokens"], 2);
    assert_eq!(events[5], "[DONE]");
}

#[test]
fn messages_stream_has_its_order() {
    let reply = ask(&mock(), MESSAGES, "events=2", &streaming());
    let names = reply.event_names();
    let expected = [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(names, expected);
    let events = reply.events();
    assert!(
        events
            .iter()
            .zip(names)
            .all(|(event, name)| event["type"] == name)
    );
    assert_eq!(events[0]["message"]["usage"]["input_tokens"], 12);
    assert_eq!(events[6]["usage"]["output_tokens"], 2);
}

#[test]
fn responses_stream_has_its_order_and_numbers() {
    let reply = ask(&mock(), RESPONSES, "events=1", &streaming());
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(reply.event_names(), expected);
    let events = reply.events();
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
        assert_eq!(event["type"], expected[number]);
    }
    assert_eq!(events[8]["response"]["usage"]["output_tokens"], 1);
}

#[test]
fn tool_is_called_once_and_its_result_is_answered_in_text() {
    let mock = mock();
    let schema = json!({"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]});
    let arguments = r#"{"command":"echo lanegate"}"#;

    let chat = json!({"model": "mock-tool", "tools": [
        {"type": "function", "function": {"name": "bash", "parameters": schema}}]});
    let reply = Client::new(&mock).without_script(CHAT, &chat);
    let call = &reply["choices"][0]["message"]["tool_calls"][0]["function"];
    assert_eq!(
        (&call["name"], &call["arguments"]),
        (&json!("bash"), &json!(arguments))
    );
    let mut answered = chat;
    answered["messages"] = json!([{"role": "tool", "content": "lanegate"}]);
    let reply = Client::new(&mock).without_script(CHAT, &answered);
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
    let told: Vec<_> = mock
        .requests()
        .into_iter()
        .map(|request| (request.model.unwrap(), request.tool_result))
        .collect();
    let name = || "mock-tool".to_owned();
    assert_eq!(
        told,
        [(name(), None), (name(), Some("lanegate".to_owned()))]
    );

    let messages =
        json!({"model": "m", "stream": true, "tools": [{"name": "Bash", "input_schema": schema}]});
    let events = ask(&mock, MESSAGES, "tool", &messages.to_string()).events();
    let parts = events
        .iter()
        .filter_map(|event| event["delta"]["partial_json"].as_str());
    assert_eq!(parts.collect::<String>(), arguments);
    assert!(
        events
            .iter()
            .any(|event| event["delta"]["stop_reason"] == "tool_use")
    );

    let responses = json!({"model": "m", "stream": true, "tools": [{"type": "namespace", "name": "group",
        "tools": [{"type": "function", "name": "exec", "parameters": schema}]}]});
    let script = "tool; command=echo other";
    let events = ask(&mock, RESPONSES, script, &responses.to_string()).events();
    let item = &events.last().unwrap()["response"]["output"][0];
    assert_eq!(
        (&item["name"], &item["namespace"]),
        (&json!("exec"), &json!("group"))
    );
    let arguments = r#"{"command":"echo other"}"#;
    assert_eq!(item["arguments"], arguments);
    let deltas = events.iter().filter_map(|event| event["delta"].as_str());
    assert_eq!(deltas.collect::<String>(), arguments);
}

impl Client {
    fn without_script(&mut self, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let length = body.len();
        self.send(format!(
            "POST {path} HTTP/1.1\r\nHost: mock\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        self.reply().json()
    }
}

#[test]
fn errors_have_the_shape_of_the_dialect_and_scripted_headers() {
    let mock = mock();
    let chat = ask(&mock, CHAT, "status=429", "{}");
    assert_eq!((chat.status, chat.header("retry-after")), (429, Some("1")));
    assert_eq!(chat.json()["error"]["code"], "rate_limit_exceeded");
    let script = "status=529; header=retry-after: 7; header=x-other:a%3Bb";
    let messages = ask(&mock, MESSAGES, script, "{}");
    assert_eq!(
        (messages.status, messages.header("retry-after")),
        (529, Some("7"))
    );
    assert_eq!(messages.header("x-other"), Some("a;b"));
    assert_eq!(messages.json()["error"]["type"], "overloaded_error");
    assert_eq!(
        messages.json()["request_id"],
        messages.header("request-id").unwrap()
    );
    let by_model =
        Client::new(&mock).without_script(RESPONSES, &json!({"model": "mock-error-503"}));
    assert_eq!(by_model["error"]["type"], "server_error");
}

#[test]
fn every_stored_answer_is_served_byte_for_byte() {
    let mock = mock();
    let manifest = fs::read_to_string(format!("{FOLDER}/responses.jsonl")).unwrap();
    let rows: Vec<Value> = manifest
        .lines()
        .map(|row| serde_json::from_str(row).unwrap())
        .collect();
    assert_eq!(rows.len(), 104);
    for row in rows {
        let name = row["file"].as_str().unwrap();
        let stored = fs::read(format!("{FOLDER}/{name}")).unwrap();
        let whole = ask(&mock, CHAT, &format!("file={name}"), "{}");
        assert_eq!(
            (whole.end, whole.body == stored),
            (End::Framed, true),
            "{name}"
        );
        assert_eq!(u64::from(whole.status), row["status"], "{name}");
        for (field, value) in row["headers"].as_object().unwrap() {
            let line = format!("{field}: {}", value.as_str().unwrap());
            assert!(whole.head.contains(&line), "{name}: {line}");
        }
        if stored.len() < 3000 {
            let script = format!("file={name}; piece=1; framing=chunked");
            let bytewise = ask(&mock, CHAT, &script, "{}");
            assert_eq!(bytewise.body, stored, "{name}");
            assert_eq!(bytewise.chunks, vec![1; stored.len()], "{name}");
        }
    }
    let missing = ask(&mock, MESSAGES, "file=nothing.sse", "{}");
    assert_eq!(
        (missing.status, missing.text().contains("nothing.sse")),
        (400, true)
    );
}

#[test]
fn writes_are_cut_where_the_script_says() {
    let mock = mock();
    let body = "body=0123456789; framing=chunked";
    for (script, chunks) in [
        ("", vec![10]),
        ("piece=4", vec![4, 4, 2]),
        ("cuts=7,1,1,30", vec![1, 6, 3]),
        ("piece=4;cuts=5", vec![4, 1, 3, 2]),
        ("piece=4;pause=1ms", vec![4, 4, 2]),
    ] {
        let reply = ask(&mock, CHAT, &format!("{body};{script}"), "{}");
        assert_eq!((reply.chunks, reply.end), (chunks, End::Framed), "{script}");
    }
}

#[test]
fn framings() {
    let mock = mock();
    let length = ask(&mock, CHAT, "body=abc", "{}");
    assert_eq!(
        (length.header("content-length"), &length.end),
        (Some("3"), &End::Framed)
    );
    let closed = ask(&mock, CHAT, "body=abc;framing=close", "{}");
    assert_eq!((closed.text(), &closed.end), ("abc", &End::Closed));
    assert_eq!(closed.header("connection"), Some("close"));
    let streamed = ask(&mock, CHAT, "framing=length", &streaming());
    assert!(streamed.header("content-length").is_some() && streamed.text().contains("[DONE]"));
    let empty = ask(&mock, CHAT, "status=204", "{}");
    assert_eq!((empty.status, empty.header("content-length")), (204, None));
    let mut old = Client::new(&mock);
    let body = streaming();
    let length = body.len();
    old.send(format!(
        "POST {CHAT} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}"
    ));
    let reply = old.reply();
    assert_eq!(
        (reply.header("transfer-encoding"), &reply.end),
        (None, &End::Closed)
    );
    assert!(reply.text().ends_with("data: [DONE]\n\n"));
}

#[test]
fn cut_answers_end_without_an_end() {
    let mock = mock();
    for framing in ["chunked", "length"] {
        for (cut, end) in [("5", End::Closed), ("rst:5", End::Reset)] {
            let reply = ask(
                &mock,
                CHAT,
                &format!("body=0123456789;framing={framing};cut={cut}"),
                "{}",
            );
            assert_eq!(
                (reply.text(), &reply.end),
                ("01234", &end),
                "{framing} {cut}"
            );
        }
    }
    let whole = ask(&mock, CHAT, "body=0123456789;framing=chunked;cut=10", "{}");
    assert_eq!((whole.text(), &whole.end), ("0123456789", &End::Closed));
    let at_once = ask(&mock, CHAT, "cut=0", "{}");
    assert_eq!(
        (at_once.status, at_once.body.len(), at_once.end),
        (200, 0, End::Closed)
    );
    assert!(
        mock.requests()
            .iter()
            .all(|request| request.executed && !request.answered)
    );
}

#[test]
fn silence_in_the_body_passes() {
    let reply = ask(
        &mock(),
        CHAT,
        "body=0123;framing=chunked;silence=2:5ms",
        "{}",
    );
    assert_eq!((reply.chunks, reply.end), (vec![2, 2], End::Framed));
}

#[test]
fn peer_that_leaves_a_silent_mock_is_seen() {
    for script in ["silence=head", "body=0123;silence=2", "first=600s"] {
        let mock = mock();
        let mut client = Client::new(&mock);
        client.send(request(CHAT, script, "{}"));
        wait_for(&mock, |request| request.complete);
        if script.starts_with("body") {
            assert_eq!(client.head().unwrap().header("content-length"), Some("4"));
            assert_eq!(client.exactly(2, &mut Vec::new()), Ok(()));
        }
        assert!(!mock.requests()[0].peer_left, "{script}");
        drop(client);
        wait_for(&mock, |request| request.peer_left && !request.answered);
    }
}

#[test]
fn early_answer_does_not_wait_for_the_body() {
    let mock = mock();
    let framing = "Content-Length: 1000000";
    let mut client = Client::new(&mock);
    client.send(head(MESSAGES, "early=3; status=413", framing) + "abcdef");
    let reply = client.reply();
    assert_eq!(
        (reply.status, reply.header("connection")),
        (413, Some("close"))
    );
    assert_eq!(reply.json()["error"]["type"], "request_too_large");
    assert!(client.at_end());
    let request = mock.requests().pop().unwrap();
    assert_eq!(
        (request.body.as_slice(), request.complete),
        (&b"abc"[..], false)
    );
    assert!(!request.executed && mock.executions() == 0);

    let mut client = Client::new(&mock);
    client.send(head(
        CHAT,
        "early=0; early_close=false",
        "Content-Length: 6",
    ));
    let reply = client.reply();
    assert_eq!((reply.status, reply.header("connection")), (200, None));
    client.send("abcdef");
    assert_eq!(client.post(CHAT, "", "{}").status, 200);
    let requests = mock.requests();
    assert!(requests[1].complete && requests[1].body == b"abcdef");
    assert_eq!((requests[1].executed, mock.executions()), (true, 2));
}

#[test]
fn early_does_not_apply_to_a_request_whose_body_is_all_there() {
    let mock = mock();
    let reply = ask(&mock, CHAT, "early=2; status=401", "{}");
    assert_eq!((reply.status, reply.header("connection")), (401, None));
    assert!(mock.requests()[0].complete);
}

#[test]
fn stalled_body_is_left_in_the_socket() {
    let mock = mock();
    let mut client = Client::new(&mock);
    client.send(head(CHAT, "stall=4", "Content-Length: 10") + "0123456789");
    wait_for(&mock, |request| request.body_len == 4);
    drop(client);
    wait_for(&mock, |request| request.peer_left);
    let request = mock.requests().pop().unwrap();
    assert_eq!(
        (request.body_len, request.complete, request.executed),
        (4, false, false)
    );
}

#[test]
fn stopping_decoder_runs_at_the_closing_brace() {
    let mock = mock();
    let mut client = Client::new(&mock);
    let framing = "Transfer-Encoding: chunked";
    client.send(head(CHAT, "execute=brace", framing) + "c\r\n{\"model\":\"}\"\r\n");
    wait_for(&mock, |request| request.body_len == 12);
    assert_eq!(mock.executions(), 0);
    client.send("3\r\n} \n\r\n");
    assert_eq!(client.reply().json()["model"], "}");
    assert_eq!(mock.executions(), 1);
    assert!(!mock.requests()[0].complete);
    client.send("0\r\n\r\n");
    wait_for(&mock, |request| request.complete);
    assert_eq!(client.post(CHAT, "execute=brace", "{}").status, 200);
    assert_eq!(mock.executions(), 2);
    assert!(mock.requests()[1].complete);
}

#[test]
fn broken_off_body_is_not_run() {
    for (framing, sent) in [
        ("Content-Length: 10", "{\"a\":1}"),
        ("Transfer-Encoding: chunked", "7\r\n{\"a\":1}\r\n"),
        ("Transfer-Encoding: chunked", "7\r\n{\"a\":1}\r\n0\r\n"),
    ] {
        let mock = mock();
        let mut client = Client::new(&mock);
        client.send(head(CHAT, "", framing) + sent);
        client.stream.shutdown(Shutdown::Write).unwrap();
        assert!(client.at_end());
        wait_for(&mock, |request| request.peer_left);
        let request = mock.requests().pop().unwrap();
        assert_eq!(
            (request.body_len, request.complete, request.executed),
            (7, false, false)
        );
        assert_eq!(mock.executions(), 0);
    }
}

#[test]
fn chunked_body_and_trailers_are_recorded_without_their_framing() {
    let mock = mock();
    let mut client = Client::new(&mock);
    let framing = "Transfer-Encoding: Chunked";
    client.send(head(CHAT, "", framing) + "1;x=y\r\n{\r\n01\r\n}\r\n0\r\nX-Sum: 1\r\n\r\n");
    assert_eq!(client.reply().status, 200);
    let request = mock.requests().pop().unwrap();
    assert_eq!((request.body.as_slice(), request.body_len), (&b"{}"[..], 2));
    assert_eq!(request.trailers, b"X-Sum: 1\r\n");
    assert!(request.chunked && request.complete && request.executed);
    assert_eq!(
        request.header("Transfer-encoding").as_deref(),
        Some("Chunked")
    );
}

#[test]
fn record_keeps_a_bounded_part_of_the_body() {
    let mock = Mock::start(Options {
        record_body_max: 3,
        ..Options::default()
    })
    .unwrap();
    assert_eq!(
        ask(&mock, CHAT, "", r#"{"model":"m"}"#).json()["model"],
        "m"
    );
    let request = mock.requests().pop().unwrap();
    assert_eq!(
        (request.body.as_slice(), request.body_len),
        (&b"{\"m"[..], 13)
    );
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let mock = mock();
    let mut client = Client::new(&mock);
    let pipeline: String = ["a", "b", "c"]
        .map(|text| request(CHAT, &format!("body={text}"), "{}"))
        .concat();
    client.send(pipeline);
    for text in ["a", "b", "c"] {
        assert_eq!(client.reply().text(), text);
    }
    let places = mock
        .requests()
        .iter()
        .map(|one| (one.connection, one.index_on_connection))
        .collect::<Vec<_>>();
    assert_eq!(places, [(1, 1), (1, 2), (1, 3)]);
}

#[test]
fn expect_is_answered_when_the_body_is_wanted() {
    let mock = mock();
    let framing = "Expect: 100-continue\r\nContent-Length: 2";
    let mut client = Client::new(&mock);
    client.send(head(CHAT, "", framing));
    assert_eq!(client.head().unwrap().status, 100);
    client.send("{}");
    assert_eq!(client.reply().status, 200);
    let mut client = Client::new(&mock);
    client.send(head(CHAT, "early=0; status=401", framing));
    assert_eq!(client.reply().status, 401);
    let sent: Vec<_> = mock
        .requests()
        .iter()
        .map(|request| request.continue_sent)
        .collect();
    assert_eq!(sent, [true, false]);
}

#[test]
fn interim_answers_come_first() {
    let mock = mock();
    let mut client = Client::new(&mock);
    client.send(request(CHAT, "interim=103; interim=100", "{}"));
    let hints = client.head().unwrap();
    assert_eq!((hints.status, hints.header("link").is_some()), (103, true));
    assert_eq!(client.head().unwrap().status, 100);
    assert_eq!(client.reply().status, 200);
}

#[test]
fn connections_close_as_scripted() {
    let mock = mock();
    let after = ask(&mock, CHAT, "close=after", "{}");
    assert_eq!(
        (after.status, after.header("connection")),
        (200, Some("close"))
    );
    for script in ["close=before", "close=head"] {
        let reply = ask(&mock, CHAT, script, "{}");
        assert_eq!((reply.status, reply.end), (0, End::Closed), "{script}");
    }
    let mut idle = Client::new(&mock);
    let reply = idle.post(CHAT, "close=idle:1ms", "{}");
    assert_eq!((reply.status, reply.header("connection")), (200, None));
    assert!(idle.at_end());
    let mut busy = Client::new(&mock);
    busy.send(
        [
            request(CHAT, "close=idle:0ms", "{}"),
            request(CHAT, "", "{}"),
        ]
        .concat(),
    );
    assert_eq!((busy.reply().status, busy.reply().status), (200, 200));
    let asked = "Connection: close\r\nContent-Length: 0";
    let mut polite = Client::new(&mock);
    polite.send(head(CHAT, "", asked));
    assert_eq!(polite.reply().header("connection"), Some("close"));
    assert!(polite.at_end());
    let run: Vec<_> = mock
        .requests()
        .iter()
        .map(|request| request.executed)
        .collect();
    assert_eq!(
        run,
        [true, true, false, true, true, true, true],
        "only close=head runs nothing"
    );
}

#[test]
fn echo_gives_back_head_and_body() {
    let mock = mock();
    let sent = request(CHAT, "echo=head", "{\"a\": 1}");
    let mut client = Client::new(&mock);
    client.send(&sent);
    let echoed = client.reply().json();
    let joined = format!(
        "{}{}",
        echoed["head"].as_str().unwrap(),
        echoed["body"].as_str().unwrap()
    );
    assert_eq!(joined, sent);
    client.send(head(CHAT, "echo=head", "Content-Length: 2").into_bytes());
    client.send([0xff, 0x00]);
    assert_eq!(client.reply().json()["body_base64"], "/wA=");
}

#[test]
fn faulty_script_is_refused_by_name() {
    let mock = mock();
    let reply = ask(&mock, MESSAGES, "status=200; colour=red", "{}");
    assert_eq!(reply.status, 400);
    let message = reply.json()["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(message.contains("`colour`"), "{message}");
    assert_eq!(ask(&mock, CHAT, "piece=0", "{}").status, 400);
}

#[test]
fn default_script_applies_to_requests_without_their_own() {
    let script = "status=418".parse().unwrap();
    let mock = Mock::start(Options {
        script,
        ..Options::default()
    })
    .unwrap();
    let mut client = Client::new(&mock);
    client.send(get("/health", ""));
    assert_eq!(client.reply().status, 418);
    client.send(get("/health", "x-mock: status=201\r\n"));
    assert_eq!(client.reply().status, 201);
    let by_model = client.without_script(CHAT, &json!({"model": "mock-echo"}));
    assert!(by_model["head"].is_string());
}

#[test]
fn small_endpoints() {
    let mock = mock();
    let mut client = Client::new(&mock);
    client.send(get("/v1/models", ""));
    assert_eq!(client.reply().json()["object"], "list");
    client.send(get(
        "/v1/models?limit=1",
        "anthropic-version: 2023-06-01\r\n",
    ));
    assert_eq!(client.reply().json()["data"][0]["type"], "model");
    assert_eq!(
        client.post("/v1/messages/count_tokens", "", "{}").json(),
        json!({"input_tokens": 12})
    );
    client.send(get("/health", ""));
    assert_eq!(client.reply().status, 200);
    client.send("HEAD / HTTP/1.1\r\nHost: mock\r\n\r\n");
    assert_eq!(client.head().unwrap().header("content-length"), Some("0"));
    client.send("HEAD /health HTTP/1.1\r\nHost: mock\r\n\r\n");
    assert_ne!(client.head().unwrap().header("content-length"), Some("0"));
    client.send(get(
        "/v1/responses",
        "Connection: Upgrade\r\nUpgrade: websocket\r\n",
    ));
    assert_eq!(client.reply().status, 426);
    client.send(get("/nowhere", ""));
    let lost = client.reply();
    assert_eq!(
        (lost.status, &lost.json()["error"]["type"]),
        (404, &json!("invalid_request_error"))
    );
    assert_eq!(mock.executions(), 0);
}

#[test]
fn control_endpoints_show_count_and_forget() {
    let mock = mock();
    let mut client = Client::new(&mock);
    client.post(CHAT, "", "{}");
    client.post(CHAT, "", &format!("\"{}\"", "x".repeat(5000)));
    client.send(get("/mock/requests", ""));
    let lines = client.reply();
    let rows: Vec<Value> = lines
        .text()
        .lines()
        .map(|row| serde_json::from_str(row).unwrap())
        .collect();
    assert_eq!(rows.len(), 2);
    assert!(
        rows[0]["head"]
            .as_str()
            .unwrap()
            .starts_with("POST /v1/chat")
    );
    assert_eq!(
        (&rows[0]["body_base64"], &rows[0]["executed"]),
        (&json!("e30="), &json!(true))
    );
    assert_eq!(
        (&rows[1]["body_base64"], &rows[1]["body_len"]),
        (&Value::Null, &json!(5002))
    );
    client.send(get("/mock/executions", ""));
    assert_eq!(client.reply().text(), "2");
    client.send("DELETE /mock/requests HTTP/1.1\r\nHost: mock\r\n\r\n");
    assert_eq!(client.reply().status, 200);
    assert_eq!((mock.requests().len(), mock.executions()), (0, 0));
}

#[test]
fn malformed_requests_are_recorded_refused_and_never_run() {
    for bytes in [
        "POST /v1/responses HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        "POST /v1/responses HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\n{}\r\n0\r\n\r\n",
        "POST /v1/responses HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n",
        "nonsense\r\n\r\n",
    ] {
        let mock = mock();
        let mut client = Client::new(&mock);
        client.send(bytes);
        let reply = client.reply();
        assert_eq!(
            (reply.status, reply.header("connection")),
            (400, Some("close")),
            "{bytes}"
        );
        assert!(client.at_end());
        let request = mock.requests().pop().unwrap();
        assert!(
            !request.complete && !request.executed && !request.head.is_empty(),
            "{bytes}"
        );
        assert_eq!(mock.executions(), 0);
    }
}

#[test]
fn bodies_of_any_depth_are_answered() {
    let mock = mock();
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        for depth in [120, 126, 127, 100_000] {
            let (open, close) = (open.repeat(depth), close.repeat(depth));
            let body = format!("{{\"model\":\"m\",\"x\":{open}1{close}}}");
            let reply = ask(&mock, CHAT, "", &body);
            let model = if depth < 127 { "m" } else { "unread" };
            assert_eq!(reply.json()["model"], model, "{depth}");
        }
    }
}

#[test]
fn events_have_the_size_and_number_asked() {
    let reply = ask(&mock(), CHAT, "events=3; event_bytes=100000", &streaming());
    let events = reply.events();
    let sizes = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str());
    assert_eq!(
        sizes.map(str::len).collect::<Vec<_>>(),
        [0, 100_000, 100_000, 100_000]
    );
}

#[test]
fn stop_breaks_connections_and_frees_the_port() {
    let mut mock = mock();
    let addr = mock.addr();
    let mut waiting = Client::new(&mock);
    waiting.send(request(CHAT, "silence=head", "{}"));
    wait_for(&mock, |request| request.complete);
    let mut idle = Client::new(&mock);
    idle.post(CHAT, "", "{}");
    mock.stop();
    assert!(waiting.at_end() && idle.at_end());
    let again = Mock::start(Options {
        listen: addr,
        ..Options::default()
    })
    .unwrap();
    assert_eq!(ask(&again, CHAT, "", "{}").status, 200);
}
