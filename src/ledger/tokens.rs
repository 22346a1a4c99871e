//! Sums of tokens: of conversations, and of the agents whose series are shown.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::ledger::row::Decision;
use crate::limits::AGENT_SERIES_MAX;

/// Tokens of some decisions. What nobody said adds nothing; how many said something is `metered`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TokenSums {
    /// Decisions whose answer gave a count.
    pub metered: i64,
    /// Input that came from no cache and was written to none.
    pub input_tokens: i64,
    /// Output, reasoning included.
    pub output_tokens: i64,
    /// Input that was read from the provider's cache.
    pub cached_tokens: i64,
    /// Input that was written to it.
    pub cache_write_tokens: i64,
}

impl TokenSums {
    /// The part of all input that was read from a cache; none without input.
    #[must_use]
    pub fn cache_share(&self) -> Option<f64> {
        let parts = [
            self.cached_tokens,
            self.input_tokens,
            self.cache_write_tokens,
        ];
        let all = parts.into_iter().fold(0, i64::saturating_add);
        (all > 0).then(|| thousandths(self.cached_tokens, all))
    }

    pub(super) const fn add(&mut self, more: &Self) {
        self.metered = self.metered.saturating_add(more.metered);
        self.input_tokens = self.input_tokens.saturating_add(more.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(more.output_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(more.cached_tokens);
        self.cache_write_tokens = self
            .cache_write_tokens
            .saturating_add(more.cache_write_tokens);
    }
}

/// A share, to three digits behind the point: sums beyond what a float counts exactly still divide.
fn thousandths(part: i64, all: i64) -> f64 {
    let share = i128::from(part) * 1000 / i128::from(all);
    f64::from(i32::try_from(share).unwrap_or(0)) / 1000.0
}

impl Decision {
    /// What its answer cost.
    pub(super) fn tokens(&self) -> TokenSums {
        let columns = self.token_columns();
        let [
            input_tokens,
            output_tokens,
            cached_tokens,
            cache_write_tokens,
        ] = columns.map(Option::unwrap_or_default);
        TokenSums {
            metered: self.known_usage().is_some().into(),
            input_tokens,
            output_tokens,
            cached_tokens,
            cache_write_tokens,
        }
    }
}

/// What the agents cost that named themselves, each under its own name as long as there are few.
#[derive(Debug, Default)]
pub(super) struct AgentTokens {
    named: BTreeMap<String, TokenSums>,
    /// Agents beyond [`AGENT_SERIES_MAX`].
    others: Option<TokenSums>,
}

/// Under which agents beyond the bound are added up.
const OTHERS: &str = "other";

impl AgentTokens {
    pub(super) fn count(&mut self, row: &Decision) {
        let Some(agent) = row.agent() else {
            return;
        };
        let tokens = row.tokens();
        if let Some(sums) = self.named.get_mut(agent) {
            sums.add(&tokens);
        } else if self.named.len() < AGENT_SERIES_MAX && agent != OTHERS {
            self.named.insert(agent.to_owned(), tokens);
        } else {
            self.others.get_or_insert_default().add(&tokens);
        }
    }

    pub(super) fn sums(&self) -> Vec<(String, TokenSums)> {
        let others = self.others.map(|sums| (OTHERS.to_owned(), sums));
        let named = self
            .named
            .iter()
            .map(|(agent, sums)| (agent.clone(), *sums));
        named.chain(others).collect()
    }
}
