//! Request bodies as agents send them: system text, tool definitions, a conversation of prose and code
//! full of escapes, `stream` as the last key; of exactly the bytes that were asked for.
//!
//! The same shape gives the same bytes. A larger body has a longer conversation, up to
//! [`SYSTEM_BYTES_MAX`] of system text and [`TOOLS_MAX`] tools; one below 2 KiB has no tools.

use crate::dialect::Dialect;

/// Bytes of system text; it is an eighth of a body that is smaller.
const SYSTEM_BYTES_MAX: usize = 8 << 10;
/// Tools of a body; one for each 2 KiB of a body that is smaller.
const TOOLS_MAX: usize = 16;
const BYTES_PER_TOOL: usize = 2 << 10;

/// Plain text without escapes, which may be cut anywhere.
const PROSE: &str = "You are a coding agent. Read before you write, change little, run the tests and \
                     say what you did. Ask when the task has two readings. ";
/// A turn of the user: prose with a quotation and a path, escaped.
const USER_TEXT: &str = r#"The build fails with \"cannot find value `cfg` in this scope\" in src\\server\\listen.rs, line 42.\nPlease look at it, and keep the public names as they are \u2014 the caf\u00e9 example uses them.\n"#;
/// A turn of the assistant: code, where every fourth byte or so is an escape; some bytes are not ASCII.
const ASSISTANT_TEXT: &str = r#"Here is the change:\n```rust\nfn listen(cfg: &Config) -> io::Result<Listener> {\n\tlet addr = cfg.addr.ok_or_else(|| err(\"no address\\n\"))?;\n\t// größer als 0\n\tlet path = \"C:\\\\tmp\\\\lane\";\n\tprintln!(\"{addr:?}\\t{path}\");\n\tListener::bind(addr)\n}\n```\n"#;

/// What a body is to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape<'a> {
    pub(super) dialect: Dialect,
    /// Printable ASCII.
    pub(super) model: &'a str,
    pub(super) stream: bool,
    pub(super) bytes: usize,
}

