//! What is counted, by each core for itself.
//!
//! Every label has a closed set of values: words of this program, or names of providers from the
//! configuration, so that no client can make series. Every series is there from the start, at zero, so that
//! a first event is a rise and not a birth. Names of agents are the exception: clients choose them, a bounded
//! number is shown ([`AgentCost`]), and each is there from its first request on.
//!
//! Costs of one exchange: a dozen relaxed stores to memory of its own core, and one reading of the
//! clock for each piece of a response.

mod answers;
mod exposition;
mod ledger;
mod sessions;
mod upstream;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::utils::CachePadded;

use crate::classify::{AgentEvidence, Evidence, Mode, Outcome};
use crate::clock;
use crate::dialect::Dialect;
use crate::identity::Named;
use crate::lane::Decline;
use crate::meter::{Count, Distribution, Level};
use crate::observe::{EndReason, Record, Way};
use crate::switch::Switch;
use crate::usage::{Injection, State, Tokens, Usage};

pub use exposition::{CONTENT_TYPE, Scene};
pub use ledger::{AgentCost, LedgerScene};
pub use sessions::SessionScene;
pub use upstream::Refusal;

/// Values of the label `dialect`: the dialects, and paths without one.
const DIALECTS: [&str; Dialect::ALL.len() + 1] = ["chat", "messages", "responses", "none"];

/// Values of the label `lane`.
const LANES: [&str; 3] = ["local", "wire", "canonical"];

/// Values of the label `status_class`: the classes of a final status, and exchanges whose response was
/// not begun.
const CLASSES: [&str; 5] = ["2xx", "3xx", "4xx", "5xx", "none"];

/// What a client that reported an outcome was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is recorded.
    Recorded,
    /// It was recorded before.
    Duplicate,
    /// There is no such answer.
    NotFound,
    /// It could be about several conversations.
    Ambiguous,
    /// Another outcome was reported before.
    Conflict,
    /// The report cannot be read.
    Invalid,
    /// The ledger cannot be reached.
    Unavailable,
}

impl Told {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Recorded,
        Self::Duplicate,
        Self::NotFound,
        Self::Ambiguous,
        Self::Conflict,
        Self::Invalid,
        Self::Unavailable,
    ];

    /// The word in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Recorded => "recorded",
            Self::Duplicate => "duplicate",
            Self::NotFound => "not_found",
            Self::Ambiguous => "ambiguous",
            Self::Conflict => "conflict",
            Self::Invalid => "invalid",
            Self::Unavailable => "unavailable",
        }
    }
}

/// The numbers of one core. It lies on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CoreMetrics {
    /// Position among the cores.
    core: usize,
    requests: [[[Count; LANES.len()]; CLASSES.len()]; DIALECTS.len()],
    declines: [Count; Decline::ALL.len()],
    ended: [Count; EndReason::ALL.len()],
    told: [Count; Told::ALL.len()],
    evaluations: [[Count; Outcome::ALL.len()]; Mode::ALL.len()],
    identified: [Count; Evidence::ALL.len()],
    agents: [Count; AgentEvidence::COUNT],
    invalid_identity: [Count; Named::ALL.len()],
    request_bytes: Count,
    response_bytes: Count,
    added_to_request: Distribution,
    duration: Distribution,
    connect: Distribution,
    /// From the head of a provider's response to the end of the first write of it to the client.
    pub added_to_response: Distribution,
    /// Between two writes of one response to its client.
    pub gaps: Distribution,
    /// Exchanges that run.
    pub exchanges: Level,
    switches: [Count; Switch::ALL.len()],
    /// Sessions that got no id because the dictionary is full.
    pub switches_refused: Count,
    /// Requests that were answered here when they were partly sent already.
    pub switches_aborted: Count,
    /// Exchanges that panicked.
    pub panics: Count,
    /// Reports whose exchange belongs to another conversation than they say.
    pub outcome_id_conflicts: Count,
    /// Client connections accepted.
    pub accepted: Count,
    /// Accepts that failed for want of a descriptor or memory.
    pub accept_failures: Count,
    /// TLS handshakes of clients that failed or took too long.
    pub handshake_failures: Count,
    /// Open client connections; set with every beat.
    pub connections: Level,
    /// Bytes of blocks that are lent; set with every beat.
    pub block_bytes: Level,
}

