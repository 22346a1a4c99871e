//! What only a database does: it is far away, several have it in common, and it wants to know who asks.

use std::thread;
use std::time::Duration;

use super::server::{KEYED, Server, query};
use super::threads::{REPORT, ask, becomes, started, told, until};
use super::{Rows, exchange, key, recorded, verdict};
use crate::ledger::postgres::{self, Database, PRUNE_LOCK, Postgres};
use crate::ledger::row::{Change, Decision, Observation, Verdict};
use crate::ledger::store::{Keep, Store, record};
use crate::ledger::{Place, Resolution, StoreError, Target, Unavailable};
use crate::limits::{CHANGES_QUEUED, STORE_ROW_BYTES};
use crate::observe::RequestIds;
use crate::tls::Authorities;

fn at(url: &str) -> Database {
    Database::parse(url, Authorities::default()).unwrap()
}

/// An answer and a decision each.
fn batch(exchanges: usize, ids: &RequestIds) -> Vec<Change> {
    let mut changes = Vec::new();
    for _ in 0..exchanges {
        let id = ids.next();
        let row = Decision::of(&exchange(id, &[], 200), Duration::ZERO).unwrap();
        changes.push(Change::Decided(Box::new(row)));
        changes.push(Change::Observed(Box::new(Observation {
            at_ms: 0,
            id,
            principal: None,
            session: key("c:a"),
            source: "p".into(),
            local: false,
        })));
    }
    changes
}

const COUNT: &str = "SELECT (SELECT COUNT(*) FROM route_decisions), \
    (SELECT COUNT(*) FROM energy_observations), (SELECT COUNT(*) - COUNT(DISTINCT version) FROM ledger_schema)";

#[test]
fn gateways_that_start_at_once_make_one_schema_and_a_newer_one_is_refused() {
    let url = Server::shared().database();
    let opening: Vec<_> = (0..4)
        .map(|_| {
            let database = at(&url);
            thread::spawn(move || postgres::open(&database).map(|_| ()))
        })
        .collect();
    for opened in opening {
        assert_eq!(opened.join().unwrap(), Ok(()));
    }
    assert_eq!(query(&url, COUNT), "0|0|0");
    query(&url, "INSERT INTO ledger_schema (version) VALUES (99)");
    assert_eq!(postgres::open(&at(&url)).err(), Some(StoreError::Newer));
}

#[test]
fn a_batch_that_is_stored_twice_is_stored_once() {
    let url = Server::shared().database();
    let mut store = postgres::open(&at(&url)).unwrap();
    let batch = batch(700, &RequestIds::new(1));
    store.apply(&batch[..1000]).unwrap();
    store.apply(&batch).unwrap();
    assert_eq!(query(&url, COUNT), "700|700|0");
}

#[test]
fn rows_are_deleted_by_one_gateway_at_a_time_and_down_to_the_bound() {
    let url = Server::shared().database();
    let [mut one, mut other] = [(); 2].map(|()| postgres::open(&at(&url)).unwrap());
    let ids = RequestIds::new(1);
    one.apply(&batch(1500, &ids)).unwrap();
    let old = Keep {
        since_ms: 1,
        bytes_max: u64::MAX,
    };
    let lock = |store: &mut Postgres, what| {
        let statement = format!("SELECT {what}({PRUNE_LOCK})");
        let locked = store.run(async |client| Ok(client.batch_execute(&statement).await?));
        locked.unwrap();
    };
    lock(&mut other, "pg_advisory_lock");
    assert_eq!(one.prune(old), Ok(false));
    assert_eq!(query(&url, COUNT), "1500|1500|0");
    lock(&mut other, "pg_advisory_unlock");
    assert_eq!(one.prune(old), Ok(true));
    assert_eq!(query(&url, COUNT), "476|476|0");
    assert_eq!(other.prune(old), Ok(false));
    assert_eq!(query(&url, COUNT), "0|0|0");
    // None is old, and there are too many; one is from the future.
    one.apply(&batch(3000, &ids)).unwrap();
    let future = "UPDATE route_decisions SET observed_at = 9e15 WHERE id = (SELECT MIN(id) FROM route_decisions)";
    query(&url, future);
    let many = Keep {
        since_ms: i64::MIN,
        bytes_max: 2000 * STORE_ROW_BYTES,
    };
    let mut steps = 1;
    while one.prune(many).unwrap() {
        steps += 1;
    }
    assert_eq!((steps, query(&url, COUNT).as_str()), (2, "1000|1000|0"));
}

#[test]
fn of_two_gateways_the_newer_answer_and_the_first_outcome_count() {
    let url = Server::shared().database();
    let rows = |seed| Rows {
        store: Box::new(postgres::open(&at(&url)).unwrap()),
        ids: RequestIds::new(seed),
        _folder: None,
    };
    let (mut one, mut other) = (rows(1), rows(2));
    let hint = Observation {
        at_ms: super::NOW - 9000,
        id: one.ids.next(),
        principal: None,
        session: key("c:a"),
        source: "p".into(),
        local: false,
    };
    let newer = other.answer("c:a", "p", false, 5);
    let target = Target {
        conversation: Some(key("c:a")),
        ..Target::default()
    };
    let whom = ("", &target, Some(&hint));
    let found = record(
        one.store.as_mut(),
        whom,
        &verdict(Verdict::Pass),
        super::NOW,
    );
    assert_eq!(recorded(found.unwrap()), newer);
    // What this one has found is another one's by now.
    let stale = one
        .store
        .by_request("", &hint.id.to_string())
        .unwrap()
        .unwrap();
    let report = format!(",\"request_id\":\"{}\"", hint.id);
    recorded(other.report_as("", &report, Verdict::Fail));
    let late = one
        .store
        .set_outcome(&stale, &verdict(Verdict::Pass), super::NOW);
    assert_eq!(late, Ok(false));
    assert_eq!(one.report(&report), Resolution::Conflict);
}

