//! Which lane a request takes: a pure function, and a closed set of reasons for leaving the wire.

use crate::coding::Codings;

/// How a body travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// As it came, save spans that are replaced.
    Wire,
    /// Parsed as a whole, because of this.
    Canonical(Decline),
}

/// Why a body cannot travel as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decline {
    /// The provider speaks another dialect than the client.
    OtherDialect,
    /// A span of a compressed body would have to be replaced.
    PatchOnCoded,
    /// A fact is required of a body whose content coding cannot be read.
    FactOnUnreadable,
}

impl Decline {
    /// All reasons.
    pub const ALL: [Self; 3] = [
        Self::OtherDialect,
        Self::PatchOnCoded,
        Self::FactOnUnreadable,
    ];

    /// The word in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OtherDialect => "other_dialect",
            Self::PatchOnCoded => "patch_on_coded",
            Self::FactOnUnreadable => "fact_on_unreadable",
        }
    }
}

/// What decides about the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asks {
    /// Whether client and provider speak the same dialect.
    pub same_dialect: bool,
    /// The content coding of the body, with which its bytes are not JSON.
    pub codings: Codings,
    /// Whether a fact of the body is required.
    pub fact: bool,
    /// Whether a span of the body is replaced.
    pub patch: bool,
}

/// The lane of a request.
#[must_use]
pub fn choose(asks: Asks) -> Lane {
    match asks {
        Asks {
            same_dialect: false,
            ..
        } => Lane::Canonical(Decline::OtherDialect),
        Asks {
            codings: Codings::Unreadable,
            fact: true,
            ..
        } => Lane::Canonical(Decline::FactOnUnreadable),
        Asks {
            codings: Codings::One(_) | Codings::Unreadable,
            patch: true,
            ..
        } => Lane::Canonical(Decline::PatchOnCoded),
        Asks { .. } => Lane::Wire,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coding::Coding;

    #[test]
    fn every_combination_has_the_lane_that_its_hardest_wish_needs() {
        let codings = [
            Codings::Plain,
            Codings::One(Coding::Zstd),
            Codings::Unreadable,
        ];
        for (bits, codings) in (0..8_u8).flat_map(|bits| codings.map(|codings| (bits, codings))) {
            let asks = Asks {
                same_dialect: bits & 1 != 0,
                codings,
                fact: bits & 2 != 0,
                patch: bits & 4 != 0,
            };
            let expected = if !asks.same_dialect {
                Lane::Canonical(Decline::OtherDialect)
            } else if codings == Codings::Unreadable && asks.fact {
                Lane::Canonical(Decline::FactOnUnreadable)
            } else if codings.is_coded() && asks.patch {
                Lane::Canonical(Decline::PatchOnCoded)
            } else {
                Lane::Wire
            };
            assert_eq!(choose(asks), expected, "{asks:?}");
        }
    }

    #[test]
    fn reasons_have_words_of_their_own() {
        let words: Vec<_> = Decline::ALL.iter().map(|reason| reason.as_str()).collect();
        let mut distinct = words.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(words.len(), distinct.len());
    }
}
