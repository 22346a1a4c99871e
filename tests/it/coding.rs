//! Compressed request bodies: read where their model decides, passed on byte for byte, decoded only
//! where the model is replaced, and never run where they are refused.

use std::fs;
use std::io::{Read, Write};
use std::time::Duration;

use flate2::Compression;
use flate2::read::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use zstd_safe::{CCtx, CParameter, DCtx, InBuffer, OutBuffer};

use crate::alias::only_the_model_differs;
use crate::captures::captures;
use crate::support::client::{CHAT, Client, Response, chunk, head, request};
use crate::support::gateway::{Driver, Gateway, Setup};
use crate::support::message::{Head, find};
use crate::support::on_both_drivers;
use crate::support::origin::{Caller, Origin, Seen, json};

on_both_drivers!(
    the_zstd_request_of_codex_is_routed_and_arrives_as_sent,
    the_zstd_request_of_codex_is_decoded_where_its_model_is_replaced,
    every_coding_is_read_and_arrives_as_sent,
    every_coding_is_decoded_where_the_model_is_replaced,
    a_coded_body_may_be_cut_anywhere,
    what_stands_behind_a_decoded_body_is_the_next_request,
    codings_that_cannot_be_read_pass_where_nothing_is_read,
    refused_bodies_are_never_run,
    a_body_that_decodes_to_too_much_is_told_so,
    a_window_beyond_the_memory_of_the_gateway_is_told_so,
    an_expectation_is_met_before_a_coded_body,
);

const KIB: usize = 1024;

const CODINGS: [&str; 5] = ["gzip", "x-gzip", "deflate", "zstd", "br"];

/// Takes the model of these tests under its own name, while another provider takes the rest, so that
/// every body has to be read.
const ROUTED: &str = r#"models: [{ from: "gpt-5*", to: "{model}" }]"#;

/// Under a name that is longer.
const ALIASED: &str = r#"models: [{ from: "gpt-5*", to: "a-model-of-another-name" }]"#;
const ALIAS: &str = "a-model-of-another-name";

fn gateway(driver: Driver, taker: &Origin, models: &str, more: &str) -> Gateway {
    // Nothing listens where the rest would go.
    let nowhere = "127.0.0.1:9".parse().unwrap();
    Setup::new(driver)
        .provider("openai", taker.address(), models)
        .provider("openai", nowhere, "default: true")
        .with(more)
        .start()
}

/// A provider that decodes what it gets as it comes, and runs a request when its root closes. Answers
/// whole requests with the number of bytes.
fn decoding() -> Origin {
    Origin::start(|caller: &mut Caller| {
        while let Some(mut incoming) = caller.head() {
            let end = caller.finish(&mut incoming);
            let coding = incoming.head.value("content-encoding").unwrap_or_default();
            if closes(&unpacked(&coding, &incoming.body)) {
                caller.note(&format!("ran {}", incoming.case()));
            }
            let answer = json(200, &incoming.body.len().to_string());
            if !end.is_clean() || caller.reply(&answer).is_err() {
                return;
            }
        }
    })
}

/// Whether the braces are balanced; no string here has any.
fn closes(plain: &[u8]) -> bool {
    let count = |brace| plain.iter().filter(|byte| **byte == brace).count();
    count(b'{') > 0 && count(b'{') == count(b'}')
}

/// As much as there is, whatever is wrong with the rest.
fn unpacked(coding: &str, body: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    match coding {
        "gzip" | "x-gzip" => drop(GzDecoder::new(body).read_to_end(&mut plain)),
        "deflate" => drop(ZlibDecoder::new(body).read_to_end(&mut plain)),
        "br" => drop(brotli::Decompressor::new(body, 1).read_to_end(&mut plain)),
        "zstd" => {
            let (mut context, mut room) = (DCtx::create(), vec![0; 128 * KIB]);
            let mut input = InBuffer::around(body);
            loop {
                let mut output = OutBuffer::around(&mut room[..]);
                let went = context.decompress_stream(&mut output, &mut input);
                let made = output.pos();
                plain.extend(&room[..made]);
                if !matches!(went, Ok(1..)) || input.pos == body.len() && made < room.len() {
                    break;
                }
            }
        }
        _ => plain.extend(body),
    }
    plain
}

