//! The rows of the contract that concern outcomes, by their numbers, on every store.

mod costs;
mod database;
#[path = "../../../tests/it/support/postgres.rs"]
pub(super) mod server;
mod threads;

use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::dialect::Dialect;
use crate::identity::{Identity, Key, read};
use crate::ledger::conversation::sum;
use crate::ledger::memory::Memory;
use crate::ledger::row::{Change, Observation};
use crate::ledger::store::{Keep, Store, record};
use crate::ledger::tests::server::Server;
use crate::observe::{Destination, EndReason, RequestId, RequestIds, Way};
use crate::tls::Authorities;

/// Milliseconds of the reports.
const NOW: i64 = 1_796_000_000_000;

/// A store with rows that are made up.
struct Rows {
    store: Box<dyn Store>,
    ids: RequestIds,
    _folder: Option<TempDir>,
}

/// A new database.
fn database() -> Database {
    let url = Server::shared().database();
    Database::parse(&url, Authorities::default()).unwrap()
}

fn on_every_store(test: impl Fn(&mut Rows)) {
    let folder = TempDir::new().unwrap();
    let file = sqlite::open(&folder.path().join("ledger.db")).unwrap();
    let database = postgres::open(&database()).unwrap();
    let ids = || RequestIds::new(0xabc);
    test(&mut Rows {
        store: Box::new(Memory::new(1 << 30)),
        ids: ids(),
        _folder: None,
    });
    test(&mut Rows {
        store: Box::new(file),
        ids: ids(),
        _folder: Some(folder),
    });
    test(&mut Rows {
        store: Box::new(database),
        ids: ids(),
        _folder: None,
    });
}

fn key(session: &str) -> Key {
    match session.strip_prefix("c:") {
        Some(id) => Key::client(id.as_bytes()).unwrap(),
        None => Key::fingerprint(u64::from_str_radix(session, 16).unwrap()),
    }
}

fn verdict(verdict: Verdict) -> Outcome {
    Outcome {
        verdict,
        kind: Some("cargo-test".into()),
        exit_code: Some(101),
        duration_ms: None,
        at: None,
    }
}

impl Rows {
    /// An answer so many seconds before the reports.
    fn answer(&mut self, session: &str, source: &str, local: bool, ago: i64) -> String {
        let id = self.ids.next();
        self.observe(id, None, (session, source, local), ago);
        id.to_string()
    }

    fn observe(
        &mut self,
        id: RequestId,
        principal: Option<&str>,
        (session, source, local): (&str, &str, bool),
        ago: i64,
    ) {
        let row = Observation {
            at_ms: NOW - ago * 1000,
            id,
            principal: principal.map(Into::into),
            session: key(session),
            source: source.into(),
            local,
        };
        self.store
            .apply(&[Change::Observed(Box::new(row))])
            .unwrap();
    }

    fn report(&mut self, body: &str) -> Resolution {
        self.report_as("", body, Verdict::Pass)
    }

    fn report_as(&mut self, principal: &str, body: &str, what: Verdict) -> Resolution {
        let body = format!("{{\"outcome\":\"{}\"{body}}}", what.as_str());
        let (target, _) = parse(body.as_bytes()).unwrap();
        let whom = (principal, &target, None);
        record(self.store.as_mut(), whom, &verdict(what), NOW).unwrap()
    }

    fn outcome(&mut self, id: &str) -> Option<Verdict> {
        self.store.by_request("", id).unwrap().unwrap().outcome
    }
}

