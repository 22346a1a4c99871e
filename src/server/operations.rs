//! What the admin listener asks of this process.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::admin::{Looked, NotReloaded, Operations, Readiness, Reloaded, Summed};
use crate::auth::SESSION_TOKEN_BYTES;
use crate::classify::{Key, Scope};
use crate::clock;
use crate::config::Authentication;
use crate::exchange::Keeping;
use crate::ledger::{Asked, Desk, TokenSums};
use crate::limits::QUESTION_WAIT_MS;
use crate::observe::{AgentCost, LedgerScene, Scene, SessionScene};
use crate::server::assemble::Share;
use crate::server::publish::Published;
use crate::server::reload::{Control, ReloadError};
use crate::server::reload_and_report;
use crate::server::told_to_stop;
use crate::usage::Tokens;

/// The process as operators see it.
pub(super) struct Operated {
    pub(super) control: Control,
    pub(super) published: Arc<Published>,
    pub(super) share: Share,
    pub(super) stop: Arc<AtomicBool>,
}

impl Operated {
    fn sessions(&self) -> Option<SessionScene> {
        let Keeping { sessions, decider } = self.share.keeping.as_ref()?;
        let config = self.control.in_force().config;
        Some(SessionScene {
            is_enabled: config.plugins.session_classification().is_some(),
            is_ready: sessions.is_ready(),
            store: sessions.tally(),
            remote: decider.tally(),
        })
    }

    fn is_unrecorded(&self) -> bool {
        self.share
            .desk()
            .is_some_and(|desk| desk.trouble().is_some())
    }
}

fn ledger(desk: &Desk) -> LedgerScene {
    let state = desk.state();
    LedgerScene {
        is_available: state.trouble.is_none(),
        written: state.written,
        lost: state.lost,
        waiting: state.waiting,
        failures: state.failures,
        adopted: state.adopted.map(|it| (it.distinct, it.decisions)),
        agents: desk.agents().into_iter().map(agent_cost).collect(),
    }
}

fn agent_cost((agent, sums): (String, TokenSums)) -> AgentCost {
    let tokens = Tokens {
        input: u64::try_from(sums.input_tokens).ok(),
        output: u64::try_from(sums.output_tokens).ok(),
        cached: u64::try_from(sums.cached_tokens).ok(),
        cache_write: u64::try_from(sums.cache_write_tokens).ok(),
    };
    AgentCost {
        agent,
        tokens: tokens.named().map(|(_, count)| count.unwrap_or(0)),
        cache_share: sums.cache_share(),
    }
}

impl Operations for Operated {
    fn is_alive(&self) -> bool {
        self.control.is_alive()
    }

    fn readiness(&self) -> Readiness {
        match (told_to_stop(&self.stop), self.control.is_ready()) {
            (true, _) => Readiness::Stopping,
            (false, true) if self.is_unrecorded() => Readiness::Unrecorded,
            (false, true) => Readiness::Ready,
            (false, false) => Readiness::Stuck,
        }
    }

    fn metrics(&self) -> String {
        let Share {
            metrics,
            request_bytes,
            budget,
            observer,
            dictionary,
            ..
        } = &self.share;
        let plan = self.published.plan();
        let readiness = self.readiness();
        let block_limit = request_bytes.saturating_mul(metrics.cores());
        metrics.exposition(Scene {
            generation: plan.generation,
            is_ready: matches!(readiness, Readiness::Ready | Readiness::Unrecorded),
            is_draining: readiness == Readiness::Stopping,
            providers: plan.metrics.clone(),
            block_limit_bytes: u64::try_from(block_limit).unwrap_or(u64::MAX),
            budget: budget.clone(),
            observer: observer.clone(),
            dictionary: Arc::clone(dictionary),
            ledger: self.share.desk().map(ledger).unwrap_or_default(),
            sessions: self.sessions(),
        })
    }

    fn config(&self) -> String {
        self.control.in_force().config.effective_yaml()
    }

    fn explain(&self, request_id: &str) -> Option<Vec<u8>> {
        self.share.observer.explained(request_id)
    }

    fn has_clients(&self) -> bool {
        matches!(
            self.control.in_force().config.authentication,
            Authentication::Clients(_)
        )
    }

    fn conversations(&self, principal: &str, session: Option<&str>) -> Summed {
        let Some(desk) = self.share.desk() else {
            return Summed::NoLedger;
        };
        let asked = Asked {
            principal: principal.to_owned(),
            session: session.map(str::to_owned),
        };
        let limit = Duration::from_millis(QUESTION_WAIT_MS);
        let sum = desk.sum(asked).and_then(|pending| pending.wait(limit));
        sum.map_or(Summed::Unavailable, |tree| Summed::Tree(Box::new(tree)))
    }

    fn session(&self, principal: &str, id: &str) -> Looked {
        let config = self.control.in_force().config;
        let own = self.share.authority.as_ref();
        let written = config.authority.as_ref().map(|key| &key.authority);
        let (Some(keeping), Some(authority)) = (&self.share.keeping, written.or(own)) else {
            return Looked::Unavailable;
        };
        if config.plugins.session_classification().is_none() {
            return Looked::Off;
        }
        let key = if id.len() == SESSION_TOKEN_BYTES {
            let session = authority.session(id.as_bytes(), principal, clock::unix_time());
            session.map(|id| Key::new(Scope::SecureSession, id))
        } else {
            let conversation = format!("c:{id}");
            Ok(Key::new(
                Scope::ALeg,
                authority.leg(principal, &conversation),
            ))
        };
        let Ok(key) = key else {
            return Looked::NoSuchToken;
        };
        let limit = Duration::from_millis(QUESTION_WAIT_MS);
        let looked = keeping.sessions.look(key);
        let looked = looked.and_then(|pending| pending.wait(limit));
        looked.map_or(Looked::Unavailable, Looked::Known)
    }

    fn reload(&self) -> Result<Reloaded, NotReloaded> {
        match reload_and_report(&self.control) {
            Ok(report) => Ok(Reloaded {
                generation: report.generation,
                waiting: report.waiting,
            }),
            Err(ReloadError::NoFile) => Err(NotReloaded::NoFile),
            Err(ReloadError::Config(error)) => Err(NotReloaded::Refused(error.to_string())),
        }
    }
}
