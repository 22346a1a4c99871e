//! From bytes to a request head, and to as much of its body as is judged before forwarding.

use std::io;
use std::time::Duration;

use crate::clock;
use crate::exchange::decide::Forward;
use crate::exchange::{Client, Core, Next};
use crate::failure::Failure;
use crate::http1::head::Progress;
use crate::lane::write_all;
use crate::limits::{BLOCK_BYTES, WIDE_BLOCK_BYTES};
use crate::runtime::{Either, Timer, race, sleep};

/// What waiting for the next request ended in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arrival {
    /// A head is parsed; its bytes are the first of the input.
    Head,
    /// The client left, or stayed idle too long, or the process stops.
    Closed,
    /// What came is not a request.
    Failed(Failure),
}

/// Waits for a head. While nothing of it has come the connection holds no block.
/// `first` if nothing was served on this connection yet.
pub(super) async fn next_head(core: &Core, client: &mut Client, first: bool) -> Arrival {
    client.head.reset();
    client.stream.set_patience(None, None);
    if client.input.is_empty() {
        let idle = race(core.stop.wait(), sleep(core.settings.keepalive));
        match race(client.stream.readable(), idle).await {
            Either::First(Ok(())) => {}
            Either::First(Err(_)) | Either::Second(_) => return Arrival::Closed,
        }
    }
    let mut timer = Timer::new();
    timer.set(Some(clock::now() + core.settings.head_timeout));
    match race(read_head(core, client), timer.expired()).await {
        Either::First(arrival) => arrival,
        Either::Second(()) if first => Arrival::Failed(Failure::RequestTimeout),
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

/// Why a body was not gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GatherEnd {
    /// The client left inside the body.
    ClientGone,
    /// The body is not what the head promised.
    Failed(Failure),
}

/// Meets an expectation, and reads what must be there before forwarding starts: the first bytes of
/// a body with a declared length, all of a chunked body or a block of it, so that broken framing of a short body is refused before an upstream connection is touched.
pub(super) async fn gather(client: &mut Client, forward: &mut Forward) -> Result<(), GatherEnd> {
    absorb(client, forward)?;
    if forward.asked.expects_continue && client.input.is_empty() && !forward.body.is_complete() {
        let interim: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
        let written = write_all(&client.stream, [interim, &[], &[], &[]], &mut 0).await;
        written.map_err(|_| GatherEnd::ClientGone)?;
    }
    let wanted = if forward.asked.chunked {
        BLOCK_BYTES
    } else {
        1
    };
    while !forward.body.is_complete() && forward.body.ready() < wanted {
        let Some(room) = client.input.room(WIDE_BLOCK_BYTES) else {
            return Ok(());
        };
        match client.stream.try_read(room) {
            Ok(0) => return Err(GatherEnd::ClientGone),
            Ok(count) => {
                client.input.filled(count);
                absorb(client, forward)?;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if client.input.is_empty() {
                    client.input.release();
                }
                client.stream.readable().await.map_err(client_end)?;
            }
            Err(_) => return Err(GatherEnd::ClientGone),
        }
    }
    Ok(())
}

fn client_end(error: io::Error) -> GatherEnd {
    match error.kind() {
        io::ErrorKind::TimedOut => GatherEnd::Failed(Failure::RequestTimeout),
        _ => GatherEnd::ClientGone,
    }
}

fn absorb(client: &mut Client, forward: &mut Forward) -> Result<(), GatherEnd> {
    forward
        .body
        .absorb(&mut client.input)
        .map_err(|error| GatherEnd::Failed(error.into()))
}

/// Ends an exchange whose body did not arrive as promised.
pub(super) async fn ended(client: &Client, forward: &Forward, end: GatherEnd) -> Next {
    match end {
        // Nothing went upstream, and nobody is left to tell; but a half-closed client still reads.
        GatherEnd::ClientGone => Next::Cut,
        GatherEnd::Failed(failure) => {
            forward
                .asked
                .rejection(failure, true)
                .send(&client.stream)
                .await;
            Next::Linger
        }
    }
}

/// Longest wait for a client that must take an answer of the gateway's own.
pub(super) const OWN_ANSWER: Duration = Duration::from_secs(10);
