//! From bytes to a request head.

use std::io;
use std::time::Duration;

use crate::clock;
use crate::exchange::{Client, Core, Generations};
use crate::failure::Failure;
use crate::http1::head::Progress;
use crate::limits::{BLOCK_BYTES, FIRST_REQUEST_MS};
use crate::runtime::{Either, Timer, race};

/// What waiting for the next request ended in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arrival {
    /// A head is parsed; its bytes are the first of the input.
    Head,
    /// The client left.
    Closed,
    /// What came is not a request.
    Failed(Failure),
}

/// Waits until something of the next head has come. Meanwhile the connection holds no block, and no
/// generation. False if nothing will come: the client left, or stayed idle too long, or the process stops.
/// `first` if nothing was served on this connection yet.
pub(super) async fn begins(generations: &Generations, client: &mut Client, first: bool) -> bool {
    client.head.reset();
    client.stream.set_patience(None, None);
    if !client.input.is_empty() {
        return true;
    }
    client.head_text = Vec::new();
    let mut timer = client.timer.take().unwrap_or_default();
    timer.set(Some(clock::now() + generations.keepalive()));
    let stop = generations.lasting().stop.wait();
    let idle = race(stop, timer.expired());
    let came = match race(client.stream.readable(), idle).await {
        Either::First(readable) => readable.is_ok(),
        Either::Second(Either::First(())) if first => comes_still(client, &mut timer).await,
        // What is there already was sent before the client could know.
        Either::Second(Either::First(())) => client.stream.look().is_ok(),
        Either::Second(Either::Second(())) => false,
    };
    client.timer = Some(timer);
    came
}

/// The first request of a connection that was accepted before the process stopped.
async fn comes_still(client: &Client, timer: &mut Timer) -> bool {
    timer.set(Some(clock::now() + Duration::from_millis(FIRST_REQUEST_MS)));
    let came = race(client.stream.readable(), timer.expired()).await;
    matches!(came, Either::First(Ok(())))
}

/// Reads a head, of which something has come. `first` if nothing was served on this connection yet.
pub(super) async fn next_head(core: &Core, client: &mut Client, first: bool) -> Arrival {
    let mut timer = client.timer.take().unwrap_or_default();
    let arrival = wait_head(core, client, first, &mut timer).await;
    client.timer = Some(timer);
    arrival
}

async fn wait_head(core: &Core, client: &mut Client, first: bool, timer: &mut Timer) -> Arrival {
    timer.set(Some(clock::now() + core.settings.head_timeout));
    match race(read_head(core, client), timer.expired()).await {
        Either::First(arrival) => arrival,
        Either::Second(()) if first => Arrival::Failed(Failure::HeadTimeout),
        // A few bytes behind a request that was answered are no question: an answer to them could
        // be taken for the answer to the next one.
        Either::Second(()) => Arrival::Closed,
    }
}

async fn read_head(core: &Core, client: &mut Client) -> Arrival {
    let limits = core.settings.head;
    loop {
        if !client.input.is_empty() {
            match client.head.parse(client.input.bytes(), limits) {
                Ok(Progress::Complete) => return Arrival::Head,
                Ok(Progress::Partial) => {}
                Err(error) => return Arrival::Failed(Failure::Head(error)),
            }
        }
        // A head of exactly the limit needs room for one byte more, so that it can be too long.
        let Some(room) = client.input.room((limits.bytes + 1).max(BLOCK_BYTES)) else {
            return Arrival::Failed(Failure::Internal);
        };
        match client.stream.try_read(room) {
            Ok(0) if client.input.is_empty() => return Arrival::Closed,
            // A head that breaks off is answered like one that is malformed, in case the client
            // only ended its sending direction.
            Ok(0) => return Arrival::Failed(Failure::HeadCut),
            Ok(count) => client.input.filled(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if client.input.is_empty() {
                    client.input.release();
                }
                if client.stream.readable().await.is_err() {
                    return Arrival::Closed;
                }
            }
            Err(_) => return Arrival::Closed,
        }
    }
}

/// Longest wait for a client that must take an answer of the gateway's own.
pub(super) const OWN_ANSWER: Duration = Duration::from_secs(10);
