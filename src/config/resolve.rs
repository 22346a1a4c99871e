//! The configuration as meant: values with types and defaults, and the relations between them.

use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::admin;
use crate::config::clients;
use crate::config::file::{Node, Value};
use crate::config::limits;
use crate::config::plugins;
use crate::config::provider;
use crate::config::quantity::show_duration;
use crate::config::read::{self, Reader, Section};
use crate::config::schema::{LIMITS, LOG, ROOT, SERVER, SERVER_TLS, TIMEOUTS};
use crate::config::store;
use crate::config::switches;
use crate::config::{
    Authentication, Config, ConfigError, Driver, HalfClose, Log, Server, ServerTls, Timeouts,
    Workers,
};
use crate::observe::AccessLog;
use crate::tls::{Acceptor, PemError};

/// Addresses to listen on. Chosen: each costs one socket per worker.
const LISTEN_MAX: usize = 64;

/// Bytes of a file of certificates or a key. Chosen: all public roots fit several times.
pub(super) const PEM_BYTES_MAX: usize = 1024 * 1024;

/// Where credentials and certificates come from.
pub(super) struct Sources<'a> {
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
    /// The content of a file, which is an error if it is longer than that.
    pub(super) file: &'a dyn Fn(&Path, usize) -> io::Result<Vec<u8>>,
}

impl Sources<'_> {
    /// The value of an environment variable, unless it is blank.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        (self.env)(name).filter(|text| !text.trim().is_empty())
    }

    /// The file that a value names, and its content.
    pub(super) fn pem(&self, value: &Value) -> Result<(PathBuf, Vec<u8>), String> {
        let path = PathBuf::from(read::text(value)?);
        let content = (self.file)(&path, PEM_BYTES_MAX);
        let content = content.map_err(|error| format!("cannot read the file: {error}"))?;
        Ok((path, content))
    }
}

/// Range of every bound on waiting.
pub(super) const fn wait_range() -> RangeInclusive<Duration> {
    Duration::from_millis(1)..=Duration::from_hours(24)
}

pub(super) fn resolve(tree: &Node, sources: &Sources<'_>) -> Result<Config, ConfigError> {
    let mut reader = Reader::default();
    let root = reader.section(tree, String::new(), &ROOT);
    let section = reader.subsection(&root, "server", &SERVER);
    let server = server(&mut reader, &section, sources);
    let authentication = clients::authentication(&mut reader, &root, sources);
    if let Err(what) = check_reach(&authentication, &server.listen) {
        let line = section.line_of(&["listen"]);
        reader.fail(line, section.path_of("listen"), what);
    }
    let admin = admin::read(&mut reader, &root, &server.listen, sources);
    let section = reader.subsection(&root, "limits", &LIMITS);
    let limits = limits::read(&mut reader, &section);
    let section = reader.subsection(&root, "timeouts", &TIMEOUTS);
    let timeouts = timeouts(&mut reader, &section);
    let section = reader.subsection(&root, "log", &LOG);
    let log = log(&mut reader, &section);
    let switches = switches::read(&mut reader, &root, sources);
    let identity = store::identity(&mut reader, &root);
    let store = store::store(&mut reader, &root, sources);
    let authority = plugins::authority(&mut reader, &root, sources);
    let kept = (&store, authority.as_ref());
    let plugins = plugins::plugins(&mut reader, &root, kept, sources);
    let providers = provider::all(&mut reader, &root, timeouts, sources);
    let warnings = std::mem::take(&mut reader.warnings);
    match ConfigError::from_failures(reader.failures) {
        Some(error) => Err(error),
        None => Ok(Config {
            server,
            authentication,
            admin,
            limits,
            timeouts,
            log,
            switches,
            identity,
            authority,
            store,
            plugins,
            providers,
            warnings,
        }),
    }
}

fn server(reader: &mut Reader, section: &Section<'_>, sources: &Sources<'_>) -> Server {
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
        tls: server_tls(reader, section, sources),
    }
}

/// Both files, or neither: a listener is never in plain text because a key is missing.
fn server_tls(
    reader: &mut Reader,
    section: &Section<'_>,
    sources: &Sources<'_>,
) -> Option<ServerTls> {
    section.get("tls")?;
    let section = reader.subsection(section, "tls", &SERVER_TLS);
    let chain = reader.require(&section, "certificate", |value| sources.pem(value));
    let key = reader.require(&section, "key", |value| sources.pem(value));
    let ((certificate, chain), (key, key_text)) = (chain?, key?);
    match Acceptor::from_pem(&chain, &key_text) {
        Ok(acceptor) => Some(ServerTls {
            certificate,
            key,
            acceptor,
        }),
        Err(error) => {
            let at = match error {
                PemError::NoCertificate | PemError::Certificate => "certificate",
                PemError::NoKey | PemError::Key | PemError::Mismatch => "key",
            };
            let line = section.line_of(&[at]);
            reader.fail(line, section.path_of(at), error.to_string());
            None
        }
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

/// Refuses listeners for everybody that other machines can reach, unless they are so in words.
pub(super) fn check_reach(
    authentication: &Authentication,
    listen: &[SocketAddr],
) -> Result<(), String> {
    let open = listen
        .iter()
        .find(|address| !address.ip().to_canonical().is_loopback());
    match (authentication, open) {
        (Authentication::Unset, Some(address)) => Err(format!(
            "{address} can be reached from other machines, and no `clients` are listed: everyone \
             who reaches it could use the providers' credentials. List clients, listen on a \
             loopback address, or write `authentication: none` if something else protects it"
        )),
        _ => Ok(()),
    }
}

fn log(reader: &mut Reader, section: &Section<'_>) -> Log {
    let places = [
        ("stdout", AccessLog::Stdout),
        ("stderr", AccessLog::Stderr),
        ("none", AccessLog::None),
    ];
    let access = reader.take(section, "access", read::word(&places));
    Log {
        access: access.unwrap_or_default(),
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
        handshake: wait("handshake", default.handshake),
        head: wait("head", default.head),
        idle: wait("idle", default.idle),
        request_progress: wait("request_progress", default.request_progress),
        client_write: wait("client_write", default.client_write),
        first_byte: wait("first_byte", default.first_byte),
        keepalive: wait("keepalive", default.keepalive),
        drain: wait("drain", default.drain),
        linger: wait("linger", default.linger),
        reservation: wait("reservation", default.reservation),
        connection_wait: wait("connection_wait", default.connection_wait),
        grace: {
            let range = Duration::ZERO..=*wait_range().end();
            let grace = reader.take(section, "grace", read::duration(range));
            grace.unwrap_or(default.grace)
        },
    };
    for (key, part) in [("linger", timeouts.linger), ("grace", timeouts.grace)] {
        let is_known = !reader.has_refused(section, &[key, "drain"]);
        if is_known && part > timeouts.drain {
            let what = format!(
                "{} is longer than drain {}: the end of the process would cut it",
                section.written(key, show_duration(part)),
                section.written("drain", show_duration(timeouts.drain))
            );
            reader.fail(section.line_of(&[key, "drain"]), section.path_of(key), what);
        }
    }
    timeouts
}
