//! The numbers of all cores added up, in the Prometheus text format 0.0.4.
//!
//! `prometheus-client` writes the format. Its own counters are one atomic for all cores, so that only its
//! encoder is used: a [`Collector`] that gives constant values, made for one scrape.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::prometheus_text;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::buf::Budget;
use crate::clock;
use crate::lane::Decline;
use crate::meter::{Count, Distribution, Level};
use crate::observe::metrics::ledger::LedgerScene;
use crate::observe::metrics::sessions::{SessionScene, SessionScrape};
use crate::observe::metrics::{
    CLASSES, CoreMetrics, DIALECTS, LANES, Metrics, ProviderMetrics, wide,
};
use crate::observe::{EndReason, Observer};
use crate::switch::Dictionary;

/// `Content-Type` of an exposition.
pub const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

/// Upper bounds of the buckets of what the gateway does itself, microseconds.
const SHORT: [u64; 14] = [
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 500_000, 2_500_000,
];

/// Upper bounds of the buckets of what waits for a provider or a client, microseconds.
const LONG: [u64; 17] = [
    1_000,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    120_000_000,
    300_000_000,
    600_000_000,
];

/// What is true of the whole process at the moment of a scrape.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Number of the configuration in force.
    pub generation: u64,
    /// Whether new work is welcome.
    pub is_ready: bool,
    /// Whether the process was told to end.
    pub is_draining: bool,
    /// The providers in force.
    pub providers: Vec<Arc<ProviderMetrics>>,
    /// Bytes of blocks that all cores together should stay below.
    pub block_limit_bytes: u64,
    /// The budget of reservations.
    pub budget: Budget,
    /// Where records go.
    pub observer: Observer,
    /// The ids that sessions got.
    pub dictionary: Arc<Dictionary>,
    /// The ledger; all at zero where there is none.
    pub ledger: LedgerScene,
    /// Sessions, where they can be kept.
    pub sessions: Option<SessionScene>,
}

impl Metrics {
    /// Everything, as text.
    #[must_use]
    pub fn exposition(self: &Arc<Self>, scene: Scene) -> String {
        let mut out = String::new();
        let mut add = |prefix, collector: Box<dyn Collector>| {
            let mut registry = Registry::with_prefix(prefix);
            registry.register_collector(collector);
            // Writing to a `String` cannot fail.
            let written = prometheus_text::encode(&mut out, &registry);
            debug_assert!(written.is_ok());
        };
        let sessions = scene.sessions.clone();
        let metrics = || Arc::clone(self);
        add(
            "lanegate",
            Box::new(Scrape {
                metrics: metrics(),
                scene,
            }),
        );
        if let Some(scene) = sessions {
            let metrics = metrics();
            add("lip", Box::new(SessionScrape { metrics, scene }));
        }
        out
    }
}

#[derive(Debug)]
pub(super) struct Scrape {
    metrics: Arc<Metrics>,
    pub(super) scene: Scene,
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page { encoder };
        self.process(&mut page)?;
        self.clients(&mut page)?;
        self.exchanges(&mut page)?;
        self.switches(&mut page)?;
        self.conversations(&mut page)?;
        self.agent_costs(&mut page)?;
        self.ledger(&mut page)?;
        self.agents(&mut page)?;
        self.times(&mut page)?;
        self.upstream(&mut page)?;
        self.usage(&mut page)?;
        self.memory(&mut page)
    }
}

impl Scrape {
    fn process(&self, page: &mut Page<'_>) -> fmt::Result {
        let scene = &self.scene;
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        page.levels(
            "build_info",
            "Always 1; the version is a label",
            [(version, 1)],
        )?;
        let uptime = clock::now().saturating_duration_since(self.metrics.started);
        page.gauge(
            "uptime_seconds",
            "Seconds since the start of the process",
            uptime.as_secs_f64(),
        )?;
        page.level(
            "config_generation",
            "Number of the configuration in force; the start is 1",
            scene.generation,
        )?;
        page.level(
            "ready",
            "1 while new work is welcome, as /readyz says",
            scene.is_ready.into(),
        )?;
        page.level(
            "draining",
            "1 from the signal to stop on",
            scene.is_draining.into(),
        )?;
        page.level(
            "cores",
            "Threads that serve connections",
            wide(self.metrics.cores()),
        )?;
        page.count(
            "log_records_lost",
            "Exchanges without an access line and an explanation, because the queue was full",
            scene.observer.lost(),
        )?;
        page.count(
            "log_lines_unwritten",
            "Access lines dropped because their reader was too slow",
            scene.observer.unwritten(),
        )
    }

