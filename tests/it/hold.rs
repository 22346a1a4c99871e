//! Bodies that are held because their model comes last, and bodies that stream past: memory is
//! bounded, nobody hangs, and what arrives is what was sent.

use std::hash::{DefaultHasher, Hasher};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::client::{CHAT, Client, Response, chunk, head, json_of};
use crate::support::gateway::{Driver, Setup};
use crate::support::message::{Stop, eventually, find};
use crate::support::on_both_drivers;
use crate::support::origin::{Origin, json};

on_both_drivers!(
    a_model_behind_31_mib_of_messages_is_routed,
    a_model_behind_a_small_window_is_routed,
    white_space_behind_the_body_is_relayed_up_to_a_wide_window,
    held_uploads_take_turns,
    two_hundred_held_uploads_are_served_or_told_to_come_back,
);

const MIB: usize = 1024 * 1024;

/// The longest that a client of these tests waits: for memory, behind everybody else's upload.
const UPLOAD_PATIENCE: Duration = Duration::from_secs(120);

/// `bytes` bytes of JSON whose `model` is its last key.
fn model_last(bytes: usize, model: &str) -> Vec<u8> {
    let before = r#"{"messages":[{"role":"user","content":""#;
    let after = format!(r#""}}],"model":"{model}"}}"#);
    let mut body = Vec::with_capacity(bytes);
    body.extend(before.as_bytes());
    // No two blocks alike, so that a lost or repeated one shows.
    let mut number = 0_u64;
    while body.len() + after.len() + 16 <= bytes {
        body.extend(format!("{number:016x}").as_bytes());
        number += 1;
    }
    body.resize(bytes - after.len(), b'x');
    body.extend(after.as_bytes());
    body
}

fn hash(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    format!("{:016x}", hasher.finish())
}

/// An origin that answers with the hash of the body.
fn hashing() -> Origin {
    Origin::start(|caller| {
        while let Some(request) = caller.request() {
            let answer = json(200, &hash(&request.body));
            if caller.reply(&answer).is_err() {
                return;
            }
        }
    })
}

/// The request in pieces, each of which is one write.
fn pieces(body: &[u8], chunked: bool) -> Vec<Vec<u8>> {
    if !chunked {
        let head = head("POST", CHAT, &[&format!("Content-Length: {}", body.len())]) + "\r\n";
        return [head.into_bytes()]
            .into_iter()
            .chain(body.chunks(MIB).map(<[u8]>::to_vec))
            .collect();
    }
    let head = head("POST", CHAT, &["Transfer-Encoding: chunked"]) + "\r\n";
    [head.into_bytes()]
        .into_iter()
        .chain(body.chunks(100_003).map(chunk))
        .chain([b"0\r\n\r\n".to_vec()])
        .collect()
}

/// Sends all pieces, unless the gateway ends it before, and reads the answer.
fn upload(mut client: Client, pieces: &[Vec<u8>]) -> Result<Response, Stop> {
    let stream = client.wire.stream();
    stream.set_read_timeout(Some(UPLOAD_PATIENCE)).unwrap();
    stream.set_write_timeout(Some(UPLOAD_PATIENCE)).unwrap();
    for piece in pieces {
        if client.send(piece).is_err() {
            break;
        }
    }
    client.response("POST")
}

fn a_model_behind_31_mib_of_messages_is_routed(driver: Driver) {
    let (mapped, default) = (hashing(), Origin::echoing());
    let gateway = Setup::new(driver)
        .provider(
            "openai",
            mapped.address(),
            r#"models: [{ from: "same-*", to: "{model}" }, { from: "other-*", to: "{model}-{model}" }]"#,
        )
        .provider("openai", default.address(), "default: true")
        .start();
    let sent = model_last(31 * MIB, "same-1");
    for chunked in [false, true] {
        let answer = upload(gateway.connect(), &pieces(&sent, chunked)).unwrap();
        assert_eq!(answer.status, 200, "{answer:#?}");
        assert_eq!(answer.body, hash(&sent).as_bytes());
    }
    let sent = model_last(31 * MIB, "other-1");
    let text = String::from_utf8(sent.clone()).unwrap();
    let renamed = text.replace(r#""other-1"}"#, r#""other-1-other-1"}"#);
    for chunked in [false, true] {
        let answer = upload(gateway.connect(), &pieces(&sent, chunked)).unwrap();
        assert_eq!(answer.status, 200, "{answer:#?}");
        assert_eq!(answer.body, hash(renamed.as_bytes()).as_bytes());
    }
    default.look(|log| assert_eq!(log.connections, 0));
}

/// A window may be smaller than what is held without a reservation.
fn a_model_behind_a_small_window_is_routed(driver: Driver) {
    let origin = hashing();
    for window in ["16KiB", "48KiB", "100000", "1MiB"] {
        let gateway = Setup::new(driver)
            .with(&format!("limits: {{ window_bytes: {window} }}"))
            .provider(
                "openai",
                origin.address(),
                r#"models: [{ from: "m-*", to: "{model}" }], default: false"#,
            )
            .start();
        for bytes in [20, 40, 70, 300, 2000].map(|kib| kib * 1024) {
            let sent = model_last(bytes, "m-1");
            for chunked in [false, true] {
                let answer = upload(gateway.connect(), &pieces(&sent, chunked)).unwrap();
                assert_eq!(
                    answer.status, 200,
                    "{window} {bytes} {chunked}: {answer:#?}"
                );
                assert_eq!(answer.body, hash(&sent).as_bytes(), "{window} {bytes}");
            }
        }
    }
}

/// The tail that is withheld may be as long as the window, however wide that is.
fn white_space_behind_the_body_is_relayed_up_to_a_wide_window(driver: Driver) {
    let origin = hashing();
    let gateway = Setup::in_front_of(driver, &origin)
        .with("limits: { window_bytes: 1MiB }")
        .start();
    for spaces in [300 * 1024, 900 * 1024] {
        let mut body = json_of(900 * 1024);
        body.resize(body.len() + spaces, b' ');
        let mut client = gateway.connect();
        let opening = head("POST", CHAT, &[]);
        let opening = format!("{opening}Content-Length: {}\r\n\r\n", body.len());
        client.send(opening.as_bytes()).unwrap();
        client.send(&body).unwrap();
        let (_, answer) = client.heads().unwrap();
        assert!(answer.start().contains(" 200 "), "{spaces}: {answer:?}");
    }
}

/// More than fit at a time, few enough that patience pays.
fn held_uploads_take_turns(driver: Driver) {
    let served = held_uploads(driver, 60, 8, 64);
    assert!(served > 60 / 4, "{served} served");
}

/// Nearly the longest bodies, 6 GiB together.
fn two_hundred_held_uploads_are_served_or_told_to_come_back(driver: Driver) {
    held_uploads(driver, 200, 31, 256);
}

/// Uploads `count` bodies of `mib` MiB at once, half of them chunked, to a gateway with `memory` MiB
/// of which half is for bodies that are held. The number of those that were served.
fn held_uploads(driver: Driver, count: usize, mib: usize, memory: usize) -> usize {
    let origin = hashing();
    let gateway = Setup::new(driver)
        .with(&format!(
            "limits: {{ memory_bytes: {memory}MiB, connections: 256, body_bytes: {}MiB }}",
            mib + 1
        ))
        .with("timeouts: { reservation: 2s }")
        .provider(
            "openai",
            origin.address(),
            r#"models: [{ from: "m-*", to: "{model}" }], default: false"#,
        )
        .start();
    let body = model_last(mib * MIB, "m-1");
    let sent = [false, true].map(|chunked| pieces(&body, chunked));
    let hash = hash(&body);
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for number in 0..count {
            let (gateway, sent, outcomes) = (&gateway, &sent, &outcomes);
            scope.spawn(move || {
                let outcome = upload(gateway.connect(), &sent[number % 2]);
                outcomes.lock().unwrap().push(outcome);
            });
        }
    });
    let (mut served, mut told) = (0, 0);
    for outcome in outcomes.into_inner().unwrap() {
        let answer = outcome.unwrap();
        match answer.status {
            200 if answer.body == hash.as_bytes() => served += 1,
            503 if answer.gateway_error().as_deref() == Some("memory_exhausted") => {
                let seconds = answer.head.value("retry-after").unwrap();
                assert!(seconds.parse::<u32>().unwrap() >= 1, "{answer:#?}");
                told += 1;
            }
            _ => unreachable!("{answer:#?}"),
        }
    }
    assert_eq!(served + told, count);
    assert!(served >= 1, "{told} told to come back");
    let peak_kib = gateway.proc_status("VmHWM");
    let allowed_kib = (memory as u64 + 64) * 1024;
    assert!(
        peak_kib < allowed_kib,
        "{peak_kib} KiB resident, {allowed_kib} KiB allowed; {served} served, {told} told"
    );
    // Everything was given back: the largest body is taken at once.
    let answer = upload(gateway.connect(), &sent[0]).unwrap();
    assert_eq!(answer.status, 200, "{answer:#?}");
    served
}

