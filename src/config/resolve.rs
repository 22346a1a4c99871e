//! The configuration as meant: values with types and defaults, and the relations between them.

use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use crate::config::file::{Node, Value};
use crate::config::provider;
use crate::config::quantity::{show_duration, show_size};
use crate::config::read::{self, Reader, Section};
use crate::config::schema::{LIMITS, ROOT, SERVER, TIMEOUTS};
use crate::config::{
    Authentication, Config, ConfigError, Driver, HalfClose, Limits, Server, Timeouts, Workers,
};
use crate::limits::BLOCK_BYTES;

/// Addresses to listen on. Chosen: each costs one socket per worker.
const LISTEN_MAX: usize = 64;
/// Full windows that `memory_bytes` must hold, so that a few slow uploads cannot use all of it.
const WINDOWS_MIN: u64 = 16;

/// Where credentials come from.
pub(super) struct Sources<'a> {
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
    pub(super) file: &'a dyn Fn(&Path) -> io::Result<Vec<u8>>,
}

/// Range of every bound on waiting.
pub(super) const fn wait_range() -> RangeInclusive<Duration> {
    Duration::from_millis(1)..=Duration::from_hours(24)
}

pub(super) fn resolve(tree: &Node, sources: &Sources<'_>) -> Result<Config, ConfigError> {
    let mut reader = Reader::default();
    let root = reader.section(tree, String::new(), &ROOT);
    let section = reader.subsection(&root, "server", &SERVER);
    let server = server(&mut reader, &section);
    let authentication = authentication(&mut reader, &root, &section, &server);
    let section = reader.subsection(&root, "limits", &LIMITS);
    let limits = limits(&mut reader, &section);
    let section = reader.subsection(&root, "timeouts", &TIMEOUTS);
    let timeouts = timeouts(&mut reader, &section);
    let providers = provider::all(&mut reader, &root, timeouts, sources);
    match ConfigError::from_failures(reader.failures) {
        Some(error) => Err(error),
        None => Ok(Config {
            server,
            authentication,
            limits,
            timeouts,
            providers,
        }),
    }
}

fn server(reader: &mut Reader, section: &Section<'_>) -> Server {
    let default = Server::default();
    let workers = |value: &Value| match value {
        Value::Natural(_) => {
            let count = read::count(1..=1024)(value)?;
            usize::try_from(count)
                .map(Workers::Count)
                .map_err(|error| error.to_string())
        }
        Value::Text(text) if text.eq_ignore_ascii_case("auto") => Ok(Workers::Auto),
        other => Err(format!(
            "expected auto or a number from 1 to 1024, got {}",
            other.shown()
        )),
    };
    let drivers = [
        ("auto", Driver::Auto),
        ("io_uring", Driver::IoUring),
        ("epoll", Driver::Epoll),
    ];
    let closes = [
        ("cancel", HalfClose::Cancel),
        ("tolerate", HalfClose::Tolerate),
    ];
    Server {
        listen: listen(reader, section).unwrap_or(default.listen),
        workers: reader
            .take(section, "workers", workers)
            .unwrap_or(default.workers),
        driver: reader
            .take(section, "driver", read::word(&drivers))
            .unwrap_or(default.driver),
        half_close: reader
            .take(section, "half_close", read::word(&closes))
            .unwrap_or(default.half_close),
    }
}

fn listen(reader: &mut Reader, section: &Section<'_>) -> Option<Vec<SocketAddr>> {
    let items = reader.list(section, "listen")?;
    let line = section.line_of(&["listen"]);
    if items.is_empty() || items.len() > LISTEN_MAX {
        let what = format!("expected 1 to {LISTEN_MAX} addresses, got {}", items.len());
        reader.fail(line, section.path_of("listen"), what);
        return None;
    }
    let mut listen = Vec::new();
    for (path, node) in items {
        let address = match &node.value {
            Value::Text(text) => text.parse::<SocketAddr>().ok(),
            _ => None,
        };
        let what = match address {
            // Port 0 asks the kernel for any free port, each time another.
            Some(address) if address.port() != 0 && listen.contains(&address) => {
                format!("{address} is listed twice")
            }
            Some(address) => {
                listen.push(address);
                continue;
            }
            None => {
                let got = node.value.shown();
                format!("expected an IP address and port such as 127.0.0.1:8080, got {got}")
            }
        };
        reader.fail(Some(node.line), path, what);
    }
    Some(listen)
}

