//! Name resolution off the cores.
//!
//! Each named endpoint has a thread that asks the system's resolver, which may block for as long
//! as it likes: a core only ever reads the last answer. A failed look-up leaves the last answer in
//! use; the next try comes a second later.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, bounded};

use crate::limits::ADDRESSES;
use crate::upstream::Endpoint;

/// Pause between two look-ups of a name that resolves.
const REFRESH: Duration = Duration::from_secs(30);
/// Pause after a look-up that failed.
const RETRY: Duration = Duration::from_secs(1);

/// The resolver threads of one generation. A thread ends, at its next pause, when no generation has
/// its endpoint any more.
pub struct Resolvers {
    threads: Vec<Resolver>,
    /// How many of the threads are new, and where each says that it looked once.
    started: usize,
    first_answers: Receiver<()>,
}

/// The thread of one endpoint; dropping the last clone ends it.
#[derive(Clone)]
struct Resolver {
    endpoint: Arc<Endpoint>,
    _stop: Sender<()>,
}

impl Resolvers {
    /// A thread for each endpoint whose host is a name: that of `previous`, an earlier generation,
    /// where the endpoint is the same.
    #[must_use]
    pub fn start(endpoints: &[Arc<Endpoint>], previous: Option<&Self>) -> Self {
        Self::start_with(endpoints, previous, look_up)
    }

    fn start_with(
        endpoints: &[Arc<Endpoint>],
        previous: Option<&Self>,
        look_up: impl LookUp,
    ) -> Self {
        let (answered, first_answers) = bounded(endpoints.len().max(1));
        let mut resolvers = Self {
            threads: Vec::new(),
            started: 0,
            first_answers,
        };
        for endpoint in endpoints.iter().filter(|e| e.is_name()) {
            if let Some(running) = previous.and_then(|previous| previous.of(endpoint)) {
                resolvers.threads.push(running.clone());
            } else if let Ok(resolver) = Resolver::start(endpoint, &answered, look_up.clone()) {
                resolvers.threads.push(resolver);
                resolvers.started += 1;
            }
        }
        resolvers
    }

    fn of(&self, endpoint: &Arc<Endpoint>) -> Option<&Resolver> {
        let same = |resolver: &&Resolver| Arc::ptr_eq(&resolver.endpoint, endpoint);
        self.threads.iter().find(same)
    }

    /// Waits until each new name was looked up once, at most `limit` in all; a name without an answer
    /// by then is served as soon as there is one.
    pub fn wait_first(&self, limit: Duration) {
        let deadline = crossbeam::channel::after(limit);
        for _ in 0..self.started {
            crossbeam::channel::select! {
                recv(self.first_answers) -> _ => {}
                recv(deadline) -> _ => return,
            }
        }
    }
}

impl fmt::Debug for Resolvers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolvers")
            .field("names", &self.threads.len())
            .finish_non_exhaustive()
    }
}

impl Resolver {
    fn start(
        endpoint: &Arc<Endpoint>,
        answered: &Sender<()>,
        look_up: impl LookUp,
    ) -> io::Result<Self> {
        let (stop, stopped) = bounded::<()>(0);
        let (asked, answered) = (Arc::clone(endpoint), answered.clone());
        thread::Builder::new()
            .name("lanegate-dns".to_owned())
            .spawn(move || keep_resolved(&asked, &stopped, answered, look_up))?;
        Ok(Self {
            endpoint: Arc::clone(endpoint),
            _stop: stop,
        })
    }
}

fn keep_resolved(
    endpoint: &Endpoint,
    stopped: &Receiver<()>,
    answered: Sender<()>,
    look_up: impl LookUp,
) {
    let mut first = Some(answered);
    loop {
        let pause = match look_up(endpoint) {
            Some(addresses) => {
                endpoint.found(addresses);
                REFRESH
            }
            None => RETRY,
        };
        if let Some(answered) = first.take() {
            // A full channel means that nobody waits any more.
            let _nobody_waits = answered.try_send(());
        }
        // The sender never sends: an answer here means that it is gone.
        if !matches!(
            stopped.recv_timeout(pause),
            Err(crossbeam::channel::RecvTimeoutError::Timeout)
        ) {
            return;
        }
    }
}

/// How names are looked up: may take as long as it likes.
trait LookUp: Fn(&Endpoint) -> Option<Vec<SocketAddr>> + Clone + Send + 'static {}

