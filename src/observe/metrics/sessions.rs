//! The numbers of sessions and agents.
//!
//! Only what was seen is a series, so that a process whose features are off has none. The names of
//! `session-classification` are those of its specification, without the prefix of the gateway's other metrics.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use crate::classify::{
    AgentEvidence, Classification, Evidence, Mode, Outcome, RemoteOutcome, RemoteTally,
    SessionTally, StoreOperation, StoreOutcome,
};
use crate::meter::Count;
use crate::observe::metrics::exposition::{Merged, Page, Scrape};
use crate::observe::metrics::{CoreMetrics, Metrics};

/// Upper bounds of the buckets of an attempt, microseconds: 5 ms, doubled twelve times.
const ATTEMPT: [u64; 13] = [
    5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 640_000, 1_280_000, 2_560_000,
    5_120_000, 10_240_000, 20_480_000,
];

/// What is true of sessions at the moment of a scrape.
#[derive(Clone, Debug)]
pub struct SessionScene {
    /// Whether the feature is on.
    pub is_enabled: bool,
    /// Whether the store of sessions is open.
    pub is_ready: bool,
    /// What was done with it.
    pub store: Arc<SessionTally>,
    /// What came of asking the remote service.
    pub remote: Arc<RemoteTally>,
}

/// The collector whose metrics begin with `lip`.
#[derive(Debug)]
pub(super) struct SessionScrape {
    pub(super) metrics: Arc<Metrics>,
    pub(super) scene: SessionScene,
}

impl Collector for SessionScrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let evaluations = self.evaluations();
        // Off, and never was on: there is nothing to show. What was counted stays when it is turned off.
        if !self.scene.is_enabled && evaluations.iter().all(|(_, count)| *count == 0) {
            return Ok(());
        }
        let mut page = Page { encoder };
        page.level(
            "session_classification_store_ready",
            "1 while the store of sessions is open",
            self.scene.is_ready.into(),
        )?;
        page.seen_counts(
            "session_classification_evaluations",
            "Turns that were looked at, by what came of it",
            evaluations,
        )?;
        page.seen_counts(
            "session_classification_transitions",
            "Sessions that were identified, by the rule that did",
            self.transitions(),
        )?;
        page.seen_counts(
            "session_classification_store",
            "Operations of the store of sessions, by what came of them",
            self.store(),
        )?;
        let asked = RemoteOutcome::ALL.into_iter().filter_map(|outcome| {
            let (count, times) = self.scene.remote.of(outcome)?;
            (count > 0).then_some(([("outcome", outcome.as_str())], count, times))
        });
        let asked: Vec<_> = asked.collect();
        if asked.is_empty() {
            return Ok(());
        }
        page.counts(
            "session_classification_remote",
            "Attempts at the remote service, and those that were not made, by what came of it",
            asked.iter().map(|(labels, count, _)| (*labels, *count)),
        )?;
        let times = asked.into_iter().map(|(labels, _, times)| {
            let mut merged = Merged::default();
            merged.add(times);
            (labels, merged)
        });
        page.distributions(
            "session_classification_remote_seconds",
            "How long they took",
            &ATTEMPT,
            times,
        )
    }
}

impl SessionScrape {
    fn total(&self, cell: impl Fn(&CoreMetrics) -> Option<&Count>) -> u64 {
        let cores = self.metrics.cores.iter();
        cores.filter_map(|core| cell(core)).map(Count::get).sum()
    }

    fn evaluations(&self) -> Vec<([(&'static str, &'static str); 2], u64)> {
        let mut series = Vec::new();
        for (row, mode) in Mode::ALL.into_iter().enumerate() {
            for outcome in Outcome::ALL {
                let total = self.total(|core| core.evaluations.get(row)?.get(outcome as usize));
                let labels = [("mode", mode.as_str()), ("outcome", outcome.as_str())];
                series.push((labels, total));
            }
        }
        series
    }

    fn transitions(&self) -> Vec<([(&'static str, &'static str); 3], u64)> {
        let transition = |evidence: Evidence| {
            let labels = [
                ("source", evidence.source().as_str()),
                ("confidence", Classification::CONFIDENCE),
                ("evidence", evidence.as_str()),
            ];
            let own = self.total(|core| core.identified.get(evidence as usize));
            (labels, own + self.scene.store.transitions(evidence))
        };
        Evidence::ALL.map(transition).to_vec()
    }

    fn store(&self) -> Vec<([(&'static str, &'static str); 2], u64)> {
        let mut series = Vec::new();
        for operation in StoreOperation::ALL {
            for outcome in StoreOutcome::ALL {
                let labels = [
                    ("operation", operation.as_str()),
                    ("outcome", outcome.as_str()),
                ];
                series.push((labels, self.scene.store.stored(operation, outcome)));
            }
        }
        series
    }
}

impl Scrape {
    pub(super) fn agents(&self, page: &mut Page<'_>) -> fmt::Result {
        let agents = AgentEvidence::all().map(|evidence| {
            let labels = [
                ("family", evidence.family()),
                ("evidence", evidence.as_str()),
            ];
            let cell = |core: &CoreMetrics| core.agents.get(evidence.index()).map(Count::get);
            (labels, self.total(cell))
        });
        page.seen_counts(
            "agent_family_exchanges",
            "Exchanges that come from an agent, by its family and by what says so",
            agents.collect(),
        )
    }
}

impl Page<'_> {
    /// Counts of which only those are series that were ever above zero.
    fn seen_counts<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        mut series: Vec<([(&str, &str); N], u64)>,
    ) -> fmt::Result {
        series.retain(|(_, count)| *count > 0);
        if series.is_empty() {
            return Ok(());
        }
        self.counts(name, help, series)
    }
}
