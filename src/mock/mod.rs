//! The scripted provider: an LLM API in three dialects that does, byte for byte, what it is told.
//!
//! It decides nothing by itself: without a script it is a plain provider with a fixed answer; with one
//! it cuts, stalls, answers early, closes at a bad moment, or serves a stored answer. It records what
//! it received, so that a test can ask what a gateway let through. It shares no code with the gateway:
//! its HTTP reader is a second opinion, and a strict one.
//!
//! ```text
//! curl http://127.0.0.1:8081/v1/chat/completions -H 'x-mock: events=3; pause=200ms' \
//!      -d '{"model":"m","stream":true,"messages":[]}'
//! ```
//!
//! A script comes from the request header `x-mock`; without it from the model name (`mock-tool`,
//! `mock-slow`, `mock-error-429`, ...); else from [`Options::script`]. One source replaces the others.
//! What concerns the request body (`early`, `stall`, `execute`, `interim`, `close=head`) works from
//! the header and from the options only, since a model name is known too late. The keys are listed in
//! `docs/mock.md`; a key that is not there is answered 400.
//!
//! It costs one thread for each connection: a tool for tests, not for load.

#![expect(
    clippy::disallowed_types,
    reason = "blocking threads of a test tool share a table of sockets; no lock is held across I/O"
)]

mod answer;
mod brace;
mod chat;
mod connection;
mod facts;
mod files;
mod journal;
mod messages;
mod responses;
mod script;
mod send;
mod socket;
mod tool;
mod wire;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::mock::files::Files;
use crate::mock::journal::Journal;

pub use crate::mock::journal::Recorded;
pub use crate::mock::script::{Script, ScriptError};

/// Connections at a time; further ones are closed at once.
const CONNECTIONS_MAX: usize = 4096;
/// Stack of one connection's thread, touched only as far as it is used. The deepest JSON that is read
/// (127 nested objects, serde_json's bound) overflows 256 KiB in an unoptimised build, measured
/// 2026-11-30; an overflow would end the process.
const STACK_BYTES: usize = 1 << 20;
/// Rest after a failed accept, so that a process without free descriptors does not spin.
const ACCEPT_REST: Duration = Duration::from_millis(10);

/// How to run a mock.
#[derive(Debug, Clone)]
pub struct Options {
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Folder of response files with their `responses.jsonl`; without it `file=` finds nothing.
    pub responses: Option<PathBuf>,
    /// What to do with a request that brings no script.
    pub script: Script,
    /// Body bytes kept of each recorded request.
    pub record_body_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            responses: None,
            script: Script::default(),
            record_body_max: 64 << 10,
        }
    }
}

/// A running mock; stops when dropped.
#[derive(Debug)]
pub struct Mock {
    addr: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

/// What all connections see.
#[derive(Debug)]
pub(crate) struct Shared {
    script: Script,
    files: Files,
    journal: Journal,
    record_body_max: usize,
    stopping: AtomicBool,
    open: Mutex<BTreeMap<u64, Weak<TcpStream>>>,
}

impl Mock {
    /// Binds and starts. Fails if the address is taken or the folder of responses is faulty.
    pub fn start(options: Options) -> io::Result<Self> {
        let files = match &options.responses {
            Some(folder) => Files::read(folder)?,
            None => Files::default(),
        };
        let listener = TcpListener::bind(options.listen)?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            script: options.script,
            files,
            journal: Journal::default(),
            record_body_max: options.record_body_max,
            stopping: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        let acceptor = thread::Builder::new()
            .name("mock-accept".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || accept(&listener, &accepting))?;
        Ok(Self {
            addr,
            shared,
            acceptor: Some(acceptor),
        })
    }

    /// Address that it listens on.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The last 4096 requests, newest last, those still arriving included.
    #[must_use]
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.journal.records()
    }

    /// Model calls that were run.
    #[must_use]
    pub fn executions(&self) -> u64 {
        self.shared.journal.executions()
    }

    /// Forgets requests and executions.
    pub fn clear(&self) {
        self.shared.journal.clear();
    }

    /// Waits until the recorded requests are as the caller wants, at most `limit`; true if they are.
    /// The ring is locked while the condition looks at it.
    #[must_use]
    pub fn wait_until(&self, limit: Duration, holds: impl Fn(&[Recorded]) -> bool) -> bool {
        self.shared.journal.wait_until(limit, holds)
    }

    /// Stops listening and breaks every connection.
    pub fn stop(&mut self) {
        let Some(acceptor) = self.acceptor.take() else {
            return;
        };
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Wakes the acceptor; a listener that cannot be reached has failed and ended by itself.
        drop(TcpStream::connect(reachable(self.addr)));
        drop(acceptor.join());
        for stream in self.shared.open().values().filter_map(Weak::upgrade) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<TcpStream>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut connection = 0;
    loop {
        let accepted = listener.accept();
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        match accepted {
            Ok((stream, _)) if shared.open().len() < CONNECTIONS_MAX => {
                connection += 1;
                spawn(Arc::new(stream), connection, shared);
            }
            Ok(_) => {}
            Err(_) => thread::park_timeout(ACCEPT_REST),
        }
    }
}

/// A connection whose thread cannot be started is closed.
fn spawn(stream: Arc<TcpStream>, connection: u64, shared: &Arc<Shared>) {
    shared.open().insert(connection, Arc::downgrade(&stream));
    let serving = Arc::clone(shared);
    let started = thread::Builder::new()
        .name("mock-conn".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            connection::serve(stream, connection, &serving);
            serving.open().remove(&connection);
        });
    if started.is_err() {
        shared.open().remove(&connection);
    }
}

/// Where to connect to reach a listener that may be bound to all addresses.
fn reachable(mut addr: SocketAddr) -> SocketAddr {
    if addr.ip().is_unspecified() {
        addr.set_ip(match addr.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    addr
}
