//! The load generator as a process: what it sends, counts, prints and refuses. Never how fast it is.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use lanegate::mock::{Mock, Options};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use serde_json::Value;

/// Figures of every run, and what JSON has of each.
const FIGURES: [&str; 14] = [
    "requests_per_second",
    "latency_p50_us",
    "latency_p90_us",
    "latency_p99_us",
    "latency_p999_us",
    "latency_max_us",
    "first_byte_p50_us",
    "first_byte_p90_us",
    "first_byte_p99_us",
    "first_byte_p999_us",
    "first_byte_max_us",
    "own_cpu_per_request_us",
    "own_busy_share",
    "reconnects",
];
const FIGURES_OF_STREAMS: [&str; 6] = [
    "gap_p50_us",
    "gap_p90_us",
    "gap_p99_us",
    "gap_p999_us",
    "gap_max_us",
    "own_cpu_per_event_us",
];
const FIGURES_OF_PROCESSES: [&str; 4] =
    ["cpu_per_request_us", "cpu_cores", "rss_kib", "rss_peak_kib"];

struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ended {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| {
            unreachable!("{error}: {} {}", self.out, self.err);
        })
    }
}

fn command(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanegate"));
    command.arg("bench").args(arguments.split_whitespace());
    command
}

fn ended(output: Output, err: Vec<u8>) -> Ended {
    Ended {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(err).unwrap(),
    }
}

fn bench(arguments: &str) -> Ended {
    let mut output = command(arguments).output().unwrap();
    let err = std::mem::take(&mut output.stderr);
    ended(output, err)
}

/// With standard error on a terminal; `err` is what that showed.
fn bench_on_terminal(arguments: &str) -> Ended {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    let shown = openpt(flags).unwrap();
    grantpt(&shown).unwrap();
    unlockpt(&shown).unwrap();
    let terminal = ioctl_tiocgptpeer(&shown, flags).unwrap();
    let output = command(arguments).stderr(terminal).output().unwrap();
    let mut err = Vec::new();
    // Nobody has the other end any more: after its last byte there is an error.
    File::from(shown).read_to_end(&mut err).unwrap_err();
    ended(output, err)
}

fn mock() -> Mock {
    Mock::start(Options::default()).unwrap()
}

#[test]
fn every_dialect_is_asked_measured_and_reported() {
    for dialect in ["chat", "messages", "responses"] {
        for stream in [false, true] {
            let mock = mock();
            let ended = bench(&format!(
                "http://{} --pid {} --dialect {dialect} {} --body-bytes 3000 --requests 20 \
                 --connections 4 --threads 2 --json",
                mock.addr(),
                std::process::id(),
                if stream { "--stream --events 7" } else { "" }
            ));
            assert_eq!(ended.code, Some(0), "{}", ended.err);
            assert_eq!(ended.err, "", "progress is for terminals");
            let report = ended.json();
            let target = &report["targets"][0];
            assert_eq!(target["requests"], 20, "{report}");
            assert_eq!(target["errors"]["total"], 0, "{report}");
            assert_eq!(report["answer"]["events"].as_u64().unwrap() > 7, stream);
            let metrics = target["metrics"].as_object().unwrap();
            let has = |name: &str| metrics.get(name).is_some_and(|m| m["median"].is_number());
            assert!(FIGURES.into_iter().all(has), "{report}");
            assert!(FIGURES_OF_PROCESSES.into_iter().all(has), "{report}");
            assert_eq!(FIGURES_OF_STREAMS.map(has), [stream; 6], "{report}");
            assert_eq!(has("cpu_per_event_us"), stream, "{report}");
            assert_orders(metrics);

            // One to learn the answer, one to warm each connection.
            assert_eq!(mock.executions(), 20 + 4 + 1);
            for request in mock.requests() {
                assert_eq!(request.body_len, 3000);
            }
        }
    }
}

fn assert_orders(metrics: &serde_json::Map<String, Value>) {
    let median = |name: &str| metrics[name]["median"].as_f64().unwrap();
    let points = ["p50", "p90", "p99", "p999", "max"];
    for kind in ["latency", "first_byte"] {
        let values = points.map(|point| median(&format!("{kind}_{point}_us")));
        assert!(values.is_sorted() && values[0] > 0.0, "{kind}: {values:?}");
    }
    assert!(median("first_byte_max_us") <= median("latency_max_us"));
}

