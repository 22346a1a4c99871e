//! What the threads of the ledger promise: nothing that was told is lost, and a store that fails is nobody's
//! fault but its own.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crossbeam::channel::bounded;
use tempfile::TempDir;

use super::{CONVERSATION, database, exchange, recorded};
use crate::clock;
use crate::identity::read;
use crate::ledger::shared::Shared;
use crate::ledger::{
    Answer, Asked, Ledger, Place, Resolution, StoreError, Storing, Teller, Unavailable, parse,
};
use crate::observe::{RequestId, RequestIds};

const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn storing(place: Place) -> Storing {
    Storing {
        place,
        retention: Duration::from_hours(1),
        bytes_max: 1 << 30,
        flush_interval: Duration::from_millis(50),
    }
}

pub(super) fn started(place: Place) -> Ledger {
    Ledger::start(storing(place), Duration::from_hours(1), 2).unwrap()
}

fn places(folder: &Path) -> [Place; 3] {
    [
        Place::Memory,
        Place::Sqlite(folder.join("ledger.db")),
        Place::Postgres(Box::new(database())),
    ]
}

pub(super) fn told(id: RequestId, session: &str, local: bool) -> Answer {
    let fields = [(CONVERSATION.as_bytes(), session.as_bytes())];
    Answer {
        id,
        at: clock::now(),
        principal: None,
        identity: read(fields.into_iter(), false).identity.map(Arc::new),
        fingerprint: None,
        source: "p".into(),
        local,
    }
}

pub(super) fn ask(ledger: &Ledger, body: &str) -> Result<Resolution, Unavailable> {
    let (target, outcome) = parse(body.as_bytes()).unwrap();
    let pending = ledger.desk().report(None, target, outcome)?;
    pending.wait(PATIENCE)
}

#[test]
fn an_answer_is_found_as_soon_as_it_was_told_whichever_core_asks() {
    let folder = TempDir::new().unwrap();
    for place in places(folder.path()) {
        let ledger = started(place);
        let ids = RequestIds::new(9);
        for turn in 0..50 {
            let (first, second) = (ledger.teller(0).unwrap(), ledger.teller(1).unwrap());
            let (older, newer) = (ids.next(), ids.next());
            let local = turn % 2 == 0;
            // The one that the second core tells is older, though its queue is emptied last.
            let mut late = told(older, "a", local);
            late.at = clock::now();
            second.tell(late);
            first.tell(told(newer, "a", local));
            let body = "{\"outcome\":\"pass\",\"conversation_id\":\"a\"}";
            let answered = ask(&ledger, body).unwrap();
            if !local {
                assert_eq!(recorded(answered), newer.to_string());
            }
            let body = format!("{{\"outcome\":\"fail\",\"request_id\":\"{older}\"}}");
            assert_eq!(recorded(ask(&ledger, &body).unwrap()), older.to_string());
        }
        ledger.finish();
    }
}

#[test]
fn what_is_queued_is_stored_at_the_end_and_read_back_after_a_restart() {
    let folder = TempDir::new().unwrap();
    let [_, file, database] = places(folder.path());
    for place in [file, database] {
        is_stored_and_read_back(&place);
    }
}

fn is_stored_and_read_back(place: &Place) {
    let ids = RequestIds::new(9);
    let last = {
        let ledger = started(place.clone());
        let mut follower = ledger.follower();
        let teller = ledger.teller(0).unwrap();
        let mut last = ids.next();
        for _ in 0..2000 {
            last = ids.next();
            teller.tell(told(last, "a", false));
            follower.follow(
                &exchange(last, &[(CONVERSATION, "a")], 200),
                clock::unix_time(),
            );
        }
        let desk = ledger.desk();
        ledger.finish();
        assert_eq!(desk.state().lost, 0);
        assert_eq!(desk.state().written, 4000);
        last
    };
    let ledger = started(place.clone());
    let body = format!("{{\"outcome\":\"pass\",\"request_id\":\"{last}\"}}");
    assert_eq!(recorded(ask(&ledger, &body).unwrap()), last.to_string());
    let asked = Asked {
        principal: String::new(),
        session: Some("c:a".to_owned()),
    };
    let tree = ledger.desk().sum(asked).unwrap().wait(PATIENCE).unwrap();
    assert_eq!(tree.total.requests, 2000);
}

