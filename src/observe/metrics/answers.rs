//! The numbers of answers: those of switches, and what those of providers cost.

use std::fmt;

use crate::meter::Count;
use crate::observe::metrics::exposition::{Page, Scrape};
use crate::observe::metrics::wide;
use crate::switch::Switch;
use crate::usage::{Injection, State, Tokens};

impl Scrape {
    pub(super) fn switches(&self, page: &mut Page<'_>) -> fmt::Result {
        let answers = Switch::ALL.map(|switch| {
            let total = self.total(|core| core.switches.get(switch as usize).map(Count::get));
            ([("switch", switch.as_str())], total)
        });
        page.counts(
            "switch_answers",
            "Switches that were answered here",
            answers,
        )?;
        page.level(
            "switch_entries",
            "Sessions with an id of their own at the providers",
            wide(self.scene.dictionary.len()),
        )?;
        page.count(
            "switch_refused",
            "Requests for such an id that were forwarded because switches.max_entries is reached",
            self.sum(|core| &core.switches_refused),
        )?;
        page.count(
            "switch_aborted_upstream",
            "Switches behind a body of more than a window, whose request a provider had in part",
            self.sum(|core| &core.switches_aborted),
        )
    }

    pub(super) fn usage(&self, page: &mut Page<'_>) -> fmt::Result {
        let mut tokens = Vec::new();
        let mut states = Vec::new();
        let mut injections = Vec::new();
        for provider in &self.scene.providers {
            for (kind, (word, _)) in Tokens::default().named().into_iter().enumerate() {
                let labels = [("provider", provider.name()), ("kind", word)];
                let total = provider.total(|it| it.tokens.get(kind).map_or(0, Count::get));
                tokens.push((labels, total));
            }
            for state in State::ALL {
                let labels = [("provider", provider.name()), ("usage", state.as_str())];
                let total = provider.total(|it| it.usage.get(state as usize).map_or(0, Count::get));
                states.push((labels, total));
            }
            for outcome in Injection::ALL {
                let labels = [("provider", provider.name()), ("outcome", outcome.as_str())];
                let cell = outcome as usize;
                let total = provider.total(|it| it.injections.get(cell).map_or(0, Count::get));
                injections.push((labels, total));
            }
        }
        page.counts(
            "tokens",
            "Tokens that a provider gave for its answers; the kinds do not overlap",
            tokens,
        )?;
        page.counts(
            "answers",
            "Successful answers of a provider in one of the dialects, by what they said of their cost",
            states,
        )?;
        page.counts(
            "usage_injections",
            "Streamed chat requests to a provider with usage: inject, by what became of asking for usage",
            injections,
        )
    }
}
