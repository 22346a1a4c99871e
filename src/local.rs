//! Answers that need no provider.

use serde_json::{Value, json};

use crate::dialect::Family;
use crate::http1::emit;

/// A complete response of the gateway's own, ready to be written.
#[derive(Debug)]
pub struct Answer {
    /// Head and body.
    pub bytes: Vec<u8>,
    /// Whether the connection closes after it.
    pub close: bool,
}

impl Answer {
    /// The answer to `HEAD /`, with which an agent asks whether anybody is there (Claude Code does
    /// before its first request).
    #[must_use]
    pub fn alive(request_id: &str, close: bool) -> Self {
        let mut bytes = Vec::with_capacity(128);
        emit::status_line(&mut bytes, 200, b"OK");
        emit::field(&mut bytes, b"content-length", b"0");
        emit::field(&mut bytes, b"x-lanegate-request-id", request_id.as_bytes());
        if close {
            emit::field(&mut bytes, b"connection", b"close");
        }
        emit::end(&mut bytes);
        Self { bytes, close }
    }

    /// The list of models that clients of a family can ask for, each with who serves it, in the
    /// shape of the family's API (OpenAI and Anthropic API references, 2026-11). The same bytes
    /// each time.
    #[must_use]
    pub fn models(family: Family, names: &[(&str, &str)], request_id: &str, close: bool) -> Self {
        let list = match family {
            Family::OpenAi => openai_models(names),
            Family::Anthropic => anthropic_models(names),
        };
        Self::json(&list.to_string(), request_id, close)
    }

    /// A JSON text.
    #[must_use]
    pub fn json(body: &str, request_id: &str, close: bool) -> Self {
        let mut bytes = Vec::with_capacity(body.len() + 256);
        emit::status_line(&mut bytes, 200, b"OK");
        emit::field(&mut bytes, b"content-type", b"application/json");
        emit::field(
            &mut bytes,
            b"content-length",
            body.len().to_string().as_bytes(),
        );
        emit::field(&mut bytes, b"x-lanegate-request-id", request_id.as_bytes());
        if close {
            emit::field(&mut bytes, b"connection", b"close");
        }
        emit::end(&mut bytes);
        bytes.extend_from_slice(body.as_bytes());
        Self { bytes, close }
    }
}

fn openai_models(names: &[(&str, &str)]) -> Value {
    let model = |(name, owner): &(&str, &str)| json!({"id": name, "object": "model", "created": 0, "owned_by": owner});
    json!({"object": "list", "data": names.iter().map(model).collect::<Vec<_>>()})
}

fn anthropic_models(names: &[(&str, &str)]) -> Value {
    let model = |(name, _): &(&str, &str)| {
        json!({
            "type": "model",
            "id": name,
            "display_name": name,
            "created_at": "1970-01-01T00:00:00Z",
        })
    };
    let id = |named: Option<&(&str, &str)>| named.map_or(Value::Null, |(name, _)| json!(name));
    json!({
        "data": names.iter().map(model).collect::<Vec<_>>(),
        "has_more": false,
        "first_id": id(names.first()),
        "last_id": id(names.last()),
    })
}