fn authentication(
    reader: &mut Reader,
    root: &Section<'_>,
    section: &Section<'_>,
    server: &Server,
) -> Authentication {
    let written = root.get("authentication");
    reader.take(root, "authentication", |value| match value {
        Value::Text(text) if text.eq_ignore_ascii_case("none") => Ok(()),
        Value::Text(text) if text.eq_ignore_ascii_case("clients") => {
            Err("`clients` is not available in this version; expected none".into())
        }
        other => Err(format!("expected none, got {}", other.shown())),
    });
    let open = server
        .listen
        .iter()
        .find(|address| !address.ip().to_canonical().is_loopback());
    if let (None, Some(address)) = (written, open) {
        let what = format!(
            "{address} can be reached from other machines, and this version authenticates no \
             client: everyone who reaches it could use the providers' credentials. Listen on a \
             loopback address, or write `authentication: none` if something else protects it"
        );
        reader.fail(
            section.line_of(&["listen"]),
            section.path_of("listen"),
            what,
        );
    }
    Authentication::None
}

fn limits(reader: &mut Reader, section: &Section<'_>) -> Limits {
    let default = Limits::default();
    let mut small = |key, default: usize, read: &dyn Fn(&Value) -> Result<u64, String>| {
        let value = reader.take(section, key, read);
        value
            .and_then(|value| usize::try_from(value).ok())
            .unwrap_or(default)
    };
    let bytes = |range: RangeInclusive<u64>| move |value: &Value| read::size(range.clone())(value);
    let count = |range: RangeInclusive<u64>| move |value: &Value| read::count(range.clone())(value);
    let head_bytes = small("head_bytes", default.head_bytes, &bytes(4 << 10..=1 << 20));
    let head_fields = small("head_fields", default.head_fields, &count(1..=1000));
    let window_bytes = small(
        "window_bytes",
        default.window_bytes,
        &bytes(16 << 10..=16 << 20),
    );
    let connections = small("connections", default.connections, &count(1..=1_000_000));
    let mut large = |key, default| {
        reader
            .take(section, key, read::size(64 << 10..=1 << 40))
            .unwrap_or(default)
    };
    let body_bytes = large("body_bytes", default.body_bytes);
    let memory_bytes = large("memory_bytes", default.memory_bytes);
    let limits = Limits {
        head_bytes,
        head_fields,
        body_bytes,
        window_bytes,
        memory_bytes,
        connections,
    };
    relate_limits(reader, section, limits);
    limits
}

/// The sums that have to come out. `usize` to `u64` cannot fail on the targets of this program.
fn relate_limits(reader: &mut Reader, section: &Section<'_>, limits: Limits) {
    let wide = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let (window, body, memory) = (
        wide(limits.window_bytes),
        limits.body_bytes,
        limits.memory_bytes,
    );
    let mut fail = |keys: [&str; 2], what: String| {
        reader.fail(section.line_of(&keys), section.path_of(keys[0]), what);
    };
    if window > body {
        let what = format!(
            "one window of {} is larger than the largest body: raise body_bytes ({}) or lower \
             window_bytes",
            show_size(window),
            show_size(body)
        );
        fail(["window_bytes", "body_bytes"], what);
    }
    let windows = window.saturating_mul(WINDOWS_MIN);
    if windows > memory {
        let what = format!(
            "{WINDOWS_MIN} windows x {} = {} exceed memory_bytes {}",
            show_size(window),
            show_size(windows),
            show_size(memory)
        );
        fail(["window_bytes", "memory_bytes"], what);
    }
    let held = body.saturating_add(window);
    if held > memory {
        let what = format!(
            "the largest body {} + one window {} = {} exceed memory_bytes {}: such a body could \
             never be held",
            show_size(body),
            show_size(window),
            show_size(held),
            show_size(memory)
        );
        fail(["body_bytes", "memory_bytes"], what);
    }
    // Every admitted exchange owns one block for its response.
    let block = wide(BLOCK_BYTES);
    let responses = wide(limits.connections).saturating_mul(block);
    let half = memory / 2;
    if responses > half {
        let what = format!(
            "{} connections x {} response buffer = {} exceed half of memory_bytes {}: lower \
             connections to {} or raise memory_bytes to {}",
            limits.connections,
            show_size(block),
            show_size(responses),
            show_size(memory),
            half / block,
            show_size(responses.saturating_mul(2))
        );
        fail(["connections", "memory_bytes"], what);
    }
}

fn timeouts(reader: &mut Reader, section: &Section<'_>) -> Timeouts {
    let default = Timeouts::default();
    let mut wait = |key, default| {
        reader
            .take(section, key, read::duration(wait_range()))
            .unwrap_or(default)
    };
    let timeouts = Timeouts {
        connect: wait("connect", default.connect),
        head: wait("head", default.head),
        idle: wait("idle", default.idle),
        first_byte: wait("first_byte", default.first_byte),
        keepalive: wait("keepalive", default.keepalive),
        drain: wait("drain", default.drain),
        linger: wait("linger", default.linger),
    };
    if timeouts.linger > timeouts.drain {
        let what = format!(
            "{} is longer than drain {}: the end of the process would cut it",
            show_duration(timeouts.linger),
            show_duration(timeouts.drain)
        );
        reader.fail(
            section.line_of(&["linger", "drain"]),
            section.path_of("linger"),
            what,
        );
    }
    timeouts
}