/// An origin of small threads that reads nothing but heads until it is released.
struct Stalling {
    address: SocketAddr,
    released: Arc<AtomicBool>,
    heads: Arc<AtomicUsize>,
}

impl Stalling {
    fn start(expected: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // Otherwise the kernel takes a whole body while nobody reads.
        let accepts = socket2::SockRef::from(&listener);
        accepts.set_recv_buffer_size(16 * 1024).unwrap();
        let address = listener.local_addr().unwrap();
        let (released, heads) = <(Arc<AtomicBool>, Arc<AtomicUsize>)>::default();
        let out = Self {
            address,
            released: Arc::clone(&released),
            heads: Arc::clone(&heads),
        };
        let expected = Arc::new(expected);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (released, heads) = (Arc::clone(&released), Arc::clone(&heads));
                let expected = Arc::clone(&expected);
                let serve = move || {
                    // A broken connection shows at the client, which counts the answers.
                    let _broken = stalled(stream?, &released, &heads, &expected);
                    io::Result::Ok(())
                };
                let small = std::thread::Builder::new().stack_size(128 * 1024);
                small.spawn(serve).unwrap();
            }
        });
        out
    }
}

fn stalled(
    mut stream: TcpStream,
    released: &AtomicBool,
    heads: &AtomicUsize,
    expected: &[u8],
) -> io::Result<()> {
    let mut block = [0; 16 * 1024];
    let mut text = Vec::new();
    let end = loop {
        let count = stream.read(&mut block[..1024])?;
        text.extend_from_slice(&block[..count]);
        match find(&text, b"\r\n\r\n") {
            Some(end) => break end + 4,
            None if count == 0 => return Err(ErrorKind::UnexpectedEof.into()),
            None => {}
        }
    };
    heads.fetch_add(1, Ordering::SeqCst);
    while !released.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut at = text.len() - end;
    let mut same = text[end..] == expected[..at];
    while at < expected.len() {
        let count = stream.read(&mut block)?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        same &= expected.get(at..at + count) == Some(&block[..count]);
        at += count;
    }
    stream.write_all(&json(200, if same { "same" } else { "other" }))
}