impl CoreMetrics {
    /// Position among the cores.
    #[must_use]
    pub fn core(&self) -> usize {
        self.core
    }

    /// Counts a look at a turn.
    pub fn evaluated(&self, mode: Mode, outcome: Outcome) {
        let modes = Mode::ALL.into_iter().zip(&self.evaluations);
        let row = modes.into_iter().find(|(it, _)| *it == mode);
        count(row.and_then(|(_, row)| row.get(outcome as usize)));
    }

    /// Counts a session that was identified and is kept nowhere but on its connection.
    pub fn identified(&self, evidence: Evidence) {
        count(self.identified.get(evidence as usize));
    }

    /// Counts an exchange that comes from an agent.
    pub fn agent(&self, evidence: AgentEvidence) {
        count(self.agents.get(evidence.index()));
    }

    /// Counts the report of an outcome.
    pub fn told(&self, told: Told) {
        count(self.told.get(told as usize));
    }

    /// Counts a field of the conversation contract that counts as absent because it is invalid.
    pub fn invalid_identity(&self, named: Named) {
        count(self.invalid_identity.get(named as usize));
    }

    /// Counts an exchange that is over.
    pub fn exchange(&self, record: &Record) {
        let dialect = record.dialect.map_or(Dialect::ALL.len(), |it| it as usize);
        let lane = match record.way {
            Way::Local => 0,
            Way::Wire => 1,
            Way::Canonical(_) => 2,
        };
        let by_class = self.requests.get(dialect);
        let by_lane = by_class.and_then(|classes| classes.get(class_of(record.status)));
        count(by_lane.and_then(|lanes| lanes.get(lane)));
        if let Some(decline) = record.way.decline() {
            count(self.declines.get(decline as usize));
        }
        if let Some(switch) = record.switch {
            count(self.switches.get(switch as usize));
        }
        count(self.ended.get(record.end as usize));
        self.request_bytes.add(record.request_bytes);
        self.response_bytes.add(record.response_bytes);
        if record.to.is_some() {
            self.duration.record(record.duration);
        }
        // A second attempt begins after the time that the first one took, which is not the gateway's.
        if let (Some(connected), 1) = (record.connected, record.attempts) {
            let waited = record.fed.saturating_add(record.taking);
            self.added_to_request
                .record(connected.saturating_sub(waited));
        }
    }
}

fn count(cell: Option<&Count>) {
    if let Some(cell) = cell {
        cell.add(1);
    }
}

/// Index into [`CLASSES`].
fn class_of(status: u16) -> usize {
    match status {
        200..300 => 0,
        300..400 => 1,
        400..500 => 2,
        500..600 => 3,
        _ => 4,
    }
}

/// The numbers of one provider on one core: 8.6 KiB, nearly all of it the distribution.
#[derive(Debug, Default)]
struct ProviderCells {
    responses: [Count; CLASSES.len()],
    refusals: [Count; Refusal::ALL.len()],
    first_byte: Distribution,
    /// In the order of [`Tokens::named`].
    tokens: [Count; Tokens::KINDS],
    usage: [Count; State::ALL.len()],
    injections: [Count; Injection::ALL.len()],
    opened: Count,
    reused: Count,
    failed: Count,
    stale: Count,
    deaths: Count,
    active: Level,
    idle: Level,
    waiting: Level,
}

/// The numbers of one provider. They go on over reloads as long as a provider has the name.
#[derive(Debug)]
pub struct ProviderMetrics {
    name: String,
    cores: Box<[CachePadded<ProviderCells>]>,
}

impl ProviderMetrics {
    /// For a provider of this name.
    #[must_use]
    pub fn new(name: &str, cores: usize) -> Self {
        Self {
            name: name.to_owned(),
            cores: (0..cores).map(|_| CachePadded::default()).collect(),
        }
    }

