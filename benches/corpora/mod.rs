//! Four kinds of request body.

/// Bytes of each body.
pub(crate) const BODY_BYTES: usize = 256 * 1024;
/// Bytes of each push.
pub(crate) const PUSH_BYTES: usize = 64 * 1024;

/// A chat body of about [`BODY_BYTES`] with `model` first and `stream` last, and its kind.
pub(crate) struct Corpus {
    pub(crate) name: &'static str,
    pub(crate) body: Vec<u8>,
    pub(crate) tools: usize,
}

/// Prose, escape-heavy code, tool schemas and base64, the kinds of data-path measurements section 5.
pub(crate) fn corpora() -> [Corpus; 4] {
    let prose = "The gateway forwards what it is given, and nothing else; a reader of this line \
                 learns little, but the scanner sees what most turns of a conversation look like. ";
    let code = "fn main() {\\n\\tlet s = \\\"a\\\\b\\\";\\n\\tprintln!(\\\"{s}\\\");\\n}\\n";
    let base64 = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9";
    [
        messages("chat", prose, 2048),
        messages("code", code, 2048),
        tools(),
        messages("b64", base64, BODY_BYTES),
    ]
}

/// Messages of about `message_bytes` made by repeating `text`, which is already escaped.
fn messages(name: &'static str, text: &str, message_bytes: usize) -> Corpus {
    let mut body = String::from(r#"{"model":"m","messages":["#);
    while body.len() < BODY_BYTES {
        for role in ["assistant", "user"] {
            let content = text.repeat(message_bytes / text.len() + 1);
            body += &format!(r#"{{"role":"{role}","content":"{content}"}},"#);
        }
    }
    body += r#"{"role":"user","content":"--who?"}],"stream":true}"#;
    Corpus {
        name,
        body: body.into_bytes(),
        tools: 0,
    }
}

fn tools() -> Corpus {
    let mut body =
        String::from(r#"{"model":"m","messages":[{"role":"user","content":"--who?"}],"tools":["#);
    let mut tools = 0;
    while body.len() < BODY_BYTES {
        body += &format!(
            r#"{{"type":"function","function":{{"name":"tool_{tools}","description":"Does one thing","parameters":{{"type":"object","properties":{{"path":{{"type":"string"}},"limit":{{"type":"integer","minimum":1,"maximum":{tools}}},"deep":{{"type":"boolean","default":false}},"items":{{"type":"array","items":{{"type":"string","enum":["a","b","c"]}}}}}},"required":["path","limit"],"additionalProperties":false}}}}}},"#
        );
        tools += 1;
    }
    body.pop();
    body += r#"],"stream":true}"#;
    Corpus {
        name: "tools",
        body: body.into_bytes(),
        tools,
    }
}
