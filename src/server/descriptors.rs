//! Whether the descriptors of this process are enough for the configuration.

use std::fmt;

use crate::config::{Config, Descriptors};

/// Client connections below which it is not worth to start, unless no more were asked for.
const CONNECTIONS_MIN: usize = 16;

/// The configuration asks for more descriptors than there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// What it asks for.
    pub needed: Descriptors,
    /// What there is.
    pub limit: u64,
    /// The client connections that fit; `limits.connections` is lowered to it. None if so few that
    /// nothing would be served.
    pub connections: Option<usize>,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            needed,
            limit,
            connections,
        } = self;
        match connections {
            Some(fit) => write!(f, "limits.connections is lowered to {fit}: ")?,
            None => f.write_str("too few descriptors to serve: ")?,
        }
        write!(
            f,
            "{needed} descriptors are needed, and this process may have {limit}; raise the hard limit \
             (ulimit -Hn, LimitNOFILE) or lower limits.connections or the providers' connections"
        )
    }
}

/// What is wrong with `limit` descriptors for this configuration.
pub(super) fn shortage(config: &Config, workers: usize, limit: u64) -> Option<Shortage> {
    let needed = config.descriptors(workers);
    if needed.total() <= limit {
        return None;
    }
    let fit = config.connections_within(limit, workers);
    let least = CONNECTIONS_MIN.min(config.limits.connections);
    Some(Shortage {
        needed,
        limit,
        connections: (fit >= least).then_some(fit),
    })
}
