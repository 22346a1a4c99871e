//! What an idle client connection costs after it was busy.

use crate::support::client::{CHAT, json_of, request};
use crate::support::gateway::{Driver, Gateway, Setup};
use crate::support::message::eventually;
use crate::support::on_both_drivers;
use crate::support::origin::Origin;

on_both_drivers!(idle_connections_cost_little);

/// The figure is for 10,000 of an optimised build; fewer where descriptors are short.
const CONNECTIONS: usize = if cfg!(debug_assertions) {
    1_000
} else {
    10_000
};

/// Bytes of resident memory that one may cost.
const EACH_MAX: usize = 8 * 1024;

fn idle_connections_cost_little(driver: Driver) {
    let count = CONNECTIONS.min(descriptors() - 1000);
    let origin = Origin::echoing();
    let gateway = Setup::in_front_of(driver, &origin)
        // Few upstream connections, so that the descriptors suffice for the clients.
        .keys("connections: 64")
        .with("limits: { connections: 12000, memory_bytes: 1GiB }")
        .with("timeouts: { keepalive: 1h }")
        .start();
    let sent = request("POST", CHAT, &[], &json_of(256 * 1024));
    // What the first exchanges need is there for all that follow.
    for _ in 0..20 {
        serve(&gateway, &sent);
    }
    origin.forget();
    let before = gateway.proc_status("VmRSS");
    let mut clients = Vec::with_capacity(count);
    for number in 0..count {
        clients.push(serve(&gateway, &sent));
        if number % 64 == 0 {
            origin.forget();
        }
    }
    let mut each = usize::MAX;
    let small = eventually(|| {
        let grown = gateway.proc_status("VmRSS").saturating_sub(before);
        each = usize::try_from(grown).unwrap() * 1024 / count;
        each <= EACH_MAX
    });
    assert!(small, "{each} bytes for each of {count} idle connections");
    // They are all still there.
    for client in clients.iter_mut().step_by(997) {
        assert_eq!(client.exchange("POST", &sent).status, 200);
    }
}

fn serve(gateway: &Gateway, sent: &[u8]) -> crate::support::client::Client {
    let mut client = gateway.connect();
    let answer = client.exchange("POST", sent);
    assert_eq!(answer.status, 200, "{answer:#?}");
    client
}

/// Descriptors that this process may open.
fn descriptors() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit
        .current
        .map_or(usize::MAX, |n| usize::try_from(n).unwrap())
}
