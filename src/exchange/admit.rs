//! Whether a request may be served at all: who sent it, and whether its sender may have one more.
//!
//! Decided from the head alone, before anything is made of the body, so that a stranger is told at
//! once and costs no memory. Without `clients` everybody is let in and nobody has a name.

use crate::auth::{Caller, PrincipalId, Slot, Spent};
use crate::clock;
use crate::exchange::Core;
use crate::failure::Failure;
use crate::http1::head::RequestHead;
use crate::observe::Record;

/// A request that was let in.
#[derive(Debug)]
pub(super) struct Admission {
    /// Whose it is, where clients have names.
    pub(super) principal: Option<PrincipalId>,
    /// The fields of its head that held the key.
    pub(super) spent: Spent,
    /// Its place among the running exchanges of its client, if their number is limited.
    _slot: Option<Slot>,
}

/// Lets the request in that begins with this head, whose text is `bytes`, and notes in `record` whose
/// it is, even where its client has used up what it may have.
pub(super) fn admit(
    core: &Core,
    head: &RequestHead,
    bytes: &[u8],
    record: &mut Record,
) -> Result<Admission, Failure> {
    let Some(clients) = &core.clients else {
        return Ok(Admission {
            principal: None,
            spent: Spent::default(),
            _slot: None,
        });
    };
    let identified = clients.identify(&head.fields, bytes);
    let Caller { principal, spent } = identified.map_err(Failure::Unauthorized)?;
    let client = clients.client(principal).ok_or(Failure::Internal)?;
    record.client = core.client_label(principal);
    let slot = client
        .allowance
        .admit(clock::now)
        .map_err(Failure::Exceeded)?;
    Ok(Admission {
        principal: Some(principal),
        spent,
        _slot: slot,
    })
}
