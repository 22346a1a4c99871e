//! The wire lane allocates nothing per chunk: a long exchange makes as many allocations as a short
//! one, and looking at sessions allocates one buffer for the names of all tools at most. The gateway runs in this process, and only what its
//! core's thread allocates is counted.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![expect(
    clippy::disallowed_methods,
    reason = "the test waits for the gateway's thread to be idle"
)]
#![expect(
    unsafe_code,
    reason = "a counting allocator is an unsafe trait, and the name of a thread comes from the kernel"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use lanegate::config::{self, Driver, Workers};
use lanegate::mock::{Mock, Options, Recorded};

/// What the gateway calls the thread of a core.
const CORE: &[u8] = b"lanegate-core\0";

/// How far a long exchange may be above a short one. A core looks at its flags and its pools every
/// 100 ms, and the long exchange lasts through some of these beats: measured are 0, and one
/// allocation for each of them would still be far below one for every chunk, of which there are
/// 1,800 more in the long answer and at least 48 more in the long upload.
const SLACK: u64 = 24;

/// The key of the client that all exchanges come from.
const CLIENT_KEY: &str = "key-of-the-client-0001";

/// Turns of one connection, of which the gateway needs more than [`SLACK`] for one allocation in each to show.
const TURNS: usize = 100;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(30);

struct Counting;

static COUNTING: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether this thread is a core; not known before it first allocates while counting is on,
    /// since at its very beginning it has no name yet.
    static IS_CORE: Cell<Option<bool>> = const { Cell::new(None) };
}

fn count() {
    if !COUNTING.load(Ordering::SeqCst) {
        return;
    }
    // Refused while a thread ends, and no core ends here.
    let is_core = IS_CORE.try_with(|known| {
        let is_core = known.get().unwrap_or_else(is_named_core);
        known.set(Some(is_core));
        is_core
    });
    if is_core == Ok(true) {
        COUNT.fetch_add(1, Ordering::SeqCst);
    }
}

/// Asks the kernel, because the standard library may allocate to say it.
fn is_named_core() -> bool {
    let mut name = [0_u8; 16];
    // SAFETY: PR_GET_NAME writes at most 16 bytes, the terminating NUL included (prctl(2)).
    let outcome = unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    outcome == 0 && name.starts_with(CORE)
}

// SAFETY: every call goes to the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are those of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are those of `System`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are those of `System`.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are those of `System`.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The features that look at sessions.
const FEATURES: &str = "plugins: { features: [{ id: session-classification, enabled: true }, \
    { id: agent-family, enabled: true }] }\n";

/// One test for both drivers: two gateways at once would be counted together.
#[test]
fn long_exchanges_allocate_no_more_than_short_ones_and_sessions_cost_a_buffer() {
    let mock = Mock::start(Options {
        // The body of an upload is of no interest to the mock either.
        record_body_max: 1024,
        ..Options::default()
    })
    .unwrap();
    for driver in [Driver::Epoll, Driver::IoUring] {
        // The one model goes on as it is; the other mapping makes the gateway read every body. With usage
        // asked for, every answer goes through a sieve.
        for keys in [
            "",
            r#"models: [{ from: "m", to: "{model}" }, { from: "n", to: "x" }]"#,
            "usage: inject",
        ] {
            let gateway = start(driver, mock.addr(), keys, "");
            let case = format!("{driver:?} {keys}");
            let answer = |events: u32| move || receive(gateway, events);
            mock.clear();
            no_more(&format!("{case} answer"), answer(200), answer(2000));
            let asks =
                |request: &Recorded| request.body.windows(13).any(|it| it == b"include_usage");
            let asking = mock.requests().into_iter().filter(asks).count();
            assert_eq!(
                asking,
                if keys == "usage: inject" { 3 } else { 0 },
                "{case}"
            );
            let upload = |mib: usize| move || send(gateway, mib << 20);
            no_more(&format!("{case} upload"), upload(4), upload(16));
        }
        let plain = start(driver, mock.addr(), "", "");
        let looking = start(driver, mock.addr(), "", FEATURES);
        let turns = |gateway| move || turns(gateway);
        looking_costs_a_buffer(driver, turns(plain), turns(looking));
    }
}

/// Compares the same turns at a gateway that does not look at sessions and at one that does. The reader of a body
/// has one buffer for the names of its tools, one after the other; every second turn has some.
fn looking_costs_a_buffer(driver: Driver, plain: impl Fn(), looking: impl Fn()) {
    plain();
    looking();
    let (plain, looking) = (counted(plain), counted(looking));
    let buffers = u64::try_from(TURNS / 2).unwrap();
    assert!(
        looking <= plain + buffers + SLACK,
        "{driver:?}: {plain} allocations, and {looking} where sessions are looked at"
    );
}

