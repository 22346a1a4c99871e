//! Which answer a request gets: the route, the script's body, or the dialect's own.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::mock::facts::{Dialect, Facts};
use crate::mock::files::Files;
use crate::mock::journal::{base64, latin1_text};
use crate::mock::script::{Framing, Script};
use crate::mock::tool::{self, Call};
use crate::mock::wire::Head;
use crate::mock::{chat, messages, responses};

/// Fixed, so that the same request has the same answer.
pub(crate) const CREATED: u64 = 1_700_000_000;
pub(crate) const INPUT_TOKENS: u64 = 12;
/// The answer's text, one content event a word.
const TEXT: [&str; 5] = ["The ", "lanegate ", "mock ", "says ", "hello."];
const MODELS: [&str; 3] = ["mock-model", "mock-tool", "mock-slow"];
/// Seconds of `retry-after` on the statuses that carry it.
const RETRY_AFTER: &str = "1";

/// What a method and path ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    Model(Dialect),
    CountTokens,
    Models,
    /// A reachability check: 200 without a body.
    Root,
    Health,
    /// A WebSocket upgrade of `/responses`: 426, on which Codex falls back at once.
    Upgrade,
    Unknown,
}

impl Route {
    /// The dialect follows the end of the path, whatever stands before it.
    pub(crate) fn of(head: &Head) -> Self {
        let path = head.path();
        match head.method.as_str() {
            "POST" if path.ends_with("/chat/completions") => Self::Model(Dialect::Chat),
            "POST" if path.ends_with("/messages") => Self::Model(Dialect::Messages),
            "POST" if path.ends_with("/messages/count_tokens") => Self::CountTokens,
            "POST" if path.ends_with("/responses") => Self::Model(Dialect::Responses),
            "GET" if path.ends_with("/models") => Self::Models,
            "GET" if path.ends_with("/responses") && head.has_token("upgrade", "websocket") => {
                Self::Upgrade
            }
            "GET" | "HEAD" if path == "/health" => Self::Health,
            "HEAD" if path == "/" => Self::Root,
            _ => Self::Unknown,
        }
    }

    /// Whose error shape this request expects; unknown paths get OpenAI's.
    fn dialect(self, head: &Head) -> Dialect {
        match self {
            Self::Model(dialect) => dialect,
            Self::CountTokens => Dialect::Messages,
            Self::Models if head.header("anthropic-version").is_some() => Dialect::Messages,
            Self::Models | Self::Root | Self::Health | Self::Upgrade | Self::Unknown => {
                Dialect::Chat
            }
        }
    }
}

/// What a dialect says on a turn.
#[derive(Debug)]
pub(crate) enum Reply {
    Json(Value),
    /// Whole SSE events, the empty line included.
    Events(Vec<String>),
}

/// All that a dialect needs to speak.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    pub(crate) facts: &'a Facts,
    pub(crate) call: Option<Call<'a>>,
    /// Text of each content event.
    pub(crate) text: Vec<String>,
}

impl<'a> Turn<'a> {
    fn new(facts: &'a Facts, script: &Script) -> Self {
        let may_call = script.tool && facts.tool_result.is_none();
        let call = if may_call {
            tool::call(&facts.tools, script.command.as_deref())
        } else {
            None
        };
        Self {
            facts,
            call,
            text: text(script),
        }
    }

    /// One token a content event.
    pub(crate) fn output_tokens(&self) -> u64 {
        if self.call.is_some() {
            2
        } else {
            self.text.len() as u64
        }
    }
}

/// One answer, ready to be sent.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Arc<[u8]>,
    /// Body offsets at which an event ends; a plain body has one.
    pub(crate) ends: Vec<usize>,
    pub(crate) framing: Framing,
}

/// One request, read as far as its script wants.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) head: &'a Head,
    pub(crate) route: Route,
    pub(crate) facts: &'a Facts,
    pub(crate) body: &'a [u8],
    pub(crate) id: &'a str,
}

