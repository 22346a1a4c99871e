//! The numbers of conversations and of the ledger.

use std::fmt;

use crate::identity::{KeyKind, Named};
use crate::meter::Count;
use crate::observe::metrics::exposition::{Page, Scrape};
use crate::observe::metrics::{CoreMetrics, Told};
use crate::usage::Tokens;

/// What is true of the ledger at the moment of a scrape.
#[derive(Clone, Debug, Default)]
pub struct LedgerScene {
    /// Whether there is one and its store can be written.
    pub is_available: bool,
    /// Rows stored.
    pub written: u64,
    /// Rows lost because a queue was full.
    pub lost: u64,
    /// Rows that wait for the store.
    pub waiting: u64,
    /// Attempts at the store that failed.
    pub failures: u64,
    /// Conversations and decisions in the window, in the order of [`KeyKind::ALL`].
    pub adopted: [(u64, u64); KeyKind::ALL.len()],
    /// What agents cost that named themselves; a bounded number of them, the rest as one.
    pub agents: Vec<AgentCost>,
}

/// What one agent cost.
#[derive(Clone, Debug, Default)]
pub struct AgentCost {
    /// Its name, as a client gave it.
    pub agent: String,
    /// Tokens, in the order of [`Tokens::named`].
    pub tokens: [u64; Tokens::KINDS],
    /// The part of its input that was read from a cache; none without input.
    pub cache_share: Option<f64>,
}

impl Scrape {
    pub(super) fn conversations(&self, page: &mut Page<'_>) -> fmt::Result {
        let adopted = KeyKind::ALL.into_iter().zip(self.scene.ledger.adopted);
        let label = |kind: KeyKind| [("kind", kind.as_str())];
        page.levels(
            "conversations_distinct",
            "Conversations in the window, estimated beyond 512, by where their key came from",
            adopted
                .clone()
                .map(|(kind, (distinct, _))| (label(kind), distinct)),
        )?;
        page.levels(
            "identity_decisions",
            "Decisions in the window, by where the key of their conversation came from",
            adopted.map(|(kind, (_, decisions))| (label(kind), decisions)),
        )?;
        page.gauges(
            "identity_client_share",
            "Share of the decisions in the window whose client named the conversation; absent if there were \
             none",
            self.client_share(),
        )?;
        let invalid = Named::ALL.map(|named| {
            let cell =
                |core: &CoreMetrics| core.invalid_identity.get(named as usize).map(Count::get);
            ([("header", named.as_str())], self.total(cell))
        });
        page.counts(
            "identity_header_invalid",
            "Fields of the conversation contract that counted as absent",
            invalid,
        )
    }

    pub(super) fn agent_costs(&self, page: &mut Page<'_>) -> fmt::Result {
        let agents = &self.scene.ledger.agents;
        let tokens = agents.iter().flat_map(|cost| {
            let kinds = Tokens::default().named().into_iter().zip(cost.tokens);
            kinds.map(|((kind, _), tokens)| {
                ([("agent", cost.agent.as_str()), ("kind", kind)], tokens)
            })
        });
        page.counts(
            "agent_tokens",
            "Tokens that answers to an agent cost, for the first 64 agents that named themselves; the kinds do not \
             overlap",
            tokens,
        )?;
        let shares = agents
            .iter()
            .filter_map(|cost| Some(([("agent", cost.agent.as_str())], cost.cache_share?)));
        page.shares(
            "agent_cache_share",
            "Share of an agent's input that was read from a provider's cache",
            shares,
        )
    }

    fn client_share(&self) -> Option<f64> {
        let exact = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        let all: u64 = self.scene.ledger.adopted.iter().map(|(_, it)| it).sum();
        let (_, client) = self.scene.ledger.adopted.get(KeyKind::Client as usize)?;
        (all > 0).then(|| exact(*client) / exact(all))
    }

    pub(super) fn ledger(&self, page: &mut Page<'_>) -> fmt::Result {
        let ledger = &self.scene.ledger;
        page.level(
            "ledger_available",
            "1 while rows are stored",
            ledger.is_available.into(),
        )?;
        page.count("ledger_rows_written", "Rows stored", ledger.written)?;
        page.count(
            "ledger_rows_lost",
            "Rows lost because a queue was full",
            ledger.lost,
        )?;
        page.level(
            "ledger_rows_waiting",
            "Rows that wait for the store",
            ledger.waiting,
        )?;
        page.count(
            "ledger_failures",
            "Attempts at the store that failed",
            ledger.failures,
        )?;
        let told = Told::ALL.map(|told| {
            let cell = |core: &CoreMetrics| core.told.get(told as usize).map(Count::get);
            ([("result", told.as_str())], self.total(cell))
        });
        page.counts(
            "outcomes",
            "Outcomes reported, by what the client was told",
            told,
        )?;
        page.count(
            "outcome_id_conflicts",
            "Reports whose exchange belongs to another conversation than they say",
            self.sum(|core| &core.outcome_id_conflicts),
        )
    }
}
