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

use std::collections::HashMap;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

/// The upstream side of one core: a pool for each endpoint.
#[derive(Debug)]
pub struct Upstreams {
    pools: Vec<Rc<Pool>>,
}

impl Upstreams {
    /// Pools for `endpoints`, in their order. A pool of `previous`, an earlier generation, goes on where
    /// its endpoint does; what the others keep is closed.
    #[must_use]
    pub fn new(endpoints: &[Arc<Endpoint>], previous: Option<&Self>) -> Self {
        let mut old: HashMap<_, _> = previous
            .into_iter()
            .flat_map(|upstreams| &upstreams.pools)
            .map(|pool| (ptr::from_ref(pool.endpoint()), pool))
            .collect();
        let pool = |endpoint: &Arc<Endpoint>| match old.remove(&Arc::as_ptr(endpoint)) {
            Some(pool) => Rc::clone(pool),
            None => Rc::new(Pool::new(Arc::clone(endpoint))),
        };
        let pools = endpoints.iter().map(pool).collect();
        for pool in old.into_values() {
            pool.retire();
        }
        Self { pools }
    }

    /// The pool of an endpoint of this generation.
    #[must_use]
    pub fn pool(&self, id: EndpointId) -> Option<&Pool> {
        self.pools.get(id.index()).map(AsRef::as_ref)
    }

    /// Closes idle connections that are past their time or that the server ended.
    pub async fn prune(&self) {
        for pool in &self.pools {
            pool.prune().await;
        }
    }
}
