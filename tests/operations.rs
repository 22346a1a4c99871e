//! What the page, the dashboard and the alert rules say of metrics is true of the program.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use lanegate::buf::Budget;
use lanegate::classify::{
    AgentEvidence, Evidence, Mode, Outcome, RemoteOutcome, RemoteTally, SessionTally,
    StoreOperation, StoreOutcome,
};
use lanegate::config;
use lanegate::dialect::Dialect;
use lanegate::lane::Decline;
use lanegate::observe::{
    AccessLog, EndReason, LedgerScene, Metrics, ProviderMetrics, Recorder, Refusal, Scene,
    SessionScene,
};
use lanegate::switch::Dictionary;
use lanegate::usage::Injection;
use serde_json::Value;

const PAGE: &str = include_str!("../docs/operations.md");
const ALERTS: &str = include_str!("../deploy/alerts.yaml");
const ADMIN: &str = include_str!("../src/admin/answer.rs");
const DASHBOARD: &str = include_str!("../deploy/grafana-dashboard.json");

/// Names and kinds of all metrics, in the words of the page.
fn metrics() -> BTreeMap<String, &'static str> {
    let recorder = Recorder::start(AccessLog::None, None).unwrap();
    let metrics = Arc::new(Metrics::new(1));
    // Of these only what was seen is there.
    metrics.core(0).agent(AgentEvidence::CodingCluster);
    metrics.core(0).evaluated(Mode::Jev, Outcome::Unknown);
    let (store, remote) = (SessionTally::default(), RemoteTally::default());
    store.store(StoreOperation::Load, StoreOutcome::Miss);
    store.transition(Evidence::Codex);
    remote.observe(RemoteOutcome::Timeout, Duration::from_secs(1));
    let sessions = SessionScene {
        is_enabled: true,
        is_ready: true,
        store: Arc::new(store),
        remote: Arc::new(remote),
    };
    let page = metrics.exposition(Scene {
        generation: 1,
        is_ready: true,
        is_draining: false,
        providers: vec![Arc::new(ProviderMetrics::new("a", 1))],
        block_limit_bytes: 1,
        budget: Budget::new(1),
        observer: recorder.observer(),
        dictionary: Arc::new(Dictionary::new(1)),
        ledger: LedgerScene::default(),
        sessions: Some(sessions),
    });
    let kinds = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let kind = |line: &str| {
        let (name, kind) = line.split_once(' ').unwrap();
        let word = match kind {
            "counter" => "count",
            "gauge" => "level",
            _ => "distribution",
        };
        (name.to_owned(), word)
    };
    kinds.map(kind).collect()
}

/// The metrics that a text names, whatever part of a distribution it takes.
fn named(text: &str) -> BTreeSet<String> {
    let known = metrics();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text
        .split(|c| !is_word(c))
        .filter(|word| word.starts_with("lanegate_") || word.starts_with("lip_"));
    let base = |word: &str| {
        let parts = ["_bucket", "_sum", "_count"].iter();
        let whole = parts.filter_map(|part| word.strip_suffix(part));
        whole
            .map(str::to_owned)
            .find(|it| known.get(it) == Some(&"distribution"))
    };
    words
        .map(|word| base(word).unwrap_or_else(|| word.to_owned()))
        .collect()
}

#[test]
fn the_page_has_a_row_for_every_metric_and_for_nothing_else() {
    let rows = PAGE
        .lines()
        .filter(|line| line.starts_with("| `lanegate_") || line.starts_with("| `lip_"));
    let listed: BTreeMap<_, _> = rows
        .map(|row| {
            let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
            assert!(
                cells.len() == 3 && cells[2].len() > 20,
                "what is to be done? {row}"
            );
            (cells[0].trim_matches('`').to_owned(), cells[1])
        })
        .collect();
    assert_eq!(listed, metrics());
    let known: BTreeSet<_> = metrics().into_keys().collect();
    assert!(named(PAGE).is_subset(&known));
}

