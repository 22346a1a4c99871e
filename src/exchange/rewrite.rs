//! Heads for the other side: what stays, what goes, what is written anew.
//!
//! Names, case and order of end-to-end fields are kept in both directions, unknown and underscored
//! ones too (decision G9). A field that is written anew takes the place of the one it replaces.

use crate::auth::{Outgoing, Spent};
use crate::http1::emit;
use crate::http1::framing::BodyLength;
use crate::http1::head::{Field, RequestHead, ResponseHead};
use crate::http1::hop::{ConnectionOptions, is_hop_by_hop};
use crate::identity::session::FIELDS;
use crate::lane::Framing;
use crate::observe::RequestId;

/// Prefixes of fields that are between a client and this gateway only.
const OWN_PREFIXES: [&[u8]; 2] = [b"x-lanegate-", b"x-router-"];

/// The version of the Anthropic API for a client that names none.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// The field in which a provider is told the session.
const SESSION_FIELD: &[u8] = b"x-opencode-session";

/// The session of a request as its provider is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp<'a> {
    /// Its id at the provider.
    pub(super) id: &'a str,
    /// Whether the client has another id for it, which then goes nowhere.
    pub(super) translated: bool,
}

impl Stamp<'_> {
    /// Whether a field of the client ends here: those that a provider would read the session from, and
    /// where it has another id all in which the client's may be (decision S5).
    fn removes(self, name: &[u8]) -> bool {
        let named = |field: &&str| name.eq_ignore_ascii_case(field.as_bytes());
        match FIELDS.iter().position(named) {
            Some(position) => position < 2 || self.translated,
            None => false,
        }
    }
}

/// What changes in a request head.
#[derive(Debug)]
pub(super) struct RequestRewrite<'a> {
    /// Path prefix of the provider's base URL.
    pub(super) prefix: &'a [u8],
    /// Path for the provider.
    pub(super) path: &'a [u8],
    /// Query as sent, without `?`.
    pub(super) query: Option<&'a [u8]>,
    /// Value of `Host`.
    pub(super) authority: &'a [u8],
    /// Framing of the body.
    pub(super) length: BodyLength,
    /// Whether the body lost its content coding.
    pub(super) unpacked: bool,
    /// Whose credential the provider gets.
    pub(super) credential: Outgoing<'a>,
    /// The fields that held the client's key for this gateway, which end here in any case.
    pub(super) spent: Spent,
    /// The session of which the provider is told.
    pub(super) session: Option<Stamp<'a>>,
    /// `anthropic-version` for a client that names none; none on the other family.
    pub(super) anthropic_version: Option<&'a str>,
}

/// The request head for the provider.
pub(super) fn request_head(
    head: &RequestHead,
    bytes: &[u8],
    options: &ConnectionOptions<'_>,
    rewrite: &RequestRewrite<'_>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(head.len.saturating_add(256));
    request_line(&mut out, head.method.of(bytes), rewrite);
    let (mut host, mut credential, mut version) = (false, false, false);
    let mut session = rewrite.session;
    for field in &head.fields {
        let name = field.name.of(bytes);
        if name.eq_ignore_ascii_case(b"host") {
            emit::field(&mut out, name, rewrite.authority);
            host = true;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            emit::field(&mut out, name, b"chunked");
        } else if name.eq_ignore_ascii_case(b"content-length") {
            if let BodyLength::Known(length) = rewrite.length {
                emit::field(&mut out, name, length.to_string().as_bytes());
            }
        } else if rewrite.unpacked && name.eq_ignore_ascii_case(b"content-encoding") {
            // Its value names what the body does not have any more.
        } else if rewrite.credential.removes(name) || rewrite.spent.removes(name) {
            if let Outgoing::Write { name: ours, value } = rewrite.credential
                && !credential
                && name.eq_ignore_ascii_case(ours.as_bytes())
            {
                emit::field(&mut out, name, value);
                credential = true;
            }
        } else if rewrite.session.is_some_and(|stamp| stamp.removes(name)) {
            if let Some(stamp) = session.take_if(|_| name.eq_ignore_ascii_case(SESSION_FIELD)) {
                emit::field(&mut out, name, stamp.id.as_bytes());
            }
        } else if !is_removed(name, options) && !name.eq_ignore_ascii_case(b"expect") {
            version |= name.eq_ignore_ascii_case(b"anthropic-version");
            copy(&mut out, bytes, field);
        }
    }
    if !host {
        emit::field(&mut out, b"Host", rewrite.authority);
    }
    if let Outgoing::Write { name, value } = rewrite.credential
        && !credential
    {
        emit::field(&mut out, name.as_bytes(), value);
    }
    if let Some(stamp) = session {
        emit::field(&mut out, SESSION_FIELD, stamp.id.as_bytes());
    }
    if let Some(default) = rewrite.anthropic_version
        && !version
    {
        emit::field(&mut out, b"anthropic-version", default.as_bytes());
    }
    emit::end(&mut out);
    out
}

