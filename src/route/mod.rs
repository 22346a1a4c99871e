//! Where a request may go: path → API family and the path the provider sees; model → provider.
//!
//! Providers are tried in configuration order, their models in theirs; the first hit wins, and what
//! hits nothing goes to the default of the family. Identity and classification are no input.

mod model;
mod path;

pub use model::{Mapping, Pattern};
pub use path::{Matched, guess_family, match_path};

use crate::auth::{Outgoing, ProviderAuth};
use crate::dialect::Family;

/// Position of a provider in the table, in configuration order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProviderId(usize);

impl ProviderId {
    /// The position as an index into lists that were built from the same configuration.
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }
}

/// What the table knows of a provider. Holds no address.
#[derive(Debug)]
pub struct Provider {
    /// Name for `owned_by` in model lists.
    pub name: String,
    /// Which clients' paths it serves.
    pub family: Family,
    /// Whether it is the default of its family.
    pub default: bool,
    /// Which credential it gets.
    pub auth: ProviderAuth,
    /// Whether it is told the session of a request whose model hit a mapping.
    pub takes_sessions: bool,
    /// Whether it is asked for usage where a client does not.
    pub injects_usage: bool,
    /// Value for requests of the Anthropic family that name no version themselves.
    pub anthropic_version: Option<String>,
    /// Models in match order.
    pub models: Vec<Mapping>,
    /// Names that model lists show beside the literal ones.
    pub list: Vec<String>,
}

/// All enabled providers, immutable.
#[derive(Debug)]
pub struct Table {
    providers: Vec<Provider>,
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routed {
    /// The provider.
    pub provider: ProviderId,
    /// Whether a mapping hit, as opposed to the family's default.
    pub imposter: bool,
    /// The model that the provider is asked for, where it is another than the client's.
    pub model: Option<String>,
}

impl Routed {
    /// The model that the provider is asked for in the place of `model`, where a mapping hit.
    #[must_use]
    pub fn target<'a>(&'a self, model: &'a str) -> Option<&'a str> {
        self.imposter
            .then(|| self.model.as_deref().unwrap_or(model))
    }
}

impl Table {
    /// A table of `providers` in configuration order.
    #[must_use]
    pub fn new(providers: Vec<Provider>) -> Self {
        Self { providers }
    }

    /// A provider of this table.
    #[must_use]
    pub fn provider(&self, id: ProviderId) -> Option<&Provider> {
        self.providers.get(id.0)
    }

    /// All of them, in configuration order.
    pub fn providers(&self) -> impl Iterator<Item = &Provider> {
        self.providers.iter()
    }

    /// The default provider of a family, for what names no model.
    #[must_use]
    pub fn default_of(&self, family: Family) -> Option<Routed> {
        let (provider, _) = self.of(family).find(|(_, provider)| provider.default)?;
        Some(Routed {
            provider,
            imposter: false,
            model: None,
        })
    }

    /// The provider for a model: the first mapping that hits, else the family's default.
    #[must_use]
    pub fn route(&self, family: Family, model: &str) -> Option<Routed> {
        for (provider, settings) in self.of(family) {
            if let Some(mapping) = settings.models.iter().find(|m| m.from.matches(model)) {
                let target = mapping.target(model);
                return Some(Routed {
                    provider,
                    imposter: true,
                    model: (target != model).then(|| target.into_owned()),
                });
            }
        }
        self.default_of(family)
    }

    /// The route of a family whose every model leads to the same provider, unchanged and with the
    /// same credential: it is known at the head, and no body is read for it.
    #[must_use]
    pub fn only(&self, family: Family) -> Option<Routed> {
        let default = self.default_of(family)?;
        let same = self.of(family).all(|(id, provider)| {
            provider.models.is_empty()
                || id == default.provider
                    && provider.models.iter().all(Mapping::keeps_model)
                    && same_credential(&provider.auth)
                    && !provider.takes_sessions
        });
        same.then_some(default)
    }

    /// Whether the provider is told the session of a request that takes this route.
    #[must_use]
    pub fn tells_session(&self, routed: &Routed) -> bool {
        let provider = self.provider(routed.provider);
        routed.imposter && provider.is_some_and(|it| it.takes_sessions)
    }

    /// Whether the provider is asked for usage where a client does not.
    #[must_use]
    pub fn injects_usage(&self, routed: &Routed) -> bool {
        let provider = self.provider(routed.provider);
        provider.is_some_and(|it| it.injects_usage)
    }

    /// Whether a request of the family may go to a provider that is told its session.
    #[must_use]
    pub fn takes_sessions(&self, family: Family) -> bool {
        self.of(family)
            .any(|(_, provider)| provider.takes_sessions && !provider.models.is_empty())
    }

    /// Whether any provider of the family names models.
    #[must_use]
    pub fn has_models(&self, family: Family) -> bool {
        self.of(family)
            .any(|(_, provider)| !provider.models.is_empty())
    }

    /// The names that clients of a family can ask for, each with its provider: literal `from`s and
    /// `list` entries, in configuration order, each name once.
    #[must_use]
    pub fn names(&self, family: Family) -> Vec<(&str, &str)> {
        let mut names: Vec<(&str, &str)> = Vec::new();
        for (_, provider) in self.of(family) {
            let literal = provider.models.iter().filter_map(|m| m.from.literal());
            for name in literal.chain(provider.list.iter().map(String::as_str)) {
                if !names.iter().any(|(known, _)| *known == name) {
                    names.push((name, &provider.name));
                }
            }
        }
        names
    }

    fn of(&self, family: Family) -> impl Iterator<Item = (ProviderId, &Provider)> {
        let all = self.providers.iter().enumerate();
        all.filter(move |(_, provider)| provider.family == family)
            .map(|(index, provider)| (ProviderId(index), provider))
    }
}

/// Whether a provider gets the same credential for a model that hit a mapping and for one that did not.
fn same_credential(auth: &ProviderAuth) -> bool {
    match (auth.outgoing(false), auth.outgoing(true)) {
        (Outgoing::Write { value: a, .. }, Outgoing::Write { value: b, .. }) => a == b,
        (Outgoing::RelayCaller, Outgoing::RelayCaller)
        | (Outgoing::Nothing { .. }, Outgoing::Nothing { .. }) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
