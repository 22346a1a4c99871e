//! `GET /lanegate/whoami?dialect=D&model=M`: what `--who?` shows, for the head of this very request.
//!
//! For agents that always stream and so cannot type the switch. It has no body, and so knows a session
//! only from fields. It says no more than the switch: neither a provider's name nor an address.

use serde_json::json;

use crate::dialect::{Dialect, Family};
use crate::exchange::Core;
use crate::exchange::admit::admit;
use crate::exchange::verdict::{destination, translated};
use crate::failure::Failure;
use crate::http1::head::RequestHead;
use crate::http1::query::parameter;
use crate::identity::session::{Asker, Source};
use crate::limits::MODEL_BYTES_MAX;
use crate::local::Answer;
use crate::observe::Record;

/// Where it is asked.
pub(super) const WHOAMI_PATH: &[u8] = b"/lanegate/whoami";

/// Answers for a head, whose text is `bytes`, if its client may ask; notes in `record` who that is.
pub(super) fn whoami(
    core: &Core,
    (head, bytes, query): (&RequestHead, &[u8], Option<&[u8]>),
    record: &mut Record,
    close: bool,
) -> Result<Answer, Failure> {
    let principal = admit(core, head, bytes, record)?.principal;
    let asked = |name| {
        let value = parameter(query.unwrap_or_default(), name);
        value.ok().flatten().ok_or(Failure::Question)
    };
    let dialect = Dialect::from_name(&asked("dialect")?).ok_or(Failure::Question)?;
    let model = asked("model")?;
    if model.len() > MODEL_BYTES_MAX {
        return Err(Failure::ModelTooLong);
    }
    if model.trim().is_empty() {
        return Err(Failure::NoModel);
    }
    let family = match dialect {
        Dialect::Chat | Dialect::Responses => Family::OpenAi,
        Dialect::Messages => Family::Anthropic,
    };
    let (routed, auth) = destination(core, family, &model)?;
    let told = core.table.tells_session(&routed);
    let asker = Asker {
        fields: &head.fields,
        text: bytes,
        body: None,
    };
    let session = told.then(|| asker.session()).flatten();
    let principal = principal.map_or("", |principal| core.client_name(principal));
    let synthetic = session
        .as_ref()
        .and_then(|session| translated(core, principal, session));
    let body = json!({
        "dialect": dialect.as_str(),
        "model": model,
        "route": if routed.imposter { "imposter" } else { "passthrough" },
        "target": routed.target(&model),
        "auth": auth,
        "session": synthetic.as_deref().or_else(|| session.as_ref().map(|it| it.id())),
        "session_source": session.as_ref().map_or("none", |it| Source::as_str(it.source())),
        "translated": synthetic.is_some(),
        "switches": core.settings.switches.enabled,
    });
    Ok(Answer::json(
        &body.to_string(),
        &record.id.to_string(),
        close,
    ))
}
