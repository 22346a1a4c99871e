//! One core: its state, its accept loops and its beat.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::clock;
use crate::exchange::{Generations, Lasting, OpenConnection, serve_connection};
use crate::limits::{ACCEPT_PAUSE_MS, BEAT_MS};
use crate::runtime::{Listener, sleep, spawn};
use crate::server::assemble::Share;
use crate::server::heartbeat::Heartbeats;
use crate::server::publish::Published;
use crate::server::told_to_stop;

/// What a worker's thread starts with.
#[derive(Debug)]
pub(super) struct Worker {
    /// Position among the cores.
    pub(super) core: usize,
    pub(super) share: Share,
    pub(super) heartbeats: Heartbeats,
    pub(super) published: Arc<Published>,
    pub(super) listeners: Vec<TcpListener>,
    pub(super) stop: Arc<AtomicBool>,
}

impl Worker {
    /// Serves until told to stop and until the exchanges then running have ended or run out of time.
    pub(super) async fn run(self) {
        let lasting = self.share.lasting(self.core, seed());
        let generations = Rc::new(Generations::new(self.published.clone(), lasting.clone()));
        let mut listeners = Vec::new();
        for socket in self.listeners {
            // A socket that bound and listened a moment ago is only refused by a broken kernel.
            let Ok(listener) = Listener::adopt(socket) else {
                std::process::exit(1)
            };
            let listener = Rc::new(listener);
            listeners.push(Rc::clone(&listener));
            spawn(accept(
                listener,
                Rc::clone(&generations),
                self.share.connections,
            ));
        }
        let beat = Duration::from_millis(BEAT_MS);
        while !told_to_stop(&self.stop) {
            self.heartbeats.beat(self.core);
            sleep(beat).await;
            generations.current().upstreams.prune().await;
            generations.note_levels();
        }
        lasting.stop.set();
        for listener in &listeners {
            listener.shut_down();
        }
        let deadline = clock::now() + self.published.plan().config.timeouts.drain;
        while lasting.connections.get() > 0 && clock::now() < deadline {
            self.heartbeats.beat(self.core);
            sleep(beat).await;
            generations.note_levels();
        }
        self.heartbeats.end(self.core);
    }
}

/// Accepts until the listener is shut down. At the limit of connections the kernel keeps further
/// ones waiting in its queue.
async fn accept(listener: Rc<Listener>, generations: Rc<Generations>, limit: usize) {
    let Lasting {
        connections, stop, ..
    } = generations.lasting();
    let pause = Duration::from_millis(ACCEPT_PAUSE_MS);
    loop {
        while connections.get() >= limit && !stop.is_set() {
            sleep(pause).await;
        }
        match listener.accept().await {
            Ok(stream) if !stop.is_set() => {
                spawn(serve_connection(OpenConnection::new(&generations), stream));
            }
            Ok(_) => {}
            Err(_) if stop.is_set() => return,
            // The peer was gone before it was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            // No descriptor or no memory: the connection waits in the queue meanwhile.
            Err(_) => {
                generations.lasting().metrics.accept_failures.add(1);
                sleep(pause).await;
            }
        }
    }
}

/// A number that differs from core to core and from start to start.
fn seed() -> u64 {
    RandomState::new().hash_one(clock::unix_time())
}
