//! From the facts that were gathered to a provider, a head for it and what changes in the body.

use crate::auth::describe_auth;
use crate::dialect::{Dialect, Family};
use crate::exchange::decide::Forward;
use crate::exchange::rewrite::{RequestRewrite, Stamp, request_head};
use crate::exchange::verdict::{Local, SessionKey, Verdict};
use crate::exchange::{Client, Core};
use crate::failure::Failure;
use crate::http1::framing::BodyLength;
use crate::http1::hop::ConnectionOptions;
use crate::http1::target::{Target, parse_target};
use crate::identity::session::Asker;
use crate::json::{Patch, Patches, patched_len, quote};
use crate::lane::{Asks, Decline, Lane, choose};
use crate::observe::Destination;
use crate::peek::{Fact, Peek, TopKey};
use crate::route::{Routed, match_path};
use crate::upstream::{EndpointId, Pool};
use crate::usage::{Injection, ask_for_usage, is_for_no_stream};

/// What is done with a request whose body was gathered.
#[expect(
    clippy::large_enum_variant,
    reason = "made once an exchange and taken apart at once; a box would be an allocation for each"
)]
pub(super) enum Plan<'a> {
    /// It is sent.
    Forward(Planned<'a>),
    /// It is answered here.
    Local(Local),
}

/// A request that is ready to be sent.
pub(super) struct Planned<'a> {
    /// The connections of its provider.
    pub(super) pool: &'a Pool,
    /// Its head.
    pub(super) head: Vec<u8>,
    /// The spans of its body that are replaced.
    pub(super) patches: Patches,
    /// What is to become of asking for usage, where its provider is to be asked.
    pub(super) injection: Option<Injection>,
    /// Where it goes, for its record.
    pub(super) to: Destination,
    /// What is still to be judged of its body.
    pub(super) verdict: Verdict<'a>,
}

/// Routes a request whose body was gathered; then answers it here if it is a switch, or translates its
/// session and writes its head. This order shows: a switch without a model is 400.
pub(super) fn plan<'a>(
    core: &'a Core,
    client: &Client,
    forward: &Forward,
) -> Result<Plan<'a>, Failure> {
    let routed = route(core, forward)?;
    let told = takes_session(core, forward, &routed);
    let session = told.then(|| asker(client, forward).session()).flatten();
    let mut verdict = Verdict::new(core, forward, session);
    if forward.body.is_complete() {
        let facts = forward.body.facts();
        if let Some(instead) = facts.and_then(|facts| verdict.instead_of(facts)) {
            return instead.map(Plan::Local);
        }
        verdict.is_given = true;
    }
    let stamp = verdict.stamp();
    let stamp = stamp.as_ref().map(|(id, translated)| Stamp {
        id,
        translated: *translated,
    });
    let mut patches = Patches::default();
    if let Some(patch) = model_patch(forward, &routed) {
        patches.add(patch).map_err(|_| Failure::Internal)?;
    }
    if let Some(stamp) = stamp.filter(|_| has_session_key(forward)) {
        let (patch, key) = session_patch(forward, stamp.id)?;
        patches.add(patch).map_err(|_| Failure::Internal)?;
        verdict.session_key = key;
    }
    match lane(forward, !patches.is_empty()) {
        Lane::Wire => {}
        Lane::Canonical(decline) => return Err(Failure::ContentCoding(decline)),
    }
    let injection = match usage_patch(core, client, forward, &routed) {
        Ok(Some(patch)) => {
            patches.add(patch).map_err(|_| Failure::Internal)?;
            Some(Injection::NoAnswer)
        }
        Ok(None) => None,
        Err(why) => Some(why),
    };
    let length = match forward.length {
        BodyLength::Known(length) => {
            let length = patched_len(length, patches.as_slice());
            BodyLength::Known(length.ok_or(Failure::Internal)?)
        }
        length => length,
    };
    let pool = core
        .upstreams
        .pool(EndpointId::new(routed.provider.index()));
    let pool = pool.ok_or(Failure::NoProvider)?;
    let head = head(core, client, (&routed, pool), forward, (length, stamp))?;
    let provider = core.table.provider(routed.provider);
    let provider = provider.ok_or(Failure::NoProvider)?;
    let to = Destination {
        provider: core.label(routed.provider),
        index: routed.provider.index(),
        imposter: routed.imposter,
        auth: describe_auth(&provider.auth, routed.imposter).as_str(),
        model: routed.model,
    };
    Ok(Plan::Forward(Planned {
        pool,
        head,
        patches,
        injection,
        to,
        verdict,
    }))
}

