//! Answers of the `chat` dialect (OpenAI Chat Completions, reference of 2026-11).

use serde_json::{Value, json};

use crate::mock::answer::{CREATED, INPUT_TOKENS, Reply, Turn, event, halves};

const ID: &str = "chatcmpl-mock1";
const CALL_ID: &str = "call_mock1";

pub(crate) fn reply(turn: &Turn<'_>) -> Reply {
    if turn.facts.stream {
        Reply::Events(events(turn))
    } else {
        Reply::Json(completion(turn))
    }
}

fn completion(turn: &Turn<'_>) -> Value {
    let message = match &turn.call {
        Some(call) => json!({
            "role": "assistant",
            "content": null,
            "refusal": null,
            "tool_calls": [{
                "id": CALL_ID,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments.to_string()},
            }],
        }),
        None => json!({"role": "assistant", "content": turn.text.concat(), "refusal": null}),
    };
    json!({
        "id": ID,
        "object": "chat.completion",
        "created": CREATED,
        "model": turn.facts.model,
        "choices": [{
            "index": 0,
            "message": message,
            "logprobs": null,
            "finish_reason": finish_reason(turn),
        }],
        "usage": usage(turn),
    })
}

fn events(turn: &Turn<'_>) -> Vec<String> {
    let chunk = |delta: Value, finish_reason: Option<&str>| {
        let choice = json!({
            "index": 0,
            "delta": delta,
            "logprobs": null,
            "finish_reason": finish_reason,
        });
        event(None, &frame(turn, &json!([choice]), &Value::Null))
    };
    let mut events = vec![chunk(json!({"role": "assistant", "content": ""}), None)];
    match &turn.call {
        Some(call) => {
            let opened = json!({
                "index": 0,
                "id": CALL_ID,
                "type": "function",
                "function": {"name": call.name, "arguments": ""},
            });
            events.push(chunk(json!({"tool_calls": [opened]}), None));
            for part in halves(&call.arguments.to_string()) {
                let grown = json!({"index": 0, "function": {"arguments": part}});
                events.push(chunk(json!({"tool_calls": [grown]}), None));
            }
        }
        None => events.extend(
            turn.text
                .iter()
                .map(|part| chunk(json!({"content": part}), None)),
        ),
    }
    events.push(chunk(json!({}), Some(finish_reason(turn))));
    if turn.facts.include_usage {
        events.push(event(None, &frame(turn, &json!([]), &usage(turn))));
    }
    events.push("data: [DONE]\n\n".to_owned());
    events
}

fn frame(turn: &Turn<'_>, choices: &Value, usage: &Value) -> Value {
    let mut frame = json!({
        "id": ID,
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": turn.facts.model,
        "choices": choices,
    });
    // The field is there, and null until the last chunk, only if usage was asked for.
    if turn.facts.include_usage {
        frame["usage"] = usage.clone();
    }
    frame
}

fn finish_reason(turn: &Turn<'_>) -> &'static str {
    if turn.call.is_some() {
        "tool_calls"
    } else {
        "stop"
    }
}

fn usage(turn: &Turn<'_>) -> Value {
    let output = turn.output_tokens();
    json!({
        "prompt_tokens": INPUT_TOKENS,
        "completion_tokens": output,
        "total_tokens": INPUT_TOKENS + output,
        "prompt_tokens_details": {"cached_tokens": 0},
    })
}