impl<F: Fn(&Endpoint) -> Option<Vec<SocketAddr>> + Clone + Send + 'static> LookUp for F {}

/// The addresses of the endpoint's host in resolver order, repeats left out.
fn look_up(endpoint: &Endpoint) -> Option<Vec<SocketAddr>> {
    let host = (endpoint.settings.host.as_str(), endpoint.settings.port);
    let mut seen = HashSet::new();
    let found: Vec<_> = host
        .to_socket_addrs()
        .ok()?
        .filter(|a| seen.insert(*a))
        .take(ADDRESSES)
        .collect();
    (!found.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::Settings;

    fn endpoint(host: &str) -> Arc<Endpoint> {
        Arc::new(Endpoint::new(Settings {
            host: host.to_owned(),
            port: 80,
            authority: host.to_owned(),
            prefix: String::new(),
            connect: Duration::from_secs(1),
            tls: None,
            handshake: Duration::from_secs(1),
            first_byte: Duration::from_secs(1),
            idle: Duration::from_secs(1),
            request_progress: Duration::from_secs(1),
            client_write: Duration::from_secs(1),
            connections: 1,
            waiting: 1,
            connection_wait: Duration::from_secs(1),
            keepalive_idle: Duration::from_secs(1),
        }))
    }

    #[test]
    fn a_literal_address_needs_no_thread() {
        let literal = endpoint("127.0.0.1");
        let resolvers = Resolvers::start(&[Arc::clone(&literal)], None);
        assert!(resolvers.threads.is_empty());
        assert_eq!(literal.addresses().len(), 1);
    }

    #[test]
    fn a_name_is_resolved_before_the_wait_ends() {
        let named = endpoint("localhost");
        assert!(named.addresses().is_empty());
        Resolvers::start(&[Arc::clone(&named)], None).wait_first(Duration::from_secs(20));
        assert!(
            named
                .addresses()
                .iter()
                .all(|a| a.ip().is_loopback() && a.port() == 80)
        );
        assert!(!named.addresses().is_empty());
    }

    #[test]
    fn a_name_that_does_not_exist_leaves_the_endpoint_without_address() {
        let named = endpoint("does-not-exist.invalid");
        Resolvers::start(&[Arc::clone(&named)], None).wait_first(Duration::from_secs(20));
        assert!(named.addresses().is_empty());
    }

    #[test]
    fn a_slow_look_up_holds_up_nobody_else() {
        let (slow, quick) = (endpoint("slow"), endpoint("quick"));
        let (release, released) = bounded::<()>(0);
        let found =
            |endpoint: &Endpoint| Some(vec![([127, 0, 0, 1], endpoint.settings.port).into()]);
        let look_up = move |endpoint: &Endpoint| {
            if endpoint.settings.host == "slow" {
                // Until the test lets go.
                let _gone = released.recv();
            }
            found(endpoint)
        };
        let both = [Arc::clone(&slow), Arc::clone(&quick)];
        let resolvers = Resolvers::start_with(&both, None, look_up);
        // The start goes on without the slow one.
        resolvers.wait_first(Duration::from_millis(300));
        assert_eq!(quick.addresses().len(), 1);
        assert!(slow.addresses().is_empty());
        drop(release);
        resolvers.wait_first(Duration::from_secs(20));
        let comes = || slow.addresses().len() == 1;
        assert!((0..2000).any(|_| {
            thread::park_timeout(Duration::from_millis(10));
            comes()
        }));
    }

    #[test]
    fn a_thread_serves_the_generations_that_have_its_endpoint() {
        let (kept, dropped) = (endpoint("localhost"), endpoint("localhost"));
        let first = Resolvers::start(&[Arc::clone(&kept), Arc::clone(&dropped)], None);
        first.wait_first(Duration::from_secs(20));
        let second = Resolvers::start(&[Arc::clone(&kept)], Some(&first));
        assert_eq!((first.started, second.started), (2, 0));
        drop(first);
        // The thread that nobody needs ends, and gives its handle back.
        let ends = || Arc::strong_count(&dropped) == 1;
        assert!((0..2000).any(|_| {
            thread::park_timeout(Duration::from_millis(10));
            ends()
        }));
        assert_eq!(
            Arc::strong_count(&kept),
            3,
            "this test, a resolver, its thread"
        );
    }
}
