//! The numbers of providers and of the connections to them.

use std::fmt;
use std::sync::Arc;

use crate::meter::Count;
use crate::observe::metrics::exposition::{Merged, Page, Scrape};
use crate::observe::metrics::{CLASSES, ProviderCells, ProviderMetrics};

/// Why a provider does not serve a request, as the status of its answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The credential is missing, wrong, or not good for what was asked.
    Credential,
    /// Its owner has asked for too much, or has not paid.
    Quota,
    /// The provider has too much to do.
    Overload,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Credential, Self::Quota, Self::Overload];

    /// What a provider says with this status, if it is a refusal. 529 is what Anthropic has for 503.
    #[must_use]
    pub const fn of(status: u16) -> Option<Self> {
        match status {
            401 | 403 => Some(Self::Credential),
            402 | 429 => Some(Self::Quota),
            503 | 529 => Some(Self::Overload),
            _ => None,
        }
    }

    /// The word in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Credential => "credential",
            Self::Quota => "quota",
            Self::Overload => "overload",
        }
    }
}

impl Scrape {
    pub(super) fn upstream(&self, page: &mut Page<'_>) -> fmt::Result {
        let mut connections = Vec::new();
        let mut waiting = Vec::new();
        for provider in &self.scene.providers {
            let state = |state| [("provider", provider.name()), ("state", state)];
            connections.push((state("active"), provider.total(|it| it.active.get())));
            connections.push((state("idle"), provider.total(|it| it.idle.get())));
            let label = [("provider", provider.name())];
            waiting.push((label, provider.total(|it| it.waiting.get())));
        }
        page.counts(
            "upstream_exchanges",
            "Exchanges that were sent to a provider, by the status that the client got",
            self.by_word("status_class", CLASSES, |it| &it.responses),
        )?;
        page.counts(
            "upstream_refusals",
            "Answers of a provider that say it does not serve the request, by why",
            self.by_word("reason", Refusal::ALL.map(Refusal::as_str), |it| {
                &it.refusals
            }),
        )?;
        page.levels(
            "upstream_connections",
            "Connections to a provider, in use and idle",
            connections,
        )?;
        page.levels(
            "upstream_waiting",
            "Exchanges that wait for a connection to a provider that has as many as it may",
            waiting,
        )?;
        page.counts(
            "upstream_connections_died",
            "Connections that were dead when they were to be used again, or spoke while idle",
            self.by_provider(|it| &it.deaths),
        )?;
        page.counts(
            "upstream_connections_opened",
            "Connections opened",
            self.by_provider(|it| &it.opened),
        )?;
        page.counts(
            "upstream_connections_reused",
            "Idle connections taken again",
            self.by_provider(|it| &it.reused),
        )?;
        page.counts(
            "upstream_connect_failures",
            "Connections that did not come about",
            self.by_provider(|it| &it.failed),
        )?;
        page.counts(
            "upstream_retries",
            "Reused connections that were dead, so that their request was sent again",
            self.by_provider(|it| &it.stale),
        )
    }

    pub(super) fn first_bytes(&self) -> Vec<([(&'static str, &str); 1], Merged)> {
        let providers = self.scene.providers.iter();
        let merged = |provider: &Arc<ProviderMetrics>| {
            let mut merged = Merged::default();
            for core in &provider.cores {
                merged.add(&core.first_byte);
            }
            merged
        };
        providers
            .map(|it| ([("provider", it.name())], merged(it)))
            .collect()
    }

    /// The counts of each provider by the words of a closed set, in whose order its cells are.
    pub(super) fn by_word<'a, const N: usize>(
        &'a self,
        label: &'static str,
        words: [&'static str; N],
        cells: impl Fn(&ProviderCells) -> &[Count; N],
    ) -> Vec<([(&'static str, &'a str); 2], u64)> {
        let mut counts = Vec::new();
        for provider in &self.scene.providers {
            for (at, word) in words.into_iter().enumerate() {
                let total = provider.total(|it| cells(it).get(at).map_or(0, Count::get));
                counts.push(([("provider", provider.name()), (label, word)], total));
            }
        }
        counts
    }

    fn by_provider<'a>(
        &'a self,
        cell: impl Fn(&ProviderCells) -> &Count,
    ) -> Vec<([(&'static str, &'a str); 1], u64)> {
        let providers = self.scene.providers.iter();
        let total = |provider: &'a Arc<ProviderMetrics>| {
            let total = provider.total(|it| cell(it).get());
            ([("provider", provider.name())], total)
        };
        providers.map(total).collect()
    }
}

impl ProviderMetrics {
    pub(super) fn total(&self, cell: impl Fn(&ProviderCells) -> u64) -> u64 {
        self.cores.iter().map(|core| cell(core)).sum()
    }
}
