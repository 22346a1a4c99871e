//! Switches: what a person types to the gateway through an agent, and the gateway answers itself.
//!
//! Decides whether a request is one, from the facts of its body alone, and spells the answer. The
//! last user text is looked at here and nowhere else, and by comparison with the literals of
//! [`Switch::ALL`] only: no expression, no argument, no history, no letter case. What is no switch goes
//! its way untouched; a request for a stream never is one, because an answer in pieces would have to
//! be made up (decision S3).
//!
//! It has no way to a credential: it is given the word for what is sent, not the provider. It reads no
//! clock and opens nothing. Costs one comparison of a few bytes per request.

mod dictionary;
mod reply;

use crate::dialect::Dialect;
use crate::peek::{Demand, Fact, Peek, StreamFlag, TextReader};

pub use dictionary::{Added, Dictionary, SyntheticId};
pub use reply::{Reply, Shown};

/// What a body is read for where switches are watched for.
pub const DEMAND: Demand = Demand::USER_TEXT.with(Demand::STREAM).with(Demand::MODEL);

/// A literal that the gateway answers itself. This list is the only one: a new switch is a variant, its
/// row in the two matches below, its text in `reply`, and its tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Where would this request go?
    Who,
    /// Give this session an id of its own at the provider.
    NewSession,
}

impl Switch {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Who, Self::NewSession];

    /// What a person types.
    #[must_use]
    pub const fn literal(self) -> &'static str {
        match self {
            Self::Who => "--who?",
            Self::NewSession => "--newsession",
        }
    }

    /// The word in logs, metrics and the ids of answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Who => "who",
            Self::NewSession => "newsession",
        }
    }

    /// The switch that a body asks for, once all of it was read for [`DEMAND`]. None of a body that
    /// has two readings.
    #[must_use]
    pub fn asked(body: &Peek) -> Option<Self> {
        const LITERALS: [&str; Switch::ALL.len()] =
            [Switch::ALL[0].literal(), Switch::ALL[1].literal()];
        let streams = body.stream() == Fact::Found(StreamFlag::True);
        if streams || body.closed_at().is_none() || !body.ambiguous().is_empty() {
            return None;
        }
        let text = body.last_user().found()?;
        let position = text.position_in(&LITERALS, &TextReader::for_switch())?;
        Self::ALL.get(position).copied()
    }
}

/// Whether switches are answered, in one generation of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// `switches.enabled`: everything about switches, translation of sessions included.
    pub enabled: bool,
    /// `switches.responses`: also in the dialect that has no `messages`.
    pub responses: bool,
}

impl Gate {
    /// Whether bodies of this dialect are read for switches.
    #[must_use]
    pub const fn watches(self, dialect: Option<Dialect>) -> bool {
        match dialect {
            Some(Dialect::Chat | Dialect::Messages) => self.enabled,
            Some(Dialect::Responses) => self.enabled && self.responses,
            None => false,
        }
    }
}

#[cfg(test)]
mod tests;
