//! From a request head to an answer.

use std::net::{IpAddr, SocketAddr};

use serde_json::json;

use crate::admin::{Admin, Looked, NotReloaded, Operations, Readiness, Summed};
use crate::auth::Secret;
use crate::classify::{Classification, Evidence};
use crate::http1::emit;
use crate::http1::head::{RequestHead, field};
use crate::http1::host::host;
use crate::http1::target::{Target, parse_target};
use crate::identity::is_label;
use crate::observe::CONTENT_TYPE;

/// Bytes of a value in a query: the longest key, with room.
const QUERY_BYTES_MAX: usize = 200;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const YAML: &str = "application/yaml";

/// What stands before the request id.
const EXPLAIN: &[u8] = b"/admin/explain/";

/// What is said of a value that is none.
const NO_LABEL: &str =
    "a value is empty, too long or has other characters than A-Z a-z 0-9 . _ : -";

/// What is said where something of one client is asked for, and not of which.
const NO_PRINCIPAL: &str = "principal is needed, since clients have names here: principal=NAME, or \
                            principal= for requests from before they had";

/// What precedes the id of a session.
const SESSIONS: &[u8] = b"/admin/sessions/";

/// A complete response; the connection closes after it.
pub(super) struct Answer {
    pub(super) bytes: Vec<u8>,
}

impl Answer {
    /// To a request that is malformed or beyond a bound.
    pub(super) fn refused(status: u16) -> Self {
        let body = format!("{}\n", String::from_utf8_lossy(reason(status)));
        Content::new(status, TEXT, body).into_answer(false)
    }
}

struct Content {
    status: u16,
    kind: &'static str,
    body: Vec<u8>,
    /// One more field.
    field: Option<(&'static str, &'static str)>,
}

impl Content {
    fn new(status: u16, kind: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            kind,
            body: body.into(),
            field: None,
        }
    }

    fn text(status: u16, words: &str) -> Self {
        Self::new(status, TEXT, format!("{words}\n"))
    }

    fn json(status: u16, value: &serde_json::Value) -> Self {
        Self::new(status, JSON, format!("{value}\n"))
    }

    fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.field = Some((name, value));
        self
    }

    fn into_answer(self, to_head: bool) -> Answer {
        let mut bytes = Vec::with_capacity(self.body.len().saturating_add(256));
        let length = self.body.len().to_string();
        emit::status_line(&mut bytes, self.status, reason(self.status));
        emit::field(&mut bytes, b"content-type", self.kind.as_bytes());
        emit::field(&mut bytes, b"content-length", length.as_bytes());
        emit::field(&mut bytes, b"cache-control", b"no-store");
        emit::field(&mut bytes, b"connection", b"close");
        if let Some((name, value)) = self.field {
            emit::field(&mut bytes, name.as_bytes(), value.as_bytes());
        }
        emit::end(&mut bytes);
        if !to_head {
            bytes.extend_from_slice(&self.body);
        }
        Answer { bytes }
    }
}

