//! The APIs that clients speak, and how each of them spells an error.

use std::fmt;

use serde_json::json;

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
