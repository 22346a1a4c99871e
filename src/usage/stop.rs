//! Why a model stopped, in one set of words for three dialects.

use crate::dialect::Dialect;

/// Why the model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// It had said everything.
    Stop,
    /// It came upon a stop sequence of the request.
    StopSequence,
    /// It calls tools of the client.
    ToolCalls,
    /// The output reached the limit of the request or the model.
    MaxTokens,
    /// The context window was full.
    ContextFull,
    /// It refused, or a filter did.
    Refusal,
    /// It goes on when it is asked again.
    Pause,
    /// The provider failed.
    Error,
    /// A word that is not known.
    Other,
}

impl StopReason {
    /// The reason's word in logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::StopSequence => "stop_sequence",
            Self::ToolCalls => "tool_calls",
            Self::MaxTokens => "max_tokens",
            Self::ContextFull => "context_full",
            Self::Refusal => "refusal",
            Self::Pause => "pause",
            Self::Error => "error",
            Self::Other => "other",
        }
    }

    /// From `finish_reason` (chat), `stop_reason` (messages) or the reason in `incomplete_details`
    /// (responses).
    #[must_use]
    pub fn of(dialect: Dialect, word: &[u8]) -> Self {
        match (dialect, word) {
            (Dialect::Chat, b"stop" | b"end") | (Dialect::Messages, b"end_turn") => Self::Stop,
            (Dialect::Messages, b"stop_sequence") => Self::StopSequence,
            (Dialect::Chat, b"tool_calls" | b"function_call")
            | (Dialect::Messages, b"tool_use") => Self::ToolCalls,
            (Dialect::Chat, b"length")
            | (Dialect::Messages, b"max_tokens")
            | (Dialect::Responses, b"max_output_tokens") => Self::MaxTokens,
            (Dialect::Messages, b"model_context_window_exceeded") => Self::ContextFull,
            (Dialect::Chat | Dialect::Responses, b"content_filter")
            | (Dialect::Messages, b"refusal") => Self::Refusal,
            (Dialect::Messages, b"pause_turn") => Self::Pause,
            (Dialect::Chat, b"error") => Self::Error,
            _ => Self::Other,
        }
    }
}