    fn clients(&self, page: &mut Page<'_>) -> fmt::Result {
        page.level(
            "client_connections",
            "Open client connections",
            self.levels(|core| &core.connections),
        )?;
        page.count(
            "client_connections_accepted",
            "Client connections accepted",
            self.sum(|core| &core.accepted),
        )?;
        page.count(
            "accept_failures",
            "Accepts that failed for want of a descriptor or memory",
            self.sum(|core| &core.accept_failures),
        )?;
        page.count(
            "client_handshake_failures",
            "TLS handshakes of clients that failed or took too long",
            self.sum(|core| &core.handshake_failures),
        )
    }

    fn exchanges(&self, page: &mut Page<'_>) -> fmt::Result {
        page.level(
            "exchanges_running",
            "Exchanges that run",
            self.levels(|core| &core.exchanges),
        )?;
        let mut requests = Vec::new();
        for (dialect, dialect_word) in DIALECTS.into_iter().enumerate() {
            for (class, class_word) in CLASSES.into_iter().enumerate() {
                for (lane, lane_word) in LANES.into_iter().enumerate() {
                    let labels = [
                        ("dialect", dialect_word),
                        ("status_class", class_word),
                        ("lane", lane_word),
                    ];
                    let cell = |core: &CoreMetrics| {
                        let classes = core.requests.get(dialect)?;
                        classes.get(class)?.get(lane).map(Count::get)
                    };
                    requests.push((labels, self.total(cell)));
                }
            }
        }
        page.counts(
            "requests",
            "Exchanges that are over, by what was asked, answered and done with the body",
            requests,
        )?;
        let declines = Decline::ALL.map(|decline| {
            let total = self.total(|core| core.declines.get(decline as usize).map(Count::get));
            ([("reason", decline.as_str())], total)
        });
        page.counts(
            "declines",
            "Bodies that could not travel as they came",
            declines,
        )?;
        let ends = EndReason::ALL.map(|end| {
            let total = self.total(|core| core.ended.get(end as usize).map(Count::get));
            ([("end_reason", end.as_str())], total)
        });
        page.counts(
            "exchanges_ended",
            "Exchanges that are over, by what ended them",
            ends,
        )?;
        page.count(
            "panics",
            "Exchanges that a defect of the gateway ended",
            self.sum(|core| &core.panics),
        )?;
        page.count(
            "request_body_bytes",
            "Bytes of request bodies, without framing",
            self.sum(|core| &core.request_bytes),
        )?;
        page.count(
            "response_bytes",
            "Bytes that clients took of responses, head and framing included",
            self.sum(|core| &core.response_bytes),
        )
    }

    fn times(&self, page: &mut Page<'_>) -> fmt::Result {
        page.distributions(
            "added_latency_seconds",
            "What the gateway adds. To a request: from the last byte that had to be read to the first \
             write to the provider, without waiting for a connection. To a response: from the provider's \
             head to the end of its first write to the client",
            &SHORT,
            [
                (
                    [("to", "request")],
                    self.merged(|core| &core.added_to_request),
                ),
                (
                    [("to", "response")],
                    self.merged(|core| &core.added_to_response),
                ),
            ],
        )?;
        page.distributions(
            "first_byte_seconds",
            "From the end of a request head to the head of the provider's response",
            &LONG,
            self.first_bytes(),
        )?;
        page.distribution(
            "response_gap_seconds",
            "Between two writes of one response to its client",
            &LONG,
            self.merged(|core| &core.gaps),
        )?;
        page.distribution(
            "exchange_duration_seconds",
            "From the end of a request head to the end of its exchange, where a provider was chosen",
            &LONG,
            self.merged(|core| &core.duration),
        )?;
        page.distribution(
            "connect_seconds",
            "Opening a connection to a provider, TLS handshake and waiting for a place included",
            &LONG,
            self.merged(|core| &core.connect),
        )
    }

    fn memory(&self, page: &mut Page<'_>) -> fmt::Result {
        let scene = &self.scene;
        page.level(
            "block_bytes",
            "Bytes of heads and windows in memory",
            self.levels(|core| &core.block_bytes),
        )?;
        page.level(
            "block_limit_bytes",
            "Bytes of heads and windows that there should be at most",
            scene.block_limit_bytes,
        )?;
        page.level(
            "reserved_bytes",
            "Bytes reserved for bodies that are held",
            scene.budget.used(),
        )?;
        page.level(
            "reserved_limit_bytes",
            "Bytes that can be reserved",
            scene.budget.limit(),
        )
    }

    pub(super) fn total(&self, cell: impl Fn(&CoreMetrics) -> Option<u64>) -> u64 {
        let cores = self.metrics.cores.iter();
        cores.filter_map(|core| cell(core)).sum()
    }

    pub(super) fn sum(&self, cell: impl Fn(&CoreMetrics) -> &Count) -> u64 {
        self.total(|core| Some(cell(core).get()))
    }

    fn levels(&self, cell: impl Fn(&CoreMetrics) -> &Level) -> u64 {
        self.total(|core| Some(cell(core).get()))
    }

