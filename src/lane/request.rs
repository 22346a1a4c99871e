//! The request on its way to the provider.
//!
//! Until the peer's kernel has acknowledged a byte on a *reused* connection, the head and the first
//! piece of the body stay where they are, so that a connection which the server had already closed
//! costs nothing but a second write. After that, and on a fresh connection from the start, body
//! bytes are dropped as they are written.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::time::Duration;

use crate::buf::{Input, Reservation, Share};
use crate::json::Patches;
use crate::lane::body::{Body, BodyError};
use crate::lane::flight::{Flight, whole};
use crate::lane::patience::{Looked, Progress, Watched};
use crate::limits::{BLOCK_BYTES, WIDE_BLOCK_BYTES, WIDEN_ABOVE_BYTES};
use crate::runtime::{Either, race, turn, turn_after_burst};
use crate::tls::Stream;

/// Reads that may follow each other without a return to the ring: 4 wide blocks are about 1 ms.
const BURST: u32 = 4;

/// Longest wait for the first acknowledgement: a path that lost its state drops packets silently,
/// and four retransmissions fit into this.
const ACKNOWLEDGED_WAIT: Duration = Duration::from_secs(10);

/// Why sending ended before the request was complete.
#[derive(Debug)]
pub enum SendError {
    /// The client ended or reset its connection inside the body.
    ClientGone,
    /// The client sent too little for as long as it may.
    ClientSlow,
    /// The client's body is not what its head promised.
    Body(BodyError),
    /// The body is judged to end here: [`Judge::releases`] said so.
    Withheld,
    /// The upstream connection broke.
    Upstream(io::Error),
}

/// Who says of a body that came to its end whether it goes to the provider.
pub trait Judge: fmt::Debug {
    /// Whether the last bytes of `body`, all of which was read, may be released. Asked once.
    fn releases(&self, body: &Body) -> bool;
}

/// The client's side of a request: where its bytes come from.
#[derive(Debug)]
pub struct Source<'a> {
    /// The client's connection.
    pub client: Watched<'a>,
    /// What was read from it and is not used yet.
    pub input: &'a mut Input,
    /// Memory that the input holds beyond a window.
    pub reservation: &'a mut Option<Reservation>,
    /// The body of this request.
    pub body: &'a mut Body,
    /// Who is asked before its last bytes are released, where anybody is.
    pub judge: Option<&'a dyn Judge>,
}

/// A request being sent: its head for the provider, and what a replay would still need.
#[derive(Debug)]
pub struct Sender {
    head: Vec<u8>,
    /// They lie within the first flight: nothing is sent before they are known.
    patches: Patches,
    chunked: bool,
    opened: bool,
    committed: bool,
    complete: bool,
    /// Whether bytes were sent that let a provider run the request before its framing ends.
    tail_begun: bool,
    /// Whether the body was judged.
    judged: bool,
    /// Bytes that may be kept in user memory while the request streams: the tail that is withheld,
    /// which is at most a window of white space, and a read behind it.
    unread_max: usize,
    /// Body bytes of the first flight, until it is committed.
    held: usize,
    written: u64,
    progress: Progress,
    /// Longest wait for the provider to take bytes.
    patience: Duration,
    /// Until the request holds no memory any more.
    share: Option<Share>,
}

/// What a sender is made of.
#[derive(Debug)]
pub struct Sending {
    /// The head for the provider.
    pub head: Vec<u8>,
    /// The spans of the body that are replaced.
    pub patches: Patches,
    /// Whether the body travels as chunks, or as its head declares.
    pub chunked: bool,
    /// Bytes of a window.
    pub window: usize,
    /// Longest wait for [`crate::limits::REQUEST_PROGRESS_BYTES`] of the client's body.
    pub progress: Duration,
    /// Longest wait for the provider to take bytes.
    pub patience: Duration,
    /// What it takes of its provider's part of the request pool.
    pub share: Share,
}

impl Sender {
    /// A request that is not sent yet.
    #[must_use]
    pub fn new(sending: Sending) -> Self {
        let Sending {
            head,
            patches,
            chunked,
            window,
            progress,
            patience,
            share,
        } = sending;
        Self {
            head,
            patches,
            chunked,
            opened: false,
            committed: false,
            complete: false,
            tail_begun: false,
            judged: false,
            unread_max: window.max(WIDE_BLOCK_BYTES).saturating_add(2 * BLOCK_BYTES),
            held: 0,
            written: 0,
            progress: Progress::new(progress),
            patience,
            share: Some(share),
        }
    }

