//! Which configuration an exchange is served by.
//!
//! A generation is everything that follows from one reading of the configuration. Each core builds its
//! own state of it, a [`Core`], from a blueprint that all cores share, when it first finds that there is
//! a newer one. An exchange keeps the state it began with to its end; a connection without an exchange
//! keeps none, so an old generation is gone when its last exchange is. Costs one atomic load an exchange.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::auth::Authority;
use crate::buf::{Budget, Pool};
use crate::exchange::{Core, Keeping, Telling};
use crate::observe::{CoreMetrics, Observer, RequestIds};
use crate::runtime::{Gate, Stop};
use crate::switch::Dictionary;
use crate::upstream::{EndpointId, Quota};

/// What a core has from its start to its end, whichever generation it serves. Clones are handles to the
/// same things.
#[derive(Clone, Debug)]
pub struct Lasting {
    /// Blocks for bytes.
    pub blocks: Pool,
    /// Memory for bodies that are held, of all cores.
    pub budget: Budget,
    /// Given when the process is to end: what is idle closes, what runs goes on.
    pub stop: Stop,
    /// Given when it ends: what still runs is ended.
    pub end: Stop,
    /// Request ids of this core.
    pub ids: Rc<RequestIds>,
    /// Where the records of exchanges go.
    pub observer: Observer,
    /// TLS handshakes with clients at a time.
    pub handshakes: Gate,
    /// The ids that sessions got, of all cores.
    pub dictionary: Arc<Dictionary>,
    /// What the connections to providers may take of this core.
    pub quota: Quota,
    /// The numbers of this core.
    pub metrics: Arc<CoreMetrics>,
    /// Where answers and outcomes go, if there is a ledger.
    pub ledger: Option<Telling>,
    /// What sessions are named with, unless the configuration has a key for that.
    pub authority: Option<Authority>,
    /// Where they are kept, if there is a store.
    pub keeping: Option<Keeping>,
}

impl Lasting {
    /// A core that begins; `seed` makes its request ids its own.
    #[must_use]
    pub fn new(
        quota: Quota,
        handshakes: Gate,
        (budget, observer, metrics): (Budget, Observer, Arc<CoreMetrics>),
        dictionary: Arc<Dictionary>,
        seed: u64,
    ) -> Self {
        Self {
            blocks: Pool::new(quota.request_bytes),
            handshakes,
            quota,
            dictionary,
            budget,
            stop: Stop::default(),
            end: Stop::default(),
            observer,
            ids: Rc::new(RequestIds::new(seed)),
            metrics,
            ledger: None,
            authority: None,
            keeping: None,
        }
    }

    /// The same core, with this ledger.
    #[must_use]
    pub fn telling(mut self, ledger: Option<Telling>) -> Self {
        self.ledger = ledger;
        self
    }
}

/// Where generations come from; shared by all cores.
pub trait Blueprint: fmt::Debug {
    /// Number of the newest generation: one atomic load.
    fn newest(&self) -> u64;

    /// A core's state of the newest generation. It takes over from `previous`, the state of the
    /// generation that the core served until now, what did not change in between. Runs on the core,
    /// between two exchanges, and so has to be short.
    fn core(&self, lasting: &Lasting, previous: Option<&Core>) -> Core;
}

/// The generations of one core.
pub struct Generations {
    lasting: Lasting,
    blueprint: Arc<dyn Blueprint>,
    current: RefCell<Rc<Core>>,
}

impl Generations {
    /// Begins with the newest generation.
    #[must_use]
    pub fn new(blueprint: Arc<dyn Blueprint>, lasting: Lasting) -> Self {
        let first = Rc::new(blueprint.core(&lasting, None));
        Self {
            lasting,
            blueprint,
            current: RefCell::new(first),
        }
    }

    /// The newest generation, for an exchange that begins.
    #[must_use]
    pub fn current(&self) -> Rc<Core> {
        let core = Rc::clone(&self.current.borrow());
        if core.generation == self.blueprint.newest() {
            return core;
        }
        let next = Rc::new(self.blueprint.core(&self.lasting, Some(&core)));
        self.current.replace(Rc::clone(&next));
        next
    }

    /// What this core has in every generation.
    #[must_use]
    pub fn lasting(&self) -> &Lasting {
        &self.lasting
    }

    /// Notes in the numbers of this core what a scrape should see and nobody counts; `connections` are
    /// its open client connections.
    pub fn note_levels(&self, connections: usize) {
        let Lasting {
            metrics, blocks, ..
        } = &self.lasting;
        let wide = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        metrics.connections.set(wide(connections));
        metrics.block_bytes.set(wide(blocks.used_bytes()));
        let core = self.current.borrow();
        for (position, meter) in core.meters.iter().enumerate() {
            let pool = core.upstreams.pool(EndpointId::new(position));
            if let Some(pool) = pool {
                meter.note(pool.idle(), pool.waiting(), pool.take_deaths());
            }
        }
    }

    /// How long a client connection may be idle, in the generation that was looked at last.
    pub(super) fn keepalive(&self) -> Duration {
        self.current.borrow().settings.keepalive
    }
}

impl fmt::Debug for Generations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generations")
            .field("current", &self.current.borrow().generation)
            .finish_non_exhaustive()
    }
}
