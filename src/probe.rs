//! `lanegate probe`: asks a running gateway a switch, for people whose agents always stream and so
//! cannot type one.
//!
//! It sends what an agent would send, once, and tells an answer of the gateway from one of a provider
//! by its id. It shares no code with what it asks but the reader of heads and of chunks.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde_json::{Value, json};

use crate::config::BaseUrl;
use crate::dialect::Dialect;
use crate::http1::chunked::Decoder;
use crate::http1::head::{HeadLimits, Progress, ResponseHead, field};
use crate::limits::{PROBE_ANSWER_BYTES, PROBE_WAIT_MS};
use crate::switch::Switch;

/// What is asked, and of whom.
#[derive(Clone, Debug)]
pub struct Question {
    /// The switch.
    pub switch: Switch,
    /// The API that is spoken.
    pub dialect: Dialect,
    /// The model that is asked for.
    pub model: String,
    /// The session that the question belongs to, told in `session_id`.
    pub session: Option<String>,
    /// The client's key, told in `X-Lanegate-Key`.
    pub key: Option<String>,
    /// Where the gateway is.
    pub url: BaseUrl,
}

/// What came of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The gateway answered with this line.
    Answered(String),
    /// Somebody else did, with this status: the switch is off there, or is none for this request, which
    /// has then reached a provider.
    Forwarded(u16),
}

/// Why there is no outcome.
#[derive(Debug)]
pub enum ProbeError {
    /// The URL begins with `https`.
    Encrypted,
    /// A value cannot stand in a header field.
    NotVisible(&'static str),
    /// The gateway cannot be reached, or the connection broke.
    Connection(io::Error),
    /// What came is no HTTP response that fits.
    Response,
    /// The gateway refuses the question: status, and its word for the reason.
    Refused(u16, String),
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Encrypted => {
                f.write_str("--url: https is not spoken here; ask from the machine itself")
            }
            Self::NotVisible(what) => write!(f, "{what}: expected visible ASCII"),
            Self::Connection(error) => write!(f, "no answer: {error}"),
            Self::Response => f.write_str("what answered is no HTTP/1.1 server, or says too much"),
            Self::Refused(status, code) => write!(f, "refused: {status} {code}"),
        }
    }
}

impl std::error::Error for ProbeError {}

/// Asks.
///
/// # Errors
/// See [`ProbeError`].
pub fn ask(question: &Question) -> Result<Outcome, ProbeError> {
    let url = &question.url;
    if url.tls {
        return Err(ProbeError::Encrypted);
    }
    let request = request(question)?;
    let wait = Duration::from_millis(PROBE_WAIT_MS);
    let answer = answer(url, wait, &request).map_err(ProbeError::Connection)?;
    outcome(question, answer)
}

fn request(question: &Question) -> Result<Vec<u8>, ProbeError> {
    let Question {
        dialect,
        model,
        url,
        ..
    } = question;
    let literal = question.switch.literal();
    let message = json!([{ "role": "user", "content": literal }]);
    let (path, body) = match dialect {
        Dialect::Chat => (
            "/v1/chat/completions",
            json!({ "model": model, "messages": message }),
        ),
        Dialect::Messages => (
            "/v1/messages",
            json!({ "model": model, "max_tokens": 1, "messages": message }),
        ),
        Dialect::Responses => ("/v1/responses", json!({ "model": model, "input": literal })),
    };
    let mut fields = format!(
        "Host: {}\r\nContent-Type: application/json\r\n",
        url.authority
    );
    for (what, name, value) in [
        ("--session", "session_id", &question.session),
        ("the key", "X-Lanegate-Key", &question.key),
    ] {
        let Some(value) = value else { continue };
        if !value.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err(ProbeError::NotVisible(what));
        }
        fields.push_str(&format!("{name}: {value}\r\n"));
    }
    if *dialect == Dialect::Messages {
        fields.push_str("anthropic-version: 2023-06-01\r\n");
    }
    let (prefix, body) = (&url.prefix, body.to_string());
    let length = body.len();
    let head = format!(
        "POST {prefix}{path} HTTP/1.1\r\n{fields}Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    Ok([head.as_bytes(), body.as_bytes()].concat())
}

/// All that the server says before it closes.
fn answer(url: &BaseUrl, wait: Duration, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in (url.host.as_str(), url.port).to_socket_addrs()? {
        let mut stream = match TcpStream::connect_timeout(&address, wait) {
            Ok(stream) => stream,
            Err(error) => {
                last = error;
                continue;
            }
        };
        stream.set_read_timeout(Some(wait))?;
        stream.set_write_timeout(Some(wait))?;
        stream.write_all(request)?;
        let mut answer = Vec::new();
        stream.take(PROBE_ANSWER_BYTES).read_to_end(&mut answer)?;
        return Ok(answer);
    }
    Err(last)
}

fn outcome(question: &Question, mut answer: Vec<u8>) -> Result<Outcome, ProbeError> {
    let mut head = ResponseHead::default();
    let limits = HeadLimits {
        bytes: answer.len(),
        fields: 200,
    };
    if !matches!(head.parse(&answer, limits), Ok(Progress::Complete)) {
        return Err(ProbeError::Response);
    }
    let named = |name| field(&head.fields, &answer, name);
    if let Some(code) = named("x-lanegate-error") {
        let code = String::from_utf8_lossy(code).into_owned();
        return Err(ProbeError::Refused(head.status, code));
    }
    let chunked = named("transfer-encoding").is_some();
    let mut body = answer.split_off(head.len);
    if chunked {
        let decoded = Decoder::new().decode(&mut body);
        let decoded = decoded.map_err(|_| ProbeError::Response)?;
        body.truncate(decoded.produced);
    }
    let said: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = text(question.dialect, &said);
    let id = said.get("id").and_then(Value::as_str).unwrap_or_default();
    match text.filter(|_| is_ours(question, id)) {
        Some(text) => Ok(Outcome::Answered(text.to_owned())),
        None => Ok(Outcome::Forwarded(head.status)),
    }
}

fn is_ours(question: &Question, id: &str) -> bool {
    let word = question.switch.as_str();
    id.starts_with(&match question.dialect {
        Dialect::Chat => format!("chatcmpl-{word}-"),
        Dialect::Messages => format!("msg_{word}_"),
        Dialect::Responses => format!("resp_{word}_"),
    })
}

fn text(dialect: Dialect, said: &Value) -> Option<&str> {
    let at = match dialect {
        Dialect::Chat => "/choices/0/message/content",
        Dialect::Messages => "/content/0/text",
        Dialect::Responses => "/output/0/content/0/text",
    };
    said.pointer(at)?.as_str()
}
