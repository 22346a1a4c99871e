//! The verdict on a body that was read to its end: it goes to the provider, is answered here, or is
//! refused after all.
//!
//! A body within the window has its verdict before a connection is taken. One that is sent while it
//! comes has it before its closing byte is released, so that a provider never runs a request that was
//! answered here (decision S13).

use std::cell::RefCell;
use std::fmt;

use crate::auth::describe_auth;
use crate::clock;
use crate::dialect::{Dialect, Family};
use crate::exchange::Core;
use crate::exchange::decide::{Asked, Forward};
use crate::exchange::plan::model;
use crate::failure::Failure;
use crate::identity::session::{Session, Source};
use crate::lane::{Body, Judge};
use crate::local::Answer;
use crate::peek::{Peek, TopKey};
use crate::route::Routed;
use crate::switch::{Added, Reply, Shown, Switch};

/// An answer of the gateway's own in the place of a provider's.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) answer: Answer,
    /// What it answers.
    pub(super) switch: Switch,
}

/// What a judged body became if it did not go on.
pub(super) type Instead = Result<Local, Failure>;

/// What became of the body's own `session_id` before all of it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SessionKey {
    /// It is the client's business.
    #[default]
    Untouched,
    /// It was put in.
    PutIn,
    /// Its value was replaced.
    Replaced,
}

impl SessionKey {
    /// Whether the rest of the body has brought another one: there would be two for the provider.
    fn is_ambiguous(self, facts: &Peek) -> bool {
        match self {
            Self::Untouched => false,
            Self::PutIn => facts.keys().contains(TopKey::SessionId),
            Self::Replaced => facts.repeated().contains(TopKey::SessionId),
        }
    }
}

/// What the verdict on one request needs beside its body.
pub(super) struct Verdict<'a> {
    core: &'a Core,
    asked: Asked,
    /// The name of its client; empty where clients have none.
    principal: &'a str,
    /// Its session as the client has it, if the provider is told one.
    pub(super) session: Option<Session>,
    pub(super) session_key: SessionKey,
    /// Whether it was asked, because the body was there as a whole before it was sent.
    pub(super) is_given: bool,
    /// Whether it may be a switch.
    watches: bool,
    instead: RefCell<Option<Instead>>,
}

impl fmt::Debug for Verdict<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verdict")
            .field("watches", &self.watches)
            .finish_non_exhaustive()
    }
}

impl Judge for Verdict<'_> {
    fn releases(&self, body: &Body) -> bool {
        let instead = body.facts().and_then(|facts| self.instead_of(facts));
        let releases = instead.is_none();
        *self.instead.borrow_mut() = instead;
        releases
    }
}

impl<'a> Verdict<'a> {
    pub(super) fn new(core: &'a Core, forward: &Forward, session: Option<Session>) -> Self {
        let principal = forward.admission.principal;
        Self {
            core,
            asked: forward.asked,
            principal: principal.map_or("", |principal| core.client_name(principal)),
            session,
            session_key: SessionKey::Untouched,
            is_given: false,
            watches: core.settings.switches.watches(forward.asked.dialect),
            instead: RefCell::new(None),
        }
    }

    /// Who is asked before the last bytes of the body are released, if there is anything to ask.
    pub(super) fn judge(&self) -> Option<&dyn Judge> {
        let open = self.watches || self.session_key != SessionKey::Untouched;
        (open && !self.is_given).then_some(self)
    }

    /// What was found in the place of a body that was not released.
    pub(super) fn take(&self) -> Option<Instead> {
        self.instead.borrow_mut().take()
    }

    /// The id of the session at the provider, and whether it is another than the client's.
    pub(super) fn stamp(&self) -> Option<(String, bool)> {
        let session = self.session.as_ref()?;
        let synthetic = translated(self.core, self.principal, session);
        let translated = synthetic.is_some();
        Some((
            synthetic.unwrap_or_else(|| session.id().to_owned()),
            translated,
        ))
    }

    /// What a whole body is instead of a request for its provider.
    pub(super) fn instead_of(&self, facts: &Peek) -> Option<Instead> {
        let switch = self.watches.then(|| Switch::asked(facts)).flatten();
        if let Some(local) = switch.and_then(|switch| self.answer(switch, facts)) {
            return Some(local);
        }
        let ambiguous = self.session_key.is_ambiguous(facts);
        ambiguous.then_some(Err(Failure::Ambiguous(TopKey::SessionId)))
    }

    /// The answer to a switch; none where it is no switch for this request.
    fn answer(&self, switch: Switch, facts: &Peek) -> Option<Instead> {
        let model = match model(facts) {
            Ok(model) => model,
            Err(failure) => return Some(Err(failure)),
        };
        let reply = match switch {
            Switch::Who => self.who(model),
            Switch::NewSession => Ok(self.new_session()?),
        };
        let local = reply.map(|reply| self.local(&reply, model));
        Some(local)
    }

    fn who(&self, model: &str) -> Result<Reply, Failure> {
        let (routed, auth) = destination(self.core, self.asked.family, model)?;
        let stamp = self.stamp();
        Ok(Reply::who(&Shown {
            model,
            target: routed.target(model),
            auth,
            session: stamp.as_ref().map(|(id, _)| id.as_str()),
        }))
    }

    /// Only a session that the client named gets an id of its own (decision S4).
    fn new_session(&self) -> Option<Reply> {
        let session = self.session.as_ref();
        let named = session.filter(|session| session.source() == Source::Captured)?;
        match self.core.dictionary.try_add(self.principal, named.id()) {
            Added::New(id) | Added::Known(id) => Some(Reply::new_session(named.id(), id)),
            Added::Refused => {
                self.core.metrics.switches_refused.add(1);
                None
            }
        }
    }

    fn local(&self, reply: &Reply, model: &str) -> Local {
        let dialect = match (self.asked.family, self.asked.dialect) {
            (Family::Anthropic, _) => Dialect::Messages,
            (Family::OpenAi, Some(Dialect::Responses)) => Dialect::Responses,
            (Family::OpenAi, _) => Dialect::Chat,
        };
        let body = reply.body(dialect, model, clock::unix_time().as_secs());
        let id = self.asked.id.to_string();
        Local {
            answer: Answer::json(&body, &id, !self.asked.keeps_open),
            switch: reply.switch(),
        }
    }
}

/// Where a model of a family goes, and the word for the credential that it goes with.
pub(super) fn destination(
    core: &Core,
    family: Family,
    model: &str,
) -> Result<(Routed, &'static str), Failure> {
    let routed = core.table.route(family, model);
    let routed = routed.ok_or(Failure::UnknownModel)?;
    let provider = core.table.provider(routed.provider);
    let provider = provider.ok_or(Failure::NoProvider)?;
    let auth = describe_auth(&provider.auth, routed.imposter).as_str();
    Ok((routed, auth))
}

/// The id that a session of this client has at its provider in the place of its own.
pub(super) fn translated(core: &Core, principal: &str, session: &Session) -> Option<String> {
    // Off, switches leave their mappings alone too.
    if !core.settings.switches.enabled {
        return None;
    }
    let known = core.dictionary.try_translate(principal, session.id());
    known.map(|id| id.to_string())
}
