//! The same rows for every store, and what the thread of the store makes of them.

mod positives;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;

use crate::classify::*;
use crate::ledger::postgres::{self, Database, Postgres};
use crate::ledger::question::pending;
use crate::ledger::sessions::*;
use crate::ledger::tests::server::Server;
use crate::ledger::{Ledger, Place, Storing};
use crate::limits::{PRUNE_ROWS, SESSIONS_KEPT};
use crate::tls::Authorities;

/// A store that is driven row by row.
enum Kept {
    Memory(SessionMemory),
    File(Connection, TempDir),
    Database(Postgres),
}

impl Kept {
    fn store(&mut self) -> Box<dyn SessionStore + '_> {
        match self {
            Self::Memory(memory) => Box::new(memory),
            Self::File(connection, _) => Box::new(SessionTable(&*connection)),
            Self::Database(postgres) => Box::new(SessionTable(postgres)),
        }
    }

    /// Has the database do something by hand.
    fn tell(&mut self, statement: &str) {
        match self {
            Self::Memory(_) => {}
            Self::File(connection, _) => connection.execute_batch(statement).unwrap(),
            Self::Database(postgres) => postgres
                .run(async |client| Ok(client.batch_execute(statement).await?))
                .unwrap(),
        }
    }
}

fn postgres(url: &str) -> Postgres {
    postgres::open(&Database::parse(url, Authorities::default()).unwrap()).unwrap()
}

/// Memory, a file and a database, ready.
fn stores() -> [Kept; 3] {
    let folder = TempDir::new().unwrap();
    let connection = Connection::open(folder.path().join("a.db")).unwrap();
    let mut stores = [
        Kept::Memory(SessionMemory::default()),
        Kept::File(connection, folder),
        Kept::Database(postgres(&Server::shared().database())),
    ];
    for kept in &mut stores {
        kept.store().ensure().unwrap();
        kept.store().ensure().unwrap();
    }
    stores
}

const KEY: Key = Key::new(Scope::ALeg, [7; 32]);
const REMOTE: Option<Evidence> = Some(Evidence::AboveThreshold);

fn key(number: u32) -> Key {
    let mut id = [0; 32];
    for part in id.chunks_exact_mut(4) {
        part.copy_from_slice(&number.wrapping_mul(2_654_435_761).to_le_bytes());
    }
    Key::new(Scope::ALeg, id)
}

const TERMS: RemoteTerms = RemoteTerms {
    attempts_max: 3,
    lease: Duration::from_secs(2),
    backoff: Duration::from_secs(10),
};

fn at(millis: u64) -> Duration {
    Duration::from_secs(1_796_000_000) + Duration::from_millis(millis)
}

fn named(name: &str) -> LeaseId {
    LeaseId::new(name).unwrap()
}

/// Asks for a lease, with the terms of these tests.
fn claim(kept: &mut Kept, name: &str, now: Duration) -> Result<Claim, Refused> {
    kept.store().claim(&KEY, &TERMS, named(name), now).unwrap()
}

fn load(kept: &mut Kept) -> Record {
    kept.store().load(&KEY).unwrap().unwrap()
}

#[test]
fn row_37_the_same_identifier_of_two_issuers_is_two_sessions() {
    for mut kept in stores() {
        let other = Key::new(Scope::SecureSession, *KEY.id());
        kept.store().promote(&KEY, Evidence::Codex, at(0)).unwrap();
        assert_eq!(kept.store().load(&other), Ok(None));
    }
}

#[test]
fn rows_38_and_39_the_first_evidence_stays_and_looking_makes_no_row() {
    for mut kept in stores() {
        assert_eq!(kept.store().load(&KEY), Ok(None));
        assert_eq!(kept.store().load(&KEY), Ok(None));
        let first = kept.store().promote(&KEY, Evidence::Codex, at(0));
        let codex = Classification::by(Evidence::Codex);
        assert_eq!(first, Ok((codex, true)));
        let again = kept.store().promote(&KEY, Evidence::Roo, at(1));
        assert_eq!(again, Ok((codex, false)));
        let record = load(&mut kept);
        assert_eq!(record.classification.revision(), 1);
        assert_eq!(record.updated_at, 1_796_000_000_000_000);
    }
}

