//! What the admin listener asks of this process.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::admin::{NotReloaded, Operations, Readiness, Reloaded, Summed};
use crate::ledger::{Asked, Desk};
use crate::limits::QUESTION_WAIT_MS;
use crate::observe::{LedgerScene, Scene};
use crate::server::assemble::Share;
use crate::server::publish::Published;
use crate::server::reload::{Control, ReloadError};
use crate::server::reload_and_report;
use crate::server::told_to_stop;

/// The process as operators see it.
pub(super) struct Operated {
    pub(super) control: Control,
    pub(super) published: Arc<Published>,
    pub(super) share: Share,
    pub(super) stop: Arc<AtomicBool>,
}

impl Operated {
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
        let block_limit = request_bytes.saturating_mul(metrics.cores());
        metrics.exposition(Scene {
            generation: plan.generation,
            is_ready: matches!(self.readiness(), Readiness::Ready | Readiness::Unrecorded),
            providers: plan.metrics.clone(),
            block_limit_bytes: u64::try_from(block_limit).unwrap_or(u64::MAX),
            budget: budget.clone(),
            observer: observer.clone(),
            dictionary: Arc::clone(dictionary),
            ledger: self.share.desk().map(ledger).unwrap_or_default(),
        })
    }

    fn config(&self) -> String {
        self.control.in_force().config.effective_yaml()
    }

    fn explain(&self, request_id: &str) -> Option<Vec<u8>> {
        self.share.observer.explained(request_id)
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