/// Paths are the only literals of the admin listener's answers that begin with a slash.
#[test]
fn the_page_has_a_row_for_every_path_of_the_admin_listener() {
    let paths = ADMIN.split('"').skip(1).step_by(2);
    let paths: BTreeSet<_> = paths.filter(|it| it.starts_with('/')).collect();
    assert!(paths.len() >= 8 && paths.contains("/metrics"), "{paths:?}");
    for path in paths {
        let mut rows = PAGE.lines().filter(|line| line.starts_with("| `"));
        let has_path = |row: &str| row.contains(&format!(" {path}"));
        assert!(rows.any(has_path), "{path}");
    }
}

#[test]
fn the_page_lists_the_words_of_the_closed_sets() {
    let words = Decline::ALL.map(Decline::as_str).into_iter();
    let dialects = Dialect::ALL.map(Dialect::as_str);
    let outcomes = Injection::ALL.map(Injection::as_str);
    let refusals = Refusal::ALL.map(Refusal::as_str);
    for word in words.chain(dialects).chain(outcomes).chain(refusals) {
        assert!(PAGE.contains(&format!("`{word}`")), "{word}");
    }
}

#[test]
fn the_dashboard_shows_metrics_that_exist() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    let queries = targets
        .flatten()
        .map(|target| target["expr"].as_str().unwrap());
    let shown: BTreeSet<_> = queries.flat_map(named).collect();
    let known: BTreeSet<_> = metrics().into_keys().collect();
    assert!(shown.is_subset(&known), "{:?}", shown.difference(&known));
    let left_out: Vec<_> = known.difference(&shown).map(String::as_str).collect();
    let expected = [
        "lanegate_build_info",
        "lanegate_client_connections_accepted_total",
        "lanegate_uptime_seconds",
    ];
    assert_eq!(left_out, expected);
}

/// Columns of a dashboard.
const COLUMNS: u64 = 24;

#[test]
fn each_panel_of_the_dashboard_has_an_id_and_a_place_of_its_own() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
        assert!(x + w <= COLUMNS, "{title}");
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(cell), "{title}");
        }
    }
}

#[test]
fn at_least_ten_alerts_are_made_of_metrics_and_words_that_exist() {
    let alerts: Value = serde_saphyr::from_str(ALERTS).unwrap();
    let rules = alerts["groups"][0]["rules"].as_array().unwrap();
    let known: BTreeSet<_> = metrics().into_keys().collect();
    let names: BTreeSet<_> = rules
        .iter()
        .map(|rule| rule["alert"].as_str().unwrap())
        .collect();
    assert!(rules.len() >= 10);
    assert_eq!(names.len(), rules.len(), "each has a name of its own");
    let ends = EndReason::ALL.map(EndReason::as_str);
    let refusals = Refusal::ALL.map(Refusal::as_str);
    for rule in rules {
        let query = rule["expr"].as_str().unwrap();
        let asked = named(query);
        assert!(!asked.is_empty() && asked.is_subset(&known), "{query}");
        assert!(!rule["annotations"]["summary"].as_str().unwrap().is_empty());
        for (label, known) in [("end_reason=~\"", &ends[..]), ("{reason=\"", &refusals[..])] {
            let words = query.split(label).skip(1);
            for word in words.flat_map(|it| it.split('"').next().unwrap().split('|')) {
                assert!(known.contains(&word), "{word} in {query}");
            }
        }
    }
}

#[test]
fn the_alert_of_a_drain_waits_until_it_should_be_over() {
    let alerts: Value = serde_saphyr::from_str(ALERTS).unwrap();
    let rules = alerts["groups"][0]["rules"].as_array().unwrap();
    let rule = rules
        .iter()
        .find(|rule| rule["alert"] == "LanegateDrainDoesNotEnd")
        .unwrap();
    let minutes = rule["for"].as_str().unwrap().strip_suffix('m').unwrap();
    let patience = Duration::from_secs(60 * minutes.parse::<u64>().unwrap());
    let smallest = "providers: [{ name: a, dialect: openai, base_url: \"http://h\" }]";
    let timeouts = config::parse(smallest, &|_| None).unwrap().timeouts;
    assert!(patience > timeouts.drain + timeouts.linger, "{patience:?}");
}
