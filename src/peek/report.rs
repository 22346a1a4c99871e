//! The facts of one body as a line of JSON: what `lanegate peek` prints.

use crate::dialect::Dialect;
use crate::json::{Broken, quote};
use crate::peek::{Capture, Demand, Fact, Peek, StreamFlag, Text, ToolName, ToolNames, TopKey};

/// Tool names as a JSON list, open at its end.
#[derive(Default)]
struct List(Vec<u8>);

impl ToolNames for List {
    fn name(&mut self, name: ToolName<'_>) {
        match name {
            ToolName::Named(name) => {
                self.0.push(if self.0.is_empty() { b'[' } else { b',' });
                quote(name, &mut self.0);
            }
            // Captures are unbounded here.
            ToolName::BeyondBound => {}
        }
    }
}

/// One JSON object, without a line break, with the facts of `body`.
///
/// Keys `valid`, `model`, `stream`, `last_user_text` and `tool_names` are always there; for a broken
/// body they are `false`, null or empty and `error` says what is wrong where. Values are as long as
/// the body has them.
#[must_use]
pub fn report(dialect: Dialect, body: &[u8]) -> String {
    let mut peek = Peek::with(dialect, Demand::ALL, Capture::Unbounded, List::default());
    let judged = peek.push(body).and_then(|()| peek.finish());
    let line = match judged {
        Ok(()) => facts(&peek),
        Err(broken) => error(broken),
    };
    String::from_utf8(line).unwrap_or_default()
}

fn error(Broken { offset, reason }: Broken) -> Vec<u8> {
    let facts =
        r#""valid":false,"model":null,"stream":false,"last_user_text":null,"tool_names":[]"#;
    let reason = reason.as_str();
    format!(r#"{{{facts},"error":{{"reason":"{reason}","offset":{offset}}}}}"#).into_bytes()
}

fn facts(peek: &Peek<List>) -> Vec<u8> {
    let stream = peek.stream() == Fact::Found(StreamFlag::True);
    let mut line = br#"{"valid":true,"model":"#.to_vec();
    text(peek.model(), &mut line);
    line.extend_from_slice(format!(r#","stream":{stream},"last_user_text":"#).as_bytes());
    match peek.last_user().found() {
        Some(found) => quote(found.as_str(), &mut line),
        None => line.extend_from_slice(b"null"),
    }
    line.extend_from_slice(br#","tool_names":"#);
    let names = &peek.tool_names().0;
    line.extend_from_slice(if names.is_empty() { b"[" } else { names });
    line.push(b']');
    for (name, fact) in [
        ("prompt_cache_key", peek.prompt_cache_key()),
        ("user", peek.user()),
        ("session_id", peek.session_id()),
        ("metadata_user_id", peek.metadata_user_id()),
    ] {
        line.extend_from_slice(format!(r#","{name}":"#).as_bytes());
        text(fact, &mut line);
    }
    let ambiguous: Vec<&str> = peek.ambiguous().iter().map(TopKey::as_str).collect();
    let closed_at = peek.closed_at().unwrap_or_default();
    line.extend_from_slice(
        format!(r#","ambiguous":{ambiguous:?},"closed_at":{closed_at}}}"#).as_bytes(),
    );
    line
}

fn text(fact: Fact<Text<'_>>, line: &mut Vec<u8>) {
    match fact.found() {
        Some(text) => quote(text.value, line),
        None => line.extend_from_slice(b"null"),
    }
}
