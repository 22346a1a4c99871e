//! One core: its state, its accept loops and its beat.

use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::clock;
use crate::exchange::Generations;
use crate::limits::{BEAT_MS, Part};
use crate::runtime::{Listener, sleep, spawn};
use crate::server::accept::Reception;
use crate::server::assemble::Share;
use crate::server::balance::{Cores, Door};
use crate::server::heartbeat::Heartbeats;
use crate::server::publish::Published;
use crate::server::told_to_stop;

/// What a worker's thread starts with.
#[derive(Debug)]
pub(super) struct Worker {
    /// Which of the cores it is.
    pub(super) part: Part,
    pub(super) cores: Arc<Cores>,
    pub(super) door: Door,
    pub(super) share: Share,
    pub(super) heartbeats: Heartbeats,
    pub(super) published: Arc<Published>,
    pub(super) listeners: Vec<TcpListener>,
    pub(super) stop: Arc<AtomicBool>,
}

impl Worker {
    /// Serves until told to stop and until the exchanges then running have ended or run out of time.
    pub(super) async fn run(self) {
        let core = self.part.index;
        let lasting = self.share.lasting(self.part, seed());
        let generations = Rc::new(Generations::new(self.published.clone(), lasting.clone()));
        let reception = Reception {
            cores: Arc::clone(&self.cores),
            core,
            generations: Rc::clone(&generations),
        };
        spawn(reception.clone().receive(self.door));
        let mut listeners = Vec::new();
        for socket in self.listeners {
            // A socket that bound and listened a moment ago is only refused by a broken kernel.
            let Ok(listener) = Listener::adopt(socket) else {
                std::process::exit(1)
            };
            let listener = Rc::new(listener);
            listeners.push(Rc::clone(&listener));
            spawn(reception.clone().accept(listener));
        }
        let beat = Duration::from_millis(BEAT_MS);
        while !told_to_stop(&self.stop) {
            self.heartbeats.beat(core);
            sleep(beat).await;
            generations.current().upstreams.prune().await;
            generations.note_levels(self.cores.open(core));
        }
        lasting.stop.set();
        for listener in &listeners {
            listener.shut_down();
        }
        let deadline = clock::now() + self.published.plan().config.timeouts.drain;
        while self.cores.open(core) > 0 && clock::now() < deadline {
            self.heartbeats.beat(core);
            sleep(beat).await;
            generations.note_levels(self.cores.open(core));
        }
        self.heartbeats.end(core);
    }
}

/// A number that differs from core to core and from start to start.
fn seed() -> u64 {
    RandomState::new().hash_one(clock::unix_time())
}