/// The exchange under which a report was recorded.
fn recorded(resolution: Resolution) -> String {
    match resolution {
        Resolution::Recorded { found, .. } => found.id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a24_a_known_conversation_gets_its_newest_answer() {
    on_every_store(|rows| {
        let older = rows.answer("c:a", "p", false, 20);
        let newer = rows.answer("c:a", "p", false, 10);
        rows.answer("c:b", "p", false, 5);
        assert_eq!(recorded(rows.report(",\"conversation_id\":\"a\"")), newer);
        assert_eq!(rows.outcome(&newer), Some(Verdict::Pass));
        assert_eq!(rows.outcome(&older), None);
    });
}

#[test]
fn a25_an_unknown_conversation_never_falls_through() {
    on_every_store(|rows| {
        rows.answer("c:a", "p", false, 10);
        let unknown = rows.report(",\"conversation_id\":\"x\",\"source\":\"p\"");
        assert_eq!(unknown, Resolution::NotFound);
    });
}

#[test]
fn a26_an_unknown_exchange_goes_on_with_the_conversation() {
    on_every_store(|rows| {
        let id = rows.answer("c:a", "p", false, 10);
        let report = ",\"request_id\":\"req_x\",\"conversation_id\":\"a\"";
        assert_eq!(recorded(rows.report(report)), id);
    });
}

#[test]
fn a27_an_unknown_exchange_alone_is_not_found() {
    on_every_store(|rows| {
        rows.answer("c:a", "p", false, 10);
        for report in [
            ",\"request_id\":\"req_x\"",
            ",\"request_id\":\"req_x\",\"source\":\"p\"",
        ] {
            assert_eq!(rows.report(report), Resolution::NotFound, "{report}");
        }
    });
}

#[test]
fn a28_the_exchange_goes_before_another_conversation_and_the_conflict_shows() {
    on_every_store(|rows| {
        let id = rows.answer("c:a", "p", false, 10);
        rows.answer("c:b", "p", false, 5);
        let report = format!(",\"request_id\":\"{id}\",\"conversation_id\":\"b\"");
        let Resolution::Recorded {
            found, conflict, ..
        } = rows.report(&report)
        else {
            panic!("it is known")
        };
        assert_eq!((found.id.as_str(), conflict), (id.as_str(), true));
        let report = format!(",\"request_id\":\"{id}\",\"conversation_id\":\"a\"");
        let again = rows.report(&report);
        assert!(matches!(
            again,
            Resolution::Recorded {
                conflict: false,
                ..
            }
        ));
    });
}

#[test]
fn a29_an_answer_of_this_machine_is_found() {
    on_every_store(|rows| {
        let id = rows.answer("c:a", "p", true, 10);
        assert_eq!(recorded(rows.report(",\"conversation_id\":\"a\"")), id);
        assert_eq!(rows.outcome(&id), Some(Verdict::Pass));
    });
}

#[test]
fn a30_an_older_remote_answer_goes_before_a_newer_local_one() {
    on_every_store(|rows| {
        let remote = rows.answer("c:a", "p", false, 3000);
        rows.answer("c:a", "q", true, 5);
        assert_eq!(recorded(rows.report(",\"conversation_id\":\"a\"")), remote);
    });
}

#[test]
fn a31_without_ids_the_only_conversation_is_meant() {
    on_every_store(|rows| {
        assert_eq!(rows.report(""), Resolution::NotFound);
        rows.answer("c:long-ago", "p", false, 601);
        assert_eq!(rows.report(""), Resolution::NotFound);
        rows.answer("c:a", "p", false, 20);
        let newest = rows.answer("c:a", "q", true, 10);
        assert_eq!(recorded(rows.report("")), newest);
    });
}

#[test]
fn a32_without_ids_two_conversations_are_ambiguous() {
    on_every_store(|rows| {
        let first = rows.answer("c:a", "p", false, 20);
        rows.answer("0123456789abcdef", "q", true, 10);
        assert_eq!(rows.report(""), Resolution::Ambiguous);
        assert_eq!(recorded(rows.report(",\"source\":\"p\"")), first);
        rows.answer("c:b", "p", false, 5);
        assert_eq!(rows.report(",\"source\":\"p\""), Resolution::Ambiguous);
        assert_eq!(rows.report(",\"source\":\"nobody\""), Resolution::NotFound);
    });
}

#[test]
fn a36_the_same_outcome_again_is_a_duplicate_and_another_one_a_conflict() {
    on_every_store(|rows| {
        let id = rows.answer("c:a", "p", false, 10);
        let report = format!(",\"request_id\":\"{id}\"");
        let duplicates: Vec<bool> = (0..2)
            .map(|_| match rows.report(&report) {
                Resolution::Recorded { duplicate, .. } => duplicate,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(duplicates, [false, true]);
        assert_eq!(
            rows.report_as("", &report, Verdict::Fail),
            Resolution::Conflict
        );
        assert_eq!(rows.outcome(&id), Some(Verdict::Pass));
        // Without the id of an exchange there is always a newer word.
        let later = rows.report_as("", ",\"conversation_id\":\"a\"", Verdict::Fail);
        assert_eq!(recorded(later), id);
        assert_eq!(rows.outcome(&id), Some(Verdict::Fail));
    });
}

#[test]
fn nobody_sees_the_answers_of_another_principal() {
    on_every_store(|rows| {
        let (one, two) = (rows.ids.next(), rows.ids.next());
        rows.observe(one, Some("one"), ("c:a", "p", false), 10);
        rows.observe(two, Some("two"), ("c:a", "p", false), 5);
        for report in [",\"conversation_id\":\"a\"", ",\"source\":\"p\"", ""] {
            let found = rows.report_as("one", report, Verdict::Pass);
            assert_eq!(recorded(found), one.to_string(), "{report}");
            assert_eq!(
                rows.report_as("", report, Verdict::Pass),
                Resolution::NotFound
            );
        }
        let theirs = format!(",\"request_id\":\"{two}\"");
        assert_eq!(
            rows.report_as("one", &theirs, Verdict::Pass),
            Resolution::NotFound
        );
    });
}

#[test]
fn an_answer_that_only_memory_knows_is_stored_with_its_outcome() {
    on_every_store(|rows| {
        let hint = Observation {
            at_ms: NOW,
            id: rows.ids.next(),
            principal: None,
            session: key("c:a"),
            source: "p".into(),
            local: false,
        };
        let id = hint.id.to_string();
        let target = Target {
            request_id: Some(id.as_str().into()),
            ..Target::default()
        };
        let whom = ("", &target, Some(&hint));
        for duplicate in [false, true] {
            let done = record(rows.store.as_mut(), whom, &verdict(Verdict::Error), NOW).unwrap();
            assert!(matches!(done, Resolution::Recorded { duplicate: it, .. } if it == duplicate));
        }
        assert_eq!(rows.outcome(&id), Some(Verdict::Error));
    });
}

// --------------------------------------------------------------------------------------- decisions

/// A record of an exchange with these fields of the contract.
fn exchange(id: RequestId, fields: &[(&str, &str)], status: u16) -> Record {
    let fields = fields
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let identity: Option<Identity> = read(fields, false).identity;
    let mut record = Record::begin(id);
    record.identity = identity.map(Arc::new);
    record.fingerprint = Some(7);
    record.dialect = Some(Dialect::Chat);
    record.way = Way::Wire;
    record.status = status;
    record.to = Some(Destination {
        provider: "p".into(),
        index: 0,
        imposter: true,
        auth: "none",
        model: None,
    });
    record.request_bytes = 10;
    record.response_bytes = 100;
    record.first_byte = (status > 0).then_some(Duration::from_millis(5));
    record.duration = Duration::from_secs(1);
    record.end = EndReason::Complete;
    record
}

const CONVERSATION: &str = "x-router-conversation";
const PARENT: &str = "x-router-parent";
const AGENT: &str = "x-router-agent";

impl Rows {
    fn decide(&mut self, fields: &[(&str, &str)], status: u16, seconds: u64) {
        let record = exchange(self.ids.next(), fields, status);
        let row = Decision::of(&record, Duration::from_secs(seconds)).unwrap();
        self.store.apply(&[Change::Decided(Box::new(row))]).unwrap();
    }

    fn sum(&mut self, session: Option<&str>) -> Tree {
        let asked = Asked {
            principal: String::new(),
            session: session.map(str::to_owned),
        };
        sum(self.store.as_mut(), &asked).unwrap()
    }
}

#[test]
fn a_conversation_is_summed_up_with_those_below_it() {
    on_every_store(|rows| {
        rows.decide(&[(CONVERSATION, "main"), (AGENT, "build")], 200, 1);
        rows.decide(&[(CONVERSATION, "main"), (AGENT, "title")], 200, 2);
        rows.decide(&[(CONVERSATION, "main"), (AGENT, "build")], 429, 3);
        rows.decide(
            &[(CONVERSATION, "sub"), (PARENT, "main"), (AGENT, "explore")],
            200,
            4,
        );
        rows.decide(&[(CONVERSATION, "deeper"), (PARENT, "sub")], 0, 5);
        rows.decide(&[(CONVERSATION, "other")], 200, 6);
        let tree = rows.sum(Some("c:main"));
        let nodes: Vec<_> = tree
            .conversations
            .iter()
            .map(|node| {
                (
                    node.session_key.as_str(),
                    node.parent_key.as_deref(),
                    node.depth,
                )
            })
            .collect();
        assert_eq!(
            nodes,
            [
                ("c:main", None, 0),
                ("c:sub", Some("c:main"), 1),
                ("c:deeper", Some("c:sub"), 2)
            ]
        );
        assert_eq!(
            tree.total,
            Total {
                requests: 5,
                failed: 2,
                request_bytes: 50,
                response_bytes: 500,
                answered: 4,
                first_byte_us: 20_000,
                tokens: TokenSums::default(),
            }
        );
        assert!(!tree.truncated);
        let groups: Vec<_> = tree.conversations[0]
            .groups
            .iter()
            .map(|it| (it.agent.as_deref().unwrap(), it.status, it.requests))
            .collect();
        assert_eq!(
            groups,
            [("build", 200, 1), ("build", 429, 1), ("title", 200, 1)]
        );
        let newest: Vec<_> = rows.sum(None).conversations;
        let newest: Vec<_> = newest.iter().map(|it| it.session_key.as_str()).collect();
        assert_eq!(newest, ["c:other", "c:deeper", "c:sub", "c:main"]);
    });
}

#[test]
fn of_more_decisions_than_a_sum_takes_the_newest_count() {
    on_every_store(|rows| {
        for (status, seconds) in [(200, 1), (429, 2), (200, 3), (500, 4)] {
            rows.decide(&[(CONVERSATION, "a")], status, seconds);
        }
        rows.decide(&[(CONVERSATION, "b")], 200, 5);
        for (most, expected) in [
            (0, vec![]),
            (2, vec![(200, 1), (500, 1)]),
            (9, vec![(200, 2), (429, 1), (500, 1)]),
        ] {
            let (groups, found) = rows.store.groups("", "c:a", most).unwrap();
            let groups: Vec<_> = groups.iter().map(|it| (it.status, it.requests)).collect();
            assert_eq!((groups, found), (expected, most.min(4)));
        }
    });
}

#[test]
fn rings_and_forests_end() {
    on_every_store(|rows| {
        rows.decide(&[(CONVERSATION, "a"), (PARENT, "b")], 200, 1);
        rows.decide(&[(CONVERSATION, "b"), (PARENT, "a")], 200, 2);
        rows.decide(&[(CONVERSATION, "self"), (PARENT, "self")], 200, 3);
        assert_eq!(rows.sum(Some("c:a")).conversations.len(), 2);
        assert_eq!(rows.sum(Some("c:self")).conversations.len(), 1);
        for level in 0..12_u64 {
            let (child, parent) = (format!("l{}", level + 1), format!("l{level}"));
            rows.decide(&[(CONVERSATION, &child), (PARENT, &parent)], 200, level);
        }
        let chain = rows.sum(Some("c:l0"));
        assert_eq!((chain.conversations.len(), chain.truncated), (9, true));
        for child in 0..300_u64 {
            let child = format!("n{child}");
            rows.decide(&[(CONVERSATION, &child), (PARENT, "wide")], 200, 1);
        }
        let wide = rows.sum(Some("c:wide"));
        assert_eq!((wide.conversations.len(), wide.truncated), (256, true));
    });
}

#[test]
fn rows_go_when_they_are_old_or_too_many() {
    on_every_store(|rows| {
        let old = rows.answer("c:old", "p", false, 1000);
        let new = rows.answer("c:new", "p", true, 10);
        rows.decide(&[(CONVERSATION, "old")], 200, 1);
        let keep = Keep {
            since_ms: NOW - 500_000,
            bytes_max: u64::MAX,
        };
        assert!(!rows.store.prune(keep).unwrap());
        assert_eq!(rows.store.by_request("", &old).unwrap(), None);
        assert!(rows.store.by_request("", &new).unwrap().is_some());
        assert_eq!(rows.sum(None).total.requests, 0);
    });
}

#[test]
fn the_oldest_rows_in_memory_give_way_to_the_newest() {
    let mut rows = Rows {
        store: Box::new(Memory::new(64 * 1024)),
        ids: RequestIds::new(1),
        _folder: None,
    };
    let oldest = rows.answer("c:a", "p", false, 10_000);
    for second in 0..200 {
        rows.answer("c:a", "p", second % 2 == 0, 1000 - second);
    }
    let newest = rows.answer("c:a", "p", false, 0);
    assert_eq!(rows.store.by_request("", &oldest).unwrap(), None);
    assert!(rows.store.by_request("", &newest).unwrap().is_some());
}

#[test]
fn a_record_without_provider_or_dialect_is_no_decision() {
    let ids = RequestIds::new(1);
    let mut record = exchange(ids.next(), &[], 200);
    let row = Decision::of(&record, Duration::ZERO).unwrap();
    assert_eq!(row.session.as_str(), "0000000000000007");
    assert_eq!(row.kind, KeyKind::Fingerprint);
    record.dialect = None;
    assert!(Decision::of(&record, Duration::ZERO).is_none());
    let mut record = exchange(ids.next(), &[], 404);
    record.to = None;
    assert!(Decision::of(&record, Duration::ZERO).is_none());
}
