//! Whether a provider is asked for usage: `providers[].usage`.

use crate::config::ProviderDialect;
use crate::config::read::{self, Reader, Section};

/// Whether a provider is asked for usage where a client does not ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UsageMode {
    /// No: what it sends of its own accord is read.
    #[default]
    Relay,
    /// Yes, in streamed requests of the chat dialect; what it sends more for that is taken out of the answer.
    Inject,
}

impl UsageMode {
    /// The word in the file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Relay => "relay",
            Self::Inject => "inject",
        }
    }
}

/// Only chat streams have usage that has to be asked for.
pub(super) fn mode(
    reader: &mut Reader,
    section: &Section<'_>,
    dialect: Option<ProviderDialect>,
) -> UsageMode {
    let words = [UsageMode::Relay, UsageMode::Inject].map(|mode| (mode.as_str(), mode));
    let mode = reader.take(section, "usage", read::word(&words));
    if mode == Some(UsageMode::Inject) && dialect == Some(ProviderDialect::Anthropic) {
        let line = section.line_of(&["usage"]);
        let what = "`inject` is only for `dialect: openai`: others send their usage unasked";
        reader.fail(line, section.path_of("usage"), what);
    }
    mode.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigError, parse};

    fn read(dialect: &str, usage: &str) -> Result<UsageMode, ConfigError> {
        let text = format!(
            "providers: [{{ name: a, dialect: {dialect}, base_url: \"http://127.0.0.1:1\", auth: none{usage} }}]"
        );
        parse(&text, &|_| None).map(|config| config.providers[0].usage)
    }

    #[test]
    fn nobody_is_asked_unless_it_is_written_and_only_who_has_to_be() {
        for (dialect, usage, mode) in [
            ("openai", "", UsageMode::Relay),
            ("openai", ", usage: relay", UsageMode::Relay),
            ("openai", ", usage: inject", UsageMode::Inject),
            ("anthropic", ", usage: relay", UsageMode::Relay),
        ] {
            assert_eq!(read(dialect, usage).unwrap(), mode, "{dialect} {usage}");
        }
        for (dialect, usage, what) in [
            ("anthropic", ", usage: inject", "only for `dialect: openai`"),
            ("openai", ", usage: true", "expected relay or inject"),
        ] {
            let error = read(dialect, usage).unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("usage"), "{error}");
        }
    }
}