    fn merged(&self, cell: impl Fn(&CoreMetrics) -> &Distribution) -> Merged {
        let mut merged = Merged::default();
        for core in &self.metrics.cores {
            merged.add(cell(core));
        }
        merged
    }
}

/// The distributions of all cores in one.
#[derive(Default)]
pub(super) struct Merged {
    /// Microseconds; none as long as nothing was counted.
    values: Option<Histogram<u64>>,
    sum_micros: u64,
}

impl Merged {
    pub(super) fn add(&mut self, distribution: &Distribution) {
        for (micros, count) in distribution.counted() {
            // 0 and 1 share a cell of a histogram that begins at 1.
            if self.values.is_none() {
                self.values = Histogram::new_with_bounds(1, 1 << 37, 2).ok();
            }
            if let Some(values) = &mut self.values {
                values.saturating_record_n(micros, count);
            }
        }
        self.sum_micros = self.sum_micros.wrapping_add(distribution.sum_micros());
    }

    /// How many values belong to each of the buckets that end at `bounds`, and how many are beyond
    /// the last. A bound is met within 3 %.
    pub(super) fn counts(&self, bounds: &[u64]) -> Vec<u64> {
        let mut counts = vec![0; bounds.len() + 1];
        let Some(values) = &self.values else {
            return counts;
        };
        for step in values.iter_recorded() {
            let lowest = values.lowest_equivalent(step.value_iterated_to());
            let bucket = bounds.partition_point(|bound| *bound < lowest);
            if let Some(count) = counts.get_mut(bucket) {
                *count += step.count_at_value();
            }
        }
        counts
    }
}

/// The text as it is written: each name once, with its help and all its series.
pub(super) struct Page<'a> {
    pub(super) encoder: DescriptorEncoder<'a>,
}

impl Page<'_> {
    pub(super) fn count(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let metric = self.metric(name, help, MetricType::Counter)?;
        ConstCounter::new(value).encode(metric)
    }

    pub(super) fn counts<'a, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = ([(&'a str, &'a str); N], u64)>,
    ) -> fmt::Result {
        let mut metric = self.metric(name, help, MetricType::Counter)?;
        for (labels, value) in series {
            ConstCounter::new(value).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }

    pub(super) fn level(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let metric = self.metric(name, help, MetricType::Gauge)?;
        ConstGauge::new(value).encode(metric)
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let metric = self.metric(name, help, MetricType::Gauge)?;
        ConstGauge::new(value).encode(metric)
    }

    /// A level that may be absent.
    pub(super) fn gauges(&mut self, name: &str, help: &str, value: Option<f64>) -> fmt::Result {
        let metric = self.metric(name, help, MetricType::Gauge)?;
        match value {
            Some(value) => ConstGauge::new(value).encode(metric),
            None => Ok(()),
        }
    }

    /// Levels between 0 and 1.
    pub(super) fn shares<'a, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = ([(&'a str, &'a str); N], f64)>,
    ) -> fmt::Result {
        let mut metric = self.metric(name, help, MetricType::Gauge)?;
        for (labels, value) in series {
            ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }

    pub(super) fn levels<'a, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = ([(&'a str, &'a str); N], u64)>,
    ) -> fmt::Result {
        let mut metric = self.metric(name, help, MetricType::Gauge)?;
        for (labels, value) in series {
            ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn distribution(
        &mut self,
        name: &str,
        help: &str,
        bounds: &[u64],
        merged: Merged,
    ) -> fmt::Result {
        let metric = self.metric(name, help, MetricType::Histogram)?;
        encode_buckets(metric, bounds, &merged)
    }

    pub(super) fn distributions<'a, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        bounds: &[u64],
        series: impl IntoIterator<Item = ([(&'a str, &'a str); N], Merged)>,
    ) -> fmt::Result {
        let mut metric = self.metric(name, help, MetricType::Histogram)?;
        for (labels, merged) in series {
            encode_buckets(metric.encode_family(&labels)?, bounds, &merged)?;
        }
        Ok(())
    }

    fn metric<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, fmt::Error> {
        self.encoder.encode_descriptor(name, help, None, kind)
    }
}

fn encode_buckets(mut metric: MetricEncoder<'_>, bounds: &[u64], merged: &Merged) -> fmt::Result {
    let seconds = |micros: u64| Duration::from_micros(micros).as_secs_f64();
    let counts = merged.counts(bounds);
    let ends = bounds.iter().map(|bound| seconds(*bound));
    let buckets: Vec<_> = ends.chain([f64::INFINITY]).zip(counts).collect();
    let count = buckets.iter().map(|(_, count)| count).sum();
    metric.encode_histogram::<NoLabelSet>(seconds(merged.sum_micros), count, &buckets, None)
}
