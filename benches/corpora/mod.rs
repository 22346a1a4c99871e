//! Four kinds of request body, and CPU time as the measure.

use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{Criterion, Throughput};
use rustix::time::{ClockId, clock_gettime};

/// Bytes of each body.
pub(crate) const BODY_BYTES: usize = 256 * 1024;
/// Bytes of each push.
pub(crate) const PUSH_BYTES: usize = 64 * 1024;

/// A chat body of about [`BODY_BYTES`] with `model` first and `stream` last, and its kind.
pub(crate) struct Corpus {
    pub(crate) name: &'static str,
    pub(crate) body: Vec<u8>,
    pub(crate) tools: usize,
}

/// Prose, escape-heavy code, tool schemas and base64, the kinds of data-path measurements section 5.
pub(crate) fn corpora() -> [Corpus; 4] {
    let prose = "The gateway forwards what it is given, and nothing else; a reader of this line \
                 learns little, but the scanner sees what most turns of a conversation look like. ";
    let code = "fn main() {\\n\\tlet s = \\\"a\\\\b\\\";\\n\\tprintln!(\\\"{s}\\\");\\n}\\n";
    let base64 = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9";
    [
        messages("chat", prose, 2048),
        messages("code", code, 2048),
        tools(),
        messages("b64", base64, BODY_BYTES),
    ]
}

/// Messages of about `message_bytes` made by repeating `text`, which is already escaped.
fn messages(name: &'static str, text: &str, message_bytes: usize) -> Corpus {
    let mut body = String::from(r#"{"model":"m","messages":["#);
    while body.len() < BODY_BYTES {
        for role in ["assistant", "user"] {
            let content = text.repeat(message_bytes / text.len() + 1);
            body += &format!(r#"{{"role":"{role}","content":"{content}"}},"#);
        }
    }
    body += r#"{"role":"user","content":"--who?"}],"stream":true}"#;
    Corpus {
        name,
        body: body.into_bytes(),
        tools: 0,
    }
}

fn tools() -> Corpus {
    let mut body =
        String::from(r#"{"model":"m","messages":[{"role":"user","content":"--who?"}],"tools":["#);
    let mut tools = 0;
    while body.len() < BODY_BYTES {
        body += &format!(
            r#"{{"type":"function","function":{{"name":"tool_{tools}","description":"Does one thing","parameters":{{"type":"object","properties":{{"path":{{"type":"string"}},"limit":{{"type":"integer","minimum":1,"maximum":{tools}}},"deep":{{"type":"boolean","default":false}},"items":{{"type":"array","items":{{"type":"string","enum":["a","b","c"]}}}}}},"required":["path","limit"],"additionalProperties":false}}}}}},"#
        );
        tools += 1;
    }
    body.pop();
    body += r#"],"stream":true}"#;
    Corpus {
        name: "tools",
        body: body.into_bytes(),
        tools,
    }
}

/// Time that this thread ran, so that other work on the machine does not count.
pub(crate) struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(
            now.tv_sec.unsigned_abs(),
            u32::try_from(now.tv_nsec).unwrap_or(0),
        )
    }

    fn end(&self, start: Duration) -> Duration {
        self.start() - start
    }

    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        WallTime.to_f64(value)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

/// Few and short samples: a whole run stays under a minute.
pub(crate) fn criterion() -> Criterion<CpuTime> {
    Criterion::default()
        .with_measurement(CpuTime)
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(1500))
        .configure_from_args()
}

/// Throughput of one pass over `body`.
pub(crate) fn throughput(body: &[u8]) -> Throughput {
    Throughput::Bytes(body.len() as u64)
}
