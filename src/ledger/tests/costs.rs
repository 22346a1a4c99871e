//! What answers cost, in rows and in sums.

use std::time::Duration;

use tempfile::TempDir;

use super::server::{Server, query};
use super::{AGENT, CONVERSATION, PARENT, Rows, exchange, on_every_store};
use crate::classify::{Classification, Evidence, SessionView};
use crate::ledger::row::{Change, Decision};
use crate::ledger::store::Store;
use crate::ledger::tokens::AgentTokens;
use crate::ledger::{Database, TokenSums, postgres, sqlite};
use crate::limits::AGENT_SERIES_MAX;
use crate::observe::{RequestId, RequestIds};
use crate::tls::Authorities;
use crate::usage::{State, StopReason, Tokens, Usage};

const COMPLETE: Usage = Usage {
    state: State::Complete,
    tokens: Tokens {
        input: Some(10),
        output: Some(5),
        cached: Some(90),
        cache_write: None,
    },
    stop: Some(StopReason::ToolCalls),
};

/// A client that went away after the provider's first words.
const PARTIAL: Usage = Usage {
    state: State::Partial,
    tokens: Tokens {
        input: Some(30),
        output: None,
        cached: Some(0),
        cache_write: Some(20),
    },
    stop: None,
};

fn row(id: RequestId, fields: &[(&str, &str)], usage: Option<Usage>) -> Decision {
    let mut record = exchange(id, fields, 200);
    record.usage = usage;
    Decision::of(&record, Duration::from_secs(1)).unwrap()
}

impl Rows {
    fn cost(&mut self, fields: &[(&str, &str)], usage: Option<Usage>) {
        let row = row(self.ids.next(), fields, usage);
        self.store.apply(&[Change::Decided(Box::new(row))]).unwrap();
    }
}

#[test]
fn a_sum_has_the_tokens_of_a_conversation_and_those_below_it() {
    on_every_store(|rows| {
        let main = [(CONVERSATION, "main"), (AGENT, "build")];
        let below = [(CONVERSATION, "sub"), (PARENT, "main")];
        rows.cost(&main, Some(COMPLETE));
        rows.cost(&main, Some(Usage::default()));
        rows.cost(&main, None);
        rows.cost(&below, Some(PARTIAL));
        rows.cost(&[(CONVERSATION, "other")], Some(COMPLETE));
        let tree = rows.sum(Some("c:main"));
        let of = |at: usize| tree.conversations[at].groups[0].tokens;
        let first = TokenSums {
            metered: 1,
            input_tokens: 10,
            output_tokens: 5,
            cached_tokens: 90,
            cache_write_tokens: 0,
        };
        assert_eq!(of(0), first);
        let second = TokenSums {
            metered: 1,
            input_tokens: 30,
            output_tokens: 0,
            cached_tokens: 0,
            cache_write_tokens: 20,
        };
        assert_eq!(of(1), second);
        let mut all = first;
        all.add(&second);
        assert_eq!(tree.total.tokens, all);
        assert_eq!((tree.total.requests, all.metered), (4, 2));
        assert_eq!(tree.cache_share, Some(0.6));
        let nothing = rows.sum(Some("c:none"));
        assert_eq!(nothing.cache_share, None, "not 0: nobody said");
    });
}

const COLUMNS: &str = "SELECT usage, stop_reason, input_tokens, output_tokens, cached_tokens, cache_write_tokens, \
    session_kind, session_evidence FROM route_decisions ORDER BY id";

/// Rows with everything, with a broken answer, with nothing, and without features.
fn different(ids: &RequestIds) -> Vec<Change> {
    let classified = Classification::by(Evidence::Codex);
    let views = [
        Some(SessionView::new(classified)),
        Some(SessionView::default()),
        None,
        None,
    ];
    let usages = [Some(COMPLETE), Some(PARTIAL), Some(Usage::default()), None];
    let rows = usages.into_iter().zip(views).map(|(usage, view)| {
        let mut row = row(ids.next(), &[], usage);
        row.view = view;
        Change::Decided(Box::new(row))
    });
    rows.collect()
}

const DIFFERENT: [&str; 4] = [
    "complete|tool_calls|10|5|90||coding_agent|client_family.codex",
    "partial||30||0|20|unknown|",
    "absent|||||||",
    "|||||||",
];

