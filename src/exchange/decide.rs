//! What the head alone decides: malformed, answered here, or forwarded where.
//!
//! Nothing is written and nothing is waited for. Beside the head and the configuration only what a
//! client has left of its limits counts.

use crate::buf::{Grower, Reservation};
use crate::coding::Codings;
use crate::dialect::{Dialect, Family};
use crate::exchange::Core;
use crate::exchange::admit::{Admission, admit};
use crate::exchange::classified::Turning;
use crate::exchange::outcome::{self, Report};
use crate::exchange::reject::Rejection;
use crate::exchange::told::{identify, note_model, wishes};
use crate::exchange::whoami::{WHOAMI_PATH, whoami};
use crate::failure::Failure;
use crate::http1::framing::{BodyLength, request_body};
use crate::http1::head::{RequestHead, Version, field, values};
use crate::http1::hop::ConnectionOptions;
use crate::http1::host::host;
use crate::http1::target::{Target, has_dot_segments, parse_target};
use crate::identity::session;
use crate::lane::{Asks, Body, Inspection, Lane, Rigour, choose};
use crate::local::Answer;
use crate::observe::{Record, RequestId};
use crate::peek::{Demand, Peek};
use crate::route::{Routed, guess_family, match_path};
use crate::switch;

/// What is done with a request.
#[derive(Debug)]
pub(super) enum Decision {
    /// Answered here.
    Local(Answer),
    /// The report of an outcome, whose body is still to be read.
    Report(Box<Report>),
    /// Refused. `unread` if a body follows that was not read.
    Reject {
        /// The answer.
        rejection: Rejection,
        /// Whether bytes of the request are still to come.
        unread: bool,
    },
    /// Sent to a provider.
    Forward(Box<Forward>),
}

/// What matters of a request until its answer is written: what its head said, and what was done to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) id: RequestId,
    pub(super) family: Family,
    /// The dialect, on a path that has one.
    pub(super) dialect: Option<Dialect>,
    pub(super) chunked: bool,
    pub(super) expects_continue: bool,
    pub(super) version: Version,
    pub(super) is_head: bool,
    pub(super) wants_trailers: bool,
    /// Whether the client keeps the connection after this exchange.
    pub(super) keeps_open: bool,
    /// Whether its provider is asked for usage that the client did not ask for.
    pub(super) injects_usage: bool,
}

impl Asked {
    /// How this request's client is told of a failure.
    pub(super) fn rejection(&self, failure: Failure, close: bool) -> Rejection {
        let close = close || !self.keeps_open;
        Rejection {
            failure,
            family: self.family,
            id: self.id,
            close,
            to_head: self.is_head,
        }
    }
}

/// A request on its way to a provider.
#[derive(Debug)]
pub(super) struct Forward {
    pub(super) asked: Asked,
    /// Who sent it; holds the client's slot until the exchange is over.
    pub(super) admission: Admission,
    /// Where it goes, if the head alone decides; otherwise the body's model does.
    pub(super) route: Option<Routed>,
    /// Whether its provider may have to be told its session.
    pub(super) sessions: bool,
    /// Whether the body must be a request of one of the three dialects.
    pub(super) judged: bool,
    /// The content coding that the body is sent on with.
    pub(super) codings: Codings,
    /// Whether it came with one that was taken off.
    pub(super) unpacked: bool,
    pub(super) length: BodyLength,
    pub(super) body: Body,
    /// Memory for a body that is held beyond a window.
    pub(super) reservation: Option<Reservation>,
    /// The right to ask for more, for a body of unknown length.
    pub(super) grower: Option<Grower>,
}

impl Forward {
    /// Notes how much of the body came, and what was known of it.
    pub(super) fn account(&self, record: &mut Record) {
        record.request_bytes = self.body.received();
        let facts = self.body.facts();
        record.seen = facts.map(Peek::seen);
        if let Some(facts) = facts {
            note_model(record, facts);
        }
    }
}

/// Decides from the head, whose text is `bytes`, and notes in `record` who sent it.
pub(super) fn decide(
    core: &Core,
    head: &RequestHead,
    bytes: &[u8],
    (record, turn): (&mut Record, &mut Turning),
) -> Decision {
    let id = record.id;
    match judge(core, head, bytes, (record, turn)) {
        Ok(decision) => decision,
        Err(failure) => {
            // Where the next request begins is known only if the framing was understood.
            let unread = !matches!(
                request_body(head, bytes),
                Ok(BodyLength::None | BodyLength::Known(0))
            ) || failure.status() == 400;
            let family = family_of(head, bytes);
            let to_head = head.method.of(bytes) == b"HEAD";
            let options = ConnectionOptions::of(&head.fields, bytes);
            let stays_open = options.is_ok_and(|o| stays_open(core, head.version, &o));
            let close = unread || !stays_open;
            Decision::Reject {
                rejection: Rejection {
                    failure,
                    family,
                    id,
                    close,
                    to_head,
                },
                unread,
            }
        }
    }
}