fn packed(coding: &str, plain: &[u8]) -> Vec<u8> {
    match coding {
        "gzip" | "x-gzip" => {
            let mut packer = GzEncoder::new(Vec::new(), Compression::default());
            packer.write_all(plain).unwrap();
            packer.finish().unwrap()
        }
        "deflate" => {
            let mut packer = ZlibEncoder::new(Vec::new(), Compression::default());
            packer.write_all(plain).unwrap();
            packer.finish().unwrap()
        }
        "br" => {
            let mut packer = brotli::CompressorWriter::new(Vec::new(), 4096, 1, 20);
            packer.write_all(plain).unwrap();
            packer.into_inner()
        }
        _ => zstd(plain, 21),
    }
}

fn zstd(plain: &[u8], window: u32) -> Vec<u8> {
    let mut context = CCtx::create();
    context
        .set_parameter(CParameter::WindowLog(window))
        .unwrap();
    context
        .set_parameter(CParameter::ChecksumFlag(true))
        .unwrap();
    let mut out = vec![0; zstd_safe::compress_bound(plain.len()) + 64];
    let mut output = OutBuffer::around(&mut out[..]);
    let mut input = InBuffer::around(plain);
    while input.pos < plain.len() {
        context.compress_stream(&mut output, &mut input).unwrap();
    }
    assert_eq!(context.end_stream(&mut output).unwrap(), 0);
    let written = output.pos();
    out.truncate(written);
    out
}