/// What can be asked for.
enum Endpoint<'a> {
    Health,
    Ready,
    Metrics,
    Config,
    Explain(&'a str),
    /// With its query.
    Conversations(&'a str),
    /// With its query.
    Session(&'a str, &'a str),
    Reload,
}

impl<'a> Endpoint<'a> {
    fn at(path: &'a [u8], query: Option<&'a [u8]>) -> Option<Self> {
        Some(match path {
            b"/healthz" => Self::Health,
            b"/readyz" => Self::Ready,
            b"/metrics" => Self::Metrics,
            b"/admin/config" => Self::Config,
            b"/admin/reload" => Self::Reload,
            b"/admin/conversations" => {
                Self::Conversations(std::str::from_utf8(query.unwrap_or_default()).ok()?)
            }
            _ if path.starts_with(SESSIONS) => {
                let id = path.strip_prefix(SESSIONS).unwrap_or_default();
                let query = std::str::from_utf8(query.unwrap_or_default()).ok()?;
                Self::Session(std::str::from_utf8(id).ok()?, query)
            }
            _ => Self::Explain(std::str::from_utf8(path.strip_prefix(EXPLAIN)?).ok()?),
        })
    }

    /// Load balancers and supervisors have no key, and learn a word.
    fn needs_key(&self) -> bool {
        !matches!(self, Self::Health | Self::Ready)
    }

    fn allows(&self, method: &[u8]) -> bool {
        match self {
            Self::Reload => method == b"POST",
            _ => method == b"GET" || method == b"HEAD",
        }
    }

    fn allowed(&self) -> &'static str {
        match self {
            Self::Reload => "POST",
            _ => "GET, HEAD",
        }
    }

    fn content(&self, operations: &dyn Operations) -> Content {
        match self {
            Self::Health if operations.is_alive() => Content::text(200, "alive"),
            Self::Health => Content::text(503, "a core is stuck"),
            Self::Ready => match operations.readiness() {
                Readiness::Ready => Content::text(200, "ready"),
                Readiness::Unrecorded => {
                    Content::text(200, "ready, but the ledger is not being stored")
                }
                Readiness::Stopping => Content::text(503, "stopping"),
                Readiness::Stuck => Content::text(503, "a core does not serve"),
            },
            Self::Metrics => Content::new(200, CONTENT_TYPE, operations.metrics()),
            Self::Config => Content::new(200, YAML, operations.config()),
            Self::Explain(id) => match operations.explain(id) {
                Some(record) => Content::new(200, JSON, record),
                None => Content::json(
                    404,
                    &json!({"error": "no exchange with this request id is known: it is not over, or \
                                      no longer among the last"}),
                ),
            },
            Self::Conversations(query) => conversations(operations, query),
            Self::Session(id, query) => session(operations, id, query),
            Self::Reload => reload(operations),
        }
    }
}

/// Whether this can be the name of a client, or that of all where they have none.
fn is_name(value: &str) -> bool {
    value.is_empty() || is_label(value.as_bytes(), QUERY_BYTES_MAX)
}

/// Whose conversation is asked for; none where that has to be said and was not.
fn known_principal<'a>(operations: &dyn Operations, said: Option<&'a str>) -> Option<&'a str> {
    said.or_else(|| (!operations.has_clients()).then_some(""))
}

/// `conversation` is the id that the client sends, `session_key` any key as it is stored.
fn conversations(operations: &dyn Operations, query: &str) -> Content {
    let (mut principal, mut session) = (None, None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "principal" if is_name(value) => principal = Some(value),
            // Keys, ids and names of clients need no escapes.
            _ if !is_label(value.as_bytes(), QUERY_BYTES_MAX) => {
                return bad_query(NO_LABEL);
            }
            "conversation" => session = Some(format!("c:{value}")),
            "session_key" => session = Some(value.to_owned()),
            _ => return bad_query("known parameters: conversation, session_key, principal"),
        }
    }
    let Some(principal) = known_principal(operations, principal) else {
        return bad_query(NO_PRINCIPAL);
    };
    match operations.conversations(principal, session.as_deref()) {
        Summed::Tree(tree) => match serde_json::to_value(&tree) {
            Ok(tree) => Content::json(200, &tree),
            Err(_) => Content::text(500, "the sum cannot be written"),
        },
        Summed::NoLedger => Content::json(
            404,
            &json!({"error": "there is no ledger: store.url is none"}),
        ),
        Summed::Unavailable => {
            let content = Content::json(503, &json!({"error": "the ledger cannot be reached"}));
            content.with("retry-after", "1")
        }
    }
}

/// `id` is what a client calls its conversation, or a token of a session. The session's key is not shown.
fn session(operations: &dyn Operations, id: &str, query: &str) -> Content {
    let principal = match query.split_once('=') {
        None if query.is_empty() => None,
        Some(("principal", principal)) if is_name(principal) => Some(principal),
        Some(("principal", _)) => return bad_query(NO_LABEL),
        _ => return bad_query("known parameters: principal"),
    };
    let Some(principal) = known_principal(operations, principal) else {
        return bad_query(NO_PRINCIPAL);
    };
    if !is_label(id.as_bytes(), QUERY_BYTES_MAX) {
        return bad_query(NO_LABEL);
    }
    match operations.session(principal, id) {
        Looked::Known(found) => {
            let evidence = found.evidence();
            Content::json(
                200,
                &json!({
                    "kind": found.kind(),
                    "source": evidence.map(|it| it.source().as_str()),
                    "confidence": evidence.map(|_| Classification::CONFIDENCE),
                    "evidence": evidence.map(Evidence::as_str),
                    "revision": found.revision(),
                }),
            )
        }
        Looked::Off => Content::json(
            404,
            &json!({"error": "session-classification is not enabled"}),
        ),
        Looked::NoSuchToken => Content::json(
            404,
            &json!({"error": "the token is not valid for this principal"}),
        ),
        Looked::Unavailable => {
            let content = Content::json(503, &json!({"error": "the store cannot be reached"}));
            content.with("retry-after", "1")
        }
    }
}

