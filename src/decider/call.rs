//! One call of the remote service.

use std::io;

use crate::buf::{Input, Pool as Blocks};
use crate::classify::{ANSWER_BYTES_MAX, RemoteOutcome, RemotePolicy, read_answer};
use crate::http1::framing::response_body;
use crate::lane::{Body, ReceiveError, Receiver, write_all};
use crate::limits::{BLOCK_BYTES, INTERIM_RESPONSES};
use crate::runtime::{Either, race, sleep};
use crate::tls::Stream;
use crate::upstream::{Pool, Upstreams};

/// What a call is made with.
pub(super) struct Caller<'a> {
    pub(super) upstreams: &'a Upstreams,
    pub(super) pool: &'a Pool,
    pub(super) blocks: &'a Blocks,
}

impl Caller<'_> {
    /// The probability that the service answers, within the time of an attempt.
    pub(super) async fn call(
        &self,
        remote: &RemotePolicy,
        document: &[u8],
    ) -> Result<f64, RemoteOutcome> {
        // Read for each attempt, and kept nowhere.
        let key = std::env::var(&*remote.api_key_env).unwrap_or_default();
        let key = key.trim();
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(RemoteOutcome::Skipped);
        }
        let settings = &self.pool.endpoint().settings;
        let path = match &*settings.prefix {
            "" => "/",
            path => path,
        };
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
             authorization: Bearer {key}\r\naccept: application/json\r\ncontent-length: {}\r\n\
             connection: close\r\n\r\n",
            settings.authority,
            document.len()
        )
        .into_bytes();
        request.extend_from_slice(document);
        match race(self.exchange(&request), sleep(remote.timeout)).await {
            Either::First(answer) => answer,
            Either::Second(()) => Err(RemoteOutcome::Timeout),
        }
    }

    async fn exchange(&self, request: &[u8]) -> Result<f64, RemoteOutcome> {
        let broken = |_| RemoteOutcome::NetworkError;
        // A connection of its own for each attempt: they are rare, and a stale one would cost a lease.
        let connection = self.upstreams.take(self.pool, true).await;
        let connection = connection.map_err(|_| RemoteOutcome::NetworkError)?;
        let stream = &connection.stream;
        write_all(stream, [request], &mut 0).await.map_err(broken)?;
        let mut receiver = Receiver::new(Input::new(self.blocks.clone()));
        final_head(&mut receiver, stream).await?;
        if let Some(outcome) = RemoteOutcome::of_status(receiver.head.status) {
            return Err(outcome);
        }
        let length = response_body(&receiver.head, receiver.input.bytes(), false);
        let length = length.map_err(|_| RemoteOutcome::Malformed)?;
        receiver.drop_head();
        let mut body = Body::new(length, ANSWER_BYTES_MAX as u64, false);
        let answer = read(&mut body, &mut receiver.input, stream).await?;
        read_answer(&answer).map_err(|_| RemoteOutcome::Malformed)
    }
}

/// Waits for the head that is not interim.
async fn final_head(receiver: &mut Receiver, stream: &Stream) -> Result<(), RemoteOutcome> {
    for _ in 0..=INTERIM_RESPONSES {
        receiver
            .next_head(stream)
            .await
            .map_err(|error| match error {
                ReceiveError::Closed { .. } => RemoteOutcome::NetworkError,
                ReceiveError::Head(_) => RemoteOutcome::Malformed,
            })?;
        if receiver.head.status >= 200 {
            return Ok(());
        }
        receiver.drop_head();
    }
    Err(RemoteOutcome::Malformed)
}

/// The whole body, unless it is longer than an answer may be.
async fn read(
    body: &mut Body,
    input: &mut Input,
    stream: &Stream,
) -> Result<Vec<u8>, RemoteOutcome> {
    let mut answer = Vec::new();
    loop {
        body.absorb(input).map_err(|_| RemoteOutcome::Malformed)?;
        let ready = body.ready();
        answer.extend_from_slice(input.bytes().get(..ready).unwrap_or_default());
        body.hand_on(input, ready);
        if body.is_complete() {
            return Ok(answer);
        }
        if more(input, stream)
            .await
            .map_err(|_| RemoteOutcome::NetworkError)?
            == 0
            && !body.close()
        {
            return Err(RemoteOutcome::NetworkError);
        }
    }
}

/// Reads once; 0 is the end.
async fn more(input: &mut Input, stream: &Stream) -> io::Result<usize> {
    let room = input.room(BLOCK_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
    let count = stream.read(room).await?;
    input.filled(count);
    Ok(count)
}
