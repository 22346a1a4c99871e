//! Model names: which pattern they match, and what they become.

use std::borrow::Cow;

/// Stands for the client's model in a mapping's target.
const MODEL: &str = "{model}";

/// One line of a provider's `models`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Which models it takes.
    pub from: Pattern,
    /// What they are called at the provider; `{model}` stands for the name as the client sent it.
    pub to: String,
}

impl Mapping {
    /// The provider's name for `model`.
    #[must_use]
    pub fn target<'a>(&'a self, model: &'a str) -> Cow<'a, str> {
        if self.to == MODEL {
            Cow::Borrowed(model)
        } else if self.to.contains(MODEL) {
            Cow::Owned(self.to.replace(MODEL, model))
        } else {
            Cow::Borrowed(&self.to)
        }
    }

    /// Whether each model that it takes keeps its name, letter by letter.
    pub(super) fn keeps_model(&self) -> bool {
        self.to == MODEL
    }
}

/// A literal model name, or its beginning. ASCII case is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Exactly this name.
    Literal(String),
    /// Any name that begins like this; written with a trailing `*`.
    Prefix(String),
}

impl Pattern {
    /// Reads `name` or `beginning*`.
    #[must_use]
    pub fn new(text: &str) -> Self {
        match text.strip_suffix('*') {
            Some(prefix) => Self::Prefix(prefix.to_owned()),
            None => Self::Literal(text.to_owned()),
        }
    }

    /// Whether a model matches. An empty literal matches nothing.
    #[must_use]
    pub fn matches(&self, model: &str) -> bool {
        match self {
            Self::Literal(name) => !name.is_empty() && name.eq_ignore_ascii_case(model),
            Self::Prefix(prefix) => model
                .as_bytes()
                .get(..prefix.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes())),
        }
    }

    /// The name, if it is one.
    #[must_use]
    pub fn literal(&self) -> Option<&str> {
        match self {
            Self::Literal(name) => Some(name),
            Self::Prefix(_) => None,
        }
    }
}