/// A request of about `bytes` bytes that shrink to about half; its model comes first or last.
fn chat(bytes: usize, model_last: bool) -> Vec<u8> {
    let (mut text, mut number) = (String::new(), 1_u64);
    while text.len() < bytes {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        text.push_str(&format!("{:x} ", number >> 8));
    }
    let messages = format!(r#""messages":[{{"role":"user","content":"{text}"}}]"#);
    let model = r#""model":"gpt-5-mini""#;
    match model_last {
        true => format!("{{{messages},{model}}}").into_bytes(),
        false => format!("{{{model},{messages}}}").into_bytes(),
    }
}

fn post(coding: &str, body: &[u8], chunked: bool) -> Vec<u8> {
    posted(&[&format!("Content-Encoding: {coding}")], body, chunked)
}

fn posted(fields: &[&str], body: &[u8], chunked: bool) -> Vec<u8> {
    if !chunked {
        return request("POST", CHAT, fields, body);
    }
    let mut sent = head("POST", CHAT, fields).into_bytes();
    sent.extend(b"Transfer-Encoding: chunked\r\n\r\n");
    for piece in body.chunks(6007) {
        sent.extend(chunk(piece));
    }
    sent.extend(b"0\r\n\r\n");
    sent
}

/// The one request that arrived, and was answered with 200.
fn arrived(gateway: &Gateway, origin: &Origin, sent: &[u8]) -> Seen {
    origin.forget();
    let answer = gateway.connect().exchange("POST", sent);
    assert_eq!(answer.status, 200, "{answer:#?}");
    origin.look(|log| {
        assert_eq!(log.requests.len(), 1, "{log:#?}");
        log.requests[0].clone()
    })
}

/// The request, what it decodes to, and its head.
fn codex() -> (Vec<u8>, Vec<u8>, Head) {
    let capture = captures()
        .into_iter()
        .find(|capture| capture.name == "codex-chatgpt-auth/017.http");
    let bytes = capture.unwrap().bytes;
    let plain = fs::read("tests/data/captures/codex-chatgpt-auth/017.plain.json").unwrap();
    let head = Head::of(&bytes);
    assert_eq!(head.value("content-encoding").as_deref(), Some("zstd"));
    (bytes, plain, head)
}

fn the_zstd_request_of_codex_is_routed_and_arrives_as_sent(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = gateway(driver, &origin, ROUTED, "");
    let (sent, _, head) = codex();
    let seen = arrived(&gateway, &origin, &sent);
    let body = find(&sent, b"\r\n\r\n").unwrap() + 4;
    assert!(seen.is_complete() && seen.body == sent[body..]);
    for field in ["content-encoding", "content-length", "content-type"] {
        assert_eq!(seen.head.values(field), head.values(field));
    }
}

fn the_zstd_request_of_codex_is_decoded_where_its_model_is_replaced(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = gateway(driver, &origin, ALIASED, "");
    let (sent, plain, _) = codex();
    let seen = arrived(&gateway, &origin, &sent);
    let differs = only_the_model_differs(&plain, &seen.body, "gpt-5", ALIAS);
    assert_eq!(differs, Ok(()));
    assert!(!seen.head.has("content-encoding"));
    let length = plain.len() + ALIAS.len() - "gpt-5".len();
    assert_eq!(seen.head.values("content-length"), [length.to_string()]);
    assert_eq!(seen.body_bytes, length);
}

/// Below a window, and such that they stream or are held.
const SIZES: [usize; 3] = [200, 100 * KIB, 1200 * KIB];

fn every_coding_is_read_and_arrives_as_sent(driver: Driver) {
    let origin = Origin::start(|caller: &mut Caller| {
        while let Some(request) = caller.request() {
            // The record keeps less than the largest of these.
            caller.note(&format!("{:x?}", md(&request.body)));
            if caller.reply(&json(200, "")).is_err() {
                return;
            }
        }
    });
    let gateway = gateway(driver, &origin, ROUTED, "");
    for coding in CODINGS {
        for (bytes, model_last) in SIZES.into_iter().flat_map(|n| [(n, false), (n, true)]) {
            let body = packed(coding, &chat(bytes, model_last));
            for chunked in [false, true] {
                let seen = arrived(&gateway, &origin, &post(coding, &body, chunked));
                let what = format!("{coding} {bytes} {model_last} {chunked}");
                assert_eq!(seen.body_bytes, body.len(), "{what}");
                assert_eq!(seen.head.values("content-encoding"), [coding], "{what}");
                let sum = format!("{:x?}", md(&body));
                assert!(origin.look(|log| log.has_note(&sum)), "{what}");
            }
        }
    }
}

/// A sum of bytes and their places.
fn md(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| sum.wrapping_mul(1_099_511_628_211) ^ u64::from(*byte);
    bytes.iter().fold(14_695_981_039_346_656_037, step)
}

fn every_coding_is_decoded_where_the_model_is_replaced(driver: Driver) {
    let origin = Origin::start(|caller: &mut Caller| {
        while let Some(request) = caller.request() {
            let end = request.body.len().saturating_sub(64);
            let ends = [&request.body[..64], &request.body[end..]].concat();
            let replaced = find(&ends, ALIAS.as_bytes()).is_some();
            caller.note(&format!("{replaced} {:x?}", md(&request.body)));
            if caller.reply(&json(200, "")).is_err() {
                return;
            }
        }
    });
    let gateway = gateway(driver, &origin, ALIASED, "");
    for coding in CODINGS {
        for (bytes, model_last) in SIZES.into_iter().flat_map(|n| [(n, false), (n, true)]) {
            let plain = chat(bytes, model_last);
            let text = String::from_utf8(plain.clone()).unwrap();
            let expected = text.replace("gpt-5-mini", ALIAS).into_bytes();
            for chunked in [false, true] {
                let body = packed(coding, &plain);
                let seen = arrived(&gateway, &origin, &post(coding, &body, chunked));
                let what = format!("{coding} {bytes} {model_last} {chunked}");
                assert!(!seen.head.has("content-encoding"), "{what}");
                assert_eq!(seen.head.has("transfer-encoding"), chunked, "{what}");
                assert_eq!(seen.body_bytes, expected.len(), "{what}");
                let note = format!("true {:x?}", md(&expected));
                assert!(origin.look(|log| log.has_note(&note)), "{what}");
            }
        }
    }
}

fn a_coded_body_may_be_cut_anywhere(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = gateway(driver, &origin, ALIASED, "");
    let plain = br#"{"model":"gpt-5","messages":[]}"#;
    for coding in CODINGS {
        let body = packed(coding, plain);
        let whole = post(coding, &body, false);
        let begin = whole.len() - body.len();
        let mut client = gateway.connect();
        for cut in begin..whole.len() {
            origin.forget();
            client.send(&whole[..cut]).unwrap();
            std::thread::sleep(Duration::from_millis(1));
            client.send(&whole[cut..]).unwrap();
            let answer = client.response("POST").unwrap();
            assert_eq!(answer.status, 200, "{coding} {cut}: {answer:#?}");
            let seen = origin.look(|log| log.requests[0].body.clone());
            let differs = only_the_model_differs(plain, &seen, "gpt-5", ALIAS);
            assert_eq!(differs, Ok(()), "{coding} {cut}");
        }
    }
}

fn what_stands_behind_a_decoded_body_is_the_next_request(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = gateway(driver, &origin, ALIASED, "");
    for bytes in [200, 90 * KIB] {
        origin.forget();
        let plain = chat(bytes, true);
        let sent = [
            post("gzip", &packed("gzip", &plain), false),
            posted(&[], &plain, false),
            post("zstd", &packed("zstd", &plain), true),
            posted(&[], &plain, false),
        ];
        let mut client = gateway.connect();
        client.send(&sent.concat()).unwrap();
        for number in 0..sent.len() {
            let answer = client.response("POST").unwrap();
            assert_eq!(answer.status, 200, "{number}: {answer:#?}");
        }
        origin.look(|log| {
            for seen in &log.requests {
                let differs = only_the_model_differs(&plain, &seen.body, "gpt-5-mini", ALIAS);
                assert_eq!(differs, Ok(()), "{seen:#?}");
            }
        });
    }
}

fn codings_that_cannot_be_read_pass_where_nothing_is_read(driver: Driver) {
    let origin = Origin::echoing();
    let read = gateway(driver, &origin, ROUTED, "");
    let passed = Setup::in_front_of(driver, &origin).start();
    let body = packed("gzip", &packed("gzip", &chat(200, false)));
    let cases: [&[&str]; 4] = [
        &["Content-Encoding: compress"],
        &["Content-Encoding: gzip, gzip"],
        &["Content-Encoding: gzip", "Content-Encoding: gzip"],
        &["Content-Encoding: aws-chunked, br"],
    ];
    for fields in cases {
        let sent = posted(fields, &body, false);
        assert_eq!(arrived(&passed, &origin, &sent).body, body);
        origin.forget();
        let answer = read.connect().exchange("POST", &sent);
        assert_eq!(answer.status, 415, "{answer:#?}");
        assert_eq!(answer.gateway_error().as_deref(), Some("content_coding"));
        let readable = answer.head.value("accept-encoding");
        assert_eq!(readable.as_deref(), Some("zstd, gzip, deflate, br"));
        assert!(origin.look(|log| log.requests.is_empty()));
    }
    // A coding that could be read is not, where nothing of it matters.
    let sent = post("gzip", b"this is no gzip", false);
    assert_eq!(arrived(&passed, &origin, &sent).body, b"this is no gzip");
}

/// A body that must be refused, and the code of the refusal.
type Refused = (&'static str, Vec<u8>, &'static str);

/// All ways in which a good body of that size can go wrong.
fn refused(coding: &'static str, bytes: usize) -> Vec<Refused> {
    let plain = chat(bytes, false);
    let good = packed(coding, &plain);
    let with = |more: &[u8]| [&good, more].concat();
    let mut two_roots = plain.clone();
    two_roots.extend(br#"{"model":"gpt-5"}"#);
    let mut repeated = plain.clone();
    repeated.pop();
    repeated.extend(br#","model":"gpt-5"}"#);
    let mut bent = good.clone();
    let middle = bent.len() - 12;
    bent[middle] ^= 0xFF;
    let mut cases = vec![
        ("trailing byte", with(b"\n"), "malformed_coding"),
        ("trailing garbage", with(&[7; 70 * KIB]), "malformed_coding"),
        ("two members", with(&good), "malformed_coding"),
        (
            "empty member",
            with(&packed(coding, b"")),
            "malformed_coding",
        ),
        (
            "truncated",
            good[..good.len() - 1].to_vec(),
            "malformed_coding",
        ),
        ("two roots", packed(coding, &two_roots), "malformed_json"),
        (
            "repeated model",
            packed(coding, &repeated),
            "ambiguous_body",
        ),
        ("not coded", plain, "malformed_coding"),
    ];
    if coding != "br" {
        // Its checksum tells; br has none.
        cases.push(("bent", bent, ""));
    }
    if bytes < KIB {
        let long = "x".repeat(16 * KIB * KIB);
        let bomb = format!(r#"{{"model":"gpt-5","input":"{long}"}}"#).into_bytes();
        cases.push(("bomb", packed(coding, &bomb), "coding_beyond_bounds"));
    }
    cases
}

fn refused_bodies_are_never_run(driver: Driver) {
    let origin = decoding();
    let routed = gateway(driver, &origin, ROUTED, "");
    let aliased = gateway(driver, &origin, ALIASED, "");
    for coding in CODINGS {
        for bytes in [200, 1200 * KIB] {
            for (what, body, code) in refused(coding, bytes) {
                for (gateway, chunked) in [(&routed, false), (&routed, true), (&aliased, false)] {
                    let case = format!("{coding}-{what}-{bytes}-{chunked}").replace(' ', "-");
                    let fields = [
                        format!("Content-Encoding: {coding}"),
                        format!("x-case: {case}"),
                    ];
                    let fields = fields.each_ref().map(String::as_str);
                    let answer = asked(gateway.connect(), &posted(&fields, &body, chunked));
                    assert_eq!(answer.status, 400, "{case}: {answer:#?}");
                    let error = answer.gateway_error().unwrap();
                    assert!(code.is_empty() || error == code, "{case}: {error}");
                    let ran = format!("ran {case}");
                    assert!(!origin.look(|log| log.has_note(&ran)), "{case}");
                }
            }
        }
        // The provider would have run a good one.
        let good = packed(coding, &chat(1200 * KIB, false));
        let field = format!("Content-Encoding: {coding}");
        let answer = asked(
            routed.connect(),
            &posted(&[&field, "x-case: good"], &good, false),
        );
        assert_eq!(answer.status, 200, "{answer:#?}");
    }
    drop((routed, aliased));
    origin.wait("the end of every connection", |log| {
        log.closed.len() == log.connections
    });
    let ran = origin.look(|log| log.notes.clone());
    assert_eq!(ran, vec!["ran good"; CODINGS.len()]);
}

/// A refusal may come, and the connection end, before all of it was sent.
fn asked(mut client: Client, sent: &[u8]) -> Response {
    let _cut_short = client.send(sent);
    client.response("POST").unwrap()
}

fn a_body_that_decodes_to_too_much_is_told_so(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = gateway(driver, &origin, ROUTED, "limits: { body_bytes: 1MiB }");
    for coding in CODINGS {
        let fits = packed(coding, &chat(900 * KIB, true));
        let answer = asked(gateway.connect(), &post(coding, &fits, false));
        assert_eq!(answer.status, 200, "{coding}: {answer:#?}");
        let over = packed(coding, &chat(1100 * KIB, true));
        assert!(over.len() < 1000 * KIB);
        let answer = asked(gateway.connect(), &post(coding, &over, false));
        assert_eq!(answer.status, 413, "{coding}: {answer:#?}");
        assert_eq!(answer.gateway_error().as_deref(), Some("body_too_large"));
    }
}

fn a_window_beyond_the_memory_of_the_gateway_is_told_so(driver: Driver) {
    let origin = Origin::echoing();
    let limits = "limits: { memory_bytes: 12MiB, connections: 64, body_bytes: 1MiB }";
    let gateway = gateway(driver, &origin, ROUTED, limits);
    let plain = chat(200, true);
    for (window, status) in [(21, 200), (23, 503), (21, 200), (24, 400)] {
        let sent = post("zstd", &zstd(&plain, window), false);
        let answer = asked(gateway.connect(), &sent);
        assert_eq!(answer.status, status, "{window}: {answer:#?}");
    }
}

fn an_expectation_is_met_before_a_coded_body(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = gateway(driver, &origin, ROUTED, "");
    let body = packed("gzip", &chat(200, false));
    let fields = ["Content-Encoding: gzip", "Expect: 100-continue"];
    let whole = posted(&fields, &body, false);
    let begin = whole.len() - body.len();
    let mut client = gateway.connect();
    client.send(&whole[..begin]).unwrap();
    assert_eq!(client.wire.head().unwrap().status(), Ok(100));
    client.send(&whole[begin..]).unwrap();
    let answer = client.response("POST").unwrap();
    assert_eq!(answer.status, 200, "{answer:#?}");
}
