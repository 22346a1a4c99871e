//! One attempt at one provider: a connection that is fit for use, taken from this core's pool or
//! opened. It never tries twice; whether an exchange may is decided where its bytes are known.

mod connect;
mod endpoint;
mod pool;
mod resolve;

pub use connect::{ConnectError, Connection};
pub use endpoint::{Endpoint, EndpointId, Settings};
pub use pool::Pool;
pub use resolve::Resolvers;

use std::sync::Arc;

/// The upstream side of one core: a pool for each endpoint.
#[derive(Debug)]
pub struct Upstreams {
    pools: Vec<Pool>,
}

impl Upstreams {
    /// Empty pools for `endpoints`, in their order.
    #[must_use]
    pub fn new(endpoints: &[Arc<Endpoint>]) -> Self {
        Self {
            pools: endpoints.iter().map(|e| Pool::new(Arc::clone(e))).collect(),
        }
    }

    /// The pool of an endpoint of this generation.
    #[must_use]
    pub fn pool(&self, id: EndpointId) -> Option<&Pool> {
        self.pools.get(id.index())
    }

    /// Closes idle connections that are past their time or that the server ended.
    pub async fn prune(&self) {
        for pool in &self.pools {
            pool.prune().await;
        }
    }
}