    /// The provider's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// One core's part in the numbers of one provider.
#[derive(Clone, Debug)]
pub struct ProviderMeter {
    provider: Arc<ProviderMetrics>,
    core: Arc<CoreMetrics>,
}

impl ProviderMeter {
    /// The part of `core`.
    #[must_use]
    pub fn new(provider: &Arc<ProviderMetrics>, core: &Arc<CoreMetrics>) -> Self {
        Self {
            provider: Arc::clone(provider),
            core: Arc::clone(core),
        }
    }

    fn cells(&self) -> Option<&ProviderCells> {
        let cells = self.provider.cores.get(self.core.core)?;
        Some(cells)
    }

    /// Counts a connection that was opened, which took that long.
    pub fn opened(&self, took: Duration) {
        count(self.cells().map(|cells| &cells.opened));
        self.core.connect.record(took);
    }

    /// Counts an idle connection that was taken again.
    pub fn reused(&self) {
        count(self.cells().map(|cells| &cells.reused));
    }

    /// Counts a connection that did not come about.
    pub fn failed(&self) {
        count(self.cells().map(|cells| &cells.failed));
    }

    /// Counts a reused connection that was dead, so that its request was sent again.
    pub fn stale(&self) {
        count(self.cells().map(|cells| &cells.stale));
    }

    /// Counts a final response, whoever made it, of an exchange that was sent here.
    pub fn response(&self, status: u16) {
        let cells = self.cells();
        count(cells.and_then(|cells| cells.responses.get(class_of(status))));
    }

    /// Counts a response that the provider itself made, and whose head was there after so long.
    pub fn answered(&self, status: u16, first_byte: Duration) {
        let Some(cells) = self.cells() else {
            return;
        };
        cells.first_byte.record(first_byte);
        if let Some(refusal) = Refusal::of(status) {
            count(cells.refusals.get(refusal as usize));
        }
    }

    /// Counts what an answer cost.
    pub fn usage(&self, usage: &Usage) {
        let Some(cells) = self.cells() else {
            return;
        };
        count(cells.usage.get(usage.state as usize));
        for (cell, (_, tokens)) in cells.tokens.iter().zip(usage.tokens.named()) {
            cell.add(tokens.unwrap_or(0));
        }
    }

    /// Counts what became of asking for usage.
    pub fn injection(&self, outcome: Injection) {
        let cells = self.cells();
        count(cells.and_then(|cells| cells.injections.get(outcome as usize)));
    }

    /// Connections that exchanges use.
    #[must_use]
    pub fn active(&self) -> Option<&Level> {
        self.cells().map(|cells| &cells.active)
    }

    /// Notes how many connections are idle, how many exchanges wait for one, and how many more
    /// idle ones were found dead.
    pub fn note(&self, idle: usize, waiting: usize, deaths: u64) {
        if let Some(cells) = self.cells() {
            cells.idle.set(wide(idle));
            cells.waiting.set(wide(waiting));
            cells.deaths.add(deaths);
        }
    }
}

/// Cannot fail on the targets of this program.
fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// The numbers of all cores.
#[derive(Debug)]
pub struct Metrics {
    started: Instant,
    cores: Box<[Arc<CoreMetrics>]>,
}

impl Metrics {
    /// Of so many cores.
    #[must_use]
    pub fn new(cores: usize) -> Self {
        let of_core = |core| {
            Arc::new(CoreMetrics {
                core,
                ..CoreMetrics::default()
            })
        };
        Self {
            started: clock::now(),
            cores: (0..cores).map(of_core).collect(),
        }
    }

    /// Those of one core; of none that is read where there is no such core.
    #[must_use]
    pub fn core(&self, core: usize) -> Arc<CoreMetrics> {
        self.cores.get(core).cloned().unwrap_or_default()
    }

    /// Exchanges that run on all cores.
    #[must_use]
    pub fn running(&self) -> u64 {
        self.cores.iter().map(|core| core.exchanges.get()).sum()
    }

    /// Exchanges of all cores that ended for this reason.
    #[must_use]
    pub fn ended(&self, end: EndReason) -> u64 {
        let counts = self
            .cores
            .iter()
            .filter_map(|core| core.ended.get(end as usize));
        counts.map(Count::get).sum()
    }

    /// Number of cores.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.cores.len()
    }
}

#[cfg(test)]
mod tests;
