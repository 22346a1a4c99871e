//! Paths: which API family answers on one, and what the provider sees of it.

use crate::dialect::{Dialect, Family};

/// A path that some API answers on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matched<'a> {
    /// The API family.
    pub family: Family,
    /// The path for the provider, as raw bytes that begin with `/`.
    pub path: &'a [u8],
}

impl Matched<'_> {
    /// The dialect of the bodies on this path, if it is one of the three that are read: the path ends in
    /// `/chat/completions`, `/messages` or `/responses` (decision S6; token counting is none).
    /// ASCII case is ignored, because some servers ignore it.
    #[must_use]
    pub fn dialect(&self) -> Option<Dialect> {
        const ENDINGS: [(&[u8], Dialect); 3] = [
            (b"/chat/completions", Dialect::Chat),
            (b"/messages", Dialect::Messages),
            (b"/responses", Dialect::Responses),
        ];
        let path = self.path;
        let ends = |ending: &[u8]| {
            let start = path.len().checked_sub(ending.len());
            let end = start.and_then(|start| path.get(start..));
            end.is_some_and(|end| end.eq_ignore_ascii_case(ending))
        };
        ENDINGS
            .into_iter()
            .find_map(|(ending, dialect)| ends(ending).then_some(dialect))
    }

    /// Whether this is the path of the model list.
    #[must_use]
    pub fn is_model_list(&self) -> bool {
        self.path == b"/v1/models"
    }
}

/// Finds the family that answers on a path (raw bytes, without query). `anthropic_client` is
/// whether the request carries `anthropic-version`, which decides for `/v1/models` alone.
///
/// None also where the version stands twice: no API has such a path, and a client whose base URL has one
/// `/v1` too many would be sent to whoever takes what is left over.
#[must_use]
pub fn match_path(path: &[u8], anthropic_client: bool) -> Option<Matched<'_>> {
    for (prefix, family) in [
        (&b"/openai"[..], Family::OpenAi),
        (&b"/anthropic"[..], Family::Anthropic),
    ] {
        match path.strip_prefix(prefix) {
            Some([]) => return Some(Matched { family, path: b"/" }),
            Some(tail) if tail.starts_with(b"/v1/v1/") => return None,
            Some(tail @ [b'/', ..]) => return Some(Matched { family, path: tail }),
            Some(_) | None => {}
        }
    }
    let tail = path.strip_prefix(b"/v1/")?;
    let first = tail.split(|byte| *byte == b'/').next().unwrap_or_default();
    let family = match first {
        b"v1" => return None,
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
        let cases: [Case; 17] = [
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
            ("/v1/v1/messages", false, None),
            ("/openai/v1/v1/responses", false, None),
            ("/anthropic/v1/v1/messages", false, None),
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