/// Whether the body has to be sent without its content coding, because something in it is replaced.
/// Only once what is replaced is known.
pub(super) fn must_unpack(core: &Core, client: &Client, forward: &Forward) -> bool {
    forward.codings.is_coded()
        && route(core, forward).is_ok_and(|routed| {
            let stamped = || {
                takes_session(core, forward, &routed)
                    && has_session_key(forward)
                    && asker(client, forward).session().is_some()
            };
            let patched = model_patch(forward, &routed).is_some() || stamped();
            lane(forward, patched) == Lane::Canonical(Decline::PatchOnCoded)
        })
}

/// Whether more of the body has to be read for its session, where its provider is told that.
pub(super) fn is_session_open(core: &Core, client: &Client, forward: &Forward) -> bool {
    if !forward.sessions || forward.body.is_complete() {
        return false;
    }
    let Ok(routed) = route(core, forward) else {
        return false;
    };
    // A value that began is replaced as a whole, or not at all.
    let begun = |facts: &Peek| {
        facts.keys().contains(TopKey::SessionId) && facts.span(TopKey::SessionId).is_none()
    };
    takes_session(core, forward, &routed)
        && (asker(client, forward).is_open()
            || has_session_key(forward) && forward.body.facts().is_none_or(begun))
}

/// Whether its provider is told the session of this request.
fn takes_session(core: &Core, forward: &Forward, routed: &Routed) -> bool {
    forward.sessions && core.table.tells_session(routed)
}

/// Whether the session is told in the body too: in a request of the family that has a key for it.
fn has_session_key(forward: &Forward) -> bool {
    forward.judged && forward.asked.family == Family::OpenAi
}

fn asker<'a>(client: &'a Client, forward: &'a Forward) -> Asker<'a> {
    Asker {
        fields: &client.head.fields,
        text: &client.head_text,
        body: forward.body.facts(),
    }
}

/// What tells the session in a body: the client's own value is replaced, or a member put in before all
/// others.
fn session_patch(forward: &Forward, id: &str) -> Result<(Patch, SessionKey), Failure> {
    let facts = forward.body.facts().ok_or(Failure::Internal)?;
    let ambiguous = facts.repeated().contains(TopKey::SessionId);
    let mut replacement = Vec::with_capacity(id.len().saturating_add(16));
    match (
        facts.keys().contains(TopKey::SessionId),
        facts.span(TopKey::SessionId),
    ) {
        (true, Some(span)) if !ambiguous => {
            quote(id, &mut replacement);
            let patch = Patch {
                start: span.start,
                end: span.end,
                replacement: replacement.into(),
            };
            Ok((patch, SessionKey::Replaced))
        }
        // Twice, or as a case-blind parser would read it.
        (true, _) => Err(Failure::Ambiguous(TopKey::SessionId)),
        (false, _) => {
            let opened_at = facts.opened_at().ok_or(Failure::Internal)?;
            replacement.extend_from_slice(b"\"session_id\":");
            quote(id, &mut replacement);
            // A request with a model has other members.
            replacement.push(b',');
            let start = opened_at.saturating_add(1);
            let patch = Patch {
                start,
                end: start,
                replacement: replacement.into(),
            };
            Ok((patch, SessionKey::PutIn))
        }
    }
}

