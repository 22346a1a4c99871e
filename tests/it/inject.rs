//! Usage that a provider is asked for in the place of the client: what the provider sees of it, what the
//! client does not, and what is counted.

use std::io::Write as _;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::admin::{ADMIN, admin, scrape_after};
use crate::support::client::{CHAT, Client, Response, chunk, head, request};
use crate::support::exposition::Exposition;
use crate::support::gateway::{Driver, Gateway, Setup};
use crate::support::message::{End, Flow, find, settle};
use crate::support::on_both_drivers;
use crate::support::origin::{Caller, Incoming, Origin, json as answer};

on_both_drivers!(
    what_is_missing_is_put_in_and_the_extra_chunk_taken_out,
    who_asks_gets_what_the_provider_sends,
    what_cannot_be_told_is_left_alone_and_counted,
    other_requests_are_left_alone,
    model_session_and_usage_are_patched_at_once,
    answers_that_are_no_plain_stream_keep_their_chunk,
    a_provider_that_sends_none_is_counted,
    the_extra_chunk_may_come_in_any_two_pieces,
    what_is_held_when_the_provider_breaks_off_is_sent_on,
    no_delta_waits_for_the_next_one,
    a_body_that_ends_with_the_connection_is_sifted_too,
    trailer_fields_follow_what_was_taken_out_last,
    what_is_cut_here_has_its_outcome_too,
    a_switch_that_went_on_in_part_has_none,
);

const DELTAS: &str = concat!(
    r#"data: {"id":"c","choices":[],"prompt_filter_results":[{}]}"#,
    "\n\n",
    r#"data: {"id":"c","choices":[{"index":0,"delta":{"content":"hi"}}],"usage":null}"#,
    "\n\n: still here\n\n",
    r#"data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}"#,
    "\n\n",
);
const EXTRA: &str = concat!(
    r#"data: {"id":"c","choices":[],"usage":{"prompt_tokens":12,"completion_tokens":7,"total_tokens":19}}"#,
    "\r\n\r\n",
);
const DONE: &str = "data: [DONE]\n\n";

/// What a client that did not ask is to see.
fn unasked() -> String {
    [DELTAS, DONE].concat()
}

/// What the provider sends to who asked.
fn all() -> String {
    [DELTAS, EXTRA, DONE].concat()
}

fn asks(request: &Incoming) -> bool {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    body["stream_options"]["include_usage"] == true
}

fn stream_head(fields: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n{fields}\r\n")
        .into_bytes()
}

const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";

