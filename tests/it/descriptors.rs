//! The gateway where descriptors are short: it says so, goes on with what is open, and recovers.

use std::time::Duration;

use crate::support::client::{CHAT, Client, chat, local, request};
use crate::support::gateway::{Driver, Gateway, Setup};
use crate::support::message::eventually;
use crate::support::on_both_drivers;
use crate::support::origin::Origin;

on_both_drivers!(
    connections_are_lowered_to_what_the_descriptors_allow,
    a_start_that_could_serve_nobody_is_refused,
    clients_wait_while_descriptors_are_short,
    idle_upstream_connections_make_way,
);

/// Clients that have asked for a local answer.
fn asking(gateway: &Gateway, count: usize) -> Vec<Client> {
    let clients: Vec<_> = (0..count).map(|_| gateway.connect()).collect();
    for client in &clients {
        client.send(&local()).unwrap();
    }
    clients
}

fn connections_are_lowered_to_what_the_descriptors_allow(driver: Driver) {
    const CLIENTS: usize = 150;
    let origin = Origin::echoing();
    let gateway = Setup::in_front_of(driver, &origin).descriptors(200).start();
    let output = gateway.output();
    assert!(
        output.contains("limits.connections is lowered to"),
        "{output}"
    );
    assert!(output.contains("this process may have 200"), "{output}");
    let mut clients = asking(&gateway, CLIENTS);
    // Half of what is left of 200 are for clients; the others wait in the kernel's queue.
    let answered = |clients: &[Client]| clients.iter().filter(|it| it.has_answer()).count();
    assert!(eventually(|| answered(&clients) >= 60));
    assert!(answered(&clients) <= 100, "{}", answered(&clients));
    // There is a descriptor for a provider for each of them.
    let (mut open, waiting): (Vec<_>, Vec<_>) = clients.drain(..).partition(Client::has_answer);
    for client in &mut open {
        assert_eq!(client.response("HEAD").unwrap().status, 200);
        client.send(&chat(&[])).unwrap();
    }
    for client in &mut open {
        assert_eq!(client.response("POST").unwrap().status, 200);
    }
    drop(open);
    for mut client in waiting {
        assert_eq!(client.response("HEAD").unwrap().status, 200);
    }
}

fn a_start_that_could_serve_nobody_is_refused(driver: Driver) {
    let origin = Origin::echoing();
    let (status, output) = Setup::in_front_of(driver, &origin)
        .descriptors(60)
        .run_to_end();
    assert_eq!(status.code(), Some(1), "{output}");
    assert!(output.contains("too few descriptors to serve"), "{output}");
    assert!(!output.contains("listening on"), "{output}");
}

/// The limit falls below what the gateway counted on when it started.
fn clients_wait_while_descriptors_are_short(driver: Driver) {
    const CLIENTS: usize = 12;
    const FREE: u64 = 4;
    let origin = Origin::echoing();
    let gateway = Setup::in_front_of(driver, &origin).start();
    let mut first = gateway.connect();
    assert_eq!(first.exchange("POST", &chat(&[])).status, 200);
    gateway.limit_descriptors(gateway.free_descriptor() + FREE);
    let mut clients = asking(&gateway, CLIENTS);
    let answered = |clients: &[Client]| clients.iter().filter(|it| it.has_answer()).count();
    assert!(eventually(|| answered(&clients) > 0));
    let before = gateway.cpu_ticks();
    std::thread::sleep(Duration::from_millis(500));
    let spent = gateway.cpu_ticks() - before;
    assert!(spent < 25, "{spent} of 50 ticks spent on waiting");
    let some = answered(&clients);
    assert!(some < CLIENTS, "all of them were accepted");
    // What is open goes on.
    assert_eq!(first.exchange("HEAD", &local()).status, 200);
    let (open, waiting): (Vec<_>, Vec<_>) = clients.drain(..).partition(Client::has_answer);
    drop(open);
    let mut waiting = waiting;
    // Each that closes lets the next one in.
    while !waiting.is_empty() {
        assert!(
            eventually(|| answered(&waiting) > 0),
            "{} wait",
            waiting.len()
        );
        let (done, rest) = waiting.into_iter().partition(Client::has_answer);
        waiting = rest;
        drop::<Vec<_>>(done);
    }
    assert_eq!(first.exchange("POST", &chat(&[])).status, 200);
}

fn idle_upstream_connections_make_way(driver: Driver) {
    let (one, other) = (Origin::echoing(), Origin::echoing());
    let gateway = Setup::new(driver)
        .provider(
            "openai",
            one.address(),
            r#"models: [{ from: "m", to: "m" }], keepalive_idle: 1m"#,
        )
        .provider(
            "openai",
            other.address(),
            r#"models: [{ from: "n", to: "n" }]"#,
        )
        .start();
    let mut client = gateway.connect();
    assert_eq!(client.exchange("POST", &chat(&[])).status, 200);
    gateway.limit_descriptors(gateway.free_descriptor());
    let body = br#"{"model":"n","messages":[]}"#;
    let answer = client.exchange("POST", &request("POST", CHAT, &[], body));
    assert_eq!(answer.status, 200, "{answer:#?}");
    one.wait("the end of its idle connection", |log| log.has_ended(0));
}
