//! The usage of compressed answers: read where the decoder is small, given up otherwise, in any cut.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::Write;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use lanegate::coding::{Coding, Codings};
use lanegate::dialect::Dialect;
use lanegate::usage::{Form, State, Tap, Usage};

/// A chat stream of some 100 KB that ends with its usage.
fn stream() -> Vec<u8> {
    let deltas = (0..2000).map(|n| format!(r#"{{"choices":[{{"delta":{{"content":"{n}"}}}}]}}"#));
    let last = r#"{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":3}}"#;
    let events = deltas.chain([last.to_owned(), "[DONE]".to_owned()]);
    let frames = events.map(|event| format!("data: {event}\n\n"));
    frames.collect::<String>().into_bytes()
}

fn read<'a>(codings: Codings, pieces: impl Iterator<Item = &'a [u8]>) -> Usage {
    let mut tap = Tap::new(Dialect::Chat, Form::Events, codings);
    pieces.for_each(|piece| tap.see(piece));
    tap.finish(true)
}

fn packed(coding: Coding, body: &[u8]) -> Vec<u8> {
    let best = Compression::best();
    match coding {
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), best);
            encoder.write_all(body).unwrap();
            encoder.finish().unwrap()
        }
        Coding::Deflate => {
            let mut encoder = ZlibEncoder::new(Vec::new(), best);
            encoder.write_all(body).unwrap();
            encoder.finish().unwrap()
        }
        Coding::Zstd => {
            let mut out = Vec::with_capacity(zstd_safe::compress_bound(body.len()));
            zstd_safe::compress(&mut out, body, 3).unwrap();
            out
        }
        Coding::Brotli => {
            let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 16);
            encoder.write_all(body).unwrap();
            encoder.into_inner()
        }
    }
}

#[test]
fn gzip_and_deflate_are_read() {
    let body = stream();
    let plain = read(Codings::Plain, [&body[..]].into_iter());
    assert_eq!(
        (plain.state, plain.tokens.input),
        (State::Complete, Some(3))
    );
    for coding in [Coding::Gzip, Coding::Deflate] {
        let packed = packed(coding, &body);
        for step in [1, 3, 1000, packed.len()] {
            let usage = read(Codings::One(coding), packed.chunks(step));
            assert_eq!(usage, plain, "{coding:?} in pieces of {step}");
        }
    }
}

#[test]
fn codings_whose_decoder_is_large_are_given_up() {
    let body = stream();
    for coding in [Coding::Zstd, Coding::Brotli] {
        let packed = packed(coding, &body);
        for step in [1, packed.len()] {
            let usage = read(Codings::One(coding), packed.chunks(step));
            assert_eq!(usage, Usage::default(), "{coding:?} in pieces of {step}");
        }
    }
    let unknown = read(Codings::Unreadable, [&body[..]].into_iter());
    assert_eq!(unknown, Usage::default());
}

#[test]
fn a_broken_coding_leaves_what_was_said_partial() {
    let start = b"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3}}\n\n";
    for coding in [Coding::Gzip, Coding::Deflate] {
        let mut broken = packed(coding, start);
        broken.extend_from_slice(b"behind its end");
        let usage = read(Codings::One(coding), [&broken[..]].into_iter());
        assert_eq!((usage.state, usage.tokens.input), (State::Partial, Some(3)));
        let none = read(Codings::One(coding), [&b"not what it says"[..]].into_iter());
        assert_eq!(none, Usage::default());
    }
}
