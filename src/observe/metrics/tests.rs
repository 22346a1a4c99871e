use std::collections::HashSet;

use super::exposition::Merged;
use super::*;
use crate::buf::Budget;
use crate::observe::{AccessLog, Destination, Recorder, RequestIds};
use crate::switch::Dictionary;

fn exposition(metrics: &Arc<Metrics>, providers: Vec<Arc<ProviderMetrics>>) -> String {
    let recorder = Recorder::start(AccessLog::None, None).unwrap();
    let text = metrics.exposition(Scene {
        providers,
        ..scene(&recorder)
    });
    recorder.finish();
    text
}

fn scene(recorder: &Recorder) -> Scene {
    Scene {
        generation: 1,
        is_ready: true,
        is_draining: false,
        providers: Vec::new(),
        block_limit_bytes: 1 << 20,
        budget: Budget::new(1 << 20),
        observer: recorder.observer(),
        dictionary: Arc::new(Dictionary::new(1)),
        ledger: LedgerScene::default(),
        sessions: None,
    }
}

/// The series of a page, without their values.
fn series(page: &str) -> HashSet<&str> {
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| line.rsplit_once(' ').unwrap().0)
        .collect()
}

#[test]
fn words_of_labels_are_those_of_the_program() {
    for (position, dialect) in Dialect::ALL.into_iter().enumerate() {
        assert_eq!(
            (dialect as usize, DIALECTS[position]),
            (position, dialect.as_str())
        );
    }
    for (position, decline) in Decline::ALL.into_iter().enumerate() {
        assert_eq!(decline as usize, position);
    }
    let ways = [Way::Local, Way::Wire, Way::Canonical(Decline::OtherDialect)];
    assert_eq!(ways.map(Way::as_str), LANES);
}

/// The page for operators says what a provider takes of memory.
#[test]
fn the_numbers_of_a_provider_take_less_than_nine_kibibytes_a_core() {
    let size = size_of::<CachePadded<ProviderCells>>();
    assert!((8 << 10..9 << 10).contains(&size), "{size}");
}

#[test]
fn a_refusal_is_counted_under_its_own_word() {
    for (position, refusal) in Refusal::ALL.into_iter().enumerate() {
        assert_eq!(refusal as usize, position);
    }
    let words = [401, 403, 402, 429, 503, 529].map(|it| Refusal::of(it).unwrap().as_str());
    let expected = [
        "credential",
        "credential",
        "quota",
        "quota",
        "overload",
        "overload",
    ];
    assert_eq!(words, expected);
    assert_eq!((0..600).filter_map(Refusal::of).count(), 6);
}

#[test]
fn every_kind_of_record_is_counted_in_a_series_that_was_there() {
    let metrics = Arc::new(Metrics::new(2));
    let before = exposition(&metrics, Vec::new());
    let ids = RequestIds::new(1);
    let mut records = 0;
    let dialects = Dialect::ALL.map(Some).into_iter().chain([None]);
    for dialect in dialects {
        for status in [0, 100, 200, 299, 304, 404, 499, 500, 599, 600, u16::MAX] {
            let declines = Decline::ALL.map(Way::Canonical);
            for way in [Way::Local, Way::Wire].into_iter().chain(declines) {
                for end in EndReason::ALL {
                    let record = Record {
                        dialect,
                        status,
                        way,
                        end,
                        ..Record::begin(ids.next())
                    };
                    metrics.core(records % 2).exchange(&record);
                    records += 1;
                }
            }
        }
    }
    let after = exposition(&metrics, Vec::new());
    assert_eq!(series(&before), series(&after));
    let sum = |family: &str| -> usize {
        let prefix = format!("{family}{{");
        let lines = after.lines().filter(|line| line.starts_with(&prefix));
        lines
            .map(|line| line.rsplit_once(' ').unwrap().1.parse::<usize>().unwrap())
            .sum()
    };
    assert_eq!(sum("lanegate_requests_total"), records);
    assert_eq!(sum("lanegate_exchanges_ended_total"), records);
    assert_eq!(sum("lanegate_declines_total"), records * 3 / 5);
}

#[test]
fn what_waits_for_others_is_not_added_by_the_gateway() {
    let metrics = Metrics::new(1);
    let core = metrics.core(0);
    let record = Record {
        attempts: 1,
        fed: Duration::from_millis(100),
        taking: Duration::from_millis(50),
        connected: Some(Duration::from_micros(150_020)),
        ..Record::begin(RequestIds::new(1).next())
    };
    core.exchange(&record);
    core.exchange(&Record {
        attempts: 2,
        ..record
    });
    let counted: Vec<_> = core.added_to_request.counted().collect();
    assert_eq!(counted, [(20, 1)]);
}