/// One upload of a thread that has many: as much at a time as the kernel takes.
struct Upload {
    client: Client,
    sent: usize,
}

impl Upload {
    /// Whether all was sent.
    fn go_on(&mut self, bytes: &[u8]) -> bool {
        while self.sent < bytes.len() {
            match self.client.wire.stream().write(&bytes[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) => unreachable!("after {} bytes: {error}", self.sent),
            }
        }
        true
    }
}

/// Once, because what is measured is memory and not the driver: the ring is the one that counts.
#[test]
fn a_thousand_bodies_in_flight_stay_below_200_mib() {
    const CLIENTS: usize = 1000;
    const THREADS: usize = 4;
    let body = json_of(MIB);
    let origin = Stalling::start(body.clone());
    let gateway = Setup::new(Driver::IoUring)
        .provider(
            "openai",
            origin.address,
            r#"models: [{ from: "m", to: "{model}" }, { from: "n", to: "x" }]"#,
        )
        .start();
    let length = format!("Content-Length: {}", body.len());
    let request = [head("POST", CHAT, &[&length]).as_bytes(), b"\r\n", &body].concat();
    let still = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| upload_many(&gateway.address(), &request, CLIENTS / THREADS));
        }
        scope.spawn(|| {
            let all = eventually(|| origin.heads.load(Ordering::SeqCst) == CLIENTS);
            // What the gateway still takes, it takes now.
            std::thread::sleep(Duration::from_secs(1));
            still.store(all, Ordering::SeqCst);
            origin.released.store(true, Ordering::SeqCst);
        });
    });
    let heads = origin.heads.load(Ordering::SeqCst);
    assert!(still.load(Ordering::SeqCst), "{heads} were in flight");
    let peak_kib = gateway.proc_status("VmHWM");
    assert!(peak_kib < 200 * 1024, "{peak_kib} KiB resident");
}

fn upload_many(gateway: &SocketAddr, request: &[u8], count: usize) {
    let started = Instant::now();
    let connect = || {
        let client = Client::connect(*gateway);
        client.wire.stream().set_nonblocking(true).unwrap();
        Upload { client, sent: 0 }
    };
    let mut uploads: Vec<Upload> = (0..count).map(|_| connect()).collect();
    while uploads
        .iter_mut()
        .filter(|upload| upload.sent < request.len())
        .fold(0, |left, upload| left + usize::from(!upload.go_on(request)))
        > 0
    {
        assert!(started.elapsed() < UPLOAD_PATIENCE, "uploads hang");
        std::thread::sleep(Duration::from_millis(2));
    }
    for upload in &mut uploads {
        upload.client.wire.stream().set_nonblocking(false).unwrap();
        let answer = upload.client.response("POST").unwrap();
        assert_eq!(answer.status, 200, "{answer:#?}");
        assert_eq!(answer.body, b"same");
    }
}
