//! The clients whose name alone identifies a session.
//!
//! The list is code and has no key in the configuration: who is on it is a decision with a review. The names
//! of libraries (`OpenAI/JS`, `python-requests`) are not on it, because anything may be built with them.

use crate::classify::catalogue::{Name, find, versioned, word};
use crate::classify::{Evidence, UserAgent};

/// A family of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// OpenAI's Codex.
    Codex,
    /// Roo Code.
    Roo,
    /// opencode.
    OpenCode,
    /// Pi.
    Pi,
    /// Factory's Droid.
    Droid,
    /// Nous Research's Hermes.
    Hermes,
}

const NAMES: [Name<Family>; 11] = [
    word("codex_cli_rs", Family::Codex),
    word("roo-code", Family::Roo),
    word("opencode", Family::OpenCode),
    word("pi-coding-agent", Family::Pi),
    versioned("pi", Family::Pi),
    word("factory-cli", Family::Droid),
    word("factory_cli", Family::Droid),
    word("factorydroid", Family::Droid),
    word("droid", Family::Droid),
    word("hermes-agent", Family::Hermes),
    versioned("hermes", Family::Hermes),
];

impl Family {
    /// The family that a User-Agent names, if it is exactly one.
    #[must_use]
    pub fn of(agent: UserAgent<'_>) -> Option<Self> {
        find(agent, &NAMES)
    }

    /// Its word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Codex => "codex",
            Self::Roo => "roo",
            Self::OpenCode => "opencode",
            Self::Pi => "pi",
            Self::Droid => "droid",
            Self::Hermes => "hermes",
        }
    }

    /// What its name is evidence of.
    #[must_use]
    pub const fn evidence(self) -> Evidence {
        match self {
            Self::Codex => Evidence::Codex,
            Self::Roo => Evidence::Roo,
            Self::OpenCode => Evidence::OpenCode,
            Self::Pi => Evidence::Pi,
            Self::Droid => Evidence::Droid,
            Self::Hermes => Evidence::Hermes,
        }
    }
}
