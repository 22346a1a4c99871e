//! The places of an answer that are looked into, and the names that matter there.

use crate::dialect::Dialect;
use crate::json::Container;

/// The innermost container that is looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Before the root, or behind it.
    Outside,
    /// An event, or an answer that is no stream.
    Root,
    /// The message or response that an event carries.
    Answer,
    /// Messages: what changed of the message.
    Delta,
    Usage,
    /// `prompt_tokens_details` or `input_tokens_details`.
    Details,
    Choices,
    Choice,
    /// Responses: `incomplete_details`.
    Incomplete,
    /// Responses: the list of items.
    Output,
    Item,
}

/// The most places that are inside each other: root, choices, choice, usage, details.
pub(super) const PLACES_MAX: usize = 5;

/// Member names that matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Type,
    Error,
    Answer,
    Delta,
    Usage,
    Details,
    Choices,
    Index,
    /// `finish_reason`, `stop_reason`, or the reason in `incomplete_details`.
    Reason,
    Status,
    Incomplete,
    Output,
    Item,
    InputTokens,
    OutputTokens,
    Cached,
    CacheWrite,
    Other,
}

impl Key {
    /// What `name` means at `place`.
    pub(super) fn of(dialect: Dialect, place: Place, name: &[u8]) -> Self {
        use Dialect::{Chat, Messages, Responses};
        match (dialect, place, name) {
            (_, Place::Root | Place::Answer | Place::Choice, b"usage") => Self::Usage,
            (_, Place::Root, b"error") => Self::Error,
            (Messages | Responses, Place::Root, b"type") | (Responses, Place::Item, b"type") => {
                Self::Type
            }

            (Chat, Place::Root, b"choices") => Self::Choices,
            (Chat, Place::Choice, b"index") => Self::Index,
            (Chat, Place::Choice, b"finish_reason")
            | (Messages, Place::Root | Place::Answer | Place::Delta, b"stop_reason")
            | (Responses, Place::Incomplete, b"reason") => Self::Reason,

            (Messages, Place::Root, b"message") | (Responses, Place::Root, b"response") => {
                Self::Answer
            }
            (Messages, Place::Root, b"delta") => Self::Delta,
            (Responses, Place::Root | Place::Answer, b"status") => Self::Status,
            (Responses, Place::Root | Place::Answer, b"incomplete_details") => Self::Incomplete,
            (Responses, Place::Root | Place::Answer, b"output") => Self::Output,
            (Responses, Place::Root, b"item") => Self::Item,

            (Chat, Place::Usage, b"prompt_tokens")
            | (Messages | Responses, Place::Usage, b"input_tokens") => Self::InputTokens,
            (Chat, Place::Usage, b"completion_tokens")
            | (Messages | Responses, Place::Usage, b"output_tokens") => Self::OutputTokens,
            (Chat, Place::Usage, b"prompt_tokens_details")
            | (Responses, Place::Usage, b"input_tokens_details") => Self::Details,
            (Messages, Place::Usage, b"cache_read_input_tokens")
            | (Chat | Responses, Place::Details, b"cached_tokens") => Self::Cached,
            (Messages, Place::Usage, b"cache_creation_input_tokens")
            | (Chat | Responses, Place::Details, b"cache_write_tokens") => Self::CacheWrite,
            _ => Self::Other,
        }
    }
}

impl Place {
    /// The place inside a container that stands under `key`, if it is looked into.
    pub(super) const fn inside(self, key: Key, container: Container) -> Option<Self> {
        match (self, key, container) {
            (Self::Outside, _, Container::Object) => Some(Self::Root),
            (Self::Choices, _, Container::Object) => Some(Self::Choice),
            (Self::Output, _, Container::Object) => Some(Self::Item),
            (Self::Choices | Self::Output, ..) => None,
            (_, Key::Answer, Container::Object) => Some(Self::Answer),
            (_, Key::Delta, Container::Object) => Some(Self::Delta),
            (_, Key::Usage, Container::Object) => Some(Self::Usage),
            (_, Key::Details, Container::Object) => Some(Self::Details),
            (_, Key::Incomplete, Container::Object) => Some(Self::Incomplete),
            (_, Key::Item, Container::Object) => Some(Self::Item),
            (_, Key::Choices, Container::Array) => Some(Self::Choices),
            (_, Key::Output, Container::Array) => Some(Self::Output),
            _ => None,
        }
    }
}
