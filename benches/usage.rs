//! The tap on event streams, as a paced stream gives it to (one event a piece) and as a fast one does
//! (a block a piece), on an answer that is one object, and compressed.

#![expect(clippy::unwrap_used, reason = "a wrong answer ends the bench")]

mod cpu_time;

use std::hint::black_box;
use std::io::Write;

use criterion::{Criterion, criterion_group, criterion_main};
use flate2::Compression;
use flate2::write::GzEncoder;
use lanegate::coding::{Coding, Codings};
use lanegate::dialect::Dialect;
use lanegate::usage::{Form, State, Tap};

/// Events of a stream.
const EVENTS: usize = 2000;
/// Bytes of a read that filled its block.
const BLOCK: usize = 16 * 1024;

/// A stream as its pieces of one event each.
struct Stream {
    name: &'static str,
    dialect: Dialect,
    events: Vec<Vec<u8>>,
}

fn streams() -> [Stream; 2] {
    let chat = (0..EVENTS).map(|n| format!("data: {{\"id\":\"chatcmpl-9f2\",\"object\":\"chat.completion.chunk\",\"created\":1764500000,\"model\":\"gpt-5.1\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" word {n}\"}},\"finish_reason\":null}}],\"usage\":null}}\n\n"));
    let chat_end = ["data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":7}}\n\ndata: [DONE]\n\n".to_owned()];
    let messages = (0..EVENTS).map(|n| format!("event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\" word {n}\"}}}}\n\n"));
    let messages_end = ["event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"input_tokens\":12,\"output_tokens\":7}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n".to_owned()];
    [
        Stream {
            name: "chat",
            dialect: Dialect::Chat,
            events: chat.chain(chat_end).map(String::into_bytes).collect(),
        },
        Stream {
            name: "messages",
            dialect: Dialect::Messages,
            events: messages
                .chain(messages_end)
                .map(String::into_bytes)
                .collect(),
        },
    ]
}

fn read<'a>(mut tap: Tap, pieces: impl Iterator<Item = &'a [u8]>) {
    pieces.for_each(|piece| tap.see(black_box(piece)));
    let usage = tap.finish(true);
    assert_eq!(usage.state, State::Complete);
    assert_eq!(usage.tokens.input, Some(12));
    assert_eq!(usage.tokens.output, Some(7));
}

fn bench(c: &mut Criterion<cpu_time::CpuTime>) {
    for stream in streams() {
        let whole = stream.events.concat();
        let mut group = c.benchmark_group(stream.name);
        group.throughput(cpu_time::throughput(&whole));
        let tap = |codings| Tap::new(stream.dialect, Form::Events, codings);
        group.bench_function("event a piece", |b| {
            let events = || stream.events.iter().map(Vec::as_slice);
            b.iter(|| read(tap(Codings::Plain), events()));
        });
        group.bench_function("block a piece", |b| {
            b.iter(|| read(tap(Codings::Plain), whole.chunks(BLOCK)));
        });
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&whole).unwrap();
        let packed = encoder.finish().unwrap();
        group.bench_function("gzip", |b| {
            b.iter(|| read(tap(Codings::One(Coding::Gzip)), packed.chunks(BLOCK)));
        });
        group.finish();
    }
    let content = "a line of prose that a model wrote. ".repeat(1000);
    let object = format!(
        "{{\"choices\":[{{\"index\":0,\"message\":{{\"content\":\"{content}\"}},\"finish_reason\":\"stop\"}}],\
         \"usage\":{{\"prompt_tokens\":12,\"completion_tokens\":7}}}}"
    );
    let mut group = c.benchmark_group("object");
    group.throughput(cpu_time::throughput(object.as_bytes()));
    group.bench_function("block a piece", |b| {
        let tap = || Tap::new(Dialect::Chat, Form::Json, Codings::Plain);
        b.iter(|| read(tap(), object.as_bytes().chunks(BLOCK)));
    });
    group.finish();
}

criterion_group! { name = benches; config = cpu_time::criterion(); targets = bench }
criterion_main!(benches);