#[test]
fn large_bodies_arrive_whole() {
    let mock = mock();
    let ended = bench(&format!(
        "http://{} --body-bytes 20MiB --requests 2 --connections 2 --json",
        mock.addr()
    ));
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    let bytes: Vec<_> = mock.requests().iter().map(|r| r.body_len).collect();
    assert_eq!(bytes, [20 << 20; 5]);
}

#[test]
fn targets_take_turns_and_are_compared_with_the_first() {
    let mock = mock();
    let addr = mock.addr();
    let ended = bench(&format!(
        "--target a=http://{addr}/a --target b=http://{addr}/b --rounds 3 --requests 5 \
         --connections 1 --json"
    ));
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let mut turns: Vec<_> = mock
        .requests()
        .iter()
        .map(|request| request.head_text().split('/').nth(1).unwrap().to_owned())
        .collect();
    turns.dedup();
    // The first pair learns the answer.
    assert_eq!(turns, ["a", "b", "a", "b", "a", "b", "a", "b"]);

    let report = ended.json();
    for (target, name) in report["targets"].as_array().unwrap().iter().zip(["a", "b"]) {
        assert_eq!(target["name"], name);
        assert_eq!(target["requests"], 15);
        let rate = &target["metrics"]["requests_per_second"];
        let rounds: Vec<_> = rate["rounds"].as_array().unwrap().iter().collect();
        assert_eq!(rounds.len(), 3);
        let [min, median, max] = ["min", "median", "max"].map(|key| rate[key].as_f64().unwrap());
        assert!(min <= median && median <= max, "{rate}");
        let ratio = &rate["ratio"];
        let [low, mid, high] = ["min", "median", "max"].map(|key| ratio[key].as_f64().unwrap());
        assert!(0.0 < low && low <= mid && mid <= high, "{rate}");
        assert!(name == "b" || low == 1.0 && high == 1.0, "{rate}");
        assert!(
            target["metrics"].get("cpu_per_request_us").is_none(),
            "no process was given"
        );
    }
}

#[test]
fn table_names_targets_figures_and_ratios() {
    let mock = mock();
    let addr = mock.addr();
    let ended = bench(&format!(
        "--target one=http://{addr} --target two=http://{addr} --rounds 2 --requests 3 \
         --connections 1 --stream --pause 2ms"
    ));
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    let row = |name: &str| {
        let line = ended.out.lines().find(|line| line.starts_with(name));
        line.unwrap_or_else(|| unreachable!("no {name} in {}", ended.out))
    };
    assert!(
        ended.out.contains("one") && ended.out.contains("two"),
        "{}",
        ended.out
    );
    assert_eq!(
        row("requests ").split_whitespace().collect::<Vec<_>>(),
        ["requests", "6", "6"]
    );
    assert_eq!(
        row("errors").split_whitespace().collect::<Vec<_>>(),
        ["errors", "0", "0"]
    );
    assert_eq!(row("gap_p99_us").matches(" x").count(), 1, "{}", ended.out);
}

#[test]
fn terminal_shows_how_far_the_run_is_and_then_nothing() {
    let mock = mock();
    let addr = mock.addr();
    let arguments = format!(
        "--target one=http://{addr} --target two=http://{addr} --rounds 2 --requests 3 \
         --connections 1 --json"
    );
    // Back to the begin of the line, and the rest of it away.
    let over = "\r\u{1b}[K";
    let shown = [
        "round 1 of 2: one",
        "round 1 of 2: two",
        "round 2 of 2: one",
        "round 2 of 2: two",
        "",
    ];
    let on_terminal = bench_on_terminal(&arguments);
    assert_eq!(on_terminal.code, Some(0), "{}", on_terminal.err);
    let expected: String = shown.iter().map(|text| format!("{over}{text}")).collect();
    assert_eq!(on_terminal.err, expected);
    assert_eq!(on_terminal.json()["targets"][1]["requests"], 6);
    let elsewhere = bench(&arguments);
    assert_eq!((elsewhere.code, elsewhere.err.as_str()), (Some(0), ""));
}

