//! The answers to switches: what they say, and the shape that the client's dialect gives them.
//!
//! An answer holds four things and has no way to a fifth: the model that was asked for, the model that
//! the provider is asked for, the word for the credential, and ids of sessions. It is never logged.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::dialect::Dialect;
use crate::switch::{Switch, SyntheticId};

/// What `--who?` shows of a request.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// The model that the client asks for, as it spells it.
    pub model: &'a str,
    /// The model that the provider is asked for, where a mapping hit; none where the request would go
    /// to the default provider.
    pub target: Option<&'a str>,
    /// What the provider gets for a credential, as [`crate::observe::Destination`] spells it.
    pub auth: &'a str,
    /// The id of its session at the provider.
    pub session: Option<&'a str>,
}

/// An answer in the place of a model's.
#[derive(Clone, PartialEq, Eq)]
pub struct Reply {
    switch: Switch,
    text: String,
}

// It names sessions and models of the client.
impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reply({})", self.switch.as_str())
    }
}

impl Reply {
    /// The answer to [`Switch::Who`].
    #[must_use]
    pub fn who(seen: &Shown<'_>) -> Self {
        let Shown {
            model,
            target,
            auth,
            session,
        } = *seen;
        let session = session.unwrap_or("null");
        let text = match target {
            Some(target) => {
                format!("Imposter: {model} \u{2192} {target} (auth: {auth}, session: {session})")
            }
            None => format!("Passthrough: {model} (auth: {auth}, session: {session})"),
        };
        Self {
            switch: Switch::Who,
            text,
        }
    }

    /// The answer to [`Switch::NewSession`].
    #[must_use]
    pub fn new_session(caller: &str, synthetic: SyntheticId) -> Self {
        Self {
            switch: Switch::NewSession,
            text: format!("Session: {caller} \u{2192} {synthetic}"),
        }
    }

    /// The switch that it answers.
    #[must_use]
    pub const fn switch(&self) -> Switch {
        self.switch
    }

    /// The body of the answer, whose `model` is the one that was asked for; `created` is in seconds since
    /// the Unix epoch.
    #[must_use]
    pub fn body(&self, dialect: Dialect, model: &str, created: u64) -> String {
        let (word, id) = (self.switch.as_str(), Uuid::new_v4().simple());
        let body = match dialect {
            Dialect::Chat => chat(&format!("chatcmpl-{word}-{id}"), model, &self.text, created),
            Dialect::Messages => message(&format!("msg_{word}_{id}"), model, &self.text),
            Dialect::Responses => response(&format!("{word}_{id}"), model, &self.text, created),
        };
        body.to_string()
    }
}

/// OpenAI API reference, 2026-11: the chat completion object.
fn chat(id: &str, model: &str, text: &str, created: u64) -> Value {
    json!({
        "id": id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [{
            "index": 0,
            "message": { "role": "assistant", "content": text },
            "finish_reason": "stop",
        }],
        "usage": { "prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0 },
    })
}

/// Anthropic API reference, 2026-11: the message object.
fn message(id: &str, model: &str, text: &str) -> Value {
    json!({
        "id": id,
        "type": "message",
        "role": "assistant",
        "content": [{ "type": "text", "text": text }],
        "model": model,
        "stop_reason": "end_turn",
        "usage": { "input_tokens": 0, "output_tokens": 0 },
    })
}

/// OpenAI API reference, 2026-11: the response object.
fn response(id: &str, model: &str, text: &str, created: u64) -> Value {
    json!({
        "id": format!("resp_{id}"),
        "object": "response",
        "created_at": created,
        "status": "completed",
        "model": model,
        "output": [{
            "id": format!("msg_{id}"),
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{ "type": "output_text", "text": text, "annotations": [] }],
        }],
        "usage": { "input_tokens": 0, "output_tokens": 0, "total_tokens": 0 },
    })
}
