//! One attempt at one provider: a connection that is fit for use, taken from this core's pool or
//! opened. It never tries twice; whether an exchange may is decided where its bytes are known.

mod connect;
mod endpoint;
mod idle;
mod places;
mod pool;
mod resolve;

pub use connect::{ConnectError, Connection};
pub use endpoint::{Endpoint, EndpointId, Settings};
pub use pool::{Pool, Quota};
pub use resolve::Resolvers;

use std::collections::HashMap;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use crate::runtime::turn;

/// The upstream side of one core: a pool for each endpoint.
#[derive(Debug)]
pub struct Upstreams {
    pools: Vec<Rc<Pool>>,
}

impl Upstreams {
    /// Pools for `endpoints`, in their order. A pool of `previous`, an earlier generation, goes on where
    /// its endpoint does; what the others keep is closed.
    #[must_use]
    pub fn new(endpoints: &[Arc<Endpoint>], quota: &Quota, previous: Option<&Self>) -> Self {
        let mut old: HashMap<_, _> = previous
            .into_iter()
            .flat_map(|upstreams| &upstreams.pools)
            .map(|pool| (ptr::from_ref(pool.endpoint()), pool))
            .collect();
        let pool = |endpoint: &Arc<Endpoint>| match old.remove(&Arc::as_ptr(endpoint)) {
            Some(pool) => Rc::clone(pool),
            None => Rc::new(Pool::new(Arc::clone(endpoint), quota)),
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

    /// Closes all idle connections, for want of descriptors; how many there were.
    pub fn close_idle(&self) -> usize {
        self.pools.iter().map(|pool| pool.close_idle()).sum()
    }

    /// Takes a connection from one of these pools: an idle one, or where there is none or the last
    /// one was dead (`again`) what `Pool::take` comes by. May be dropped while it waits.
    ///
    /// # Errors
    /// As `Pool::take`.
    pub async fn take(&self, pool: &Pool, again: bool) -> Result<Connection, ConnectError> {
        let idle = if again { None } else { pool.take_idle() };
        match idle {
            Some(connection) => Ok(connection),
            // On the heap: to connect or to wait is rare, and the state of it is large.
            None => Box::pin(self.take_other(pool, again)).await,
        }
    }

    /// Where none can be opened for want of descriptors the idle ones of this core are closed, and
    /// it is tried once more.
    async fn take_other(&self, pool: &Pool, again: bool) -> Result<Connection, ConnectError> {
        let taken = pool.take(again).await;
        if !matches!(taken, Err(ConnectError::Exhausted)) || self.close_idle() == 0 {
            return taken;
        }
        // The ring closes descriptors when it has its turn.
        turn().await;
        pool.take(again).await
    }

    /// Closes idle connections that are past their time or that the server ended.
    pub async fn prune(&self) {
        for pool in &self.pools {
            pool.prune().await;
        }
    }
}