#[test]
fn buckets_hold_what_was_recorded_on_all_cores() {
    let cores = [0; 2].map(|_| Box::new(Distribution::new()));
    for (core, micros) in [(0, 0), (1, 10), (0, 11), (1, 2_500), (0, 60_000_000)] {
        cores[core].record(Duration::from_micros(micros));
    }
    let mut merged = Merged::default();
    assert_eq!(merged.counts(&[10, 2_500]), [0, 0, 0]);
    for core in &cores {
        merged.add(core);
    }
    assert_eq!(merged.counts(&[10, 2_500]), [2, 2, 1]);
}

#[test]
fn a_provider_is_counted_by_core_and_escaped() {
    let metrics = Arc::new(Metrics::new(2));
    let provider = Arc::new(ProviderMetrics::new("a \"b\" \\ c", 2));
    for core in 0..2 {
        let meter = ProviderMeter::new(&provider, &metrics.core(core));
        meter.response(201);
        for status in [200, 400, 401, 402, 403, 404, 429, 500, 502, 503, 529] {
            meter.answered(status, Duration::from_millis(3));
        }
        meter.usage(&Usage {
            state: State::Partial,
            tokens: Tokens {
                cached: Some(60),
                ..Tokens::default()
            },
            stop: None,
        });
        meter.opened(Duration::from_millis(3));
        meter.note(4, 0, 1);
        let _active = meter.active().unwrap().raised();
    }
    // A core that nobody counted on is not one that a scrape may miss.
    ProviderMeter::new(
        &provider,
        &Arc::new(CoreMetrics {
            core: 9,
            ..CoreMetrics::default()
        }),
    )
    .failed();
    let page = exposition(&metrics, vec![provider]);
    for line in [
        "lanegate_upstream_exchanges_total{provider=\"a \\\"b\\\" \\\\ c\",status_class=\"2xx\"} 2",
        "lanegate_upstream_refusals_total{provider=\"a \\\"b\\\" \\\\ c\",reason=\"credential\"} 4",
        "lanegate_upstream_refusals_total{provider=\"a \\\"b\\\" \\\\ c\",reason=\"quota\"} 4",
        "lanegate_upstream_refusals_total{provider=\"a \\\"b\\\" \\\\ c\",reason=\"overload\"} 4",
        "lanegate_upstream_connections{provider=\"a \\\"b\\\" \\\\ c\",state=\"idle\"} 8",
        "lanegate_upstream_connections{provider=\"a \\\"b\\\" \\\\ c\",state=\"active\"} 0",
        "lanegate_upstream_connections_died_total{provider=\"a \\\"b\\\" \\\\ c\"} 2",
        "lanegate_tokens_total{provider=\"a \\\"b\\\" \\\\ c\",kind=\"cached\"} 120",
        "lanegate_tokens_total{provider=\"a \\\"b\\\" \\\\ c\",kind=\"input\"} 0",
        "lanegate_answers_total{provider=\"a \\\"b\\\" \\\\ c\",usage=\"partial\"} 2",
        "lanegate_first_byte_seconds_count{provider=\"a \\\"b\\\" \\\\ c\"} 22",
        "lanegate_first_byte_seconds_bucket{provider=\"a \\\"b\\\" \\\\ c\",le=\"0.001\"} 0",
        "lanegate_first_byte_seconds_bucket{provider=\"a \\\"b\\\" \\\\ c\",le=\"0.005\"} 22",
        "lanegate_connect_seconds_count 2",
        "lanegate_connect_seconds_bucket{le=\"0.005\"} 2",
    ] {
        assert!(page.lines().any(|it| it == line), "{line} in {page}");
    }
}

#[test]
fn a_record_names_its_provider_only_by_position() {
    // Labels come from the generation's list, never from a record.
    let to = Destination {
        provider: "from a record".into(),
        index: 0,
        imposter: false,
        auth: "none",
        model: None,
    };
    let metrics = Arc::new(Metrics::new(1));
    metrics.core(0).exchange(&Record {
        to: Some(to),
        ..Record::begin(RequestIds::new(1).next())
    });
    assert!(!exposition(&metrics, Vec::new()).contains("from a record"));
}
