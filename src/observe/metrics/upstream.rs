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
        let mut responses = Vec::new();
        let mut connections = Vec::new();
        let mut waiting = Vec::new();
        for provider in &self.scene.providers {
            for (class, word) in CLASSES.into_iter().enumerate() {
                let labels = [("provider", provider.name()), ("status_class", word)];
                let total = provider.total(|it| it.responses.get(class).map_or(0, Count::get));
                responses.push((labels, total));
            }
            let state = |state| [("provider", provider.name()), ("state", state)];
            connections.push((state("active"), provider.total(|it| it.active.get())));
            connections.push((state("idle"), provider.total(|it| it.idle.get())));
            let label = [("provider", provider.name())];
            waiting.push((label, provider.total(|it| it.waiting.get())));
        }
        page.counts(
            "upstream_exchanges",
            "Exchanges that were sent to a provider, by the status that the client got",
            responses,
        )?;
        self.refusals(page)?;
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

    fn refusals(&self, page: &mut Page<'_>) -> fmt::Result {
        let mut refusals = Vec::new();
        for provider in &self.scene.providers {
            for refusal in Refusal::ALL {
                let labels = [("provider", provider.name()), ("reason", refusal.as_str())];
                let cell = refusal as usize;
                let total = provider.total(|it| it.refusals.get(cell).map_or(0, Count::get));
                refusals.push((labels, total));
            }
        }
        page.counts(
            "upstream_refusals",
            "Answers of a provider that say it does not serve the request, by why",
            refusals,
        )
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
