//! Member names and other short words, escaped or not, and which of them matter at the root.

use crate::json::WORD_BYTES_MAX;

/// A member of the root object that the gateway knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopKey {
    /// `model`
    Model,
    /// `stream`
    Stream,
    /// `messages`
    Messages,
    /// `input`
    Input,
    /// `tools`
    Tools,
    /// `prompt_cache_key`
    PromptCacheKey,
    /// `metadata`
    Metadata,
    /// `user`
    User,
    /// `session_id`
    SessionId,
    /// `previous_response_id`
    PreviousResponseId,
    /// `conversation`
    Conversation,
    /// `system`
    System,
    /// `instructions`
    Instructions,
    /// `stream_options`
    StreamOptions,
    /// `usage`
    Usage,
}

impl TopKey {
    /// All keys, in the order of their discriminants.
    pub const ALL: [Self; 15] = [
        Self::Model,
        Self::Stream,
        Self::Messages,
        Self::Input,
        Self::Tools,
        Self::PromptCacheKey,
        Self::Metadata,
        Self::User,
        Self::SessionId,
        Self::PreviousResponseId,
        Self::Conversation,
        Self::System,
        Self::Instructions,
        Self::StreamOptions,
        Self::Usage,
    ];

    /// The key as providers spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Stream => "stream",
            Self::Messages => "messages",
            Self::Input => "input",
            Self::Tools => "tools",
            Self::PromptCacheKey => "prompt_cache_key",
            Self::Metadata => "metadata",
            Self::User => "user",
            Self::SessionId => "session_id",
            Self::PreviousResponseId => "previous_response_id",
            Self::Conversation => "conversation",
            Self::System => "system",
            Self::Instructions => "instructions",
            Self::StreamOptions => "stream_options",
            Self::Usage => "usage",
        }
    }

    fn spelled(name: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|key| key.as_str().as_bytes() == name)
    }
}

/// Bytes of the longest known key.
const KEY_BYTES_MAX: usize = 20;

/// A spelling that some parser could take for a known key fits a word: a folded letter has at most three
/// bytes.
const _: () = assert!(WORD_BYTES_MAX >= 3 * KEY_BYTES_MAX);

/// Some of the known keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeySet(u16);

impl KeySet {
    /// No key.
    pub const NONE: Self = Self(0);
    /// The keys that decide what a request is; a body that repeats one is refused.
    pub const ROUTED: Self = Self(0)
        .with(TopKey::Model)
        .with(TopKey::Stream)
        .with(TopKey::Messages)
        .with(TopKey::Input);

    /// This set and `key`.
    #[must_use]
    pub const fn with(self, key: TopKey) -> Self {
        Self(self.0 | 1 << key as u16)
    }

    /// This set without `key`.
    #[must_use]
    pub const fn without(self, key: TopKey) -> Self {
        Self(self.0 & !(1 << key as u16))
    }

    /// Keys in both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether `key` is in the set.
    #[must_use]
    pub const fn contains(self, key: TopKey) -> bool {
        self.0 >> key as u16 & 1 == 1
    }

    /// Whether the set has no key.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The keys of the set, in order.
    pub fn iter(self) -> impl Iterator<Item = TopKey> {
        TopKey::ALL
            .into_iter()
            .filter(move |key| self.contains(*key))
    }
}

/// What a member name at the root is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// The key itself, escaped or not.
    Exact(TopKey),
    /// Another key, that a case-blind parser takes for this one.
    Folded(TopKey),
    Unknown,
}

impl Spelling {
    pub(super) fn of(name: &[u8]) -> Self {
        if let Some(key) = TopKey::spelled(name) {
            return Self::Exact(key);
        }
        let mut folded = [0; KEY_BYTES_MAX];
        fold(name, &mut folded)
            .and_then(|len| TopKey::spelled(&folded[..len]))
            .map_or(Self::Unknown, Self::Folded)
    }
}

/// Whether some parser takes `name`, decoded, for `key`, which is in lower case and no longer than the
/// longest known key.
#[must_use]
pub fn is_read_as(name: &[u8], key: &str) -> bool {
    let mut folded = [0; KEY_BYTES_MAX];
    let len = fold(name, &mut folded);
    len.and_then(|len| folded.get(..len)) == Some(key.as_bytes())
}

/// Writes `name` in lower case as the most permissive known parsers do, and gives its length; `None`
/// if it is no ASCII then, or longer than `into`.
///
/// Beyond ASCII: U+017F and U+212A fold to `s` and `k` (Unicode simple folding, as in Go's
/// encoding/json), U+0130 and U+0131 to `i` (Java's `equalsIgnoreCase`).
fn fold(name: &[u8], into: &mut [u8; KEY_BYTES_MAX]) -> Option<usize> {
    let (mut rest, mut len) = (name, 0);
    while !rest.is_empty() {
        let (letter, tail) = match rest {
            [0xC5, 0xBF, tail @ ..] => (b's', tail),
            [0xE2, 0x84, 0xAA, tail @ ..] => (b'k', tail),
            [0xC4, 0xB0 | 0xB1, tail @ ..] => (b'i', tail),
            [ascii @ 0..0x80, tail @ ..] => (ascii.to_ascii_lowercase(), tail),
            _ => return None,
        };
        *into.get_mut(len)? = letter;
        len += 1;
        rest = tail;
    }
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_that_some_parser_takes_for_a_key() {
        for (name, spelling) in [
            ("model", Spelling::Exact(TopKey::Model)),
            ("Model", Spelling::Folded(TopKey::Model)),
            ("\u{17f}tream", Spelling::Folded(TopKey::Stream)),
            ("me\u{17f}\u{17f}ageS", Spelling::Folded(TopKey::Messages)),
            ("\u{131}nput", Spelling::Folded(TopKey::Input)),
            ("\u{130}NPUT", Spelling::Folded(TopKey::Input)),
            ("too\u{17f}s", Spelling::Unknown),
            ("\u{ff53}tream", Spelling::Unknown),
            ("stream ", Spelling::Unknown),
            ("stream\0", Spelling::Unknown),
            ("", Spelling::Unknown),
        ] {
            assert_eq!(Spelling::of(name.as_bytes()), spelling, "{name:?}");
        }
    }
}