#[test]
fn rows_40_to_44_leases_attempts_and_pauses() {
    for mut kept in stores() {
        let first = claim(&mut kept, "a", at(0)).unwrap();
        assert_eq!(first.attempt, 1);
        let busy = claim(&mut kept, "b", at(1999));
        assert_eq!(busy, Err(Refused::LeaseBusy), "row 40");
        let late = kept.store().complete(&first, REMOTE, at(2000)).unwrap();
        assert!(late.stale, "row 42");
        assert_eq!(load(&mut kept).classification, Classification::Unknown);
        let second = claim(&mut kept, "b", at(2000)).unwrap();
        assert_eq!(second.attempt, 2, "row 41");
        let done = kept.store().complete(&second, None, at(3000)).unwrap();
        assert!(!done.stale);
        let early = at(13_000) - Duration::from_nanos(1);
        assert_eq!(
            claim(&mut kept, "c", early),
            Err(Refused::Pausing),
            "row 43"
        );
        let third = claim(&mut kept, "c", at(13_000)).unwrap();
        assert_eq!(third.attempt, 3);
        let spent = claim(&mut kept, "d", at(60_000));
        assert_eq!(spent, Err(Refused::BudgetExhausted), "row 44");
        assert_eq!(load(&mut kept).attempts, 3);
    }
}

#[test]
fn row_45_local_evidence_wins_over_an_attempt_that_runs() {
    for mut kept in stores() {
        let claimed = claim(&mut kept, "a", at(0)).unwrap();
        let cluster = Evidence::CodingCluster;
        let local = kept.store().promote(&KEY, cluster, at(1)).unwrap();
        assert!(local.1);
        let late = kept.store().complete(&claimed, REMOTE, at(2)).unwrap();
        assert!(late.stale);
        assert_eq!(late.classification.evidence(), Some(cluster));
        let record = load(&mut kept);
        assert_eq!(
            (record.attempts, record.lease, record.next_at),
            (1, None, None)
        );
        let known = Err(Refused::Identified(Classification::by(cluster)));
        assert_eq!(claim(&mut kept, "b", at(60_000)), known);
    }
}

#[test]
fn rows_54_and_55_what_the_end_of_an_attempt_leaves() {
    for mut kept in stores() {
        let claimed = claim(&mut kept, "a", at(0)).unwrap();
        kept.store().complete(&claimed, None, at(1)).unwrap();
        let record = load(&mut kept);
        assert_eq!((record.attempts, record.lease), (1, None));
        assert_eq!(record.classification, Classification::Unknown);
        let claimed = claim(&mut kept, "b", at(60_000)).unwrap();
        // Evidence that is not the service's does not come this way.
        let codex = Some(Evidence::Codex);
        kept.store().complete(&claimed, codex, at(60_001)).unwrap();
        assert_eq!(load(&mut kept).classification, Classification::Unknown);
        let claimed = claim(&mut kept, "c", at(120_000)).unwrap();
        let done = kept.store().complete(&claimed, REMOTE, at(120_001));
        let found = Classification::by(Evidence::AboveThreshold);
        let expected = Completion {
            classification: found,
            stale: false,
        };
        assert_eq!(done, Ok(expected));
        assert_eq!(load(&mut kept).next_at, None);
        // The same end a second time is not the first.
        let again = kept
            .store()
            .complete(&claimed, REMOTE, at(120_002))
            .unwrap();
        assert!(again.stale);
    }
}

#[test]
fn row_46_sessions_beyond_the_bound_stay_unknown() {
    let mut memory = SessionMemory::of(2);
    let mut store = &mut memory;
    for number in 0..2 {
        let promoted = SessionStore::promote(&mut store, &key(number), Evidence::Pi, at(0));
        assert!(promoted.is_ok());
    }
    let full = Err(SessionError::Capacity);
    let promoted = SessionStore::promote(&mut store, &key(2), Evidence::Pi, at(0));
    assert_eq!(promoted, full);
    let claimed = SessionStore::claim(&mut store, &key(2), &TERMS, named("a"), at(0));
    assert_eq!(claimed, Err(SessionError::Capacity));
    assert_eq!(SessionStore::load(&mut store, &key(2)), Ok(None));
    // Those that are kept still are.
    let again = SessionStore::promote(&mut store, &key(0), Evidence::Roo, at(0));
    assert!(!again.unwrap().1);
}

/// Asks from eight threads at once, with a connection each, as gateways that share a store have.
fn granted<D: SessionDatabase>(open: impl Fn() -> D + Sync) -> usize {
    thread::scope(|scope| {
        let askers: Vec<_> = (0..8)
            .map(|number| {
                let open = &open;
                scope.spawn(move || {
                    let lease = named(&format!("lease-{number}"));
                    let mut table = SessionTable(open());
                    table.claim(&KEY, &TERMS, lease, at(0)).unwrap().is_ok()
                })
            })
            .collect();
        let answers = askers.into_iter().map(|asker| asker.join().unwrap());
        answers.filter(|granted| *granted).count()
    })
}