/// Runs the short exchange until the blocks and tables that it uses are there, then compares.
fn no_more(what: &str, short: impl Fn(), long: impl Fn()) {
    short();
    let short = counted(short);
    let long = counted(long);
    assert!(short > 0, "{what}: nothing was counted");
    assert!(
        long <= short + SLACK,
        "{what}: {short} allocations in the short exchange, {long} in the long one"
    );
}

/// Allocations of the core while the exchange runs and is put away.
fn counted(exchange: impl Fn()) -> u64 {
    COUNT.store(0, Ordering::SeqCst);
    COUNTING.store(true, Ordering::SeqCst);
    exchange();
    // The core notices the end of the connection.
    std::thread::sleep(Duration::from_millis(50));
    COUNTING.store(false, Ordering::SeqCst);
    COUNT.load(Ordering::SeqCst)
}

/// Starts a gateway with one core; it runs until the process ends.
fn start(driver: Driver, provider: SocketAddr, keys: &str, more: &str) -> SocketAddr {
    let comma = if keys.is_empty() { "" } else { ", " };
    let yaml = format!(
        "server: {{ listen: [\"127.0.0.1:0\"] }}\nlog: {{ access: none }}\n{more}\
         clients:\n  - {{ name: c, key_env: KEY }}\nproviders:\n  - {{ name: a, dialect: openai, \
         base_url: \"http://{provider}\", auth: none{comma}{keys} }}\n"
    );
    let mut config = config::parse(&yaml, &|name| {
        (name == "KEY").then(|| CLIENT_KEY.to_owned())
    })
    .unwrap();
    config.server.driver = driver;
    config.server.workers = Workers::Count(1);
    let (ready, address) = mpsc::channel();
    std::thread::spawn(move || {
        lanegate::server::run(config, None, |running| {
            ready.send(running.addresses[0]).unwrap()
        })
        .unwrap();
    });
    address.recv_timeout(PATIENCE).unwrap()
}

fn connect(gateway: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(gateway).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// An answer of `events` events, one write and one chunk each, a millisecond apart.
fn receive(gateway: SocketAddr, events: u32) {
    let mut stream = connect(gateway);
    let body = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {CLIENT_KEY}\r\nx-mock: events={events}; pause=1ms\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream
        .write_all(&[head.as_bytes(), body.as_bytes()].concat())
        .unwrap();
    let answer = read_until(&mut stream, b"\r\n0\r\n\r\n");
    assert!(answer.starts_with(b"HTTP/1.1 200 "));
    let found = answer
        .windows(5)
        .filter(|window| window == b"data:")
        .count();
    assert!(found >= usize::try_from(events).unwrap(), "{found} events");
}

/// An upload of `bytes` bytes with a short answer.
fn send(gateway: SocketAddr, bytes: usize) {
    let mut stream = connect(gateway);
    let (before, after) = (
        r#"{"model":"m","messages":[{"role":"user","content":""#,
        r#""}]}"#,
    );
    let filler = "x".repeat(bytes - before.len() - after.len());
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {CLIENT_KEY}\r\nContent-Length: {bytes}\r\n\r\n{before}"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(filler.as_bytes()).unwrap();
    stream.write_all(after.as_bytes()).unwrap();
    let answer = read_until(&mut stream, b"}");
    assert!(answer.starts_with(b"HTTP/1.1 200 "));
}

/// [`TURNS`] turns of two conversations of one client: one identified by its tools, one never.
fn turns(gateway: SocketAddr) {
    let mut stream = connect(gateway);
    let tools = r#","tools":[{"type":"function","function":{"name":"read"}},{"type":"function","function":{"name":"edit"}},{"type":"function","function":{"name":"bash"}}]"#;
    for number in 0..TURNS {
        let (conversation, tools) = if number % 2 == 0 {
            ("a", tools)
        } else {
            ("b", "")
        };
        let body =
            format!(r#"{{"model":"m","messages":[{{"role":"user","content":"hi"}}]{tools}}}"#);
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {CLIENT_KEY}\r\n\
             X-Router-Conversation: {conversation}\r\nUser-Agent: OpenAI/JS 1\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream
            .write_all(&[head.as_bytes(), body.as_bytes()].concat())
            .unwrap();
        let answer = read_until(&mut stream, b"}");
        assert!(answer.starts_with(b"HTTP/1.1 200 "));
    }
}

fn read_until(stream: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    let mut piece = [0; 16 * 1024];
    while !answer.ends_with(end) {
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "the answer was cut");
        answer.extend_from_slice(&piece[..count]);
    }
    answer
}