#[test]
fn rounds_end_with_their_time() {
    let mock = mock();
    let ended = bench(&format!(
        "http://{} --duration 50ms --connections 1 --script first=10ms --json",
        mock.addr()
    ));
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let requests = ended.json()["targets"][0]["requests"].as_u64().unwrap();
    assert!(
        (1..=5).contains(&requests),
        "{requests} of 10 ms each in 50 ms"
    );
}

#[test]
fn connections_that_the_target_ends_are_no_fault() {
    let mock = mock();
    let ended = bench(&format!(
        "http://{} --requests 6 --connections 2 --script close=after --json",
        mock.addr()
    ));
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let target = &ended.json()["targets"][0];
    assert_eq!(target["requests"], 6);
    assert_eq!(target["metrics"]["reconnects"]["median"], 6.0);
}

#[test]
fn targets_that_are_not_this_machine_are_refused() {
    for url in ["http://192.0.2.1:9", "--target a=http://192.0.2.1:9"] {
        let ended = bench(&format!("{url} --timeout 1ms"));
        assert_eq!((ended.code, ended.out.as_str()), (Some(64), ""));
        assert!(ended.err.contains("--allow-remote"), "{}", ended.err);
    }
}

#[test]
fn arguments_that_mean_nothing_are_usage_errors() {
    for arguments in [
        "",
        "--rounds 0 http://127.0.0.1:9",
        "--dialect x http://127.0.0.1:9",
        "--no",
    ] {
        let ended = bench(arguments);
        assert_eq!(
            (ended.code, ended.out.as_str()),
            (Some(64), ""),
            "{arguments}"
        );
        assert_ne!(ended.err, "");
    }
}

#[test]
fn wrong_first_answer_ends_the_run() {
    let mock = mock();
    for (options, message) in [
        ("--script status=529", "expected status 200, got 529"),
        ("--script body=x", "expected one JSON object"),
        (
            "--stream --script cut=100;framing=length",
            "ended before the answer did",
        ),
        (
            "--stream --script body={}",
            "expected a stream that ends with data: [DONE]",
        ),
        ("--script nonsense", "unknown key"),
    ] {
        let ended = bench(&format!("http://{} {options}", mock.addr()));
        assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{options}");
        assert!(ended.err.contains(message), "{options}: {}", ended.err);
    }
}

#[test]
fn second_target_must_answer_as_the_first() {
    let right = mock();
    let wrong = Mock::start(Options {
        script: "events=2".parse().unwrap(),
        ..Options::default()
    })
    .unwrap();
    let ended = bench(&format!(
        "--target a=http://{} --target b=http://{} --requests 1",
        right.addr(),
        wrong.addr()
    ));
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""));
    assert!(
        ended
            .err
            .contains("first request to b: expected the answer of the first target")
    );
}