#[test]
fn row_47_of_many_who_ask_at_once_one_has_the_lease() {
    for mut kept in stores() {
        match &kept {
            // One thread has it.
            Kept::Memory(_) => continue,
            Kept::File(_, folder) => {
                let path = folder.path().join("a.db");
                let open = || {
                    let connection = Connection::open(&path).unwrap();
                    connection.busy_timeout(Duration::from_secs(10)).unwrap();
                    &*Box::leak(Box::new(connection))
                };
                assert_eq!(granted(open), 1);
            }
            Kept::Database(_) => {
                let url = Server::shared().database();
                kept = Kept::Database(postgres(&url));
                kept.store().ensure().unwrap();
                assert_eq!(granted(|| Box::leak(Box::new(postgres(&url)))), 1);
            }
        }
        assert_eq!(load(&mut kept).attempts, 1);
    }
}

#[test]
fn gateways_that_begin_at_once_make_one_table() {
    let url = Server::shared().database();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| SessionTable(&mut postgres(&url)).ensure().unwrap());
        }
    });
    let mut one = postgres(&url);
    let mut table = SessionTable(&mut one);
    table.promote(&KEY, Evidence::Codex, at(0)).unwrap();
    let mut other = postgres(&url);
    let known = SessionTable(&mut other).load(&KEY).unwrap().unwrap();
    assert_eq!(known.classification.evidence(), Some(Evidence::Codex));
}

#[test]
fn rows_49_and_50_rows_that_this_program_does_not_write_are_refused() {
    // What both take.
    let changes = [
        "kind = 'not_coding'",
        "source = 'local_tooling'",
        "classification_revision = 0",
        "classification_revision = -1",
        "remote_attempts = 6",
        "remote_attempts = -1",
        "remote_lease_id = 'a'",
        "remote_lease_until = 5",
        "updated_at = 0",
    ];
    // What only a file takes.
    let types = ["updated_at = 'x'", "kind = x'ff'", "remote_attempts = 1.5"];
    for mut kept in stores() {
        let types: &[&str] = match kept {
            Kept::Memory(_) => continue,
            Kept::File(..) => &types,
            Kept::Database(_) => &[],
        };
        kept.store().promote(&KEY, Evidence::Codex, at(0)).unwrap();
        for change in changes.iter().chain(types) {
            kept.tell("BEGIN");
            kept.tell(&format!("UPDATE session_classification SET {change}"));
            let loaded = kept.store().load(&KEY);
            assert_eq!(loaded, Err(SessionError::Refused), "{change}");
            kept.tell("ROLLBACK");
        }
        // Identified and leased at once, which no call makes: the end of that attempt changes nothing.
        kept.tell(
            "UPDATE session_classification SET remote_attempts = 1, remote_lease_id = 'a', \
             remote_lease_until = 9000000000000000",
        );
        let claim = Claim {
            key: KEY,
            lease: named("a"),
            attempt: 1,
            backoff: Duration::ZERO,
        };
        let completed = kept.store().complete(&claim, REMOTE, at(1)).unwrap();
        assert!(completed.stale);
        assert_eq!(completed.classification.evidence(), Some(Evidence::Codex));
        // A column of another type, as somebody may make it who has the database.
        if matches!(kept, Kept::Database(_)) {
            kept.tell("ALTER TABLE session_classification ALTER COLUMN updated_at TYPE TEXT");
            assert_eq!(kept.store().load(&KEY), Err(SessionError::Refused));
        }
    }
}

#[test]
fn sessions_that_have_not_changed_for_as_long_as_rows_stay_are_deleted() {
    let [mut memory, durable @ ..] = stores();
    for mut table in durable {
        for number in 0..2 * PRUNE_ROWS {
            let evidence = Evidence::Codex;
            table
                .store()
                .promote(&key(number), evidence, at(0))
                .unwrap();
        }
        claim(&mut table, "a", at(1)).unwrap();
        assert_eq!(table.store().prune(at(0)), Ok(false));
        assert_eq!(table.store().prune(at(1)), Ok(true));
        assert_eq!(table.store().prune(at(1)), Ok(true));
        assert_eq!(table.store().prune(at(1)), Ok(false));
        assert_eq!(table.store().load(&key(3)), Ok(None));
        assert_eq!(load(&mut table).attempts, 1);
    }
    // In memory identified sessions stay, as many as there may be.
    memory
        .store()
        .promote(&KEY, Evidence::Codex, at(0))
        .unwrap();
    assert_eq!(memory.store().prune(at(9)), Ok(false));
    assert_eq!(load(&mut memory).attempts, 0);
}