/// The family whose error shape suits a request: that of its path, where it has one.
fn family_of(head: &RequestHead, bytes: &[u8]) -> Family {
    let anthropic = field(&head.fields, bytes, "anthropic-version").is_some();
    let path = match parse_target(head.method.of(bytes), head.target.of(bytes)) {
        Ok(Target::Origin { path, .. } | Target::Absolute { path, .. }) => path,
        Ok(Target::Asterisk | Target::Authority) | Err(_) => &[],
    };
    match_path(path, anthropic).map_or_else(|| guess_family(bytes), |matched| matched.family)
}

fn judge(
    core: &Core,
    head: &RequestHead,
    bytes: &[u8],
    (record, turn): (&mut Record, &mut Turning),
) -> Result<Decision, Failure> {
    let id = record.id;
    let method = head.method.of(bytes);
    let target = parse_target(method, head.target.of(bytes)).map_err(Failure::Target)?;
    host(head, bytes).map_err(Failure::Host)?;
    let options = ConnectionOptions::of(&head.fields, bytes).map_err(Failure::Framing)?;
    let stays_open = stays_open(core, head.version, &options);
    let length = request_body(head, bytes).map_err(Failure::Framing)?;
    // A provider that reflects a TRACE (RFC 9110 §9.3.8) would show the client what only it was sent.
    if !method.iter().all(u8::is_ascii_uppercase) || method == b"TRACE" {
        return Err(Failure::Method);
    }
    let (path, query) = path_and_query(target)?;
    if method == b"HEAD" && path == b"/" && length == BodyLength::None {
        return Ok(Decision::Local(Answer::alive(&id.to_string(), !stays_open)));
    }
    let expects_continue = expectation(head, bytes)?;
    // An answer here leaves a body unread, if there is one.
    let close = !stays_open || length != BodyLength::None;
    if method == b"GET" && path == WHOAMI_PATH {
        return whoami(core, (head, bytes, query), record, close).map(Decision::Local);
    }
    let anthropic = field(&head.fields, bytes, "anthropic-version").is_some();
    if method == b"POST" && path == outcome::PATH && core.ledger.is_some() {
        let admission = admit(core, head, bytes, record)?;
        let report = Report::new(id, length, (expects_continue, stays_open), admission);
        return Ok(Decision::Report(Box::new(report)));
    }
    let matched = match_path(path, anthropic).ok_or(Failure::NoRoute)?;
    let admission = admit(core, head, bytes, record)?;
    if matches!(length, BodyLength::Known(bytes) if bytes > core.settings.body_bytes) {
        return Err(Failure::BodyTooLong);
    }
    if asks_for_websocket(head, bytes) && matched.path.ends_with(b"/responses") {
        return Err(Failure::WebSocket);
    }
    if method == b"GET" && matched.is_model_list() && core.table.has_models(matched.family) {
        return Ok(Decision::Local(model_list(core, matched.family, id, close)));
    }
    let dialect = matched.dialect().filter(|_| method == b"POST");
    let content = Content::of(head, bytes, dialect, length);
    identify(core, head, bytes, record);
    let wishes = turn.begin(core, (head, bytes), dialect, record) | wishes(core, record);
    let (route, inspection) = read_for(core, matched.family, content, wishes)?;
    let judged = inspection.is_some() && content.dialect.is_some();
    Ok(Decision::Forward(Box::new(Forward {
        asked: Asked {
            id,
            family: matched.family,
            dialect: content.dialect,
            chunked: length == BodyLength::Chunked,
            expects_continue,
            version: head.version,
            is_head: method == b"HEAD",
            wants_trailers: wants_trailers(head, bytes),
            keeps_open: stays_open,
            injects_usage: false,
        },
        admission,
        sessions: route.is_none() && core.table.takes_sessions(matched.family),
        route,
        judged,
        codings: content.codings,
        unpacked: false,
        length,
        body: content.body(inspection, core.settings.body_bytes),
        reservation: None,
        grower: None,
    })))
}

/// What a request asks for of an origin; a path with one reading.
fn path_and_query(target: Target<'_>) -> Result<(&[u8], Option<&[u8]>), Failure> {
    let (path, query) = match target {
        Target::Origin { path, query } | Target::Absolute { path, query, .. } => (path, query),
        Target::Asterisk => return Err(Failure::NoRoute),
        Target::Authority => return Err(Failure::Method),
    };
    if has_dot_segments(path) {
        return Err(Failure::DotSegments);
    }
    Ok((path, query))
}

fn model_list(core: &Core, family: Family, id: RequestId, close: bool) -> Answer {
    let names = core.table.names(family);
    Answer::models(family, &names, &id.to_string(), close)
}

/// What the head says of the body's content.
#[derive(Clone, Copy, Debug)]
struct Content {
    /// The dialect, on a path whose bodies are read.
    dialect: Option<Dialect>,
    json: bool,
    codings: Codings,
    length: BodyLength,
}