fn in_chunks(pieces: &[&[u8]]) -> Vec<u8> {
    let chunks = pieces.iter().flat_map(|piece| chunk(piece));
    let mut whole = stream_head(CHUNKED);
    whole.extend(chunks);
    whole.extend_from_slice(b"0\r\n\r\n");
    whole
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A chat provider; the case says how it answers.
fn answers(caller: &Caller, request: &Incoming) {
    let body = if asks(request) { all() } else { unasked() };
    let sized = |fields: &str, body: &[u8]| {
        let fields = format!("{fields}Content-Length: {}\r\n", body.len());
        [stream_head(&fields), body.to_vec()].concat()
    };
    let reply = match request.case().as_str() {
        "sized" => sized("", body.as_bytes()),
        "coded" => sized("Content-Encoding: gzip\r\n", &gzipped(body.as_bytes())),
        "coded-chunks" => {
            let head = stream_head("Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n");
            [
                head,
                chunk(&gzipped(body.as_bytes())),
                b"0\r\n\r\n".to_vec(),
            ]
            .concat()
        }
        "object" => answer(200, r#"{"choices":[],"usage":{"prompt_tokens":1}}"#),
        "refused" => answer(429, "{\"error\":{}}"),
        "ignores" => in_chunks(&[unasked().as_bytes()]),
        _ => in_chunks(&[body.as_bytes()]),
    };
    caller.reply(&reply).unwrap();
}

fn provider() -> Origin {
    Origin::start(|caller| {
        while let Some(request) = caller.request() {
            answers(caller, &request);
        }
    })
}

fn injecting(driver: Driver, origin: &Origin) -> Setup {
    Setup::new(driver).with(ADMIN).provider(
        "openai",
        origin.address(),
        "default: true, usage: inject",
    )
}

/// One chat request; its answer, its access line, and the body that the provider got.
fn asked(
    gateway: &Gateway,
    origin: &Origin,
    fields: &[&str],
    body: &[u8],
) -> (Response, Value, Vec<u8>) {
    asked_at(CHAT, gateway, origin, fields, body)
}

fn asked_at(
    path: &str,
    gateway: &Gateway,
    origin: &Origin,
    fields: &[&str],
    body: &[u8],
) -> (Response, Value, Vec<u8>) {
    origin.forget();
    let mut client = gateway.connect();
    let answer = client.exchange("POST", &request("POST", path, fields, body));
    let line = line_of(gateway, &answer);
    let seen = origin.look(|log| log.requests[0].body.clone());
    (answer, line, seen)
}

fn line_of(gateway: &Gateway, answer: &Response) -> Value {
    let id = answer.head.value("x-lanegate-request-id").unwrap();
    gateway.access_line(&id, |line| line["request_id"] == id.as_str())
}

/// How many requests to the provider ended so.
fn outcome(page: &Exposition, outcome: &str) -> u64 {
    page.count(&format!(
        "lanegate_usage_injections_total{{provider=\"listed-0\",outcome=\"{outcome}\"}}"
    ))
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// What the line says: the outcome, whether the usage is known, and two counts of it.
fn said(line: &Value) -> Value {
    json!([
        line["injection"],
        line["usage"],
        line["input_tokens"],
        line["output_tokens"]
    ])
}

fn what_is_missing_is_put_in_and_the_extra_chunk_taken_out(driver: Driver) {
    let origin = provider();
    let gateway = injecting(driver, &origin).start();
    for (options, before, put_in) in [
        ("", r#""stream_options":{"include_usage":true},"#, ""),
        (
            r#","stream_options": null"#,
            "",
            r#","stream_options": {"include_usage":true}"#,
        ),
        (
            r#","stream_options":{ }"#,
            "",
            r#","stream_options":{"include_usage":true }"#,
        ),
        (
            r#","stream_options":{"x":[1.0e0]}"#,
            "",
            r#","stream_options":{"include_usage":true,"x":[1.0e0]}"#,
        ),
        (
            r#","stream_options":{"include_usage" : false,"x":1}"#,
            "",
            r#","stream_options":{"include_usage" : true,"x":1}"#,
        ),
    ] {
        let body = |before, options| {
            format!(r#"{{{before} "model":"m","messages":[], "stream" : true{options}}} "#)
        };
        let sent = body("", options);
        let patched = body(before, put_in);
        let (answer, line, seen) = asked(&gateway, &origin, &[], sent.as_bytes());
        assert_eq!(text(&seen), patched);
        assert_eq!(text(&answer.body), unasked(), "{options}");
        assert_eq!(answer.end, End::Complete);
        assert_eq!(said(&line), json!(["removed", "complete", 12, 7]));
        assert_eq!(
            (&line["lane"], &line["stop_reason"]),
            (&json!("wire"), &json!("stop"))
        );

        // The same in chunks of three bytes.
        let mut client = gateway.connect();
        origin.forget();
        let mut chunks = head("POST", CHAT, &["Transfer-Encoding: chunked"]).into_bytes();
        chunks.extend_from_slice(b"\r\n");
        sent.as_bytes()
            .chunks(3)
            .for_each(|piece| chunks.extend(chunk(piece)));
        chunks.extend_from_slice(b"0\r\n\r\n");
        let answer = client.exchange("POST", &chunks);
        assert_eq!(text(&answer.body), unasked(), "{options}");
        assert_eq!(
            origin.look(|log| log.requests[0].body.clone()),
            patched.as_bytes()
        );
    }
    let page = scrape_after(admin(&gateway), 10);
    assert_eq!(outcome(&page, "removed"), 10);
    assert_eq!(page.sum("lanegate_usage_injections_total"), 10);
    let answers = "lanegate_answers_total{provider=\"listed-0\",usage=\"complete\"}";
    assert_eq!(page.count(answers), 10);
}

fn who_asks_gets_what_the_provider_sends(driver: Driver) {
    let origin = provider();
    let gateway = injecting(driver, &origin).start();
    for options in [
        r#""stream_options":{"include_usage":true}"#,
        // A provider's own way to be asked.
        r#""usage":{"include":true},"stream_options":{"include_usage":true}"#,
    ] {
        let body = format!(r#"{{"stream":true,"model":"m","messages":[],{options}}}"#);
        let (answer, line, seen) = asked(&gateway, &origin, &[], body.as_bytes());
        assert_eq!((text(&seen), text(&answer.body)), (&*body, &*all()));
        assert_eq!(said(&line), json!(["asked", "complete", 12, 7]));
    }
    let body = r#"{"stream":true,"model":"m","messages":[],"usage":{"include":true}}"#;
    let (_, line, seen) = asked(&gateway, &origin, &["x-case: object"], body.as_bytes());
    assert_eq!(text(&seen), body);
    assert_eq!(line["injection"], "asked");
}

fn what_cannot_be_told_is_left_alone_and_counted(driver: Driver) {
    let origin = provider();
    let gateway = injecting(driver, &origin)
        .with("limits: { window_bytes: 64KiB }")
        .start();
    let body = |options: &str| {
        format!(r#"{{"stream":true,"model":"m","messages":[],{options}}}"#).into_bytes()
    };
    let long = body(&format!(r#""x":"{}""#, "x".repeat(100_000)));
    let gzip = &["Content-Encoding: gzip"][..];
    for (fields, body, why) in [
        (
            &[][..],
            body(r#""stream_options":null,"stream_options":null"#),
            "request_ambiguous",
        ),
        (
            &[],
            body(r#""stream\u005foptions":null"#),
            "request_ambiguous",
        ),
        (&[], body(r#""Stream_Options":null"#), "request_ambiguous"),
        (&[], body(r#""stream":true"#), "request_ambiguous"),
        (&[], body(r#""stream":false"#), "request_ambiguous"),
        (
            &[],
            body(r#""stream_options":{"include_usage":false,"include_usage":false}"#),
            "request_ambiguous",
        ),
        (
            &[],
            body(r#""stream_options":{"include\u005fusage":false}"#),
            "request_ambiguous",
        ),
        (&[], body(r#""stream_options":[]"#), "request_other_type"),
        (
            &[],
            body(r#""stream_options":{"include_usage":"false"}"#),
            "request_other_type",
        ),
        (&[], long, "request_beyond_window"),
        (
            gzip,
            gzipped(&body(r#""stream_options":null"#)),
            "request_coded",
        ),
    ] {
        let (answer, line, seen) = asked(&gateway, &origin, fields, &body);
        assert_eq!(seen, body, "{why}");
        assert_eq!(text(&answer.body), unasked(), "{why}");
        assert_eq!(said(&line), json!([why, "absent", null, null]));
    }
    let page = scrape_after(admin(&gateway), 11);
    let outcomes = [
        "request_ambiguous",
        "request_other_type",
        "request_beyond_window",
        "request_coded",
        "removed",
    ];
    assert_eq!(outcomes.map(|it| outcome(&page, it)), [7, 2, 1, 1, 0]);
}

fn other_requests_are_left_alone(driver: Driver) {
    let origin = provider();
    let inject = injecting(driver, &origin)
        .provider("anthropic", origin.address(), "default: true")
        .with("limits: { window_bytes: 64KiB }")
        .start();
    let relay = Setup::new(driver)
        .with(ADMIN)
        .provider("openai", origin.address(), "default: true")
        .start();
    let stream = r#"{"stream":true,"model":"m","messages":[],"input":[]}"#;
    let single = r#"{"stream":false,"model":"m","messages":[]}"#;
    for (gateway, path, body) in [
        (&inject, CHAT, single),
        (
            &inject,
            CHAT,
            r#"{"model":"m","messages":[],"stream_options":null}"#,
        ),
        (&inject, "/v1/responses", stream),
        (&inject, "/v1/messages", stream),
        (&inject, "/v1/completions", stream),
        (&relay, CHAT, stream),
    ] {
        let (answer, line, seen) = asked_at(path, gateway, &origin, &[], body.as_bytes());
        assert_eq!(text(&seen), body, "{path}");
        assert_eq!(text(&answer.body), unasked(), "{path}");
        assert_eq!(line.get("injection"), None, "{path} {line}");
    }
    // One that says so before the rest of it is here.
    let long = format!(
        r#"{{"stream":false,"model":"m","x":"{}"}}"#,
        "x".repeat(100_000)
    );
    let (_, line, seen) = asked(&inject, &origin, &[], long.as_bytes());
    assert_eq!(text(&seen), long);
    assert_eq!(line.get("injection"), None, "{line}");
    // One with a content coding, read for its model.
    let keys = r#"default: true, usage: inject, models: [{ from: "n", to: "another" }]"#;
    let reads = Setup::new(driver)
        .with(ADMIN)
        .provider("openai", origin.address(), keys)
        .start();
    let coded = gzipped(single.as_bytes());
    let (_, line, seen) = asked(&reads, &origin, &["Content-Encoding: gzip"], &coded);
    assert_eq!(seen, coded);
    assert_eq!(line.get("injection"), None, "{line}");
    for gateway in [inject, relay, reads] {
        let page = scrape_after(admin(&gateway), 1);
        assert_eq!(page.sum("lanegate_usage_injections_total"), 0);
    }
}

fn model_session_and_usage_are_patched_at_once(driver: Driver) {
    let origin = provider();
    let gateway = Setup::new(driver)
        .provider(
            "openai",
            origin.address(),
            r#"usage: inject, session_forwarding: opencode-go, models: [{ from: "m", to: "another" }]"#,
        )
        .start();
    let body = r#"{ "prompt_cache_key":"k","messages":[],"model":"m","stream":true}"#;
    let (answer, line, seen) = asked(&gateway, &origin, &[], body.as_bytes());
    let seen = text(&seen);
    let rest = seen.strip_prefix(r#"{"session_id":""#).unwrap();
    let (_, rest) = rest.split_once(r#"","#).unwrap();
    assert_eq!(
        rest,
        r#""stream_options":{"include_usage":true}, "prompt_cache_key":"k","messages":[],"model":"another","stream":true}"#
    );
    assert_eq!(text(&answer.body), unasked());
    assert_eq!(said(&line), json!(["removed", "complete", 12, 7]));
    // What the client says itself is replaced where it stands.
    let body = r#"{"model":"m","stream_options":{"include_usage":false},"session_id":"s","stream":true,"messages":[]}"#;
    let (_, line, seen) = asked(&gateway, &origin, &[], body.as_bytes());
    let seen = text(&seen);
    assert!(
        seen.starts_with(
            r#"{"model":"another","stream_options":{"include_usage":true},"session_id":""#
        ),
        "{seen}"
    );
    assert!(
        seen.ends_with(r#"","stream":true,"messages":[]}"#),
        "{seen}"
    );
    assert_eq!(line["injection"], "removed");
    // A body that is unpacked for its model has its usage asked for as well.
    let body = r#"{"model":"m","stream":true,"messages":[]}"#;
    let (answer, line, seen) = asked(
        &gateway,
        &origin,
        &["Content-Encoding: gzip"],
        &gzipped(body.as_bytes()),
    );
    let wanted = br#""stream_options":{"include_usage":true},"model":"another","#;
    assert!(find(&seen, wanted).is_some(), "{}", text(&seen));
    assert_eq!(text(&answer.body), unasked());
    assert_eq!(
        (&line["injection"], &line["lane"]),
        (&json!("removed"), &json!("canonical"))
    );
}

const STREAM: &[u8] = br#"{"stream":true,"model":"m","messages":[]}"#;

fn answers_that_are_no_plain_stream_keep_their_chunk(driver: Driver) {
    let origin = provider();
    let gateway = injecting(driver, &origin).start();
    let object = br#"{"choices":[],"usage":{"prompt_tokens":1}}"#;
    for (case, body, why) in [
        ("sized", all().into_bytes(), "answer_sized"),
        ("coded", gzipped(all().as_bytes()), "answer_coded"),
        ("coded-chunks", gzipped(all().as_bytes()), "answer_coded"),
        ("object", object.to_vec(), "no_stream"),
        ("refused", b"{\"error\":{}}".to_vec(), "no_stream"),
    ] {
        let case = format!("x-case: {case}");
        let (answer, line, _) = asked(&gateway, &origin, &[&case], STREAM);
        assert_eq!(answer.body, body, "{case}");
        assert_eq!(line["injection"], why, "{case}");
    }
}

fn a_provider_that_sends_none_is_counted(driver: Driver) {
    let origin = provider();
    let gateway = injecting(driver, &origin).start();
    let (answer, line, _) = asked(&gateway, &origin, &["x-case: ignores"], STREAM);
    assert_eq!(text(&answer.body), unasked());
    assert_eq!(said(&line), json!(["not_found", "absent", null, null]));
}

fn the_extra_chunk_may_come_in_any_two_pieces(driver: Driver) {
    let origin = Origin::start(|caller| {
        while let Some(request) = caller.request() {
            let at: usize = request.case().parse().unwrap();
            let whole = all();
            let (first, second) = whole.as_bytes().split_at(at);
            caller.reply(&stream_head(CHUNKED)).unwrap();
            caller.reply(&chunk(first)).unwrap();
            // Long enough for the gateway to read it alone, most times.
            std::thread::sleep(Duration::from_millis(1));
            let rest = [&chunk(second)[..], b"0\r\n\r\n"].concat();
            caller.reply(&rest).unwrap();
        }
    });
    let gateway = injecting(driver, &origin).start();
    let mut client = gateway.connect();
    let from = DELTAS.len() - 3;
    for at in from..DELTAS.len() + EXTRA.len() + 3 {
        let case = format!("x-case: {at}");
        let answer = client.exchange("POST", &request("POST", CHAT, &[&case], STREAM));
        assert_eq!(text(&answer.body), unasked(), "{at}");
        assert_eq!(answer.end, End::Complete, "{at}");
    }
}

fn what_is_held_when_the_provider_breaks_off_is_sent_on(driver: Driver) {
    let origin = Origin::start(|caller| {
        if let Some(request) = caller.request() {
            let whole = all();
            let held = &whole.as_bytes()[..DELTAS.len() + EXTRA.len() - 4];
            let sent = [stream_head(CHUNKED), chunk(held)].concat();
            caller.reply(&sent).unwrap();
            match request.case().as_str() {
                "malformed" => {
                    // What is held was read before.
                    std::thread::sleep(Duration::from_millis(100));
                    caller.reply(b"no size\r\n").unwrap();
                }
                "silent" => caller.stall_until_ended(),
                _ => {}
            }
        }
    });
    let gateway = Setup::new(driver)
        .provider(
            "openai",
            origin.address(),
            "default: true, usage: inject, timeouts: { idle: 1s }",
        )
        .start();
    for (case, end) in [
        ("cut", "upstream_cut"),
        ("malformed", "upstream_malformed"),
        ("silent", "upstream_idle_timeout"),
    ] {
        let fields = format!("x-case: {case}");
        let mut client = gateway.connect();
        let answer = client.exchange("POST", &request("POST", CHAT, &[&fields], STREAM));
        let whole = all();
        let held = &whole[..DELTAS.len() + EXTRA.len() - 4];
        assert_eq!(text(&answer.body), held, "{case}");
        assert!(matches!(answer.end, End::Cut(_)), "{case}");
        let line = gateway.ended(end);
        assert_eq!(line["injection"], "not_found", "{case}");
    }
}

/// Each event, and the part of one that decides, is with the client before the provider goes on.
fn no_delta_waits_for_the_next_one(driver: Driver) {
    let pieces = [
        DELTAS,
        r#"data: {"id":"c","choices":[{"#,
        r#""index":0}]}"#,
        "\n\n",
        r#"data: {"choices":[],"usage":n"#,
        "ull}\n\n",
    ];
    let origin = Origin::start(move |caller| {
        if caller.request().is_none() {
            return;
        }
        caller.reply(&stream_head(CHUNKED)).unwrap();
        for piece in pieces {
            caller.reply(&chunk(piece.as_bytes())).unwrap();
            // Two pieces in one would be as wrong here as a late one.
            std::thread::sleep(Duration::from_millis(50));
        }
        caller.stall_until_ended();
    });
    let gateway = injecting(driver, &origin).start();
    let mut client = gateway.connect();
    client.send(&request("POST", CHAT, &[], STREAM)).unwrap();
    let (_, head) = client.heads().unwrap();
    let mut flow = Flow::new(head.response_framing("POST").unwrap());
    let mut came = Vec::new();
    for piece in pieces {
        came.extend(flow.piece(&mut client.wire).unwrap());
        assert!(came.ends_with(piece.as_bytes()), "{}", text(&came));
    }
}

fn a_body_that_ends_with_the_connection_is_sifted_too(driver: Driver) {
    let origin = Origin::start(|caller| {
        let Some(request) = caller.request() else {
            return;
        };
        let body = match request.case().as_str() {
            // The last event is not ended, so that nothing is taken out.
            "open" => all().replace(DONE, "").trim_end().to_owned(),
            _ => all().replace(DONE, ""),
        };
        let answer = [stream_head("Connection: close\r\n"), body.into_bytes()].concat();
        caller.reply(&answer).unwrap();
    });
    let gateway = injecting(driver, &origin).start();
    let open = [DELTAS, EXTRA.trim_end()].concat();
    for (case, body, why) in [("whole", DELTAS, "removed"), ("open", &*open, "not_found")] {
        let fields = format!("x-case: {case}");
        let asked = request("POST", CHAT, &[&fields], STREAM);
        let old = String::from_utf8(asked.clone())
            .unwrap()
            .replace("HTTP/1.1", "HTTP/1.0");
        for asked in [asked, old.into_bytes()] {
            let mut client = Client::connect(gateway.address());
            let answer = client.exchange("POST", &asked);
            assert_eq!(text(&answer.body), body, "{case}");
            assert_eq!(line_of(&gateway, &answer)["injection"], why, "{case}");
        }
    }
}

fn trailer_fields_follow_what_was_taken_out_last(driver: Driver) {
    let origin = Origin::start(|caller| {
        while let Some(request) = caller.request() {
            let extra = match request.case().as_str() {
                // The last byte of what is taken out comes alone.
                "late" => {
                    let (first, last) = EXTRA.split_at(EXTRA.len() - 1);
                    [chunk(first.as_bytes()), chunk(last.as_bytes())].concat()
                }
                _ => chunk(EXTRA.as_bytes()),
            };
            let parts = [
                &stream_head(CHUNKED)[..],
                &chunk(DELTAS.as_bytes()),
                &extra,
                b"0\r\nX-Sum: 1\r\n\r\n",
            ];
            caller.reply(&parts.concat()).unwrap();
        }
    });
    let gateway = injecting(driver, &origin).start();
    for (case, te) in [("once", true), ("late", true), ("late", false)] {
        let case = format!("x-case: {case}");
        let fields = [&*case, "TE: trailers"];
        let fields = fields.get(..if te { 2 } else { 1 }).unwrap();
        let (answer, line, _) = asked(&gateway, &origin, fields, STREAM);
        assert_eq!(text(&answer.body), DELTAS, "{case}");
        assert_eq!(answer.end, End::Complete, "{case}");
        let trailers = answer.trailers.join(&b"\n"[..]);
        assert_eq!(text(&trailers), if te { "X-Sum: 1" } else { "" }, "{case}");
        assert_eq!(line["injection"], "removed", "{case}");
    }
}

/// A provider that answers in part and then waits: the case says up to where.
fn pausing() -> Origin {
    Origin::start(|caller| {
        if let Some(request) = caller.request() {
            let upto = match request.case().as_str() {
                "held" => DELTAS.len() + EXTRA.len() - 4,
                _ => DELTAS.len() + EXTRA.len(),
            };
            let whole = all();
            let part = whole.get(..upto).unwrap();
            let sent = [stream_head(CHUNKED), chunk(part.as_bytes())].concat();
            caller.reply(&sent).unwrap();
            caller.stall_until_ended();
        }
    })
}

/// A client inside the stream of a provider that pauses, with all that it is sent until then.
fn inside(gateway: &Gateway, case: &str) -> Client {
    let mut client = gateway.connect();
    let case = format!("x-case: {case}");
    client
        .send(&request("POST", CHAT, &[&case], STREAM))
        .unwrap();
    let (_, head) = client.heads().unwrap();
    let mut flow = Flow::new(head.response_framing("POST").unwrap());
    let mut came = Vec::new();
    while came.len() < DELTAS.len() {
        came.extend(flow.piece(&mut client.wire).unwrap());
    }
    assert_eq!(text(&came), DELTAS);
    client
}

fn what_is_cut_here_has_its_outcome_too(driver: Driver) {
    let origin = pausing();
    let mut gateway = injecting(driver, &origin)
        .with("timeouts: { drain: 500ms, linger: 400ms }")
        .start();
    for (case, outcome) in [("held", "not_found"), ("whole", "removed")] {
        let client = inside(&gateway, case);
        // Most times the gateway has read what is behind the deltas with them.
        settle();
        drop(client);
        let line = gateway.access_line(case, |line| line["injection"] == outcome);
        assert_eq!(line["end_reason"], "client_closed", "{line}");
    }
    let client = inside(&gateway, "held");
    gateway.tell(Signal::TERM);
    assert_eq!(gateway.exit_status().code(), Some(0));
    drop(client);
    let line = gateway.ended("drained");
    assert_eq!(
        (&line["injection"], &line["status"]),
        (&json!("not_found"), &json!(200))
    );
}

/// What is sent on before its end is known, and answered here for its end.
fn a_switch_that_went_on_in_part_has_none(driver: Driver) {
    let origin = provider();
    let gateway = injecting(driver, &origin)
        .with("limits: { window_bytes: 64KiB }")
        .start();
    let filler = "x".repeat(300_000);
    let first = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{filler}"#);
    let second = r#""},{"role":"user","content":"--who?"}]}"#;
    let length = format!("Content-Length: {}", first.len() + second.len());
    let mut client = gateway.connect();
    let head = head("POST", CHAT, &[&length]);
    client
        .send(format!("{head}\r\n{first}").as_bytes())
        .unwrap();
    origin.wait("a part", |log| !log.requests.is_empty());
    client.send(second.as_bytes()).unwrap();
    let answer = client.response("POST").unwrap();
    assert_eq!(answer.status, 200);
    let line = line_of(&gateway, &answer);
    assert_eq!(
        (&line["switch"], &line["attempts"], line.get("injection")),
        (&json!("who"), &json!(1), None)
    );
}