impl Request<'_> {
    /// The answer that the script asks for.
    pub(crate) fn answer(&self, script: &Script, files: &Files) -> Answer {
        let mut answer = self.scripted(script, files);
        if let Some(framing) = script.framing {
            answer.framing = framing;
        }
        if let Some(status) = script.status {
            answer.status = status;
        }
        for (name, value) in &script.headers {
            answer
                .headers
                .retain(|header| !header.0.eq_ignore_ascii_case(name));
            answer.headers.push((name.clone(), value.clone()));
        }
        answer
    }

    fn scripted(&self, script: &Script, files: &Files) -> Answer {
        if script.echo {
            return self.json(200, &self.echo());
        }
        if let Some(name) = &script.file {
            let Some(file) = files.get(name) else {
                return self.error(400, &format!("no response file `{name}`"));
            };
            let body = Arc::clone(&file.body);
            let ends = vec![body.len()];
            let framing = if file.is_events() {
                Framing::Chunked
            } else {
                Framing::Length
            };
            let headers = file.headers.clone();
            return Answer {
                status: file.status,
                headers,
                body,
                ends,
                framing,
            };
        }
        if let Some(body) = &script.body {
            return self.plain(
                script.status.unwrap_or(200),
                "application/json",
                body.clone(),
            );
        }
        match script.status {
            Some(status) if status >= 400 => self.error(status, "scripted error"),
            Some(status @ (204 | 304)) => self.plain(status, "application/json", Vec::new()),
            _ => self.routed(script),
        }
    }

    fn routed(&self, script: &Script) -> Answer {
        match self.route {
            Route::Model(dialect) => {
                let turn = Turn::new(self.facts, script);
                let reply = match dialect {
                    Dialect::Chat => chat::reply(&turn),
                    Dialect::Messages => messages::reply(&turn),
                    Dialect::Responses => responses::reply(&turn),
                };
                match reply {
                    Reply::Json(value) => self.json(200, &value),
                    Reply::Events(events) => self.events(&events),
                }
            }
            Route::CountTokens => self.json(200, &messages::token_count()),
            Route::Models => self.json(200, &self.models()),
            Route::Root => self.plain(200, "text/plain", Vec::new()),
            Route::Health => self.json(200, &json!({"status": "ok"})),
            Route::Upgrade => {
                let mut answer = self.error(426, "no WebSocket here");
                answer
                    .headers
                    .push(("Upgrade".to_owned(), "HTTP/1.1".to_owned()));
                answer
            }
            Route::Unknown => self.error(404, "no such path"),
        }
    }

    fn plain(&self, status: u16, content_type: &str, body: Vec<u8>) -> Answer {
        let id_name = match self.route.dialect(self.head) {
            Dialect::Messages => "request-id",
            Dialect::Chat | Dialect::Responses => "x-request-id",
        };
        let headers = [("Content-Type", content_type), (id_name, self.id)];
        Answer {
            status,
            headers: headers
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec(),
            ends: vec![body.len()],
            body: body.into(),
            framing: Framing::Length,
        }
    }

    fn json(&self, status: u16, value: &Value) -> Answer {
        self.plain(status, "application/json", value.to_string().into_bytes())
    }

    fn events(&self, events: &[String]) -> Answer {
        let mut answer = self.plain(200, "text/event-stream; charset=utf-8", Vec::new());
        answer
            .headers
            .push(("Cache-Control".to_owned(), "no-cache".to_owned()));
        answer.ends = events
            .iter()
            .scan(0, |end, event| {
                *end += event.len();
                Some(*end)
            })
            .collect();
        answer.body = events.concat().into_bytes().into();
        answer.framing = Framing::Chunked;
        answer
    }

    /// An error in the shape of the dialect.
    pub(crate) fn error(&self, status: u16, message: &str) -> Answer {
        let body = match self.route.dialect(self.head) {
            Dialect::Messages => json!({
                "type": "error",
                "error": {"type": messages_error_type(status), "message": message},
                "request_id": self.id,
            }),
            Dialect::Chat | Dialect::Responses => {
                let (kind, code) = openai_error_type(status);
                json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
            }
        };
        let mut answer = self.json(status, &body);
        if matches!(status, 429 | 503 | 529) {
            answer
                .headers
                .push(("Retry-After".to_owned(), RETRY_AFTER.to_owned()));
        }
        answer
    }

    fn models(&self) -> Value {
        if self.route.dialect(self.head) == Dialect::Messages {
            let list = MODELS.map(|id| {
                let at = "2023-11-14T22:13:20Z";
                json!({"type": "model", "id": id, "display_name": id, "created_at": at})
            });
            let (first, last) = (MODELS[0], MODELS[MODELS.len() - 1]);
            return json!({"data": list, "has_more": false, "first_id": first, "last_id": last});
        }
        let list = MODELS.map(|id| {
            json!({"id": id, "object": "model", "created": CREATED, "owned_by": "lanegate-mock"})
        });
        // Codex reads `models` instead of `data`, and does with an empty one.
        json!({"object": "list", "data": list, "models": []})
    }

    fn echo(&self) -> Value {
        let text = std::str::from_utf8(self.body).ok();
        json!({
            "head": latin1_text(&self.head.raw),
            "body": text,
            "body_base64": text.is_none().then(|| base64(self.body)),
        })
    }
}

/// Anthropic API errors, as documented 2026-11.
fn messages_error_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

/// OpenAI error type and code, as seen 2026-11.
fn openai_error_type(status: u16) -> (&'static str, Option<&'static str>) {
    match status {
        401 => ("invalid_request_error", Some("invalid_api_key")),
        429 => ("requests", Some("rate_limit_exceeded")),
        400..=499 => ("invalid_request_error", None),
        _ => ("server_error", None),
    }
}

fn text(script: &Script) -> Vec<String> {
    let count = script.events.unwrap_or(TEXT.len());
    let words = TEXT.iter().cycle().take(count);
    match script.event_bytes {
        Some(bytes) => words
            .map(|word| word.chars().cycle().take(bytes).collect())
            .collect(),
        None => words.map(|word| (*word).to_owned()).collect(),
    }
}

/// One SSE event, with its name where the dialect has names.
pub(crate) fn event(name: Option<&str>, data: &Value) -> String {
    match name {
        Some(name) => format!("event: {name}\ndata: {data}\n\n"),
        None => format!("data: {data}\n\n"),
    }
}

/// Two parts of a JSON text, cut at a character: arguments come in pieces.
pub(crate) fn halves(text: &str) -> [&str; 2] {
    let middle = (text.len() / 2..=text.len()).find(|at| text.is_char_boundary(*at));
    let (first, second) = text.split_at(middle.unwrap_or(0));
    [first, second]
}
