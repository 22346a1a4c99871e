//! Reading on after an answer was given early, so that the client gets to read it.
//!
//! Closing a socket with unread bytes makes the kernel send a reset, which throws away an answer
//! that the client has not read yet (RFC 9112 §9.6). What is read here is never parsed.

use std::io;

use crate::exchange::{Client, Core};
use crate::lane::{Body, Judge};
use crate::limits::LINGER_BYTES;
use crate::runtime::{Either, race, sleep};

/// Closes after a complete answer; lingers if the client has sent something more meanwhile.
pub(super) async fn close(core: &Core, client: Client) {
    if !client.input.is_empty() || client.stream.look().is_ok_and(|more| more) {
        drain_and_close(core, client).await;
    } else {
        client.stream.notify_close();
    }
}

/// Ends the sending direction, reads what the client still sends up to the bounds, and closes.
pub(super) async fn drain_and_close(core: &Core, mut client: Client) {
    client.input.release();
    client.stream.shutdown_write();
    let mut block = core.blocks.ordinary();
    let drain = async {
        let mut left = LINGER_BYTES;
        while left > 0 {
            match client.stream.read(&mut block).await {
                Ok(count) if count > 0 => left = left.saturating_sub(count as u64),
                Ok(_) | Err(_) => return,
            }
        }
    };
    race(drain, sleep(core.settings.linger)).await;
}

/// What became of the rest of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Discarded {
    /// It was read, or as much of it as may be.
    Read,
    /// It was read to its end, and its judge says that it does not belong to the provider.
    Withheld,
}

/// Reads and drops the rest of a body within the bounds; what its judge says of it wins over the answer
/// that the provider gave.
pub(super) async fn discard(
    core: &Core,
    client: &mut Client,
    body: &mut Body,
    judge: Option<&dyn Judge>,
) -> Discarded {
    if judge.is_none() {
        body.stop_judging();
    }
    let reading = read_to_end(core, client, body);
    let read = race(reading, sleep(core.settings.linger)).await;
    match (read, judge) {
        (Either::First(true), Some(judge)) if !judge.releases(body) => Discarded::Withheld,
        _ => Discarded::Read,
    }
}

/// Whether the body was read to its end.
async fn read_to_end(core: &Core, client: &mut Client, body: &mut Body) -> bool {
    let mut left = LINGER_BYTES;
    loop {
        let ready = body.ready();
        left = left.saturating_sub(ready as u64);
        let complete = body.is_complete();
        body.hand_on(&mut client.input, ready);
        if complete || left == 0 {
            return complete;
        }
        let Some(room) = client.input.room(core.settings.window_bytes) else {
            return false;
        };
        match client.stream.try_read(room) {
            Ok(count) if count > 0 => client.input.filled(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if client.stream.readable().await.is_err() {
                    return false;
                }
            }
            Ok(_) | Err(_) => return false,
        }
        if body.absorb(&mut client.input).is_err() {
            return false;
        }
    }
}