#[test]
fn who_may_not_log_in_and_what_is_not_there_is_told_apart() {
    let url = Server::shared().database();
    let (user, password) = KEYED;
    let keyed = |password: &str| {
        at(&url.replace(
            "lane@",
            &format!("{user}:{}@", password.replace('/', "%2F")),
        ))
    };
    assert!(postgres::open(&keyed(password)).is_ok());
    let refused = postgres::open(&keyed("another"));
    assert_eq!(refused.err(), Some(StoreError::Refused));
    let nowhere = postgres::open(&at(
        &format!("{url}&connect_timeout=1").replace("ledger_", "no_")
    ));
    assert_eq!(nowhere.err(), Some(StoreError::Unreachable));
    let plain = postgres::open(&at(&url.replace("disable", "require")));
    assert_eq!(plain.err(), Some(StoreError::Unreachable));
    query(&url, "CREATE ROLE guest LOGIN");
    let guest = postgres::open(&at(&url.replace("lane@", "guest@")));
    assert_eq!(guest.err(), Some(StoreError::Refused));
}

#[test]
fn a_server_that_is_gone_or_silent_is_waited_for_and_nothing_is_lost() {
    let mut server = Server::start(|_| {});
    let url = server.database();
    server.tell("freeze");
    let ledger = started(Place::Postgres(Box::new(at(&url))));
    let id = RequestIds::new(1).next();
    ledger.teller(0).unwrap().tell(told(id, "a", false));
    becomes(&ledger, Some(StoreError::Slow));
    server.tell("stop");
    becomes(&ledger, Some(StoreError::Unreachable));
    assert_eq!(ask(&ledger, REPORT), Err(Unavailable));
    server.tell("start");
    becomes(&ledger, None);
    assert_eq!(recorded(ask(&ledger, REPORT).unwrap()), id.to_string());
    assert_eq!(ledger.desk().state().lost, 0);
}

#[test]
fn rows_beyond_the_bound_are_lost_with_a_count_and_all_others_stored_when_the_server_is_back() {
    let mut server = Server::start(|_| {});
    let url = server.database();
    let ledger = started(Place::Postgres(Box::new(at(&url))));
    assert_eq!(ask(&ledger, REPORT), Ok(Resolution::NotFound));
    server.tell("stop");
    let (teller, desk) = (ledger.teller(0).unwrap(), ledger.desk());
    let ids = RequestIds::new(1);
    let mut answers = 0;
    let mut tell = || {
        // Only the queue of the store is to be full, not that of the core.
        until("room in the queue of a core", || !teller.answers.is_full());
        let id = ids.next();
        teller.tell(told(id, "a", false));
        answers += 1;
        id
    };
    while desk.state().lost == 0 {
        tell();
    }
    assert_eq!(desk.trouble(), Some(StoreError::Unreachable));
    let last = tell();
    let answers = answers;
    let known = || desk.state().written + desk.state().lost == answers;
    until("an empty queue of a core", || teller.answers.is_empty());
    assert!(answers > CHANGES_QUEUED as u64);
    server.tell("start");
    until("every answer stored or lost", known);
    let (written, lost) = (desk.state().written, desk.state().lost);
    assert!(
        written >= CHANGES_QUEUED as u64 && lost >= 2,
        "{written} and {lost}"
    );
    assert_eq!(query(&url, COUNT), format!("0|{written}|0"));
    // The memory knows what the store lost.
    let report = format!("{{\"outcome\":\"pass\",\"request_id\":\"{last}\"}}");
    assert_eq!(recorded(ask(&ledger, &report).unwrap()), last.to_string());
    assert_eq!(query(&url, COUNT), format!("0|{}|0", written + 1));
}

#[test]
fn a_text_that_a_database_does_not_take_is_stored_without_it() {
    let url = Server::shared().database();
    let mut rows = Rows {
        store: Box::new(postgres::open(&at(&url)).unwrap()),
        ids: RequestIds::new(1),
        _folder: None,
    };
    let mut record = exchange(rows.ids.next(), &[], 200);
    record.model = Some(crate::identity::Inline::cut("a\0b"));
    let row = Decision::of(&record, Duration::ZERO).unwrap();
    rows.store.apply(&[Change::Decided(Box::new(row))]).unwrap();
    assert_eq!(
        query(&url, "SELECT model FROM route_decisions"),
        "a\u{fffd}b"
    );
    for report in [",\"request_id\":\"a\\u0000\"", ",\"source\":\"\\u0000\""] {
        assert_eq!(rows.report(report), Resolution::NotFound);
    }
}
