//! A scripted origin: a closure per connection decides what is read, what is answered and how the
//! connection ends; everything that was read is recorded as it comes.

use std::fmt;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection};

use crate::support::message::{End, Flow, Framing, Head, PATIENCE, Stop, Wire, shown};

/// Bytes of a body that the record keeps; its length is always whole. Chosen: above every capture.
const BODY_KEPT_MAX: usize = 256 * 1024;

/// One request as far as it came.
#[derive(Clone)]
pub(crate) struct Seen {
    /// Number of the request at this origin, from 0.
    number: usize,
    /// Index of the connection, in order of acceptance.
    pub(crate) connection: usize,
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
    pub(crate) body_bytes: usize,
    /// `None` while bytes may still come.
    pub(crate) end: Option<End>,
    pub(crate) trailers: Vec<Vec<u8>>,
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seen")
            .field("connection", &self.connection)
            .field("head", &self.head)
            .field("body", &format_args!("{}", shown(&self.body)))
            .field("body_bytes", &self.body_bytes)
            .field("end", &self.end)
            .field("trailers", &self.trailers.len())
            .finish_non_exhaustive()
    }
}

impl Seen {
    /// Whether the field that names a case says this.
    pub(crate) fn case_is(&self, case: &str) -> bool {
        self.head.value("x-case").is_some_and(|value| value == case)
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.end == Some(End::Complete)
    }
}

/// All that an origin saw.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) requests: Vec<Seen>,
    pub(crate) connections: usize,
    /// Requests ever, the forgotten ones too.
    numbered: usize,
    /// Connections that the gateway ended, with how.
    pub(crate) ended: Vec<(usize, Stop)>,
    /// Connections whose script has returned and whose socket is closed.
    pub(crate) closed: Vec<usize>,
    /// Words of the scripts, for tests that must know how far a script is.
    pub(crate) notes: Vec<String>,
}

impl Log {
    pub(crate) fn complete(&self) -> impl Iterator<Item = &Seen> {
        self.requests.iter().filter(|r| r.is_complete())
    }

    /// Whether a script left that word.
    pub(crate) fn has_note(&self, word: &str) -> bool {
        self.notes.iter().any(|note| note == word)
    }

    /// Whether the gateway ended that connection.
    pub(crate) fn has_ended(&self, connection: usize) -> bool {
        self.ended.iter().any(|(c, _)| *c == connection)
    }
}

#[derive(Debug, Default)]
struct Shared {
    log: Mutex<Log>,
    changed: Condvar,
    open: Mutex<Vec<TcpStream>>,
    stop: AtomicBool,
}

impl Shared {
    fn log(&self) -> MutexGuard<'_, Log> {
        // A test that fails inside `look` must not make every script fail after it.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update<T>(&self, change: impl FnOnce(&mut Log) -> T) -> T {
        let out = change(&mut self.log());
        self.changed.notify_all();
        out
    }
}

/// A listening origin; dropping it ends its connections and reports what its scripts panicked with.
#[derive(Debug)]
pub(crate) struct Origin {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<Vec<JoinHandle<()>>>>,
}

impl Origin {
    /// Runs `script` on a thread of its own for every connection; the connection ends with it.
    pub(crate) fn start(script: impl Fn(&mut Caller) + Send + Sync + 'static) -> Self {
        Self::start_as(None, script)
    }

    /// The same inside TLS.
    pub(crate) fn start_encrypted(
        config: Arc<ServerConfig>,
        script: impl Fn(&mut Caller) + Send + Sync + 'static,
    ) -> Self {
        Self::start_as(Some(config), script)
    }