/// The version to fill in for a provider of the Anthropic family.
pub fn anthropic_version(configured: Option<&str>) -> String {
    configured.unwrap_or(ANTHROPIC_VERSION).to_owned()
}

fn request_line(out: &mut Vec<u8>, method: &[u8], rewrite: &RequestRewrite<'_>) {
    let (mark, query): (&[u8], _) = match rewrite.query {
        Some(query) => (b"?", query),
        None => (b"", &[][..]),
    };
    emit::request_line(out, method, &[rewrite.prefix, rewrite.path, mark, query]);
}

/// Whether a field ends here: hop-by-hop, named in `Connection`, or the gateway's own.
fn is_removed(name: &[u8], options: &ConnectionOptions<'_>) -> bool {
    is_hop_by_hop(name) || is_own(name) || options.names(name)
}

fn is_own(name: &[u8]) -> bool {
    OWN_PREFIXES.iter().any(|own| {
        name.get(..own.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(own))
    })
}

/// What changes in a response head.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseRewrite {
    pub(super) id: RequestId,
    /// Framing of the body towards the client.
    pub(super) framing: Framing,
    /// Whether the client's connection closes after this response.
    pub(super) close: bool,
}

/// The response head for the client.
pub(super) fn response_head(
    head: &ResponseHead,
    bytes: &[u8],
    options: &ConnectionOptions<'_>,
    rewrite: ResponseRewrite,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(head.len.saturating_add(128));
    emit::status_line(&mut out, head.status, head.reason.of(bytes));
    let mut chunked = false;
    for field in &head.fields {
        let name = field.name.of(bytes);
        if name.eq_ignore_ascii_case(b"transfer-encoding") && rewrite.framing == Framing::Chunked {
            emit::field(&mut out, name, b"chunked");
            chunked = true;
        } else if name.eq_ignore_ascii_case(b"content-length") && !may_have_length(head.status) {
            // RFC 9110 §8.6: no length in 1xx and 204.
        } else if !is_removed(name, options) {
            copy(&mut out, bytes, field);
        }
    }
    if rewrite.framing == Framing::Chunked && !chunked {
        emit::field(&mut out, b"transfer-encoding", b"chunked");
    }
    emit::field(
        &mut out,
        b"x-lanegate-request-id",
        rewrite.id.spelled().as_str().as_bytes(),
    );
    if rewrite.close {
        emit::field(&mut out, b"connection", b"close");
    }
    emit::end(&mut out);
    out
}

/// An interim response as it is passed on.
pub(super) fn interim_head(
    head: &ResponseHead,
    bytes: &[u8],
    options: &ConnectionOptions<'_>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(head.len);
    emit::status_line(&mut out, head.status, head.reason.of(bytes));
    for field in &head.fields {
        let name = field.name.of(bytes);
        if !is_removed(name, options) && !name.eq_ignore_ascii_case(b"content-length") {
            copy(&mut out, bytes, field);
        }
    }
    emit::end(&mut out);
    out
}

/// Copies a field line as it came, up to the end of its value: what is around the colon included.
fn copy(out: &mut Vec<u8>, bytes: &[u8], field: &Field) {
    let (name, value) = (field.name.range(), field.value.range());
    if value.is_empty() {
        out.extend_from_slice(field.name.of(bytes));
        out.push(b':');
    } else {
        out.extend_from_slice(bytes.get(name.start..value.end).unwrap_or_default());
    }
    out.extend_from_slice(b"\r\n");
}

fn may_have_length(status: u16) -> bool {
    !matches!(status, 100..=199 | 204)
}