impl Content {
    fn of(head: &RequestHead, bytes: &[u8], dialect: Option<Dialect>, length: BodyLength) -> Self {
        Self {
            dialect,
            json: may_be_json(head, bytes),
            codings: Codings::of(values(&head.fields, bytes, "content-encoding")),
            length,
        }
    }

    /// The body, of at most `limit` bytes as sent and decoded.
    fn body(self, inspection: Option<Inspection>, limit: u64) -> Body {
        let coding = match self.codings {
            Codings::One(coding) => Some(coding),
            Codings::Plain | Codings::Unreadable => None,
        };
        Body::new(self.length, limit, false)
            .inspected(inspection)
            .coded(coding, limit)
    }
}

/// The route that is known at the head, and what the body is read for; `wishes` beside what is needed.
fn read_for(
    core: &Core,
    family: Family,
    content: Content,
    wishes: Demand,
) -> Result<(Option<Routed>, Option<Inspection>), Failure> {
    let default = || core.table.default_of(family).ok_or(Failure::NoProvider);
    let only = core.table.only(family);
    // Where a body has to name its model, none at all is one that is no JSON.
    let empty = matches!(content.length, BodyLength::None | BodyLength::Known(0));
    if empty && (content.dialect.is_none() || only.is_some()) {
        return Ok((Some(default()?), None));
    }
    let trailing_max = core.settings.window_bytes as u64;
    let inspect =
        |dialect, demand, rigour| Some(Inspection::new(dialect, demand, rigour, trailing_max));
    let asks = Asks {
        same_dialect: true,
        codings: content.codings,
        fact: only.is_none(),
        patch: false,
    };
    let mut demand = Demand::NOTHING;
    if core.settings.switches.watches(content.dialect) {
        demand = demand | switch::DEMAND;
    }
    if only.is_none() && core.table.takes_sessions(family) {
        demand = demand | session::DEMAND;
    }
    match (content.dialect, only) {
        // Who needs no fact of compressed bytes lets them pass.
        (_, Some(only)) if content.codings.is_coded() => Ok((Some(only), None)),
        (Some(dialect), Some(only)) => {
            let demand = demand | wishes;
            Ok((Some(only), inspect(dialect, demand, Rigour::Structure)))
        }
        (None, Some(only)) => Ok((Some(only), None)),
        (Some(dialect), None) => match choose(asks) {
            Lane::Wire => {
                let demand = demand | wishes | Demand::MODEL;
                Ok((None, inspect(dialect, demand, Rigour::Required)))
            }
            Lane::Canonical(decline) => Err(Failure::ContentCoding(decline)),
        },
        (None, None) if content.json && content.codings != Codings::Unreadable => {
            let demand = demand | Demand::MODEL;
            Ok((None, inspect(Dialect::Chat, demand, Rigour::Lenient)))
        }
        (None, None) => Ok((Some(default()?), None)),
    }
}

/// Whether the body may be JSON: it says so (RFC 8259 §11, RFC 6839 §3.1), or says nothing, or what a
/// command-line client says of any body that it was not told about. Its first byte tells the rest.
fn may_be_json(head: &RequestHead, bytes: &[u8]) -> bool {
    let Some(value) = field(&head.fields, bytes, "content-type") else {
        return true;
    };
    let media = value.split(|byte| *byte == b';').next().unwrap_or_default();
    let media = media.trim_ascii();
    let ending = media.len().saturating_sub(b"+json".len());
    [
        &b"application/json"[..],
        b"application/x-www-form-urlencoded",
    ]
    .iter()
    .any(|known| media.eq_ignore_ascii_case(known))
        || media
            .get(ending..)
            .is_some_and(|end| end.eq_ignore_ascii_case(b"+json"))
}

/// Whether the connection goes on after this exchange. HTTP/1.0 clients are answered and closed, whatever
/// they ask for, and everybody is while the process stops.
fn stays_open(core: &Core, version: Version, options: &ConnectionOptions<'_>) -> bool {
    version == Version::Http11 && !core.stop.is_set() && options.keeps_open(version)
}

/// RFC 9110 §10.1.1; an expectation of an HTTP/1.0 client is ignored.
fn expectation(head: &RequestHead, bytes: &[u8]) -> Result<bool, Failure> {
    let mut expects = false;
    for value in values(&head.fields, bytes, "expect") {
        if value.eq_ignore_ascii_case(b"100-continue") {
            expects = true;
        } else if head.version == Version::Http11 {
            return Err(Failure::Expectation);
        }
    }
    Ok(expects && head.version == Version::Http11)
}

fn asks_for_websocket(head: &RequestHead, bytes: &[u8]) -> bool {
    values(&head.fields, bytes, "upgrade").any(|value| value.eq_ignore_ascii_case(b"websocket"))
}

/// RFC 9110 §6.5.1: trailer fields may be forwarded to who says so.
fn wants_trailers(head: &RequestHead, bytes: &[u8]) -> bool {
    values(&head.fields, bytes, "te")
        .flat_map(|value| value.split(|byte| *byte == b','))
        .any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}
