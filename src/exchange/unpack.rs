//! Bodies with a content coding: memory for their decoders, turns for everybody else, and the decode
//! of a body in which something is replaced.
//!
//! A body is decoded as it comes, to be judged, and what it decoded to is dropped; what goes to the
//! provider is what came. Only where its model is replaced is it held as a whole and decoded once more,
//! into memory of exactly the size that the first time has shown, and sent without its coding.
//!
//! Both the decoder and the held body are reserved for. A body that asks for the second while it has
//! the first gives up by the same clock as every other, so that two never wait for each other for
//! longer than `timeouts.reservation`.

use crate::buf::Input;
use crate::coding::{CodingError, Codings, Decoder, memory_needed};
use crate::exchange::decide::Forward;
use crate::exchange::gather::{GatherEnd, absorb, granted};
use crate::exchange::{Client, Core};
use crate::failure::Failure;
use crate::http1::framing::BodyLength;
use crate::lane::{Body, BodyError};
use crate::limits::{CODING_TURN_BYTES, RESERVE_ABOVE_BYTES};
use crate::runtime::turn;

/// Lets a decoder do more with what came. Whether there was something to do: then nothing is to be
/// read before it was asked again.
pub(super) async fn keep_up(
    core: &Core,
    client: &mut Client,
    forward: &mut Forward,
) -> Result<bool, GatherEnd> {
    if let Some(bytes) = forward.body.wants_memory() {
        let memory = granted(core, client, bytes, None).await?;
        forward.body.grant(memory);
    } else if forward.body.is_behind() {
        turn().await;
    } else {
        return Ok(false);
    }
    absorb(client, forward)?;
    Ok(true)
}

/// Puts what a complete body decoded to in its place.
pub(super) async fn unpack(
    core: &Core,
    client: &mut Client,
    forward: &mut Forward,
) -> Result<(), GatherEnd> {
    let defect = GatherEnd::Failed(Failure::Internal);
    let Codings::One(coding) = forward.codings else {
        return Err(defect);
    };
    let decoded = forward.body.decoded_bytes().ok_or(defect)?;
    let size = usize::try_from(decoded).map_err(|_| defect)?;
    let (packed, next) = client
        .input
        .bytes()
        .split_at_checked(forward.body.ready())
        .ok_or(defect)?;
    let total = size.saturating_add(next.len());
    let held = (total > RESERVE_ABOVE_BYTES).then_some(total as u64);
    let decoder = memory_needed(coding, packed).map_err(refused)?;
    let decoder = decoder.ok_or(defect)?;
    let mut memory = granted(
        core,
        client,
        decoder.saturating_add(held.unwrap_or(0)),
        None,
    )
    .await?;
    let mut plain = Input::new(core.blocks.clone());
    if held.is_some() {
        plain.reserve(total);
    }
    decode(Decoder::new(coding, decoded), packed, (&mut plain, size)).await?;
    let mut left = next;
    while !left.is_empty() {
        let room = plain.room(total).ok_or(defect)?;
        let count = room.len().min(left.len());
        let (now, later) = left.split_at(count);
        room.get_mut(..count).ok_or(defect)?.copy_from_slice(now);
        plain.filled(count);
        left = later;
    }
    client.input = plain;
    forward.reservation = held.map(|bytes| {
        memory.shrink_to(bytes);
        memory
    });
    let nothing = Body::new(BodyLength::None, 0, false);
    forward.body = std::mem::replace(&mut forward.body, nothing).decoded_to(size);
    if matches!(forward.length, BodyLength::Known(_)) {
        forward.length = BodyLength::Known(decoded);
    }
    forward.codings = Codings::Plain;
    forward.unpacked = true;
    Ok(())
}

/// Decodes all of `wire`, which makes `size` bytes.
async fn decode(
    mut decoder: Decoder,
    mut wire: &[u8],
    (plain, size): (&mut Input, usize),
) -> Result<(), GatherEnd> {
    let defect = GatherEnd::Failed(Failure::Internal);
    let mut done = 0_usize;
    while plain.len() < size {
        let missing = size - plain.len();
        let room = plain.room(size).ok_or(defect)?;
        let most = room.len().min(missing);
        let room = room.get_mut(..most).unwrap_or_default();
        let step = decoder.step(wire, room).map_err(refused)?;
        wire = wire.get(step.consumed..).unwrap_or_default();
        plain.filled(step.produced);
        if step.produced == 0 && wire.is_empty() {
            return Err(defect);
        }
        done += step.consumed + step.produced;
        if done >= CODING_TURN_BYTES {
            done = 0;
            turn().await;
        }
    }
    Ok(())
}

fn refused(error: CodingError) -> GatherEnd {
    GatherEnd::Failed(BodyError::from(error).into())
}
