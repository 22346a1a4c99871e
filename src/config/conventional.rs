//! Environment variables that a provider's name suggests: `OPENAI_API_KEY` for one called `openai`.
//!
//! For a credential they count where the file asks for one (`auth: managed`) and does not say where it
//! is; a variable that happens to be set never changes whose credential a provider gets. The flags of a
//! provider beat the file. What an SDK reads too, such as `OPENAI_BASE_URL`, is left alone: it often points
//! at the gateway itself.

use crate::auth::Scheme;
use crate::config::read::Reader;
use crate::config::resolve::Sources;
use crate::config::switches::{BOOLEANS, boolean};

/// Endings of the names of variables with a credential, first to last.
const fn secret_suffixes(scheme: Scheme) -> [&'static str; 3] {
    match scheme {
        Scheme::Bearer => ["_AUTH_TOKEN", "_AUTHORIZATION_BEARER", "_API_KEY"],
        Scheme::ApiKey => ["_API_KEY", "_AUTH_TOKEN", "_AUTHORIZATION_BEARER"],
    }
}

/// What a provider's name is to names of variables: capitals and digits, everything between them one
/// `_`. Empty if there are none.
fn prefix(name: &str) -> String {
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    words.join("_").to_ascii_uppercase()
}

/// The name that several providers of one account share: all before `-openai` or `-anthropic`.
fn base(name: &str) -> Option<&str> {
    let lower = name.to_ascii_lowercase();
    let found = ["-anthropic", "-openai"].map(|dialect| lower.find(dialect));
    let at = found.into_iter().flatten().filter(|at| *at > 0).min()?;
    name.get(..at)
}

/// The names of variables in which the credential of a provider may be, first to last.
pub(super) fn secret_variables(name: &str, scheme: Scheme) -> impl Iterator<Item = String> {
    let prefixes: Vec<_> = [Some(name), base(name)]
        .into_iter()
        .flatten()
        .map(prefix)
        .filter(|prefix| !prefix.is_empty())
        .collect();
    secret_suffixes(scheme).into_iter().flat_map(move |suffix| {
        let named = |prefix: &String| format!("{prefix}{suffix}");
        prefixes.iter().map(named).collect::<Vec<_>>()
    })
}

/// The variable with the credential of a provider, and what it holds.
pub(super) fn secret(
    name: &str,
    scheme: Scheme,
    sources: &Sources<'_>,
) -> Option<(String, String)> {
    secret_variables(name, scheme).find_map(|variable| {
        let text = sources.variable(&variable)?;
        Some((variable, text))
    })
}

/// A variable of one provider, if it is set: its name and what it holds.
pub(super) fn variable(
    provider: &str,
    suffix: &str,
    sources: &Sources<'_>,
) -> Option<(String, String)> {
    let prefix = prefix(provider);
    let name = format!("{prefix}{suffix}");
    let text = sources.variable(&name).filter(|_| !prefix.is_empty())?;
    Some((name, text))
}

/// The flag that a variable of one provider sets in the place of `written`.
pub(super) fn flag(
    reader: &mut Reader,
    sources: &Sources<'_>,
    (provider, suffix, key): (&str, &str, String),
    written: Option<bool>,
) -> Option<bool> {
    let Some((name, text)) = variable(provider, suffix, sources) else {
        return written;
    };
    boolean(&text).or_else(|| {
        reader.warn(&name, BOOLEANS, &key);
        written
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_providers_as_beginnings_of_variables() {
        for (name, expected) in [
            ("openai", "OPENAI"),
            ("opencode.anthropic", "OPENCODE_ANTHROPIC"),
            ("-x-", "X"),
            ("a  b/c", "A_B_C"),
            ("Azure (EU) 2", "AZURE_EU_2"),
            ("é", ""),
            ("--", ""),
        ] {
            assert_eq!(prefix(name), expected, "{name}");
        }
    }

    #[test]
    fn a_base_is_what_is_before_the_dialect() {
        for (name, expected) in [
            ("opencode-go-anthropic", Some("opencode-go")),
            ("opencode-go-openai-chat", Some("opencode-go")),
            ("OpenCode-Go-OpenAI", Some("OpenCode-Go")),
            ("a-openai-anthropic", Some("a")),
            ("-openai", None),
            ("openai", None),
            ("opencode-go-chat", None),
            ("xopenai", None),
        ] {
            assert_eq!(base(name), expected, "{name}");
        }
    }

    #[test]
    fn the_scheme_chooses_which_variable_comes_first() {
        let all = |name, scheme| secret_variables(name, scheme).collect::<Vec<_>>();
        assert_eq!(
            all("opencode-go-openai", Scheme::Bearer),
            [
                "OPENCODE_GO_OPENAI_AUTH_TOKEN",
                "OPENCODE_GO_AUTH_TOKEN",
                "OPENCODE_GO_OPENAI_AUTHORIZATION_BEARER",
                "OPENCODE_GO_AUTHORIZATION_BEARER",
                "OPENCODE_GO_OPENAI_API_KEY",
                "OPENCODE_GO_API_KEY",
            ]
        );
        assert_eq!(
            all("openai", Scheme::ApiKey),
            [
                "OPENAI_API_KEY",
                "OPENAI_AUTH_TOKEN",
                "OPENAI_AUTHORIZATION_BEARER"
            ]
        );
        assert!(all("--", Scheme::ApiKey).is_empty());
    }
}
