//! Where a provider is reached.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::tls::Client;

/// Position of an endpoint in its generation's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointId(usize);

impl EndpointId {
    /// The endpoint at `index` of the list that the generation was built with.
    #[must_use]
    pub fn new(index: usize) -> Self {
        Self(index)
    }

    pub(super) fn index(self) -> usize {
        self.0
    }
}

/// What an operator says about a provider's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Host name or IP address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Value of the `Host` field: host, and the port where it is not the scheme's own.
    pub authority: String,
    /// Path prefix of the base URL, without a trailing slash; may be empty.
    pub prefix: String,
    /// Limit for resolving and connecting together.
    pub connect: Duration,
    /// How it is spoken to where it is encrypted.
    pub tls: Option<Client>,
    /// Longest TLS handshake.
    pub handshake: Duration,
    /// Longest wait for the first byte of a response to a request that was sent completely.
    pub first_byte: Duration,
    /// Longest wait for the next bytes of a response, or for the provider to take some.
    pub idle: Duration,
    /// Longest wait for [`crate::limits::REQUEST_PROGRESS_BYTES`] of a client's body.
    pub request_progress: Duration,
    /// Longest wait for a client to take bytes of a response.
    pub client_write: Duration,
    /// Connections at a time, of all cores, idle ones included.
    pub connections: usize,
    /// Exchanges that may wait for one, of all cores.
    pub waiting: usize,
    /// Longest wait for one.
    pub connection_wait: Duration,
    /// Longest that an idle connection is kept.
    pub keepalive_idle: Duration,
}

/// An address that all cores share: what the operator said and what the resolver last found.
#[derive(Debug)]
pub struct Endpoint {
    /// As configured.
    pub settings: Settings,
    addresses: ArcSwap<Vec<SocketAddr>>,
    literal: bool,
}

impl Endpoint {
    /// An endpoint; a literal IP address needs no resolver.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let literal = settings.host.parse::<IpAddr>().ok();
        let known = literal
            .map(|ip| SocketAddr::new(ip, settings.port))
            .into_iter()
            .collect();
        Self {
            addresses: ArcSwap::new(Arc::new(known)),
            literal: literal.is_some(),
            settings,
        }
    }

    /// As [`new`](Self::new), with the addresses that an endpoint of an earlier generation found for the
    /// same host and port, so that a resolver which fails just now is no reason to lose them.
    #[must_use]
    pub fn following(settings: Settings, previous: &Self) -> Self {
        let old = &previous.settings;
        let same = (&old.host, old.port) == (&settings.host, settings.port);
        let endpoint = Self::new(settings);
        if same {
            endpoint.addresses.store(previous.addresses());
        }
        endpoint
    }

    /// The addresses last found, in the order to try; empty before the first answer.
    #[must_use]
    pub fn addresses(&self) -> Arc<Vec<SocketAddr>> {
        self.addresses.load_full()
    }

    /// Whether the host is a name that must be resolved.
    #[must_use]
    pub fn is_name(&self) -> bool {
        !self.literal
    }

    pub(super) fn found(&self, addresses: Vec<SocketAddr>) {
        self.addresses.store(Arc::new(addresses));
    }
}
