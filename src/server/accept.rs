//! From a listener to a task that serves a connection, on this core or another.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::exchange::{Generations, Lasting, serve_connection};
use crate::limits::{ACCEPT_BURST, ACCEPT_PAUSE_MS, LAST_HANDSHAKES_MS};
use crate::runtime::{
    Accepted, Bell, Either, Listener, TcpStream, is_descriptor_shortage, race, sleep, spawn,
    turn_after_burst,
};
use crate::server::balance::{Cores, Door, Handed, Seat};

/// A core as its accept loops see it.
#[derive(Clone, Debug)]
pub(super) struct Reception {
    pub(super) cores: Arc<Cores>,
    /// Number of this core.
    pub(super) core: usize,
    pub(super) generations: Rc<Generations>,
}

impl Reception {
    /// Accepts until the process stops, and then what the kernel has accepted already: the client has
    /// a connection, and sent its request maybe. While there is no room, and while no descriptor is
    /// to be had, the kernel keeps further connections waiting in its queue.
    pub(super) async fn accept(self, listener: Listener) {
        let Lasting { stop, end, .. } = self.generations.lasting();
        let pause = Duration::from_millis(ACCEPT_PAUSE_MS);
        let mut burst = 0_u32;
        let mut last = false;
        while !end.is_set() {
            if stop.is_set() && !last {
                last = true;
                listener.turn_away();
                sleep(Duration::from_millis(LAST_HANDSHAKES_MS)).await;
            }
            let Some(seat) = self.cores.seat(self.core) else {
                sleep(pause).await;
                continue;
            };
            match listener.try_accept() {
                Ok(socket) => {
                    self.place(socket, seat);
                    burst = burst.wrapping_add(1);
                    if burst.is_multiple_of(ACCEPT_BURST) {
                        turn_after_burst().await;
                    }
                }
                Err(error) if last && error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    drop(seat);
                    self.wait(&listener, &error, pause).await;
                }
            }
        }
        listener.shut_down();
    }

    /// After an accept that gave no connection.
    async fn wait(&self, listener: &Listener, error: &io::Error, pause: Duration) {
        match error.kind() {
            io::ErrorKind::WouldBlock => {
                let stop = self.generations.lasting().stop.wait();
                if let Either::First(Err(_)) = race(listener.readable(), stop).await {
                    sleep(pause).await;
                }
            }
            // The peer was gone before it was accepted.
            io::ErrorKind::ConnectionAborted => {}
            // Connections that nobody uses make way; what is open goes on.
            _ if is_descriptor_shortage(error) => {
                self.generations.lasting().metrics.accept_failures.add(1);
                self.generations.current().upstreams.close_idle();
                sleep(pause).await;
            }
            _ => {
                self.generations.lasting().metrics.accept_failures.add(1);
                sleep(pause).await;
            }
        }
    }

    /// To the core of its seat. A core that has too many to take leaves it here.
    fn place(&self, socket: Accepted, seat: Seat) {
        if seat.core() == self.core {
            return self.serve(socket, seat);
        }
        if let Some(Handed { socket, seat }) = self.cores.hand(Handed { socket, seat }) {
            self.serve(socket, seat.moved(self.core));
        }
    }

    fn serve(&self, socket: Accepted, seat: Seat) {
        // The runtime refuses a socket only for want of memory in the kernel: it closes.
        if let Ok(stream) = TcpStream::adopt(socket) {
            let generations = Rc::clone(&self.generations);
            spawn(async move {
                let _counted = seat;
                // Made in here: a future that is moved in takes twice its size, for ever.
                serve_connection(generations, stream).await;
            });
        }
    }

    /// Takes what other cores hand over, for as long as this core lives.
    pub(super) async fn receive(self, door: Door) {
        let Ok(bell) = Bell::adopt(door.clapper) else {
            // The others find the door closed, and keep their connections.
            return;
        };
        while bell.rung().await.is_ok() {
            while let Ok(Handed { socket, seat }) = door.handed.try_recv() {
                self.serve(socket, seat);
            }
        }
    }
}
