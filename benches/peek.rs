//! Facts of whole bodies: everything demanded, and only what a route needs.

#![expect(clippy::unwrap_used, reason = "a wrong answer ends the bench")]

mod corpora;
mod cpu_time;

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use lanegate::dialect::Dialect;
use lanegate::peek::{Demand, Fact, Peek, StreamFlag, TextReader};

fn read(demand: Demand, body: &[u8]) -> Peek {
    let mut peek = Peek::new(Dialect::Chat, demand);
    for chunk in body.chunks(corpora::PUSH_BYTES) {
        peek.push(black_box(chunk)).unwrap();
    }
    peek.finish().unwrap();
    assert_eq!(peek.model().found().unwrap().value, "m");
    assert_eq!(peek.stream(), Fact::Found(StreamFlag::True));
    peek
}

fn bench(c: &mut Criterion<cpu_time::CpuTime>) {
    let reader = TextReader::for_switch();
    for corpus in corpora::corpora() {
        let mut group = c.benchmark_group(corpus.name);
        group.throughput(cpu_time::throughput(&corpus.body));
        group.bench_function("all", |b| {
            b.iter(|| {
                let peek = read(Demand::ALL, &corpus.body);
                let text = peek.last_user().found().unwrap();
                assert_eq!(text.position_in(&["--who?"], &reader), Some(0));
                assert_eq!(peek.tools() as usize, corpus.tools);
            });
        });
        group.bench_function("model", |b| {
            b.iter(|| assert!(read(Demand::MODEL, &corpus.body).last_user().is_open()));
        });
        group.finish();
    }
}

criterion_group! { name = benches; config = cpu_time::criterion(); targets = bench }
criterion_main!(benches);