    /// Whether every byte of the request was given to the kernel.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether the bytes sent so far are kept, so that the request can be sent once more.
    #[must_use]
    pub fn can_replay(&self) -> bool {
        !self.committed
    }

    /// Whether a byte was sent with which the provider may have begun to run the request.
    #[must_use]
    pub fn has_tail_begun(&self) -> bool {
        self.tail_begun
    }

    /// Bytes given to the kernel, over all attempts.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Drops what was kept for a replay: the peer is known to be there.
    pub fn commit(&mut self, source: &mut Source<'_>) {
        if !self.committed {
            self.committed = true;
            if self.opened {
                source.body.hand_on(source.input, self.held);
                source.input.shrink();
                *source.reservation = None;
            }
        }
        self.settle();
    }

    /// A request of which nothing is to come and nothing is kept holds no memory any more.
    fn settle(&mut self) {
        if self.complete && self.committed {
            self.share = None;
        }
    }

    /// Starts again from the first byte; only while [`Self::can_replay`].
    pub fn rewind(&mut self) {
        self.opened = false;
        self.complete = false;
        self.tail_begun = false;
    }

    /// Sends the request to its last byte. On a reused connection `acknowledged` is asked before
    /// bytes that a replay needs are dropped. May be dropped while it waits and run again.
    ///
    /// # Errors
    /// When the client, its body or the upstream connection ends it early.
    pub async fn run(
        &mut self,
        source: &mut Source<'_>,
        upstream: &Stream,
        reused: bool,
        acknowledged: impl Fn() -> bool,
    ) -> Result<(), SendError> {
        if !self.opened {
            self.judge(source)?;
            self.held = source.body.releasable();
            self.tail_begun = source.body.is_complete() || !source.body.withholds_tail();
            self.first_flight(source, upstream).await?;
            self.opened = true;
            self.complete = source.body.is_complete();
            if reused {
                self.until_acknowledged(source, upstream, acknowledged)
                    .await?;
            }
            if !(reused && self.complete) {
                self.commit(source);
            }
        }
        while !self.complete {
            self.read_more(source, upstream).await?;
        }
        self.settle();
        Ok(())
    }

    /// Asks for the verdict on a body that came to its end, before anything of its tail is released.
    fn judge(&mut self, source: &Source<'_>) -> Result<(), SendError> {
        if self.judged || !source.body.is_complete() {
            return Ok(());
        }
        self.judged = true;
        match source.judge {
            Some(judge) if !judge.releases(source.body) => Err(SendError::Withheld),
            _ => Ok(()),
        }
    }

    /// Sends on while everything that was sent is kept, up to a window, until the peer's kernel has
    /// acknowledged a byte. A single small segment would be acknowledged late (40 ms on Linux); those
    /// that follow it bring the acknowledgement at once.
    async fn until_acknowledged(
        &mut self,
        source: &mut Source<'_>,
        upstream: &Stream,
        acknowledged: impl Fn() -> bool,
    ) -> Result<(), SendError> {
        let mut steps = 0_u32;
        while !self.complete && !acknowledged() {
            steps = steps.wrapping_add(1);
            if steps.is_multiple_of(BURST) {
                pause(source).await;
            }
            let full = source.input.len() >= self.unread_max;
            if !full && !source.body.is_behind() {
                let came = self.read_some(source)?;
                self.progress.received(came);
                if came == 0 {
                    self.kept_readable(source, &acknowledged).await?;
                    continue;
                }
            }
            if full {
                return wait_acknowledged(source.client, acknowledged).await;
            }
            source.body.absorb(source.input).map_err(SendError::Body)?;
            self.judge(source)?;
            self.kept_flight(source, upstream).await?;
        }
        Ok(())
    }

    /// Waits for bytes of the client or the acknowledgement, whichever comes first, each within its own
    /// bound.
    async fn kept_readable(
        &mut self,
        source: &Source<'_>,
        acknowledged: impl Fn() -> bool,
    ) -> Result<(), SendError> {
        let readable = self.progress.readable(source.client.client);
        match race(readable, wait_acknowledged(source.client, acknowledged)).await {
            Either::First(readable) => readable.map_err(client_end),
            Either::Second(acknowledged) => acknowledged,
        }
    }

    /// Sends what may be released beyond the bytes that are kept, and keeps it too.
    async fn kept_flight(
        &mut self,
        source: &Source<'_>,
        upstream: &Stream,
    ) -> Result<(), SendError> {
        // From the last byte on the provider may run the request.
        self.tail_begun |= source.body.is_complete();
        self.held = self.flight(source, upstream, self.held).await?;
        Ok(())
    }