/// Random calls on all stores give the same answers, so that the plain one is the oracle of the others.
#[test]
fn the_stores_agree_on_any_sequence_of_calls() {
    let [_, file, database] = stores();
    agrees_with_memory(file);
    agrees_with_memory(database);
}

fn agrees_with_memory(mut table: Kept) {
    let mut memory = Kept::Memory(SessionMemory::default());
    let mut random = 7_u64;
    let mut next = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % below
    };
    let mut now = at(0);
    let mut claims: Vec<Claim> = Vec::new();
    for step in 0..2000 {
        now += Duration::from_micros(next(3_000_000));
        let session = key(u32::try_from(next(5)).unwrap());
        match next(4) {
            0 if next(4) == 0 => {
                let evidence = Evidence::ALL[usize::try_from(next(8)).unwrap()];
                let one = memory.store().promote(&session, evidence, now);
                assert_eq!(
                    one,
                    table.store().promote(&session, evidence, now),
                    "{step}"
                );
            }
            1 => {
                let lease = named(&format!("l{step}"));
                let one = memory.store().claim(&session, &TERMS, lease.clone(), now);
                let other = table.store().claim(&session, &TERMS, lease, now);
                assert_eq!(one, other, "{step}");
                claims.extend(one.unwrap());
            }
            2 if !claims.is_empty() => {
                let at = usize::try_from(next(claims.len() as u64)).unwrap();
                let claim = claims.swap_remove(at);
                let evidence = REMOTE.filter(|_| next(4) == 0);
                let one = memory.store().complete(&claim, evidence, now);
                let other = table.store().complete(&claim, evidence, now);
                assert_eq!(one, other, "{step}");
            }
            _ => {
                let one = memory.store().load(&session);
                assert_eq!(one, table.store().load(&session), "{step}");
            }
        }
    }
}

fn coordinator() -> (Coordinator, Arc<SessionShared>) {
    let shared = Arc::<SessionShared>::default();
    (Coordinator::new(Arc::clone(&shared)), shared)
}

#[test]
fn an_identified_session_costs_one_look_and_one_write_ever() {
    let (mut coordinator, shared) = coordinator();
    let mut memory = SessionMemory::default();
    let mut store = &mut memory;
    for _ in 0..64 {
        let ask = SessionAsk::Promote(KEY, Evidence::Codex);
        coordinator.answer(&mut store, ask, at(0)).unwrap();
        coordinator
            .answer(&mut store, SessionAsk::Load(KEY), at(0))
            .unwrap();
    }
    let tally = &shared.tally;
    let count = |operation, outcome| tally.stored(operation, outcome);
    assert_eq!(count(StoreOperation::Load, StoreOutcome::Miss), 1);
    assert_eq!(count(StoreOperation::Load, StoreOutcome::Hit), 0);
    assert_eq!(count(StoreOperation::Promote, StoreOutcome::Applied), 1);
    assert_eq!(tally.transitions(Evidence::Codex), 1);
    // Nor is anybody given a lease for it.
    let (reply, answer) = pending();
    let ask = SessionAsk::Claim(KEY, TERMS, reply);
    coordinator.answer(&mut store, ask, at(0)).unwrap();
    let known = Err(Refused::Identified(Classification::by(Evidence::Codex)));
    assert_eq!(answer.poll(), Some(Ok(known)));
    assert_eq!(count(StoreOperation::RemoteClaim, StoreOutcome::Denied), 0);
}

#[test]
fn a_session_that_is_not_identified_is_looked_up_each_time() {
    let (mut coordinator, shared) = coordinator();
    let mut memory = SessionMemory::default();
    let mut store = &mut memory;
    for _ in 0..3 {
        coordinator
            .answer(&mut store, SessionAsk::Load(KEY), at(0))
            .unwrap();
    }
    assert_eq!(
        shared
            .tally
            .stored(StoreOperation::Load, StoreOutcome::Miss),
        3
    );
    // Another gateway identified it.
    SessionStore::promote(&mut store, &KEY, Evidence::Pi, at(0)).unwrap();
    coordinator
        .answer(&mut store, SessionAsk::Load(KEY), at(0))
        .unwrap();
    let found = shared.positives.get().unwrap().find(&KEY, minute_of(at(0)));
    assert_eq!(found, Some(Evidence::Pi));
    assert_eq!(shared.tally.transitions(Evidence::Pi), 0);
}