impl Shape<'_> {
    /// Whether the parts that do not shrink fit.
    pub(super) fn fits(&self) -> bool {
        let (front, back) = self.ends();
        front.len() + back.len() + self.turn("user", "").len() <= self.bytes
    }

    /// All before the first turn and all behind the last one.
    fn ends(&self) -> (String, String) {
        let model = serde_json::Value::from(self.model);
        let system_bytes = (self.bytes / 8).min(SYSTEM_BYTES_MAX);
        let mut system = PROSE.repeat(system_bytes / PROSE.len() + 1);
        system.truncate(system_bytes);
        let front = match self.dialect {
            Dialect::Chat => {
                format!(r#"{{"model":{model},"messages":[{{"role":"system","content":"{system}"}}"#)
            }
            Dialect::Messages => format!(
                r#"{{"model":{model},"max_tokens":4096,"system":[{{"type":"text","text":"{system}","cache_control":{{"type":"ephemeral"}}}}],"messages":["#
            ),
            Dialect::Responses => {
                format!(r#"{{"model":{model},"instructions":"{system}","input":["#)
            }
        };
        let stream = self.stream;
        let back = match self.tools() {
            Some(tools) => format!(r#"],"tools":[{tools}],"stream":{stream}}}"#),
            None => format!(r#"],"stream":{stream}}}"#),
        };
        (front, back)
    }

    fn tools(&self) -> Option<String> {
        let count = (self.bytes / BYTES_PER_TOOL).min(TOOLS_MAX);
        let tools: Vec<_> = (0..count).map(|number| self.tool(number)).collect();
        (count > 0).then(|| tools.join(","))
    }

    fn tool(&self, number: usize) -> String {
        let named = format!(
            r#""name":"tool_{number}","description":"Runs one step and returns its output.\nUse absolute paths.""#
        );
        let schema = r#"{"type":"object","properties":{"path":{"type":"string","description":"The \"absolute\" path"},"limit":{"type":"integer","minimum":1,"maximum":2000},"deep":{"type":"boolean","default":false}},"required":["path"],"additionalProperties":false}"#;
        match self.dialect {
            Dialect::Chat => {
                format!(r#"{{"type":"function","function":{{{named},"parameters":{schema}}}}}"#)
            }
            Dialect::Messages => format!(r#"{{{named},"input_schema":{schema}}}"#),
            Dialect::Responses => {
                format!(r#"{{"type":"function",{named},"parameters":{schema},"strict":false}}"#)
            }
        }
    }

    /// One turn of the conversation; `text` is escaped already.
    fn turn(&self, role: &str, text: &str) -> String {
        match self.dialect {
            Dialect::Chat => format!(r#"{{"role":"{role}","content":"{text}"}}"#),
            Dialect::Messages => {
                format!(r#"{{"role":"{role}","content":[{{"type":"text","text":"{text}"}}]}}"#)
            }
            Dialect::Responses => {
                let kind = if role == "user" { "input" } else { "output" };
                format!(
                    r#"{{"type":"message","role":"{role}","content":[{{"type":"{kind}_text","text":"{text}"}}]}}"#
                )
            }
        }
    }
}

/// The body; exactly `shape.bytes` long if the shape fits.
pub(super) fn body(shape: &Shape<'_>) -> Vec<u8> {
    let (front, back) = shape.ends();
    let last_turn = shape.turn("user", "").len();
    let pair = [
        shape.turn("user", USER_TEXT),
        shape.turn("assistant", ASSISTANT_TEXT),
    ]
    .join(",");
    let mut body = front;
    body.reserve(shape.bytes);
    // Chat has the system text as its first turn already.
    let mut comma = if shape.dialect == Dialect::Chat {
        ","
    } else {
        ""
    };
    while body.len() + pair.len() + last_turn + back.len() + 2 * ",".len() <= shape.bytes {
        body.push_str(comma);
        body.push_str(&pair);
        comma = ",";
    }
    body.push_str(comma);
    let room = shape
        .bytes
        .saturating_sub(body.len() + last_turn + back.len());
    let mut text = PROSE.repeat(room / PROSE.len() + 1);
    text.truncate(room);
    body.push_str(&shape.turn("user", &text));
    body.push_str(&back);
    body.into_bytes()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn bodies_have_exactly_the_size_and_are_what_agents_send() {
        for dialect in Dialect::ALL {
            for stream in [false, true] {
                for bytes in [512, 1024, 2048, 2049, 5000, 65_536, 300_001] {
                    let shape = Shape {
                        dialect,
                        model: "bench-\"model",
                        stream,
                        bytes,
                    };
                    assert!(shape.fits(), "{shape:?}");
                    let body = body(&shape);
                    assert_eq!(body.len(), bytes, "{shape:?}");
                    let value: Value = serde_json::from_slice(&body).unwrap();
                    assert_eq!(value["model"], "bench-\"model");
                    assert_eq!(value["stream"], stream);
                    let end = format!("\"stream\":{stream}}}");
                    assert!(body.ends_with(end.as_bytes()), "stream is last");
                    let tools = value["tools"].as_array().map_or(0, Vec::len);
                    assert_eq!(tools, (bytes / BYTES_PER_TOOL).min(TOOLS_MAX));
                    let turns = match dialect {
                        Dialect::Chat | Dialect::Messages => &value["messages"],
                        Dialect::Responses => &value["input"],
                    };
                    let turns = turns.as_array().unwrap();
                    assert_eq!(turns.last().unwrap()["role"], "user");
                    assert!(bytes < 5000 || turns.len() > 2, "{shape:?}");
                }
            }
        }
    }

    #[test]
    fn body_too_small_for_its_model_does_not_fit() {
        let shape = Shape {
            dialect: Dialect::Messages,
            model: &"m".repeat(400),
            stream: true,
            bytes: 512,
        };
        assert!(!shape.fits());
    }
}
