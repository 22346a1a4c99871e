//! Which tool the mock calls, and arguments that its schema accepts.

use serde_json::{Map, Value, json};

use crate::mock::facts::Tool;

/// Parameters by which a shell-like tool is known, in the clients of 2026-11.
const COMMAND_KEYS: [&str; 3] = ["command", "cmd", "commands"];
/// What a tool is told to run if the script does not say.
const COMMAND: &str = "echo lanegate";
/// Nested schemas followed; deeper ones get null.
const DEPTH_MAX: u8 = 8;

/// One call to make.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) name: &'a str,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) arguments: Value,
}

/// A call of the first tool that must be given a command, else of the first that may be given one,
/// else of the first tool. No tool, no call.
pub(crate) fn call<'a>(tools: &'a [Tool], command: Option<&str>) -> Option<Call<'a>> {
    let requires = |tool: &&Tool| required(&tool.schema).any(|key| COMMAND_KEYS.contains(&key));
    let permits = |tool: &&Tool| command_key(&tool.schema).is_some();
    let shell = tools
        .iter()
        .find(requires)
        .or_else(|| tools.iter().find(permits));
    let tool = shell.or_else(|| tools.first())?;
    Some(Call {
        name: &tool.name,
        namespace: tool.namespace.as_deref(),
        arguments: arguments(&tool.schema, command.unwrap_or(COMMAND)),
    })
}

fn arguments(schema: &Value, to_run: &str) -> Value {
    let mut filled = object(schema, 0);
    if let Some(key) = command_key(schema) {
        filled.insert(
            key.to_owned(),
            command(key, &schema["properties"][key], to_run),
        );
    }
    Value::Object(filled)
}

fn command_key(schema: &Value) -> Option<&'static str> {
    let properties = schema["properties"].as_object()?;
    COMMAND_KEYS
        .into_iter()
        .find(|key| properties.contains_key(*key))
}

/// A text, or a list for schemas that want one: words of one command for `command`, as Codex has it,
/// and whole commands for `commands`, as Cline has it.
fn command(key: &str, schema: &Value, to_run: &str) -> Value {
    match (type_of(schema), key) {
        ("array", "commands") => json!([to_run]),
        ("array", _) => json!(["bash", "-lc", to_run]),
        _ => json!(to_run),
    }
}

fn required(schema: &Value) -> impl Iterator<Item = &str> {
    schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

fn object(schema: &Value, depth: u8) -> Map<String, Value> {
    let properties = &schema["properties"];
    required(schema)
        .map(|key| (key.to_owned(), value(&properties[key], depth + 1)))
        .collect()
}

fn value(schema: &Value, depth: u8) -> Value {
    if depth > DEPTH_MAX {
        return Value::Null;
    }
    if let Some(constant) = schema.get("const") {
        return constant.clone();
    }
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    let branch = ["anyOf", "oneOf", "allOf"]
        .into_iter()
        .find_map(|key| schema[key].get(0));
    if let Some(branch) = branch {
        return value(branch, depth + 1);
    }
    match type_of(schema) {
        "integer" | "number" => schema.get("minimum").cloned().unwrap_or_else(|| json!(1)),
        "boolean" => json!(false),
        "null" => Value::Null,
        "array" if schema["minItems"].as_u64().unwrap_or(0) > 0 => {
            json!([value(&schema["items"], depth + 1)])
        }
        "array" => json!([]),
        "object" => Value::Object(object(schema, depth)),
        _ => json!("lanegate"),
    }
}

/// The first type that is not `null`.
fn type_of(schema: &Value) -> &str {
    match &schema["type"] {
        Value::String(name) => name,
        Value::Array(names) => {
            let mut named = names.iter().filter_map(Value::as_str);
            named.find(|name| *name != "null").unwrap_or("null")
        }
        _ if schema["properties"].is_object() => "object",
        _ => "string",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, schema: Value) -> Tool {
        Tool {
            name: name.to_owned(),
            namespace: None,
            schema,
        }
    }

    #[test]
    fn a_tool_that_requires_a_command_is_preferred() {
        let optional = json!({"properties": {"command": {}, "prompt": {}}, "required": ["prompt"]});
        let needed = json!({"properties": {"cmd": {"type": "string"}}, "required": ["cmd"]});
        let tools = [
            tool("read", json!({"required": ["path"]})),
            tool("task", optional),
            tool("exec", needed),
        ];
        let chosen = call(&tools, None).unwrap();
        assert_eq!(
            (chosen.name, chosen.arguments),
            ("exec", json!({"cmd": "echo lanegate"}))
        );
        let chosen = call(&tools[..2], None).unwrap();
        assert_eq!(
            chosen.arguments,
            json!({"command": "echo lanegate", "prompt": "lanegate"})
        );
        assert_eq!(
            call(&tools[..1], Some("ls")).unwrap().arguments,
            json!({"path": "lanegate"})
        );
        assert!(call(&[], None).is_none());
    }

    #[test]
    fn lists_of_commands_and_of_words() {
        let words = json!({"properties": {"command": {"type": "array"}}});
        assert_eq!(
            arguments(&words, "ls"),
            json!({"command": ["bash", "-lc", "ls"]})
        );
        let whole = json!({"properties": {"commands": {"type": ["null", "array"]}}});
        assert_eq!(arguments(&whole, "ls"), json!({"commands": ["ls"]}));
    }

    #[test]
    fn required_properties_get_values_of_their_type() {
        let schema = json!({
            "required": ["s", "n", "m", "b", "e", "c", "l", "f", "o", "a", "missing"],
            "properties": {
                "s": {"type": "string"}, "n": {"type": "integer"}, "m": {"type": "number", "minimum": 7},
                "b": {"type": "boolean"}, "e": {"enum": ["x", "y"]}, "c": {"const": 3},
                "l": {"type": "array"}, "f": {"type": "array", "minItems": 1, "items": {"type": "integer"}},
                "o": {"type": "object", "required": ["i"], "properties": {"i": {"type": "boolean"}}},
                "a": {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "left_out": {"type": "string"},
            },
        });
        let expected = json!({
            "s": "lanegate", "n": 1, "m": 7, "b": false, "e": "x", "c": 3, "l": [], "f": [1],
            "o": {"i": false}, "a": 1, "missing": "lanegate",
        });
        assert_eq!(arguments(&schema, COMMAND), expected);
    }

    #[test]
    fn nesting_is_bounded() {
        let mut schema = json!({"type": "string"});
        for _ in 0..40 {
            schema = json!({"required": ["x"], "properties": {"x": schema}});
        }
        let depth = arguments(&schema, COMMAND).to_string().matches('{').count();
        assert_eq!(depth, usize::from(DEPTH_MAX) + 1);
    }
}
