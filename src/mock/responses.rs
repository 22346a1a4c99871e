//! Answers of the `responses` dialect (OpenAI Responses, reference of 2026-11).

use serde_json::{Value, json};

use crate::mock::answer::{CREATED, INPUT_TOKENS, Reply, Turn, event, halves};
use crate::mock::tool::Call;

const ID: &str = "resp_mock1";
const MESSAGE_ID: &str = "msg_mock1";
const CALL_ITEM_ID: &str = "fc_mock1";
const CALL_ID: &str = "call_mock1";

pub(crate) fn reply(turn: &Turn<'_>) -> Reply {
    if turn.facts.stream {
        Reply::Events(events(turn))
    } else {
        Reply::Json(completed(turn))
    }
}

fn events(turn: &Turn<'_>) -> Vec<String> {
    let mut stream = Numbered::default();
    let begun = in_progress(turn);
    stream.push("response.created", json!({"response": begun}));
    stream.push("response.in_progress", json!({"response": begun}));
    match &turn.call {
        Some(call) => call_events(&mut stream, call),
        None => message_events(&mut stream, &turn.text),
    }
    stream.push(
        "response.output_item.done",
        json!({"output_index": 0, "item": item(turn)}),
    );
    stream.push("response.completed", json!({"response": completed(turn)}));
    stream.events
}

fn call_events(stream: &mut Numbered, call: &Call<'_>) {
    let arguments = call.arguments.to_string();
    let place = json!({"item_id": CALL_ITEM_ID, "output_index": 0});
    let opened = call_item(call, "in_progress", "");
    stream.push(
        "response.output_item.added",
        json!({"output_index": 0, "item": opened}),
    );
    for part in halves(&arguments) {
        let name = "response.function_call_arguments.delta";
        stream.push(name, with(&place, "delta", json!(part)));
    }
    let mut done = with(&place, "arguments", json!(arguments));
    done["name"] = json!(call.name);
    stream.push("response.function_call_arguments.done", done);
}

fn message_events(stream: &mut Numbered, text: &[String]) {
    let place = json!({"item_id": MESSAGE_ID, "output_index": 0, "content_index": 0});
    let opened = message_item("in_progress", &json!([]));
    stream.push(
        "response.output_item.added",
        json!({"output_index": 0, "item": opened}),
    );
    stream.push(
        "response.content_part.added",
        with(&place, "part", text_part("")),
    );
    for part in text {
        let mut delta = with(&place, "delta", json!(part));
        delta["logprobs"] = json!([]);
        stream.push("response.output_text.delta", delta);
    }
    let text = text.concat();
    let mut done = with(&place, "text", json!(text));
    done["logprobs"] = json!([]);
    stream.push("response.output_text.done", done);
    stream.push(
        "response.content_part.done",
        with(&place, "part", text_part(&text)),
    );
}

/// Events of one stream; each carries its place in it.
#[derive(Default)]
struct Numbered {
    events: Vec<String>,
}

impl Numbered {
    fn push(&mut self, name: &str, mut data: Value) {
        data["type"] = json!(name);
        data["sequence_number"] = json!(self.events.len());
        self.events.push(event(Some(name), &data));
    }
}

fn with(base: &Value, key: &str, value: Value) -> Value {
    let mut grown = base.clone();
    grown[key] = value;
    grown
}

fn item(turn: &Turn<'_>) -> Value {
    match &turn.call {
        Some(call) => call_item(call, "completed", &call.arguments.to_string()),
        None => message_item("completed", &json!([text_part(&turn.text.concat())])),
    }
}

fn call_item(call: &Call<'_>, status: &str, arguments: &str) -> Value {
    let mut item = json!({
        "id": CALL_ITEM_ID,
        "type": "function_call",
        "status": status,
        "call_id": CALL_ID,
        "name": call.name,
        "arguments": arguments,
    });
    if let Some(namespace) = call.namespace {
        item["namespace"] = json!(namespace);
    }
    item
}

fn message_item(status: &str, content: &Value) -> Value {
    json!({
        "id": MESSAGE_ID,
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": content,
    })
}

fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

fn in_progress(turn: &Turn<'_>) -> Value {
    let mut response = completed(turn);
    response["status"] = json!("in_progress");
    response["output"] = json!([]);
    response["usage"] = Value::Null;
    response
}

fn completed(turn: &Turn<'_>) -> Value {
    let output = turn.output_tokens();
    json!({
        "id": ID,
        "object": "response",
        "created_at": CREATED,
        "status": "completed",
        "background": false,
        "error": null,
        "incomplete_details": null,
        "instructions": null,
        "max_output_tokens": null,
        "metadata": {},
        "model": turn.facts.model,
        "output": [item(turn)],
        "parallel_tool_calls": true,
        "previous_response_id": null,
        "reasoning": {"effort": null, "summary": null},
        "store": false,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": {
            "input_tokens": INPUT_TOKENS,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": INPUT_TOKENS + output,
        },
        "user": null,
    })
}