fn bad_query(what: &str) -> Content {
    Content::json(400, &json!({"error": what}))
}

fn reload(operations: &dyn Operations) -> Content {
    match operations.reload() {
        Ok(done) => Content::json(
            200,
            &json!({"generation": done.generation, "needs_restart": done.waiting}),
        ),
        Err(NotReloaded::NoFile) => Content::json(
            409,
            &json!({"error": "nothing to reload: started without a configuration file"}),
        ),
        Err(NotReloaded::Refused(why)) => {
            let failures: Vec<_> = why.lines().collect();
            Content::json(
                422,
                &json!({"error": "not reloaded, nothing changed", "failures": failures}),
            )
        }
    }
}

/// The answer to a request whose head is complete.
pub(super) fn answer(admin: &Admin, head: &RequestHead, bytes: &[u8]) -> Answer {
    let method = head.method.of(bytes);
    content(admin, head, bytes).into_answer(method == b"HEAD")
}

fn content(admin: &Admin, head: &RequestHead, bytes: &[u8]) -> Content {
    let method = head.method.of(bytes);
    let (path, query) = match parse_target(method, head.target.of(bytes)) {
        Ok(Target::Origin { path, query } | Target::Absolute { path, query, .. }) => (path, query),
        Ok(Target::Asterisk | Target::Authority) => return Content::text(404, "not found"),
        Err(error) => return Content::text(error.status(), "the request target is malformed"),
    };
    let host = match host(head, bytes) {
        Ok(host) => host,
        Err(error) => return Content::text(error.status(), "the Host field is malformed"),
    };
    let origin = field(&head.fields, bytes, "origin");
    if admin.key.is_none() && (origin.is_some() || !host.is_none_or(is_this_machine)) {
        return Content::text(
            403,
            "without a key this listener answers to an IP address or localhost as Host, and to no \
             request with Origin",
        );
    }
    let Some(endpoint) = Endpoint::at(path, query) else {
        return Content::text(404, "not found");
    };
    if endpoint.needs_key()
        && let Some(key) = &admin.key
        && !shows(head, bytes, key)
    {
        return Content::text(401, "a key is needed").with("www-authenticate", "Bearer");
    }
    if !endpoint.allows(method) {
        return Content::text(405, "not with this method").with("allow", endpoint.allowed());
    }
    endpoint.content(admin.operations.as_ref())
}

/// Whether an authority cannot be a name that somebody had resolve to this machine, which is how a web
/// page comes to read what it should not (DNS rebinding). One that only posts says its origin (Fetch §3.2).
fn is_this_machine(authority: &[u8]) -> bool {
    let Ok(authority) = std::str::from_utf8(authority) else {
        return false;
    };
    let name = authority.split(':').next().unwrap_or_default();
    let inner = authority.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || authority.parse::<SocketAddr>().is_ok()
        || inner.parse::<IpAddr>().is_ok()
}

/// Whether the request shows the key (RFC 6750 §2.1).
fn shows(head: &RequestHead, bytes: &[u8], key: &Secret) -> bool {
    const SCHEME: &[u8] = b"bearer ";
    let value = field(&head.fields, bytes, "authorization").unwrap_or_default();
    let Some((scheme, shown)) = value.split_at_checked(SCHEME.len()) else {
        return false;
    };
    scheme.eq_ignore_ascii_case(SCHEME) && key.is(shown)
}

/// The reason phrase of a status (RFC 9110 §15).
fn reason(status: u16) -> &'static [u8] {
    match status {
        200 => b"OK",
        400 => b"Bad Request",
        401 => b"Unauthorized",
        403 => b"Forbidden",
        404 => b"Not Found",
        405 => b"Method Not Allowed",
        409 => b"Conflict",
        413 => b"Content Too Large",
        414 => b"URI Too Long",
        422 => b"Unprocessable Content",
        431 => b"Request Header Fields Too Large",
        501 => b"Not Implemented",
        503 => b"Service Unavailable",
        505 => b"HTTP Version Not Supported",
        _ => b"",
    }
}
