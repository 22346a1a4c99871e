//! The newest generation, where every core sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;

use crate::exchange::{Blueprint, Core, Lasting};
use crate::server::assemble::Plan;

/// The newest plan. A core looks at the number alone until that has changed.
#[derive(Debug)]
pub(super) struct Published {
    newest: AtomicU64,
    plan: ArcSwap<Plan>,
}

impl Published {
    /// Begins with the plan of the start.
    pub(super) fn new(plan: Plan) -> Self {
        Self {
            newest: AtomicU64::new(plan.generation),
            plan: ArcSwap::from_pointee(plan),
        }
    }

    /// Puts the next generation in force.
    pub(super) fn publish(&self, plan: Plan) {
        let generation = plan.generation;
        self.plan.store(Arc::new(plan));
        // After the plan: who sees the number finds the plan, or a later one.
        self.newest.store(generation, Ordering::Release);
    }

    /// The newest plan.
    pub(super) fn plan(&self) -> Arc<Plan> {
        self.plan.load_full()
    }
}

impl Blueprint for Published {
    fn newest(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }

    fn core(&self, lasting: &Lasting, previous: Option<&Core>) -> Core {
        self.plan.load().core(lasting, previous)
    }
}
