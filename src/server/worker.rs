//! One core: its state, its accept loops and its beat.

use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::clock;
use crate::exchange::Generations;
use crate::limits::{BEAT_MS, Part};
use crate::runtime::{Listener, sleep, spawn};
use crate::server::accept::Reception;
use crate::server::assemble::Share;
use crate::server::balance::{Cores, Door};
use crate::server::drain::{Drain, Phase};
use crate::server::heartbeat::Heartbeats;
use crate::server::publish::Published;

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
    pub(super) drain: Arc<Drain>,
}

impl Worker {
    /// Serves through the phases of the process, until nothing is left to serve on any core.
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
        for socket in self.listeners {
            // A socket that bound and listened a moment ago is only refused by a broken kernel.
            let Ok(listener) = Listener::adopt(socket) else {
                std::process::exit(1)
            };
            let (drain, accepting) = (Arc::clone(&self.drain), reception.clone().accept(listener));
            spawn(async move {
                accepting.await;
                drain.listener_closed();
            });
        }
        let beat = Duration::from_millis(BEAT_MS);
        loop {
            self.heartbeats.beat(core);
            sleep(beat).await;
            generations.note_levels(self.cores.open(core));
            match self.drain.phase() {
                Phase::Serving => generations.current().upstreams.prune().await,
                Phase::Finishing => lasting.stop.set(),
                Phase::Ending => lasting.end.set(),
            }
            if lasting.stop.is_set() && self.drain.is_over(&self.cores) {
                break;
            }
        }
        self.heartbeats.end(core);
    }
}

/// A number that differs from core to core and from start to start.
fn seed() -> u64 {
    RandomState::new().hash_one(clock::unix_time())
}