#[test]
fn configuration_of_the_comparison_is_valid() {
    let output = Command::new(env!("CARGO_BIN_EXE_lanegate"))
        .args(["check", "--config", "benches/compare/lanegate.yaml"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn process_that_is_not_there_ends_the_run() {
    let mock = mock();
    let ended = bench(&format!(
        "http://{} --requests 1 --pid 4294967295",
        mock.addr()
    ));
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""));
    assert!(ended.err.contains("process 4294967295"), "{}", ended.err);
}

const RIGHT: &str = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"a\":1}";

/// What a target does from its third request on; the first is the probe, the second warms.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// Sends this and closes.
    Close(&'static str),
    /// Resets the connection.
    Reset,
    /// Sends this and waits.
    Wait(&'static str),
}

#[test]
fn wrong_answers_are_counted_by_kind() {
    for (then, kind) in [
        (
            Then::Close("HTTP/1.1 500 x\r\nContent-Length: 7\r\n\r\n{\"a\":1}"),
            "status",
        ),
        (
            Then::Close("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"a\":2}"),
            "answer",
        ),
        (
            Then::Close("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n{\"a\":1"),
            "answer",
        ),
        (
            Then::Close("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{\"a\":1}}"),
            "answer",
        ),
        (
            Then::Close("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"a\":"),
            "closed",
        ),
        (Then::Close("HTTP/1.1 200 OK\r\n\r\n{\"a\":"), "answer"),
        (Then::Close(""), "closed"),
        (Then::Close("HTTP/3 200 OK\r\n\r\n"), "malformed"),
        (
            Then::Close("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"a\":1}!"),
            "malformed",
        ),
        (Then::Reset, "io"),
        (Then::Wait(""), "timeout"),
        (
            Then::Wait("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"a\""),
            "timeout",
        ),
    ] {
        let addr = serve(then);
        let ended = bench(&format!(
            "http://{addr} --requests 3 --connections 1 --timeout 300ms --json"
        ));
        assert_eq!(ended.code, Some(1), "{then:?}");
        assert!(ended.err.contains("not every request was answered rightly"));
        let target = &ended.json()["targets"][0];
        assert_eq!(target["requests"], 0, "{then:?}: {target}");
        assert_eq!(target["errors"][kind], 3, "{then:?}: {target}");
        assert_eq!(target["errors"]["total"], 3, "{then:?}: {target}");
    }
}

/// A target that answers twice and then no more as it should.
fn serve(then: Then) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let answered = Arc::new(AtomicUsize::new(0));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let answered = Arc::clone(&answered);
            thread::spawn(move || converse(&stream.unwrap(), &answered, then));
        }
    });
    addr
}

fn converse(mut stream: &TcpStream, answered: &AtomicUsize, then: Then) {
    let mut reader = BufReader::new(stream);
    while read_request(&mut reader).is_some() {
        if answered.fetch_add(1, Ordering::SeqCst) < 2 {
            stream.write_all(RIGHT.as_bytes()).unwrap();
            continue;
        }
        match then {
            Then::Close(bytes) => return stream.write_all(bytes.as_bytes()).unwrap(),
            Then::Reset => {
                let linger = Some(std::time::Duration::ZERO);
                return socket2::SockRef::from(stream).set_linger(linger).unwrap();
            }
            Then::Wait(bytes) => {
                stream.write_all(bytes.as_bytes()).unwrap();
                let _left = reader.read(&mut [0]);
                return;
            }
        }
    }
}

/// `None` when the client has left.
fn read_request(reader: &mut impl BufRead) -> Option<()> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.strip_prefix("Content-Length: ") {
            length = value.trim_end().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
    }
    reader.read_exact(&mut vec![0; length]).ok()
}

#[test]
fn answers_that_come_before_the_request_was_sent_are_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut answered = 0;
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            let mut reader = BufReader::new(&stream);
            // The connection of the probe ends with it; the next one brings two requests.
            while answered < 2 && read_request(&mut reader).is_some() {
                answered += 1;
                (&stream).write_all(RIGHT.as_bytes()).unwrap();
            }
            if answered == 2 && reader.read_line(&mut String::new()).unwrap_or(0) > 0 {
                (&stream).write_all(RIGHT.as_bytes()).unwrap();
                // Takes no more, and stays.
                open.push(stream);
            }
        }
    });
    let ended = bench(&format!(
        "http://{addr} --requests 2 --connections 1 --body-bytes 20MiB --json"
    ));
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    let target = &ended.json()["targets"][0];
    assert_eq!(target["errors"]["early"], 2, "{target}");
}

#[test]
fn target_that_is_gone_is_a_fault_and_no_loop() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let served = thread::spawn(move || {
        for _ in 0..2 {
            let (stream, _) = listener.accept().unwrap();
            read_request(&mut BufReader::new(&stream)).unwrap();
            let answer = RIGHT.replace("OK\r\n", "OK\r\nConnection: close\r\n");
            (&stream).write_all(answer.as_bytes()).unwrap();
        }
    });
    let ended = bench(&format!(
        "http://{addr} --requests 50 --connections 1 --json"
    ));
    served.join().unwrap();
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    let target = &ended.json()["targets"][0];
    assert_eq!(target["errors"]["connect"], 1, "{target}");
    assert_eq!(target["requests"], 0, "{target}");
}