#[test]
fn what_nobody_said_is_stored_as_nothing() {
    let url = Server::shared().database();
    let at = Database::parse(&url, Authorities::default()).unwrap();
    let batch = different(&RequestIds::new(1));
    postgres::open(&at).unwrap().apply(&batch).unwrap();
    assert_eq!(query(&url, COLUMNS), DIFFERENT.join("\n"));
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("a.db");
    sqlite::open(&file).unwrap().apply(&batch).unwrap();
    let connection = rusqlite::Connection::open(&file).unwrap();
    let mut statement = connection.prepare(COLUMNS).unwrap();
    let mut rows = statement.query([]).unwrap();
    for expected in DIFFERENT {
        let row = rows.next().unwrap().unwrap();
        let text = |at| match row.get_ref(at).unwrap() {
            rusqlite::types::ValueRef::Null => String::new(),
            rusqlite::types::ValueRef::Integer(number) => number.to_string(),
            value => value.as_str().unwrap().to_owned(),
        };
        let found: Vec<_> = (0..8).map(text).collect();
        assert_eq!(found.join("|"), expected);
    }
}

/// A ledger of the first version, as it was before costs were kept.
const BEFORE: &str =
    "CREATE TABLE ledger_schema (version BIGINT NOT NULL); INSERT INTO ledger_schema VALUES (1);";
const OLD_ROW: &str = "INSERT INTO route_decisions (observed_at, request_id, principal, session_key, dialect, face, \
    route, provider, lane, status, request_bytes, response_bytes, duration_us, end_reason) \
    VALUES (1, 'r', '', 'c:a', 'chat', 'chat', 'passthrough', 'p', 'wire', 200, 1, 2, 3, 'complete')";

fn has_both(mut store: Box<dyn Store>) {
    let new = row(
        RequestIds::new(1).next(),
        &[(CONVERSATION, "a")],
        Some(COMPLETE),
    );
    store.apply(&[Change::Decided(Box::new(new))]).unwrap();
    let (groups, rows) = store.groups("", "c:a", 10).unwrap();
    assert_eq!(rows, 2);
    let tokens = groups[0].tokens;
    assert_eq!(
        (groups[0].requests, tokens.metered, tokens.cached_tokens),
        (2, 1, 90)
    );
}

#[test]
fn a_ledger_from_before_costs_were_kept_is_brought_up() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("a.db");
    let connection = rusqlite::Connection::open(&file).unwrap();
    for statement in [BEFORE, include_str!("../schema_1.sql"), OLD_ROW] {
        connection.execute_batch(statement).unwrap();
    }
    has_both(Box::new(sqlite::open(&file).unwrap()));
    let url = Server::shared().database();
    for statement in [BEFORE, include_str!("../postgres/schema_1.sql"), OLD_ROW] {
        query(&url, statement);
    }
    let at = Database::parse(&url, Authorities::default()).unwrap();
    has_both(Box::new(postgres::open(&at).unwrap()));
}

#[test]
fn agents_beyond_the_bound_are_one() {
    let mut agents = AgentTokens::default();
    let ids = RequestIds::new(1);
    agents.count(&row(ids.next(), &[], Some(COMPLETE)));
    assert!(agents.sums().is_empty(), "who has no name has no series");
    for number in 0..100_000_u32 {
        let name = format!("agent-{number}");
        agents.count(&row(ids.next(), &[(AGENT, &name)], Some(COMPLETE)));
    }
    let sums = agents.sums();
    assert_eq!(sums.len(), AGENT_SERIES_MAX + 1);
    let (name, others) = sums.last().unwrap();
    assert_eq!(name, "other");
    assert_eq!(
        others.metered,
        100_000 - i64::try_from(AGENT_SERIES_MAX).unwrap()
    );
    // The same name again, and the name of the rest.
    for name in ["agent-0", "other"] {
        let fields = [(AGENT, name)];
        agents.count(&row(ids.next(), &fields, Some(COMPLETE)));
    }
    assert_eq!(agents.sums().len(), AGENT_SERIES_MAX + 1);
    assert_eq!(agents.sums()[0].1.metered, 2);
}

#[test]
fn shares_are_of_all_input_and_do_not_overflow() {
    let share = |input_tokens, cached_tokens, cache_write_tokens| {
        TokenSums {
            input_tokens,
            cached_tokens,
            cache_write_tokens,
            ..TokenSums::default()
        }
        .cache_share()
    };
    assert_eq!(share(0, 0, 0), None);
    assert_eq!(share(1, 0, 0), Some(0.0));
    assert_eq!(share(0, 7, 0), Some(1.0));
    assert_eq!(share(10, 60, 30), Some(0.6));
    assert_eq!(share(i64::MAX, i64::MAX, i64::MAX), Some(1.0));
}
