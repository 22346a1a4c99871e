//! From a head to as much of its body as must be there before it may be forwarded.
//!
//! A body that fits a window is gathered whole, so that it is judged before a connection is taken.
//! A longer one is forwarded from the moment its route is known. One whose route is not known when a
//! window is full is held on, against a reservation of memory for all of it.

use std::io;
use std::time::Duration;

use crate::buf::{Ask, Grower, Reservation};
use crate::clock;
use crate::exchange::decide::Forward;
use crate::exchange::plan::{is_session_open, must_unpack};
use crate::exchange::unpack::{keep_up, unpack};
use crate::exchange::{Client, Core, Next};
use crate::failure::Failure;
use crate::http1::framing::BodyLength;
use crate::lane::{Progress, write_all};
use crate::limits::{BLOCK_BYTES, CLIENT_LOOK_MS, RESERVE_ABOVE_BYTES, WIDE_BLOCK_BYTES};
use crate::observe::EndReason;
use crate::runtime::{sleep, turn};

/// Reads after which everything else on the core has a turn: about 1 ms of scanning.
const BURST: u32 = 16;

/// The same where what is read is also decoded.
const CODED_BURST: u32 = 2;

/// Pause between two looks at a short budget.
const BUDGET_LOOK: Duration = Duration::from_millis(5);

/// Pause between two looks at a client who waits for memory.
const CLIENT_LOOK: Duration = Duration::from_millis(CLIENT_LOOK_MS);

/// Why a body was not gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GatherEnd {
    /// The client left inside the body.
    ClientGone,
    /// The body is not what the head promised, or cannot be held.
    Failed(Failure),
}

/// Meets an expectation, and reads until the request may be forwarded.
pub(super) async fn gather(
    core: &Core,
    client: &mut Client,
    forward: &mut Forward,
) -> Result<(), GatherEnd> {
    absorb(client, forward)?;
    if forward.asked.expects_continue && client.input.is_empty() && !forward.body.is_complete() {
        invite(client).await?;
    }
    let mut reads = 0_u32;
    let mut progress = Progress::new(core.settings.request_progress);
    while !may_start(core, client, forward) {
        if keep_up(core, client, forward).await? {
            continue;
        }
        let capacity = hold(core, client, forward).await?;
        read_more(client, forward, (capacity, &mut progress)).await?;
        reads = reads.wrapping_add(1);
        let burst = if forward.codings.is_coded() {
            CODED_BURST
        } else {
            BURST
        };
        if reads.is_multiple_of(burst) {
            turn().await;
        }
    }
    if must_unpack(core, client, forward) {
        unpack(core, client, forward).await?;
    }
    // Nothing grows after this.
    forward.grower = None;
    Ok(())
}

/// Tells a client to send the body that it holds back (RFC 9110 §10.1.1).
pub(super) async fn invite(client: &Client) -> Result<(), GatherEnd> {
    let interim: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
    let written = write_all(&client.stream, [interim], &mut 0).await;
    written.map_err(|_| GatherEnd::ClientGone)
}

/// Whether forwarding may begin with what is there.
fn may_start(core: &Core, client: &Client, forward: &Forward) -> bool {
    let ready = forward.body.ready();
    if forward.body.is_complete() {
        return true;
    }
    if must_unpack(core, client, forward) {
        return false;
    }
    let window = if core.blocks.is_roomy() {
        core.settings.window_bytes
    } else {
        BLOCK_BYTES
    };
    let full = ready >= window;
    match (
        is_settled(core, client, forward),
        forward.judged,
        forward.length,
    ) {
        (true, true, BodyLength::Known(length)) => ready > 0 && (full || length > window as u64),
        (true, false, BodyLength::Known(_)) => ready > 0,
        (true, true, _) => full,
        (true, false, _) => ready >= BLOCK_BYTES,
        (false, ..) => false,
    }
}

/// Whether everything that has to be known before the first byte is sent will not change any more.
fn is_settled(core: &Core, client: &Client, forward: &Forward) -> bool {
    is_route_known(forward) && !is_session_open(core, client, forward)
}

/// Whether the route will not change any more. A body that turned out to be no JSON has no facts and
/// goes to the default.
fn is_route_known(forward: &Forward) -> bool {
    let facts = forward.body.facts();
    forward.route.is_some() || facts.is_none_or(|facts| !facts.model().is_open())
}

/// Sees to it that the body may grow, and says to how many bytes.
async fn hold(core: &Core, client: &mut Client, forward: &mut Forward) -> Result<usize, GatherEnd> {
    let window = core.settings.window_bytes.saturating_add(BLOCK_BYTES);
    let ready = forward.body.ready();
    // A configured window may be the smaller one.
    let unreserved = RESERVE_ABOVE_BYTES.min(core.settings.window_bytes);
    let streams = is_settled(core, client, forward) && !must_unpack(core, client, forward);
    if streams || ready < unreserved {
        return Ok(window);
    }
    let held = forward.reservation.as_ref().map_or(0, |r| r.bytes());
    if held > 0 && (ready as u64) < held {
        return Ok(usize::try_from(held).unwrap_or(usize::MAX));
    }
    let most = core.settings.body_bytes.saturating_add(window as u64);
    let wanted = match forward.length {
        BodyLength::Known(length) => length.saturating_add(window as u64),
        _ => held.max(window as u64).saturating_mul(2),
    };
    let more = wanted.min(most).saturating_sub(held);
    reserve(core, client, forward, more).await?;
    let bytes = usize::try_from(wanted.min(most)).unwrap_or(usize::MAX);
    client.input.reserve(bytes);
    Ok(bytes)
}

