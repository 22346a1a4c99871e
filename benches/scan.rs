//! The scanner alone: every byte validated, nothing looked at below the root.

#![expect(clippy::unwrap_used, reason = "a wrong answer ends the bench")]

mod corpora;
mod cpu_time;

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use lanegate::json::{Container, Scanner, Sink, Want};

/// Looks at the root's members and skips their values.
#[derive(Default)]
struct Members(u32);

impl Sink for Members {
    fn open(&mut self, _: Container, at: u64) -> Want {
        if at == 0 { Want::Look } else { Want::Skip }
    }
    fn close(&mut self) {}
    fn key(&mut self, _: &[u8], last: bool) {
        self.0 += u32::from(last);
    }
    fn text(&mut self, _: u64) -> Want {
        Want::Skip
    }
    fn piece(&mut self, _: &[u8], _: bool) {}
    fn scalar(&mut self, _: u8, _: u64) {}
    fn end(&mut self, _: u64) {}
}

fn scan(mut scanner: Scanner, body: &[u8], members_expected: u32) -> Option<u64> {
    let mut members = Members::default();
    for chunk in body.chunks(corpora::PUSH_BYTES) {
        scanner.push(black_box(chunk), &mut members).unwrap();
    }
    assert_eq!(members.0, members_expected);
    scanner.closed_at()
}

fn bench(c: &mut Criterion<cpu_time::CpuTime>) {
    for corpus in corpora::corpora() {
        let closed_at = Some(corpus.body.len() as u64 - 1);
        let members = if corpus.tools == 0 { 3 } else { 4 };
        let mut group = c.benchmark_group(corpus.name);
        group.throughput(cpu_time::throughput(&corpus.body));
        for (name, make) in [
            ("best", Scanner::new as fn() -> Scanner),
            ("portable", Scanner::portable),
        ] {
            group.bench_function(name, |b| {
                b.iter(|| assert_eq!(scan(make(), &corpus.body, members), closed_at));
            });
        }
        group.finish();
    }
}

criterion_group! { name = benches; config = cpu_time::criterion(); targets = bench }
criterion_main!(benches);
