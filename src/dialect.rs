//! The APIs that clients speak, and how each of them spells an error.

use std::fmt;

use serde_json::json;

/// The API that a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI Chat Completions.
    Chat,
    /// Anthropic Messages.
    Messages,
    /// OpenAI Responses.
    Responses,
}

impl Dialect {
    /// All dialects.
    pub const ALL: [Self; 3] = [Self::Chat, Self::Messages, Self::Responses];

    /// The name used in configuration, logs and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Messages => "messages",
            Self::Responses => "responses",
        }
    }

    /// The dialect with that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|d| d.as_str() == name)
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The API family that a path belongs to; it decides which providers may serve it and the shape of
/// errors (OpenAI and Anthropic API references, 2026-11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Chat Completions, Responses and everything else under `/v1`.
    OpenAi,
    /// Messages.
    Anthropic,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
        })
    }
}

/// The body of an error that this gateway makes, as JSON.
#[must_use]
pub fn error_body(family: Family, error: &ErrorText<'_>) -> String {
    let body = match family {
        Family::OpenAi => json!({
            "error": {
                "message": error.message,
                "type": error.kind,
                "param": null,
                "code": error.code,
            }
        }),
        Family::Anthropic => json!({
            "type": "error",
            "error": { "type": error.kind, "message": error.message },
            "request_id": error.request_id,
        }),
    };
    body.to_string()
}

/// What an error body says.
#[derive(Clone, Copy, Debug)]
pub struct ErrorText<'a> {
    /// The provider's word for this class of error, such as `invalid_request_error`.
    pub kind: &'a str,
    /// The gateway's own code, such as `body_too_large`.
    pub code: &'a str,
    /// One sentence for a person.
    pub message: &'a str,
    /// The id that is also in the response head.
    pub request_id: &'a str,
}
