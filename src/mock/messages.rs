//! Answers of the `messages` dialect (Anthropic Messages, reference of 2026-11).

use serde_json::{Value, json};

use crate::mock::answer::{INPUT_TOKENS, Reply, Turn, event, halves};

const ID: &str = "msg_mock1";
const CALL_ID: &str = "toolu_mock1";

pub(crate) fn reply(turn: &Turn<'_>) -> Reply {
    if turn.facts.stream {
        Reply::Events(events(turn))
    } else {
        Reply::Json(message(turn))
    }
}

/// Answer of `count_tokens`, which never streams.
pub(crate) fn token_count() -> Value {
    json!({"input_tokens": INPUT_TOKENS})
}

fn message(turn: &Turn<'_>) -> Value {
    let block = match &turn.call {
        Some(call) => {
            json!({"type": "tool_use", "id": CALL_ID, "name": call.name, "input": call.arguments})
        }
        None => json!({"type": "text", "text": turn.text.concat()}),
    };
    let mut message = opened(turn);
    message["content"] = json!([block]);
    message["stop_reason"] = json!(stop_reason(turn));
    message["usage"] = usage(turn.output_tokens());
    message
}

fn events(turn: &Turn<'_>) -> Vec<String> {
    let send = |value: Value| event(value["type"].as_str(), &value);
    let delta =
        |delta: Value| send(json!({"type": "content_block_delta", "index": 0, "delta": delta}));
    let block = match &turn.call {
        Some(call) => json!({"type": "tool_use", "id": CALL_ID, "name": call.name, "input": {}}),
        None => json!({"type": "text", "text": ""}),
    };
    let mut events = vec![
        send(json!({"type": "message_start", "message": opened(turn)})),
        send(json!({"type": "content_block_start", "index": 0, "content_block": block})),
        send(json!({"type": "ping"})),
    ];
    match &turn.call {
        Some(call) => {
            let arguments = call.arguments.to_string();
            let parts = halves(&arguments);
            events.extend(
                parts.map(|part| delta(json!({"type": "input_json_delta", "partial_json": part}))),
            );
        }
        None => events.extend(
            turn.text
                .iter()
                .map(|part| delta(json!({"type": "text_delta", "text": part}))),
        ),
    }
    events.push(send(json!({"type": "content_block_stop", "index": 0})));
    events.push(send(json!({
        "type": "message_delta",
        "delta": {"stop_reason": stop_reason(turn), "stop_sequence": null},
        "usage": {"output_tokens": turn.output_tokens()},
    })));
    events.push(send(json!({"type": "message_stop"})));
    events
}

/// The message as it stands before its first block.
fn opened(turn: &Turn<'_>) -> Value {
    json!({
        "id": ID,
        "type": "message",
        "role": "assistant",
        "model": turn.facts.model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": usage(1),
    })
}

fn stop_reason(turn: &Turn<'_>) -> &'static str {
    if turn.call.is_some() {
        "tool_use"
    } else {
        "end_turn"
    }
}

fn usage(output_tokens: u64) -> Value {
    json!({
        "input_tokens": INPUT_TOKENS,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": output_tokens,
        "service_tier": "standard",
    })
}