#[test]
fn a_full_store_refuses_and_a_session_that_is_kept_ends_that() {
    let (mut coordinator, shared) = coordinator();
    let mut memory = SessionMemory::of(1);
    let mut store = &mut memory;
    for (number, refusing) in [(0, false), (1, true), (0, false)] {
        let ask = SessionAsk::Promote(key(number), Evidence::Codex);
        coordinator.answer(&mut store, ask, at(0)).unwrap();
        assert_eq!(shared.refusing.load(Ordering::Relaxed), refusing);
    }
    assert_eq!(shared.tally.transitions(Evidence::Codex), 1);
}

fn storing(place: Place) -> Storing {
    Storing {
        place,
        retention: Duration::from_hours(1),
        bytes_max: 1 << 20,
        flush_interval: Duration::from_millis(10),
    }
}

const LIMIT: Duration = Duration::from_secs(10);

#[test]
fn sessions_outlive_the_process_in_a_file_and_end_with_it_in_memory() {
    let folder = TempDir::new().unwrap();
    let file = Place::Sqlite(folder.path().join("a.db"));
    for (place, expected) in [
        (file, Classification::by(Evidence::Codex)),
        (Place::Memory, Classification::Unknown),
    ] {
        for (round, found) in [(0, Classification::by(Evidence::Codex)), (1, expected)] {
            let ledger = Ledger::start(storing(place.clone()), LIMIT, 1).unwrap();
            let sessions = ledger.sessions();
            if round == 0 {
                assert!(sessions.promote(KEY, Evidence::Codex));
            }
            let looked = sessions.look(KEY).unwrap().wait(LIMIT);
            assert_eq!(looked, Ok(found), "{place:?}");
            assert!(sessions.is_ready() && !sessions.is_refusing());
            ledger.finish();
        }
    }
}

#[test]
fn a_memory_in_which_nothing_is_identified_need_not_be_asked() {
    let ledger = Ledger::start(storing(Place::Memory), LIMIT, 1).unwrap();
    let sessions = ledger.sessions();
    sessions.open();
    sessions.look(KEY).unwrap().wait(LIMIT).unwrap();
    assert!(sessions.is_ready() && !sessions.may_know());
    assert!(sessions.promote(KEY, Evidence::Codex));
    sessions.look(KEY).unwrap().wait(LIMIT).unwrap();
    assert!(sessions.may_know());
    ledger.finish();
}

#[test]
fn what_was_accepted_before_the_end_is_stored() {
    let folder = TempDir::new().unwrap();
    let place = Place::Sqlite(folder.path().join("a.db"));
    let ledger = Ledger::start(storing(place.clone()), LIMIT, 1).unwrap();
    let sessions = ledger.sessions();
    for number in 0..200 {
        assert!(sessions.promote(key(number), Evidence::Codex));
    }
    ledger.finish();
    let ledger = Ledger::start(storing(place), LIMIT, 1).unwrap();
    let sessions = ledger.sessions();
    for number in 0..200 {
        let looked = sessions.look(key(number)).unwrap().wait(LIMIT);
        assert_eq!(
            looked.unwrap().evidence(),
            Some(Evidence::Codex),
            "{number}"
        );
    }
    ledger.finish();
}

#[test]
fn without_a_question_there_is_no_table_and_no_memory() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.db");
    let ledger = Ledger::start(storing(Place::Sqlite(path.clone())), LIMIT, 1).unwrap();
    let sessions = ledger.sessions();
    assert_eq!(sessions.known(&KEY, 0), None);
    ledger.finish();
    assert!(!sessions.is_ready());
    let connection = Connection::open(path).unwrap();
    let mut tables = connection
        .prepare("SELECT name FROM sqlite_master WHERE name LIKE 'session_%'")
        .unwrap();
    assert!(!tables.exists([]).unwrap());
}

#[test]
fn a_store_that_cannot_be_opened_refuses_at_once_and_keeps_nobody_waiting() {
    let folder = TempDir::new().unwrap();
    let place = Place::Sqlite(folder.path().join("absent").join("a.db"));
    let ledger = Ledger::start(storing(place), LIMIT, 1).unwrap();
    let sessions = ledger.sessions();
    sessions.open();
    assert!(sessions.promote(KEY, Evidence::Codex));
    assert!(sessions.look(KEY).unwrap().wait(LIMIT).is_err());
    assert!(sessions.is_refusing() && !sessions.is_ready());
    assert!(sessions.may_know(), "nobody can tell");
    assert_eq!(sessions.known(&KEY, 0), None);
    ledger.finish();
}