/// What asks for usage in the place of the client, where the provider is to be asked. It changes a body
/// that is here as a whole, and is no reason to make it so.
fn usage_patch(
    core: &Core,
    client: &Client,
    forward: &Forward,
    routed: &Routed,
) -> Result<Option<Patch>, Injection> {
    if !core.table.injects_usage(routed) || forward.asked.dialect != Some(Dialect::Chat) {
        return Ok(None);
    }
    let facts = forward.body.facts();
    if facts.is_some_and(is_for_no_stream) {
        return Ok(None);
    }
    if forward.codings.is_coded() {
        return Err(Injection::RequestCoded);
    }
    if !forward.body.is_complete() {
        return Err(Injection::RequestBeyondWindow);
    }
    let body = client.input.bytes().get(..forward.body.ready());
    facts.map_or(Ok(None), |facts| {
        ask_for_usage(body.unwrap_or_default(), facts)
    })
}

fn lane(forward: &Forward, patch: bool) -> Lane {
    choose(Asks {
        same_dialect: true,
        codings: forward.codings,
        fact: forward.route.is_none(),
        patch,
    })
}

/// The route that the head knew, or the one by the body's model.
fn route(core: &Core, forward: &Forward) -> Result<Routed, Failure> {
    if let Some(routed) = &forward.route {
        return Ok(routed.clone());
    }
    let family = forward.asked.family;
    let model = forward.body.facts().map_or(Err(Failure::NoModel), model);
    match model {
        Ok(model) => {
            let routed = core.table.route(family, model);
            routed.ok_or(Failure::UnknownModel)
        }
        Err(failure) if forward.judged => Err(failure),
        Err(_) => core.table.default_of(family).ok_or(Failure::NoProvider),
    }
}

/// The model that a body asks for.
pub(super) fn model(facts: &Peek) -> Result<&str, Failure> {
    match facts.model() {
        Fact::Found(model) if !model.value.trim().is_empty() => Ok(model.value),
        Fact::BeyondBound => Err(Failure::ModelTooLong),
        Fact::Found(_) | Fact::NotYet | Fact::Absent => Err(Failure::NoModel),
    }
}

/// What stands in the place of the client's model.
fn model_patch(forward: &Forward, routed: &Routed) -> Option<Patch> {
    let target = routed.model.as_ref()?;
    let span = forward.body.facts()?.model().found()?.span;
    let mut replacement = Vec::with_capacity(target.len().saturating_add(2));
    quote(target, &mut replacement);
    Some(Patch {
        start: span.start,
        end: span.end,
        replacement: replacement.into(),
    })
}

fn head(
    core: &Core,
    client: &Client,
    (routed, pool): (&Routed, &Pool),
    forward: &Forward,
    (length, session): (BodyLength, Option<Stamp<'_>>),
) -> Result<Vec<u8>, Failure> {
    let (head, text) = (&client.head, client.head_text.as_slice());
    let provider = core.table.provider(routed.provider);
    let provider = provider.ok_or(Failure::NoProvider)?;
    let options = ConnectionOptions::of(&head.fields, text).map_err(Failure::Framing)?;
    let target = parse_target(head.method.of(text), head.target.of(text));
    let (path, query) = match target.map_err(Failure::Target)? {
        Target::Origin { path, query } | Target::Absolute { path, query, .. } => (path, query),
        Target::Asterisk | Target::Authority => return Err(Failure::NoRoute),
    };
    let endpoint = &pool.endpoint().settings;
    let rewrite = RequestRewrite {
        prefix: endpoint.prefix.as_bytes(),
        // What precedes the path for the provider does not depend on the client's fields.
        path: match_path(path, false).ok_or(Failure::NoRoute)?.path,
        query,
        authority: endpoint.authority.as_bytes(),
        length,
        unpacked: forward.unpacked,
        credential: provider.auth.outgoing(routed.imposter),
        spent: forward.admission.spent,
        session,
        anthropic_version: provider.anthropic_version.as_deref(),
    };
    Ok(request_head(head, text, &options, &rewrite))
}
