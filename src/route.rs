//! Where a request may go: path → API family and the path the provider sees → provider.

use crate::auth::ProviderAuth;
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
    /// Which clients' paths it serves.
    pub family: Family,
    /// Whether it is the default of its family.
    pub default: bool,
    /// Which credential it gets.
    pub auth: ProviderAuth,
    /// Value for requests of the Anthropic family that name no version themselves.
    pub anthropic_version: Option<String>,
}

/// All enabled providers, immutable.
#[derive(Debug)]
pub struct Table {
    providers: Vec<Provider>,
}

impl Table {
    /// A table of `providers` in configuration order.
    #[must_use]
    pub fn new(providers: Vec<Provider>) -> Self {
        Self { providers }
    }

    /// The default provider of a family.
    #[must_use]
    pub fn default_of(&self, family: Family) -> Option<(ProviderId, &Provider)> {
        let mut all = self.providers.iter().enumerate();
        all.find(|(_, p)| p.family == family && p.default)
            .map(|(i, p)| (ProviderId(i), p))
    }
}

/// A path that some API answers on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matched<'a> {
    /// The API family.
    pub family: Family,
    /// The path for the provider, as raw bytes that begin with `/`.
    pub path: &'a [u8],
}

/// Finds the family that answers on a path (raw bytes, without query). `anthropic_client` is
/// whether the request carries `anthropic-version`, which decides for `/v1/models` alone.
#[must_use]
pub fn match_path(path: &[u8], anthropic_client: bool) -> Option<Matched<'_>> {
    for (prefix, family) in [
        (&b"/openai"[..], Family::OpenAi),
        (&b"/anthropic"[..], Family::Anthropic),
    ] {
        match path.strip_prefix(prefix) {
            Some([]) => return Some(Matched { family, path: b"/" }),
            Some(tail @ [b'/', ..]) => return Some(Matched { family, path: tail }),
            Some(_) | None => {}
        }
    }
    let tail = path.strip_prefix(b"/v1/")?;
    let first = tail.split(|byte| *byte == b'/').next().unwrap_or_default();
    let family = match first {
        b"messages" => Family::Anthropic,
        b"models" if anthropic_client => Family::Anthropic,
        _ => Family::OpenAi,
    };
    Some(Matched { family, path })
}

/// The family whose error shape suits bytes that did not become a request.
#[must_use]
pub fn guess_family(bytes: &[u8]) -> Family {
    let line = bytes
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let target = line.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    let path = target
        .split(|byte| *byte == b'?')
        .next()
        .unwrap_or_default();
    match_path(path, false).map_or(Family::OpenAi, |matched| matched.family)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Case = (&'static str, bool, Option<(Family, &'static str)>);

    #[test]
    fn paths_and_their_families() {
        let cases: [Case; 14] = [
            (
                "/v1/chat/completions",
                false,
                Some((Family::OpenAi, "/v1/chat/completions")),
            ),
            (
                "/v1/responses",
                false,
                Some((Family::OpenAi, "/v1/responses")),
            ),
            (
                "/v1/messages",
                false,
                Some((Family::Anthropic, "/v1/messages")),
            ),
            (
                "/v1/messages/count_tokens",
                false,
                Some((Family::Anthropic, "/v1/messages/count_tokens")),
            ),
            (
                "/v1/messagesx",
                false,
                Some((Family::OpenAi, "/v1/messagesx")),
            ),
            ("/v1/models", false, Some((Family::OpenAi, "/v1/models"))),
            ("/v1/models", true, Some((Family::Anthropic, "/v1/models"))),
            (
                "/openai/v1/messages",
                false,
                Some((Family::OpenAi, "/v1/messages")),
            ),
            ("/openai", false, Some((Family::OpenAi, "/"))),
            ("/anthropic/", false, Some((Family::Anthropic, "/"))),
            ("/anthropicx/v1", false, None),
            ("/", false, None),
            ("//evil.test/v1/chat/completions", false, None),
            ("/v2/chat", false, None),
        ];
        for (path, anthropic, expected) in cases {
            let found = match_path(path.as_bytes(), anthropic);
            let expected = expected.map(|(family, path)| Matched {
                family,
                path: path.as_bytes(),
            });
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn the_error_shape_follows_the_path_of_a_broken_request() {
        assert_eq!(
            guess_family(b"POST /v1/messages HTTP/9.9\r\n"),
            Family::Anthropic
        );
        assert_eq!(
            guess_family(b"POST /v1/responses?x HTTP/9.9\r\n"),
            Family::OpenAi
        );
        assert_eq!(guess_family(b"\x16\x03\x01"), Family::OpenAi);
    }
}