    fn start_as(
        tls: Option<Arc<ServerConfig>>,
        script: impl Fn(&mut Caller) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let acceptor = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared, tls.as_ref(), &Arc::new(script))
        });
        Self {
            address,
            shared,
            acceptor: Some(acceptor),
        }
    }

    /// An origin that answers every whole request with [`echo`].
    pub(crate) fn echoing() -> Self {
        Self::start(Caller::echo_all)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Reads the record.
    pub(crate) fn look<T>(&self, read: impl FnOnce(&Log) -> T) -> T {
        read(&self.shared.log())
    }

    /// Forgets the requests seen so far (connections go on and keep their numbers).
    pub(crate) fn forget(&self) {
        self.shared.update(|log| log.requests.clear());
    }

    /// Waits until `done` holds for the record; fails the test with the record when it never does.
    pub(crate) fn wait(&self, what: &str, done: impl Fn(&Log) -> bool) {
        let log = self.shared.log();
        let not_yet = |log: &mut Log| !done(log);
        let (log, wait) = self
            .shared
            .changed
            .wait_timeout_while(log, PATIENCE, not_yet)
            .unwrap_or_else(PoisonError::into_inner);
        assert!(!wait.timed_out(), "the origin never saw: {what}\n{log:#?}");
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        // Wakes the acceptor; it sees the flag and returns.
        let _waker = TcpStream::connect(self.address);
        let scripts = self.acceptor.take().unwrap().join();
        for stream in self.shared.open.lock().unwrap().drain(..) {
            // Closed ones refuse; the others wake their scripts.
            let _already_closed = stream.shutdown(Shutdown::Both);
        }
        for script in scripts.unwrap_or_default() {
            let outcome = script.join();
            assert!(
                outcome.is_ok() || std::thread::panicking(),
                "a script of the origin panicked; its message is above"
            );
        }
    }
}

fn accept<S>(
    listener: &TcpListener,
    shared: &Arc<Shared>,
    tls: Option<&Arc<ServerConfig>>,
    script: &Arc<S>,
) -> Vec<JoinHandle<()>>
where
    S: Fn(&mut Caller) + Send + Sync + 'static,
{
    let mut scripts = Vec::new();
    loop {
        let (stream, _) = listener.accept().unwrap();
        if shared.stop.load(Ordering::SeqCst) {
            return scripts;
        }
        shared
            .open
            .lock()
            .unwrap()
            .push(stream.try_clone().unwrap());
        let connection = shared.update(|log| {
            log.connections += 1;
            log.connections - 1
        });
        let wire = match tls {
            None => Wire::new(stream),
            Some(config) => {
                let session = ServerConnection::new(Arc::clone(config)).unwrap();
                Wire::encrypted(stream, session.into())
            }
        };
        let (shared, script) = (Arc::clone(shared), Arc::clone(script));
        scripts.push(std::thread::spawn(move || {
            let mut caller = Caller {
                connection,
                wire,
                shared,
                reset: false,
            };
            script(&mut caller);
            caller.end();
        }));
    }
}

/// The gateway, as one origin connection sees it.
#[derive(Debug)]
pub(crate) struct Caller {
    /// Index of this connection, in order of acceptance.
    pub(crate) connection: usize,
    pub(crate) wire: Wire,
    shared: Arc<Shared>,
    reset: bool,
}

/// A request that an origin is reading or has read.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
    flow: Flow,
    number: usize,
}

impl Incoming {
    /// The value of the field that tests use to name a case.
    pub(crate) fn case(&self) -> String {
        self.head.value("x-case").unwrap_or_default()
    }
}

impl Caller {
    /// Answers every whole request with [`echo`].
    pub(crate) fn echo_all(&mut self) {
        while let Some(request) = self.request() {
            if self.reply(&echo(&request)).is_err() {
                return;
            }
        }
    }

    /// The next request, whole; `None` when the gateway ended the connection instead.
    pub(crate) fn request(&mut self) -> Option<Incoming> {
        let mut incoming = self.head()?;
        self.finish(&mut incoming).is_clean().then_some(incoming)
    }

    /// The head of the next request; its body is still to be read.
    pub(crate) fn head(&mut self) -> Option<Incoming> {
        let parsed = self.wire.head().and_then(|head| {
            let framing = head.request_framing()?;
            Ok((head, framing))
        });
        match parsed {
            Ok((head, framing)) => Some(self.record(head, framing)),
            Err(stop) => {
                self.note_end(stop);
                None
            }
        }
    }

    fn record(&self, head: Head, framing: Framing) -> Incoming {
        let number = self.shared.update(|log| {
            log.requests.push(Seen {
                number: log.numbered,
                connection: self.connection,
                head: head.clone(),
                body: Vec::new(),
                body_bytes: 0,
                end: None,
                trailers: Vec::new(),
            });
            log.numbered += 1;
            log.numbered - 1
        });
        Incoming {
            head,
            body: Vec::new(),
            flow: Flow::new(framing),
            number,
        }
    }

