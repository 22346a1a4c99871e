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
        let kinds = Tokens::default().named().map(|(word, _)| word);
        let states = State::ALL.map(State::as_str);
        let outcomes = Injection::ALL.map(Injection::as_str);
        page.counts(
            "tokens",
            "Tokens that a provider gave for its answers; the kinds do not overlap",
            self.by_word("kind", kinds, |it| &it.tokens),
        )?;
        page.counts(
            "answers",
            "Successful answers of a provider in one of the dialects, by what they said of their cost",
            self.by_word("usage", states, |it| &it.usage),
        )?;
        page.counts(
            "usage_injections",
            "Streamed chat requests to a provider with usage: inject, by what became of asking for usage",
            self.by_word("outcome", outcomes, |it| &it.injections),
        )
    }
}
