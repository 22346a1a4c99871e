//! What the mock reads from a request body to answer as a provider would.
//!
//! A body that is no JSON object (compressed, broken) is answered all the same: the mock judges bytes
//! on the wire, not prompts. Such a request streams if its `Accept` asks for events.

use serde_json::Value;

/// Three dialects, named by the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Chat,
    Messages,
    Responses,
}

/// Facts of one request.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) model: String,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    /// Text of the tool result after which the conversation waits for the model.
    pub(crate) tool_result: Option<String>,
    /// Tools that may be called, in order; none if the request forbids calls.
    pub(crate) tools: Vec<Tool>,
}

/// One function tool.
#[derive(Debug, Default)]
pub(crate) struct Tool {
    pub(crate) name: String,
    /// Codex groups tools (Responses, tool type `namespace`).
    pub(crate) namespace: Option<String>,
    /// JSON schema of the arguments.
    pub(crate) schema: Value,
}

impl Facts {
    pub(crate) fn read(dialect: Dialect, body: &[u8], accepts_events: bool) -> Self {
        let Ok(Value::Object(body)) = serde_json::from_slice(body) else {
            return Self {
                model: "unread".to_owned(),
                stream: accepts_events,
                ..Self::default()
            };
        };
        let body = Value::Object(body);
        Self {
            model: body["model"].as_str().unwrap_or("unnamed").to_owned(),
            stream: body["stream"] == true,
            include_usage: body["stream_options"]["include_usage"] == true,
            tool_result: tool_result(dialect, &body),
            tools: tools(&body),
        }
    }
}

/// Looks at the last entry that is not an instruction: some clients put a system message last.
fn tool_result(dialect: Dialect, body: &Value) -> Option<String> {
    let list = match dialect {
        Dialect::Chat | Dialect::Messages => &body["messages"],
        Dialect::Responses => &body["input"],
    };
    let entries = list.as_array().map(Vec::as_slice).unwrap_or_default();
    let instruction = |entry: &&Value| entry["role"] == "system" || entry["role"] == "developer";
    let last = entries.iter().rev().find(|entry| !instruction(entry))?;
    let result = match dialect {
        Dialect::Chat => {
            let is_result = last["role"] == "tool" || last["role"] == "function";
            is_result.then_some(&last["content"])
        }
        Dialect::Messages => {
            let parts = last["content"]
                .as_array()
                .map(Vec::as_slice)
                .unwrap_or_default();
            let result = parts.iter().find(|part| part["type"] == "tool_result");
            result.map(|part| &part["content"])
        }
        Dialect::Responses => {
            let kind = last["type"].as_str().unwrap_or_default();
            kind.ends_with("_call_output").then_some(&last["output"])
        }
    };
    result.map(text)
}

/// A text, or the texts of a list of parts one after the other; images and the like say nothing.
fn text(content: &Value) -> String {
    let parts = content.as_array().map(Vec::as_slice).unwrap_or_default();
    let texts = parts.iter().filter_map(|part| part["text"].as_str());
    content
        .as_str()
        .map_or_else(|| texts.collect(), str::to_owned)
}

fn tools(body: &Value) -> Vec<Tool> {
    if body["tool_choice"] == "none" || body["tool_choice"]["type"] == "none" {
        return Vec::new();
    }
    let offered = body["tools"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    offered
        .iter()
        .flat_map(|entry| tools_of(entry, None))
        .collect()
}

/// The function tools of one entry. Hosted tools (web search and the like) and free-form ones are not
/// for the mock to call.
fn tools_of(entry: &Value, namespace: Option<&str>) -> Vec<Tool> {
    if entry["type"] == "namespace" && namespace.is_none() {
        let inner = entry["tools"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let name = entry["name"].as_str();
        return inner.iter().flat_map(|tool| tools_of(tool, name)).collect();
    }
    let function = if entry["function"].is_object() {
        &entry["function"]
    } else {
        entry
    };
    let kind = entry["type"].as_str().unwrap_or("function");
    let schemas = ["parameters", "input_schema"].map(|key| &function[key]);
    let schema = schemas.into_iter().find(|schema| schema.is_object());
    match (function["name"].as_str(), schema) {
        (Some(name), schema) if kind == "function" || schema.is_some() => vec![Tool {
            name: name.to_owned(),
            namespace: namespace.map(str::to_owned),
            schema: schema.cloned().unwrap_or_default(),
        }],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(dialect: Dialect, body: &Value) -> Facts {
        Facts::read(dialect, body.to_string().as_bytes(), false)
    }

    #[test]
    fn stream_is_the_literal_true_at_the_top() {
        for (body, stream) in [
            (json!({"stream": true}), true),
            (json!({"stream": "true"}), false),
            (json!({"metadata": {"stream": true}}), false),
            (json!({}), false),
        ] {
            assert_eq!(read(Dialect::Chat, &body).stream, stream, "{body}");
        }
        assert!(Facts::read(Dialect::Responses, b"\x28\xb5\x2f\xfd", true).stream);
        assert!(!Facts::read(Dialect::Responses, b"[]", false).stream);
    }

    #[test]
    fn tool_result_is_seen_in_each_dialect() {
        let result = |dialect, body: Value| read(dialect, &body).tool_result;
        let chat = json!({"messages": [{"role": "user"}, {"role": "tool", "content": "done"}]});
        assert_eq!(result(Dialect::Chat, chat).as_deref(), Some("done"));
        let messages = json!({"messages": [
            {"role": "user", "content": [{"type": "text", "text": "no"}, {"type": "tool_result",
                "content": [{"type": "text", "text": "do"}, {"type": "image"}, {"text": "ne"}]}]},
            {"role": "system", "content": []},
        ]});
        assert_eq!(result(Dialect::Messages, messages).as_deref(), Some("done"));
        let responses = json!({"input": [{"type": "function_call_output"}]});
        assert_eq!(result(Dialect::Responses, responses).as_deref(), Some(""));
        let spoken = json!({"messages": [{"role": "tool"}, {"role": "user", "content": "x"}]});
        assert_eq!(result(Dialect::Chat, spoken), None);
        assert_eq!(result(Dialect::Responses, json!({"input": "hello"})), None);
    }

    #[test]
    fn tools_are_found_where_clients_put_them() {
        let body = json!({"tools": [
            {"type": "web_search"},
            {"type": "custom", "name": "patch", "format": {}},
            {"type": "function", "function": {"name": "a", "parameters": {"x": 1}}},
            {"type": "function", "name": "b", "parameters": {}},
            {"name": "c", "input_schema": {}},
            {"type": "namespace", "name": "group", "tools": [{"type": "function", "name": "d"}]},
        ]});
        let facts = read(Dialect::Responses, &body);
        let found: Vec<_> = facts
            .tools
            .iter()
            .map(|tool| (tool.name.as_str(), tool.namespace.as_deref()))
            .collect();
        assert_eq!(
            found,
            [("a", None), ("b", None), ("c", None), ("d", Some("group"))]
        );
        assert_eq!(facts.tools[0].schema, json!({"x": 1}));
        let mut refused = body;
        refused["tool_choice"] = json!({"type": "none"});
        assert!(read(Dialect::Messages, &refused).tools.is_empty());
    }
}