#[test]
fn a_full_queue_loses_answers_and_counts_them() {
    let shared = Arc::new(Shared::new(Duration::from_hours(1)));
    let (answers, queue) = bounded(2);
    let teller = Teller {
        answers,
        shared: Arc::clone(&shared),
    };
    let ids = RequestIds::new(1);
    for _ in 0..5 {
        teller.tell(told(ids.next(), "a", false));
    }
    assert_eq!((queue.len(), shared.lost.load(Ordering::Relaxed)), (2, 3));
}

/// Waits for something that other threads do.
pub(super) fn until(what: &str, done: impl Fn() -> bool) {
    let (_never, waiting) = bounded::<()>(0);
    for _ in 0..2000 {
        if done() {
            return;
        }
        let _timed_out = waiting.recv_timeout(Duration::from_millis(10));
    }
    panic!("no {what}");
}

/// Waits until the store is in this state.
pub(super) fn becomes(ledger: &Ledger, trouble: Option<StoreError>) {
    let desk = ledger.desk();
    until(&format!("{trouble:?}"), || desk.trouble() == trouble);
}

pub(super) const REPORT: &str = "{\"outcome\":\"pass\",\"conversation_id\":\"a\"}";

#[test]
fn a_file_that_is_no_database_is_left_alone() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("ledger.db");
    let content = "this is somebody's letter\n".repeat(400);
    std::fs::write(&path, &content).unwrap();
    let ledger = started(Place::Sqlite(path.clone()));
    becomes(&ledger, Some(StoreError::Corrupt));
    ledger
        .teller(0)
        .unwrap()
        .tell(told(RequestIds::new(1).next(), "a", false));
    assert_eq!(ask(&ledger, REPORT), Err(Unavailable));
    ledger.finish();
    assert_eq!(std::fs::read_to_string(path).unwrap(), content);
}

#[test]
fn a_place_that_is_not_there_yet_is_tried_again() {
    let folder = TempDir::new().unwrap();
    let inner = folder.path().join("later");
    let ledger = started(Place::Sqlite(inner.join("ledger.db")));
    becomes(&ledger, Some(StoreError::Unreachable));
    ledger
        .teller(0)
        .unwrap()
        .tell(told(RequestIds::new(1).next(), "a", false));
    assert_eq!(ask(&ledger, REPORT), Err(Unavailable));
    std::fs::create_dir(inner).unwrap();
    becomes(&ledger, None);
    // What came in between was kept.
    recorded(ask(&ledger, REPORT).unwrap());
}

#[test]
fn a_locked_database_refuses_reports_and_loses_nothing() {
    let folder = TempDir::new().unwrap();
    let path = &folder.path().join("ledger.db");
    let ledger = started(Place::Sqlite(path.clone()));
    becomes(&ledger, None);
    let id = RequestIds::new(1).next();
    let other = loop {
        // Until the ledger has made its tables.
        let other = rusqlite::Connection::open(path).unwrap();
        if other
            .execute_batch("BEGIN IMMEDIATE; DELETE FROM route_decisions")
            .is_ok()
        {
            break other;
        }
    };
    ledger.teller(0).unwrap().tell(told(id, "a", false));
    becomes(&ledger, Some(StoreError::Locked));
    assert_eq!(ask(&ledger, REPORT), Err(Unavailable));
    other.execute_batch("ROLLBACK").unwrap();
    becomes(&ledger, None);
    assert_eq!(recorded(ask(&ledger, REPORT).unwrap()), id.to_string());
    assert_eq!(ledger.desk().state().lost, 0);
}
