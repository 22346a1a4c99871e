//! How many descriptors a configuration needs, and how many connections fit into a number of them.
//!
//! An exchange has one client connection and at most one to a provider, so that those in use are no
//! more than the client connections and no more than what all providers together may have. Idle
//! connections to providers are kept from what is left, and closed when there is nothing left.

use std::fmt;

use crate::config::Config;

/// Of the process: standard streams, files that are being read, name resolution, signals.
const PROCESS: u64 = 32;
/// Of each worker: its ring or epoll, what wakes it, and the timer behind both.
const WORKER: u64 = 8;
/// Of each worker and address that is listened on.
const LISTENER: u64 = 2;

/// The descriptors that a configuration needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// Client connections.
    pub clients: u64,
    /// Connections to providers in use.
    pub upstream: u64,
    /// What the process needs without any connection.
    pub fixed: u64,
}

impl Descriptors {
    /// All of them.
    #[must_use]
    pub fn total(self) -> u64 {
        self.clients
            .saturating_add(self.upstream)
            .saturating_add(self.fixed)
    }
}

impl fmt::Display for Descriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            clients,
            upstream,
            fixed,
        } = self;
        let total = self.total();
        write!(
            f,
            "{clients} clients + {upstream} to providers + {fixed} fixed = {total}"
        )
    }
}

impl Config {
    /// What is needed with this number of workers.
    #[must_use]
    pub fn descriptors(&self, workers: usize) -> Descriptors {
        let clients = wide(self.limits.connections);
        Descriptors {
            clients,
            upstream: clients.min(self.upstream_connections(workers)),
            fixed: self.fixed_descriptors(workers),
        }
    }

    /// The most client connections, at most `limits.connections`, that fit into `limit` descriptors.
    #[must_use]
    pub fn connections_within(&self, limit: u64, workers: usize) -> usize {
        let left = limit.saturating_sub(self.fixed_descriptors(workers));
        let upstream = self.upstream_connections(workers);
        // Either half of them are to providers, or as many as those may have.
        let fit = (left / 2).max(left.saturating_sub(upstream));
        usize::try_from(fit).map_or(self.limits.connections, |fit| {
            fit.min(self.limits.connections)
        })
    }

    /// What the providers may have together: every core has one of each at least.
    fn upstream_connections(&self, workers: usize) -> u64 {
        let enabled = self.providers.iter().filter(|provider| provider.enabled);
        let each = enabled.map(|provider| wide(provider.connections.max(workers)));
        each.fold(0, u64::saturating_add)
    }

    fn fixed_descriptors(&self, workers: usize) -> u64 {
        let listeners = wide(self.server.listen.len()).saturating_mul(LISTENER);
        wide(workers).saturating_mul(WORKER + listeners) + PROCESS
    }
}

/// Cannot fail on the targets of this program.
fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, builtin};

    fn config(connections: usize, upstream: usize) -> Config {
        let anywhere = ([127, 0, 0, 1], 1).into();
        let mut config = builtin(anywhere, anywhere);
        config.limits.connections = connections;
        config.providers.truncate(1);
        config.providers[0].connections = upstream;
        config
    }

    #[test]
    fn upstream_connections_are_no_more_than_those_of_clients() {
        let needed = config(100, 4096).descriptors(2);
        assert_eq!((needed.clients, needed.upstream), (100, 100));
        assert_eq!(needed.total(), 200 + needed.fixed);
        assert_eq!(config(10_000, 64).descriptors(2).upstream, 64);
        assert_eq!(config(10_000, 1).descriptors(8).upstream, 8);
    }

    #[test]
    fn as_many_connections_fit_as_the_sum_allows_and_not_one_more() {
        for upstream in [1, 10, 64, 100, 4096] {
            for limit in 50..1200 {
                let mut config = config(1000, upstream);
                let fit = config.connections_within(limit, 2);
                config.limits.connections = fit;
                let total = config.descriptors(2).total();
                assert!(fit == 0 || total <= limit, "{upstream} {limit}: {fit}");
                config.limits.connections = fit + 1;
                let more = config.descriptors(2).total();
                assert!(fit == 1000 || more > limit, "{upstream} {limit}: {fit}");
            }
        }
    }

    #[test]
    fn a_disabled_provider_needs_none() {
        let mut config = config(100, 10);
        config.providers[0].enabled = false;
        assert_eq!(config.descriptors(1).upstream, 0);
    }
}
