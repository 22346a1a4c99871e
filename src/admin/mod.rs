//! The admin listener: what operators and their tools ask of a running process.
//!
//! Decides who may ask and answers eight questions. It serves on threads of its own and touches no
//! core, so that a scraper that hangs or a browser that is slow costs no exchange anything. Refuses
//! bodies, kept connections and more than a few requests at a time: each connection brings one
//! request and ends within [`ADMIN_CONNECTION_MS`](crate::limits::ADMIN_CONNECTION_MS).
//!
//! Without a key the listener is a loopback address, which a web page in a browser on the same
//! machine reaches too. So it then answers only to an address or to `localhost` as `Host`, and to
//! nobody who sends `Origin`.

mod answer;
mod listener;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use crate::auth::Secret;
use crate::classify::Classification;
use crate::ledger::Tree;

/// What the process knows and can do, from any thread.
pub trait Operations: Send + Sync + 'static {
    /// Whether the process is worth keeping.
    fn is_alive(&self) -> bool;

    /// Whether new work is welcome.
    fn readiness(&self) -> Readiness;

    /// All numbers, in the Prometheus text format.
    fn metrics(&self) -> String;

    /// The configuration in force as YAML, without credentials.
    fn config(&self) -> String;

    /// What is known of the exchange with this request id, as a JSON object; none if nothing is.
    fn explain(&self, request_id: &str) -> Option<Vec<u8>>;

    /// Whether clients have names, so that a conversation is known by the name of its client too.
    fn has_clients(&self) -> bool;

    /// The sums of a conversation of this principal and of those below it; of its newest conversations if none
    /// is named. May take seconds.
    fn conversations(&self, principal: &str, session: Option<&str>) -> Summed;

    /// What is known of the session of this principal's conversation, or of a token. May take seconds.
    fn session(&self, principal: &str, id: &str) -> Looked;

    /// Reads the configuration again. May take seconds.
    ///
    /// # Errors
    /// See [`NotReloaded`]; nothing changed then.
    fn reload(&self) -> Result<Reloaded, NotReloaded>;
}

/// Whether new work is welcome, and why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It is.
    Ready,
    /// It is, but nothing of it can be stored: no reason to take traffic from a gateway that passes it.
    Unrecorded,
    /// The process was told to end.
    Stopping,
    /// A core does not serve.
    Stuck,
}

/// What the ledger says of conversations.
#[derive(Clone, Debug, PartialEq)]
pub enum Summed {
    /// This.
    Tree(Box<Tree>),
    /// Nothing: there is no ledger.
    NoLedger,
    /// It cannot be reached.
    Unavailable,
}

/// What is known of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looked {
    /// This.
    Known(Classification),
    /// The feature is off.
    Off,
    /// The token is not one of this gateway for this principal, or has expired.
    NoSuchToken,
    /// The store cannot be reached.
    Unavailable,
}

/// A configuration that came into force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reloaded {
    /// Its number.
    pub generation: u64,
    /// Key paths that differ and take a restart.
    pub waiting: Vec<&'static str>,
}

/// Why the configuration in force stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotReloaded {
    /// There is no file to read.
    NoFile,
    /// What is wrong with it, a line each; no credential.
    Refused(String),
}

/// The listener as it is started.
pub struct Admin {
    /// Where it listens.
    pub listener: TcpListener,
    /// What callers must show.
    pub key: Option<Secret>,
    /// Who answers.
    pub operations: Arc<dyn Operations>,
}

impl Admin {
    /// Serves on threads of its own until the process ends.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(self) -> io::Result<()> {
        listener::start(self)
    }
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("listener", &self.listener)
            .finish_non_exhaustive()
    }
}