/// Reserves for the body itself. One of unknown length grows by asking again, one such body at a time.
async fn reserve(
    core: &Core,
    client: &Client,
    forward: &mut Forward,
    bytes: u64,
) -> Result<(), GatherEnd> {
    let grower = forward.asked.chunked.then_some(&mut forward.grower);
    let reservation = granted(core, client, bytes, grower).await?;
    match &mut forward.reservation {
        Some(held) => held.merge(reservation),
        none => *none = Some(reservation),
    }
    Ok(())
}

/// Waits for memory, first come first served and within `timeouts.reservation`, while the client is
/// there. With a place for the right to grow, that right comes first.
pub(super) async fn granted(
    core: &Core,
    client: &Client,
    bytes: u64,
    mut grower: Option<&mut Option<Grower>>,
) -> Result<Reservation, GatherEnd> {
    let exhausted = GatherEnd::Failed(Failure::MemoryExhausted);
    let mut ask = None;
    let deadline = clock::now() + core.settings.reservation;
    let mut next_look = clock::now() + CLIENT_LOOK;
    loop {
        if let Some(grower @ None) = grower.as_deref_mut() {
            *grower = core.budget.grower();
        }
        // Who may not grow yet must not stand in the way of who may.
        let may_ask = grower.as_ref().is_none_or(|grower| grower.is_some());
        if may_ask && ask.is_none() {
            ask = Some(core.budget.ask(bytes)).filter(Ask::is_possible);
            if ask.is_none() {
                return Err(exhausted);
            }
        }
        if let Some(reservation) = ask.as_mut().and_then(Ask::granted) {
            return Ok(reservation);
        }
        let now = clock::now();
        if now >= deadline {
            return Err(exhausted);
        }
        if now >= next_look {
            if core.settings.watched(&client.stream).has_left() {
                return Err(GatherEnd::ClientGone);
            }
            next_look = now + CLIENT_LOOK;
        }
        sleep(BUDGET_LOOK).await;
    }
}

/// Reads once, into at most `capacity` bytes of unread input.
async fn read_more(
    client: &mut Client,
    forward: &mut Forward,
    (capacity, progress): (usize, &mut Progress),
) -> Result<(), GatherEnd> {
    let Some(room) = client.input.room(capacity) else {
        // The bounds of holding and of starting do not meet.
        return Err(GatherEnd::Failed(Failure::Internal));
    };
    let most = room.len().min(WIDE_BLOCK_BYTES);
    match client
        .stream
        .try_read(room.get_mut(..most).unwrap_or_default())
    {
        Ok(0) => Err(GatherEnd::ClientGone),
        Ok(count) => {
            client.record.fed = client.record.elapsed();
            client.input.filled(count);
            progress.received(count);
            absorb(client, forward)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            if client.input.is_empty() {
                client.input.release();
            }
            if forward.reservation.is_some() {
                // Memory that others wait for is lent to those who use it.
                let readable = progress.readable(&client.stream).await;
                readable.map_err(|error| client_end(error, Failure::BodyTooSlow))
            } else {
                let readable = client.stream.readable().await;
                readable.map_err(|error| client_end(error, Failure::BodyTimeout))
            }
        }
        Err(_) => Err(GatherEnd::ClientGone),
    }
}

/// What the end of a wait for the client means; `late` if it was too long.
pub(super) fn client_end(error: io::Error, late: Failure) -> GatherEnd {
    match error.kind() {
        io::ErrorKind::TimedOut => GatherEnd::Failed(late),
        _ => GatherEnd::ClientGone,
    }
}

pub(super) fn absorb(client: &mut Client, forward: &mut Forward) -> Result<(), GatherEnd> {
    let absorbed = forward.body.absorb(&mut client.input);
    absorbed.map_err(|error| GatherEnd::Failed(error.into()))
}

/// Ends an exchange whose body did not arrive as promised.
pub(super) async fn ended(client: &mut Client, forward: &Forward, end: GatherEnd) -> Next {
    forward.account(&mut client.record);
    match end {
        // Nothing went upstream, and nobody is left to tell.
        GatherEnd::ClientGone => {
            client.record.end = EndReason::ClientClosed;
            Next::Cut
        }
        GatherEnd::Failed(failure) => {
            let rejection = forward.asked.rejection(failure, true);
            let record = &mut client.record;
            rejection.send(&client.stream, true, record).await
        }
    }
}
