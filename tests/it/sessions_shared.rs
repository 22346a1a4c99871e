//! What several processes that share a store know of a session, from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::sessions::{
    IDENTIFIES, asking, durable, feature, kept_at, key, metrics, provider, setup, turn,
};
use crate::support::client::BODY;
use crate::support::exposition::Exposition;
use crate::support::gateway::{Driver, Gateway};
use crate::support::message::eventually;
use crate::support::on_both_drivers;
use crate::support::origin::{Origin, json as answer};
use crate::support::postgres::Server;

on_both_drivers!(
    a_session_is_known_to_the_next_process_that_has_the_store_and_the_key,
    a_session_is_known_to_another_process_that_shares_the_store_and_the_key,
    of_two_processes_that_share_a_store_one_asks_the_service,
);

/// A file and a database that processes can share.
fn shared_places(folder: &TempDir) -> [String; 2] {
    let database = Server::shared().database();
    [durable(folder), kept_at(&database, folder)]
}

fn a_session_is_known_to_the_next_process_that_has_the_store_and_the_key(driver: Driver) {
    let origin = provider();
    let folder = TempDir::new().unwrap();
    for place in shared_places(&folder) {
        let setup = setup(driver, &origin).with(&place).with(&feature("{}"));
        let fields = [&*key(0), "X-Router-Conversation: c"];
        let gateway = setup.start();
        let agent = [fields[0], fields[1], "User-Agent: roo-code/3"];
        turn(&gateway, &mut gateway.connect(), &agent, BODY);
        assert!(gateway.signal(Signal::TERM).success());
        let gateway = setup.start();
        let mut client = gateway.connect();
        let restored = eventually(|| {
            let (_, line) = turn(&gateway, &mut client, &fields, BODY);
            line["session_evidence"] == "client_family.roo"
        });
        assert!(restored);
        // The first process identified it.
        assert!(!metrics(&gateway).contains("transitions_total"));
    }
}

fn a_session_is_known_to_another_process_that_shares_the_store_and_the_key(driver: Driver) {
    let origin = provider();
    let folder = TempDir::new().unwrap();
    for place in shared_places(&folder) {
        let setup = setup(driver, &origin).with(&place).with(&feature("{}"));
        let (one, two) = (setup.start(), setup.start());
        let fields = [&*key(0), "X-Router-Conversation: c"];
        let agent = [fields[0], fields[1], "User-Agent: hermes/1"];
        let (_, line) = turn(&two, &mut two.connect(), &fields, BODY);
        assert_eq!(line["session_kind"], "unknown");
        turn(&one, &mut one.connect(), &agent, BODY);
        let known = eventually(|| {
            let (_, line) = turn(&two, &mut two.connect(), &fields, BODY);
            line["session_evidence"] == "client_family.hermes"
        });
        assert!(known);
        // Of other evidence at the other process the session keeps the first.
        let other = [fields[0], fields[1], "User-Agent: roo-code/1"];
        let (_, line) = turn(&two, &mut two.connect(), &other, BODY);
        assert_eq!(line["session_evidence"], "client_family.hermes");
        let series = "lip_session_classification_transitions_total";
        assert_eq!(Exposition::read(&metrics(&one)).sum(series), 1);
        assert!(!metrics(&two).contains(series));
    }
}

/// Row 47: turns of one session at both processes while one of them has the lease.
fn of_two_processes_that_share_a_store_one_asks_the_service(driver: Driver) {
    let origin = provider();
    let folder = TempDir::new().unwrap();
    for place in shared_places(&folder) {
        let go = Arc::new(AtomicBool::new(false));
        let may = Arc::clone(&go);
        let service = Origin::start(move |caller| {
            while caller.request().is_some() {
                assert!(eventually(|| may.load(Ordering::Relaxed)));
                caller.reply(&answer(200, IDENTIFIES)).unwrap();
            }
        });
        let setup = setup(driver, &origin)
            .with(&place)
            .with(&asking(service.address()));
        let gateways = [setup.start(), setup.start()];
        let fields = [&*key(0), "X-Router-Conversation: c"];
        let refused = |gateway: &Gateway| {
            let busy = "lip_session_classification_remote_total{outcome=\"lease_busy\"}";
            let page = Exposition::read(&metrics(gateway));
            page.names().contains(busy) && page.count(busy) > 0
        };
        // Until the one that has no lease was told so by the store, and a while of that.
        assert!(eventually(|| {
            for gateway in &gateways {
                let (_, line) = turn(gateway, &mut gateway.connect(), &fields, BODY);
                assert_eq!(line["session_kind"], "unknown");
            }
            gateways.iter().all(refused)
        }));
        service.look(|log| assert_eq!(log.complete().count(), 1));
        go.store(true, Ordering::Relaxed);
        for gateway in &gateways {
            assert!(eventually(|| {
                let (_, line) = turn(gateway, &mut gateway.connect(), &fields, BODY);
                line["session_evidence"] == "remote.above_threshold"
            }));
        }
        service.look(|log| assert_eq!(log.complete().count(), 1));
    }
}