    /// Reads one more piece of the body.
    pub(crate) fn piece(&mut self, incoming: &mut Incoming) -> Result<(), End> {
        let piece = incoming.flow.piece(&mut self.wire);
        let outcome = match piece {
            Ok(bytes) => {
                incoming.body.extend_from_slice(&bytes);
                Ok(())
            }
            Err(end) => Err(end),
        };
        if let Err(End::Cut(stop)) = &outcome {
            self.note_end(stop.clone());
        }
        self.shared.update(|log| {
            let mut kept = log.requests.iter_mut();
            let Some(seen) = kept.find(|seen| seen.number == incoming.number) else {
                return; // forgotten meanwhile
            };
            let kept = incoming.body.len().min(BODY_KEPT_MAX);
            seen.body
                .extend_from_slice(&incoming.body[seen.body.len()..kept]);
            seen.body_bytes = incoming.body.len();
            seen.end = outcome.clone().err();
            seen.trailers.clone_from(&incoming.flow.trailers);
        });
        outcome
    }

    /// Reads the body until at least `bytes` of it are there.
    pub(crate) fn at_least(&mut self, incoming: &mut Incoming, bytes: usize) -> Result<(), End> {
        while incoming.body.len() < bytes {
            self.piece(incoming)?;
        }
        Ok(())
    }

    /// Reads the rest of the body.
    pub(crate) fn finish(&mut self, incoming: &mut Incoming) -> End {
        loop {
            if let Err(end) = self.piece(incoming) {
                return end;
            }
        }
    }

    pub(crate) fn reply(&self, bytes: &[u8]) -> io::Result<()> {
        self.wire.send(bytes)
    }

    /// Waits for the gateway to end the connection; whatever else comes is in the record.
    pub(crate) fn until_closed(&mut self) {
        let stop = self.wire.ending();
        self.note_end(stop);
    }

    /// Leaves the connection open and unread until the test ends.
    pub(crate) fn stall(&self) {
        while !self.shared.stop.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Reads nothing more until the gateway has gone, or the test has ended.
    pub(crate) fn stall_until_ended(&self) {
        let gone = |stream: &TcpStream| {
            let mut asked = [rustix::event::PollFd::new(
                stream,
                rustix::event::PollFlags::RDHUP,
            )];
            let now = rustix::event::Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            rustix::event::poll(&mut asked, Some(&now)).unwrap() > 0
        };
        while !self.shared.stop.load(Ordering::SeqCst) && !gone(self.wire.stream()) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Makes the connection end with a reset when the script returns.
    pub(crate) fn reset_at_end(&mut self) {
        self.reset = true;
    }

    /// Leaves a word in the record.
    pub(crate) fn note(&self, word: &str) {
        self.shared.update(|log| log.notes.push(word.to_owned()));
    }

    fn note_end(&self, stop: Stop) {
        // Silence is the origin's own impatience, not an end.
        if stop != Stop::Silent {
            let connection = self.connection;
            self.shared.update(|log| log.ended.push((connection, stop)));
        }
    }

    fn end(self) {
        // The duplicate that wakes a blocked script would keep the connection open.
        let local = self.wire.stream().local_addr();
        let peer = self.wire.stream().peer_addr();
        self.shared.open.lock().unwrap().retain(|kept| {
            !(kept.local_addr().ok() == local.as_ref().ok().copied()
                && kept.peer_addr().ok() == peer.as_ref().ok().copied())
        });
        if self.reset {
            self.wire.reset();
        } else {
            drop(self.wire);
        }
        self.shared.update(|log| log.closed.push(self.connection));
    }
}

/// The answer that says what was asked.
pub(crate) fn echo(request: &Incoming) -> Vec<u8> {
    let target = String::from_utf8_lossy(request.head.target()).into_owned();
    let case = request.case();
    let body = serde_json::json!({
        "method": request.head.method(),
        "target": target,
        "case": case,
        "bytes": request.body.len(),
    });
    json(200, &body.to_string())
}

/// A JSON answer with a length.
pub(crate) fn json(status: u16, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} Status\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// A listener whose queue is full: the kernel drops what comes, and a connect waits.
pub(crate) fn unaccepting() -> (TcpListener, Vec<TcpStream>, SocketAddr) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.bind(&any.into()).unwrap();
    socket.listen(0).unwrap();
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().unwrap();
    let mut queued = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
        queued.push(stream);
        assert!(queued.len() < 64, "the queue never fills");
    }
    (listener, queued, address)
}
