//! The gateway as a process: its memory, its port, its end.

use std::io::{ErrorKind, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::relay::{assert_case, still_serves};
use crate::support::client::{CHAT, Client, chat, json_of, request};
use crate::support::gateway::{Driver, Setup};
use crate::support::message::Stop;
use crate::support::on_both_drivers;
use crate::support::origin::{Origin, echo};

on_both_drivers!(
    stalled_uploads_cost_little_memory,
    foreign_listener_is_refused,
    signals_stop_it_cleanly,
);

/// 64 uploads of 4 MiB to an origin that reads only heads: 256 MiB offered, 32 MiB of growth allowed.
fn stalled_uploads_cost_little_memory(driver: Driver) {
    const UPLOADS: usize = 64;
    const BYTES: usize = 4 << 20;
    const GROWTH_KIB_MAX: u64 = 32 << 10;
    let origin = Origin::start(|caller| {
        while let Some(mut request) = caller.head() {
            if request.case() == "upload" {
                return caller.stall();
            }
            caller.finish(&mut request);
            caller.reply(&echo(&request)).unwrap();
        }
    });
    let gateway = Setup::in_front_of(driver, &origin).workers(2).start();
    still_serves(&gateway);
    let before = gateway.proc_status("VmRSS");
    let upload = request("POST", CHAT, &["x-case: upload"], &json_of(BYTES));
    let mut uploads: Vec<_> = (0..UPLOADS).map(|_| (gateway.connect(), 0)).collect();
    for (client, _) in &uploads {
        client.wire.stream().set_nonblocking(true).unwrap();
    }
    let start = Instant::now();
    let mut last_progress = start;
    while last_progress.elapsed() < Duration::from_millis(500) {
        for (client, sent) in &mut uploads {
            let n = write_some(client, &upload[*sent..]);
            *sent += n;
            if n > 0 {
                last_progress = Instant::now();
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    origin.wait("all the heads", |log| log.requests.len() == UPLOADS + 1);
    let after = gateway.proc_status("VmHWM");
    let growth = after.saturating_sub(before);
    let sent: usize = uploads.iter().map(|(_, sent)| sent).sum();
    assert!(
        growth <= GROWTH_KIB_MAX,
        "grew by {growth} KiB from {before} KiB with {sent} bytes sent"
    );
    assert_eq!(
        gateway
            .connect()
            .exchange("HEAD", &request("HEAD", "/", &[], b""))
            .status,
        200
    );
    for (client, _) in &mut uploads {
        let open = client.wire.stream().peek(&mut [0]).err().map(|e| e.kind());
        let waited = start.elapsed();
        assert!(
            open == Some(ErrorKind::WouldBlock),
            "given up after {waited:?}: {:#?}",
            client.response("POST")
        );
    }
}

fn write_some(client: &mut Client, bytes: &[u8]) -> usize {
    let written = (&mut client.wire.stream()).write(bytes);
    match written.map_err(|e| e.kind()) {
        Ok(n) => n,
        Err(ErrorKind::WouldBlock) => 0,
        Err(kind) => {
            let answer = client.response("POST");
            unreachable!("given up, {kind}: {answer:#?}");
        }
    }
}

fn foreign_listener_is_refused(driver: Driver) {
    let origin = Origin::echoing();
    let first = Setup::in_front_of(driver, &origin).start();
    assert_refused(&Setup::in_front_of(driver, &origin).listen(first.address()));
    still_serves(&first);

    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = plain.local_addr().unwrap();
    assert_refused(&Setup::in_front_of(driver, &origin).listen(address));

    // One that would share the port without a word.
    let sharing = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    sharing.set_reuse_port(true).unwrap();
    sharing
        .bind(
            &"127.0.0.1:0"
                .parse::<std::net::SocketAddr>()
                .unwrap()
                .into(),
        )
        .unwrap();
    sharing.listen(8).unwrap();
    let address = TcpListener::from(sharing.try_clone().unwrap())
        .local_addr()
        .unwrap();
    assert_refused(&Setup::in_front_of(driver, &origin).listen(address));
}

fn assert_refused(setup: &Setup) {
    let (status, output) = setup.run_to_end();
    assert!(
        status.code().is_some_and(|code| code != 0),
        "{status}: {output}"
    );
    let port = setup.listens_on().rsplit(':').next().unwrap().to_owned();
    assert!(
        output.contains(&port),
        "the message names the address: {output}"
    );
    assert!(!output.contains("listening on"), "{output}");
}

fn signals_stop_it_cleanly(driver: Driver) {
    for signal in [Signal::TERM, Signal::INT] {
        let origin = Origin::echoing();
        let gateway = Setup::in_front_of(driver, &origin).workers(2).start();
        still_serves(&gateway);
        // An idle connection on either side must not hold it up.
        let mut idle = gateway.connect();
        assert_case(&idle.exchange("POST", &chat(&["x-case: idle"])), "idle");
        let status = gateway.signal(signal);
        assert_eq!(status.code(), Some(0), "{signal:?}: {status}");
        assert!(matches!(idle.wire.ending(), Stop::Fin | Stop::Reset));
    }
}
