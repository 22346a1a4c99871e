//! Counts of tokens: as providers give them, and as they can be added up.

use crate::dialect::Dialect;

/// The counts of one answer as its provider gave them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// `prompt_tokens` or `input_tokens`.
    pub input: Option<u64>,
    /// `completion_tokens` or `output_tokens`, reasoning included.
    pub output: Option<u64>,
    /// `cached_tokens` of the details, or `cache_read_input_tokens`.
    pub cached: Option<u64>,
    /// `cache_write_tokens` of the details, or `cache_creation_input_tokens`.
    pub cache_write: Option<u64>,
}

impl Given {
    /// Whether nothing was given.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Takes what was given later: a total, which a zero does not undo.
    pub(super) fn overwrite(&mut self, later: &Self) {
        let pairs = [
            (&mut self.input, later.input),
            (&mut self.output, later.output),
            (&mut self.cached, later.cached),
            (&mut self.cache_write, later.cache_write),
        ];
        for (count, later) in pairs {
            if later.is_some_and(|later| later > 0 || count.is_none()) {
                *count = later;
            }
        }
    }

    /// The counts without what they have in common. OpenAI counts the cached input into the input,
    /// Anthropic does not; where the parts are more than the whole, the provider followed Anthropic.
    #[must_use]
    pub fn tokens(&self, dialect: Dialect) -> Tokens {
        let parts = self
            .cached
            .unwrap_or(0)
            .checked_add(self.cache_write.unwrap_or(0));
        let fresh = match dialect {
            Dialect::Messages => self.input,
            Dialect::Chat | Dialect::Responses => self.input.map(|all| {
                let fresh = parts.and_then(|parts| all.checked_sub(parts));
                fresh.unwrap_or(all)
            }),
        };
        Tokens {
            input: fresh,
            output: self.output,
            cached: self.cached,
            cache_write: self.cache_write,
        }
    }
}

/// Tokens of one answer; the counts do not overlap, whatever the dialect. None is not zero: the provider
/// did not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Input that came neither from a cache nor was written to one.
    pub input: Option<u64>,
    /// Output, reasoning included.
    pub output: Option<u64>,
    /// Input that was read from the provider's cache.
    pub cached: Option<u64>,
    /// Input that was written to the provider's cache.
    pub cache_write: Option<u64>,
}

impl Tokens {
    /// How many counts there are.
    pub const KINDS: usize = 4;

    /// The counts with their words in logs and metrics, in one order.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, Option<u64>); Self::KINDS] {
        [
            ("input", self.input),
            ("output", self.output),
            ("cached", self.cached),
            ("cache_write", self.cache_write),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(counts: [Option<u64>; 4]) -> Given {
        let [input, output, cached, cache_write] = counts;
        Given {
            input,
            output,
            cached,
            cache_write,
        }
    }

    #[test]
    fn a_later_total_counts_and_a_zero_undoes_nothing() {
        let mut counts = given([Some(12), Some(1), None, None]);
        counts.overwrite(&given([None, Some(9), Some(0), None]));
        assert_eq!(counts, given([Some(12), Some(9), Some(0), None]));
        counts.overwrite(&given([Some(0), Some(7), Some(3), None]));
        assert_eq!(counts, given([Some(12), Some(7), Some(3), None]));
    }

    #[test]
    fn cached_input_is_taken_out_where_the_dialect_counts_it_in() {
        let counts = given([Some(100), Some(7), Some(60), Some(10)]);
        assert_eq!(counts.tokens(Dialect::Chat).input, Some(30));
        assert_eq!(counts.tokens(Dialect::Responses).input, Some(30));
        assert_eq!(counts.tokens(Dialect::Messages).input, Some(100));
        let anthropic = given([Some(12), None, Some(100), None]);
        assert_eq!(anthropic.tokens(Dialect::Chat).input, Some(12));
        let absurd = given([Some(12), None, Some(u64::MAX), Some(1)]);
        assert_eq!(absurd.tokens(Dialect::Chat).input, Some(12));
        let silent = given([None, None, Some(4), None]);
        assert_eq!(silent.tokens(Dialect::Chat).input, None);
    }
}