    /// Reads what came and sends it, several times if there is a lot.
    async fn read_more(
        &mut self,
        source: &mut Source<'_>,
        upstream: &Stream,
    ) -> Result<(), SendError> {
        if !source.body.is_behind() {
            let readable = self.progress.readable(source.client.client);
            readable.await.map_err(client_end)?;
        }
        for _ in 0..BURST {
            if !source.body.is_behind() {
                let held = self.read_some(source)?;
                if held == 0 {
                    return Ok(());
                }
                self.progress.received(held);
            }
            source.body.absorb(source.input).map_err(SendError::Body)?;
            self.judge(source)?;
            self.next_flight(source, upstream).await?;
            if self.complete {
                return Ok(());
            }
        }
        pause(source).await;
        Ok(())
    }

    /// One read from the client, 0 when nothing is there. Widens the block for a long upload.
    fn read_some(&self, source: &mut Source<'_>) -> Result<usize, SendError> {
        if source.body.expected() > WIDEN_ABOVE_BYTES {
            source.input.widen();
        }
        let room = source.input.room(self.unread_max);
        let room = room.ok_or(SendError::Body(BodyError::TrailingSpace))?;
        match source.client.client.try_read(room) {
            Ok(0) => Err(SendError::ClientGone),
            Ok(count) => {
                source.input.filled(count);
                Ok(count)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if source.input.is_empty() {
                    source.input.release();
                }
                Ok(0)
            }
            Err(_) => Err(SendError::ClientGone),
        }
    }

    async fn first_flight(
        &mut self,
        source: &Source<'_>,
        upstream: &Stream,
    ) -> Result<(), SendError> {
        let data = source.input.bytes().get(..self.held).unwrap_or_default();
        let flight = Flight {
            head: &self.head,
            data: self.patches.around(data),
            last: source.body.is_complete(),
            chunked: self.chunked,
            ending: &[],
        };
        let (written, patience) = (&mut self.written, self.patience);
        write(&flight, source.client, (upstream, patience), written).await
    }

    /// Sends what may be released now, if anything, and drops it.
    async fn next_flight(
        &mut self,
        source: &mut Source<'_>,
        upstream: &Stream,
    ) -> Result<(), SendError> {
        let count = self.flight(source, upstream, 0).await?;
        source.body.hand_on(source.input, count);
        Ok(())
    }

    /// Sends what may be released of the ready bytes from `sent` on, if anything; how many of them were
    /// sent by now.
    async fn flight(
        &mut self,
        source: &Source<'_>,
        upstream: &Stream,
        sent: usize,
    ) -> Result<usize, SendError> {
        let count = source.body.releasable().max(sent);
        let last = source.body.is_complete();
        if count > sent || last {
            let data = source.input.bytes().get(sent..count).unwrap_or_default();
            let flight = Flight {
                head: &[],
                data: whole(data),
                last,
                chunked: self.chunked,
                ending: &[],
            };
            let (written, patience) = (&mut self.written, self.patience);
            write(&flight, source.client, (upstream, patience), written).await?;
            self.complete = last;
        }
        Ok(count)
    }
}

fn client_end(error: io::Error) -> SendError {
    match error.kind() {
        io::ErrorKind::TimedOut => SendError::ClientSlow,
        _ => SendError::ClientGone,
    }
}

/// Lets everything else on this core have a turn, also where the next step waits for nothing: bytes
/// that are here already are being decoded.
async fn pause(source: &Source<'_>) {
    if source.body.is_behind() {
        turn().await;
    } else {
        turn_after_burst().await;
    }
}

/// Writes a flight while the client is there.
async fn write(
    flight: &Flight<'_>,
    client: Watched<'_>,
    (upstream, patience): (&Stream, Duration),
    written: &mut u64,
) -> Result<(), SendError> {
    let left = Cell::new(false);
    let writable = async || client.writable(upstream, patience, &left).await;
    match flight.write_waiting(upstream, written, writable).await {
        Ok(()) => Ok(()),
        Err(_) if left.get() => Err(SendError::ClientGone),
        Err(error) => Err(SendError::Upstream(error)),
    }
}

/// Waits for the first acknowledgement: one round trip, once, only on a reused connection and only
/// for a body that is longer than its first piece.
async fn wait_acknowledged(
    client: Watched<'_>,
    acknowledged: impl Fn() -> bool,
) -> Result<(), SendError> {
    match client.look_until(acknowledged, ACKNOWLEDGED_WAIT).await {
        Looked::Done => Ok(()),
        Looked::ClientLeft => Err(SendError::ClientGone),
        Looked::TooLong => Err(SendError::Upstream(io::ErrorKind::TimedOut.into())),
    }
}
