//! From the facts that were gathered to a provider, a head for it and what changes in the body.

use crate::auth::{Spent, describe_auth};
use crate::exchange::decide::Forward;
use crate::exchange::rewrite::{RequestRewrite, request_head};
use crate::exchange::{Client, Core};
use crate::failure::Failure;
use crate::http1::framing::BodyLength;
use crate::http1::hop::ConnectionOptions;
use crate::http1::target::{Target, parse_target};
use crate::json::{Patch, patched_len, quote};
use crate::lane::{Asks, Decline, Lane, choose};
use crate::observe::Destination;
use crate::peek::Fact;
use crate::route::{Routed, match_path};
use crate::upstream::{EndpointId, Pool};

/// A request that is ready to be sent.
pub(super) struct Planned<'a> {
    /// The connections of its provider.
    pub(super) pool: &'a Pool,
    /// Its head.
    pub(super) head: Vec<u8>,
    /// The span of its body that is replaced.
    pub(super) patch: Option<Patch>,
    /// Where it goes, for its record.
    pub(super) to: Destination,
}

/// Routes a request whose body was gathered, and writes its head.
pub(super) fn plan<'a>(
    core: &'a Core,
    client: &Client,
    forward: &Forward,
) -> Result<Planned<'a>, Failure> {
    let routed = route(core, forward)?;
    let patch = model_patch(forward, &routed);
    match lane(forward, patch.is_some()) {
        Lane::Wire => {}
        Lane::Canonical(decline) => return Err(Failure::ContentCoding(decline)),
    }
    let length = match (forward.length, &patch) {
        (BodyLength::Known(length), Some(patch)) => {
            let length = patched_len(length, std::slice::from_ref(patch));
            BodyLength::Known(length.ok_or(Failure::Internal)?)
        }
        (length, _) => length,
    };
    let pool = core
        .upstreams
        .pool(EndpointId::new(routed.provider.index()));
    let pool = pool.ok_or(Failure::NoProvider)?;
    let spent = forward.admission.spent;
    let head = head(
        core,
        client,
        spent,
        (&routed, pool),
        (length, forward.unpacked),
    )?;
    let provider = core.table.provider(routed.provider);
    let provider = provider.ok_or(Failure::NoProvider)?;
    let to = Destination {
        provider: core.label(routed.provider),
        index: routed.provider.index(),
        imposter: routed.imposter,
        auth: describe_auth(&provider.auth, routed.imposter).as_str(),
    };
    Ok(Planned {
        pool,
        head,
        patch,
        to,
    })
}

/// Whether the body has to be sent without its content coding, because its model is replaced. Only
/// once the model is known.
pub(super) fn must_unpack(core: &Core, forward: &Forward) -> bool {
    forward.codings.is_coded()
        && route(core, forward).is_ok_and(|routed| {
            let patched = model_patch(forward, &routed).is_some();
            lane(forward, patched) == Lane::Canonical(Decline::PatchOnCoded)
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
    let model = forward.body.facts().map(|facts| facts.model());
    match model {
        Some(Fact::Found(model)) if !model.value.trim().is_empty() => {
            let routed = core.table.route(family, model.value);
            routed.ok_or(Failure::UnknownModel)
        }
        Some(Fact::BeyondBound) if forward.judged => Err(Failure::ModelTooLong),
        _ if forward.judged => Err(Failure::NoModel),
        _ => core.table.default_of(family).ok_or(Failure::NoProvider),
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
    spent: Spent,
    (routed, pool): (&Routed, &Pool),
    (length, unpacked): (BodyLength, bool),
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
        unpacked,
        credential: provider.auth.outgoing(routed.imposter),
        spent,
        anthropic_version: provider.anthropic_version.as_deref(),
    };
    Ok(request_head(head, text, &options, &rewrite))
}
