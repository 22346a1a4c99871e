//! Reading the configuration again, while everything goes on.
//!
//! A candidate is compiled completely (credentials, certificates, names looked up) before any core
//! sees it, on the thread that asks for it and never on a core. A bad one changes nothing.

#![expect(
    clippy::disallowed_types,
    reason = "the lock of those who ask for a reload, which no core ever takes"
)]

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::auth::Meters;
use crate::config::{Config, ConfigError};
use crate::server::heartbeat::Heartbeats;
use crate::server::publish::Published;

/// Longest wait for the first look-up of names that are new.
pub(super) const FIRST_RESOLUTION: Duration = Duration::from_secs(2);

/// Reads the configuration again from where it came from.
pub type Reread = Box<dyn Fn() -> Result<Config, ConfigError> + Send + Sync>;

/// What a reload led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReloadReport {
    /// Number of the generation that is in force now.
    pub generation: u64,
    /// Key paths whose values differ from those in force and take a restart.
    pub waiting: Vec<&'static str>,
}

impl fmt::Display for ReloadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "generation {} is in force", self.generation)?;
        match &self.waiting[..] {
            [] => Ok(()),
            [one] => write!(f, "; {one} differs and needs a restart"),
            several => write!(f, "; {} differ and need a restart", several.join(", ")),
        }
    }
}

/// Why the configuration in force stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReloadError {
    /// The process was started without a configuration file.
    NoFile,
    /// The file is not acceptable.
    Config(ConfigError),
}

impl fmt::Display for ReloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFile => f.write_str("nothing to reload: started without a configuration file"),
            Self::Config(error) => write!(f, "not reloaded, nothing changed:\n{error}"),
        }
    }
}

impl std::error::Error for ReloadError {}

/// The configuration in force.
#[derive(Clone, Debug)]
pub struct InForce {
    /// Number of the generation; the start is 1.
    pub generation: u64,
    /// Every effective value.
    pub config: Arc<Config>,
}

/// What can be asked of a process that serves, from any thread. Clones are handles to the same process.
#[derive(Clone)]
pub struct Control {
    shared: Arc<Shared>,
}

struct Shared {
    published: Arc<Published>,
    heartbeats: Heartbeats,
    reread: Option<Reread>,
    /// Held by who reloads.
    meters: Mutex<Meters>,
}

impl Control {
    pub(super) fn new(
        published: Arc<Published>,
        heartbeats: Heartbeats,
        meters: Meters,
        reread: Option<Reread>,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                published,
                heartbeats,
                reread,
                meters: Mutex::new(meters),
            }),
        }
    }

    /// Reads the configuration again and puts it in force: for every exchange that begins after this
    /// returned. Takes as long as reading the files and looking up new names (2 s at most) does; of
    /// several callers each has its turn.
    ///
    /// # Errors
    /// See [`ReloadError`]; nothing changed then.
    pub fn reload(&self) -> Result<ReloadReport, ReloadError> {
        let Shared {
            published,
            reread,
            meters,
            ..
        } = &*self.shared;
        let reread = reread.as_ref().ok_or(ReloadError::NoFile)?;
        // Counters of clients by name, which no panic can break, and the order of reloads.
        let mut meters = meters.lock().unwrap_or_else(PoisonError::into_inner);
        let mut config = reread().map_err(ReloadError::Config)?;
        let running = published.plan();
        let waiting = config.keep_until_restart(&running.config);
        let plan = running.next(config, &mut meters);
        plan.resolvers.wait_first(FIRST_RESOLUTION);
        let generation = plan.generation;
        published.publish(plan);
        Ok(ReloadReport {
            generation,
            waiting,
        })
    }

    pub(super) fn heartbeats(&self) -> Heartbeats {
        self.shared.heartbeats.clone()
    }

    /// The configuration in force.
    #[must_use]
    pub fn in_force(&self) -> InForce {
        let plan = self.shared.published.plan();
        InForce {
            generation: plan.generation,
            config: Arc::clone(&plan.config),
        }
    }

    /// Whether new work is welcome: every core has beaten within 2 s.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.shared.heartbeats.ready()
    }

    /// Whether the process is worth keeping: every core has beaten within 10 s.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.shared.heartbeats.alive()
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("generation", &self.in_force().generation)
            .finish_non_exhaustive()
    }
}
