//! A request at its provider, and the two points of no return: no second attempt once the provider
//! may have understood the request, no answer of the gateway's own once the response has begun.

use std::future::pending;
use std::io;
use std::pin::{Pin, pin};
use std::time::Duration;

use crate::buf::Input;
use crate::clock;
use crate::exchange::decide::{Asked, Forward};
use crate::exchange::linger::discard;
use crate::exchange::plan::{Planned, plan};
use crate::exchange::rewrite::{ResponseRewrite, interim_head, response_head};
use crate::exchange::{Client, Core, HalfClose, Next, Settings};
use crate::failure::Failure;
use crate::http1::framing::{BodyLength, response_body};
use crate::http1::head::{Version, field};
use crate::http1::hop::ConnectionOptions;
use crate::lane::{
    Body, Framing, Outgoing, ReceiveError, Receiver, RelayError, SendError, Sender, Source,
    TrailerFields, first_acknowledgement, write_all,
};
use crate::limits::{ATTEMPTS, INTERIM_RESPONSES};
use crate::runtime::{Either, Timer, race, sleep};
use crate::tls::Stream;
use crate::upstream::{ConnectError, Connection, Pool};

/// Longest wait for the answer of a provider that ended its receiving direction: the answer was on
/// its way before the end was.
const ANSWER_AFTER_CUT: Duration = Duration::from_secs(1);

/// How an attempt ended.
enum End {
    /// The exchange is over.
    Done(Next),
    /// The reused connection was dead, and nothing of the request was understood.
    Stale,
    /// The attempt failed before the response began.
    Failed(Failure),
}

/// Sends the request and relays the response; at most one more attempt under the retry rule.
pub(super) async fn forward(core: &Core, client: &mut Client, mut forward: Forward) -> Next {
    let Planned { pool, head, patch } = match plan(core, client, &forward) {
        Ok(planned) => planned,
        Err(failure) => return fail(client, &mut forward, failure).await,
    };
    let window = core.settings.window_bytes;
    let mut sender = Sender::new(head, patch, forward.asked.chunked, window);
    let mut connection = take(core, client, pool.take()).await;
    for _ in 0..ATTEMPTS {
        let taken = match connection {
            Some(Ok(taken)) => taken,
            None => return Next::Cut,
            Some(Err(error)) => return fail(client, &mut forward, Failure::Connect(error)).await,
        };
        // What came while the connection was taken is part of this body.
        if let Err(error) = forward.body.absorb(&mut client.input) {
            return fail(client, &mut forward, error.into()).await;
        }
        let idle = taken.idle_for();
        let attempt = attempt(core, client, &mut forward, &mut sender, (pool, taken));
        match Box::pin(attempt).await {
            End::Done(next) => return next,
            End::Failed(failure) => return fail(client, &mut forward, failure).await,
            End::Stale => {
                pool.died(idle);
                sender.rewind();
                connection = take(core, client, pool.open()).await;
            }
        }
    }
    fail(client, &mut forward, Failure::UpstreamClosed).await
}

/// A connection, or none if the client left before there was one: a request that nobody waits for
/// must not be run.
async fn take(
    core: &Core,
    client: &mut Client,
    taking: impl Future<Output = Result<Connection, ConnectError>>,
) -> Option<Result<Connection, ConnectError>> {
    let capacity = client.input.len().saturating_add(core.settings.head.bytes);
    let gone = client_gone(&client.stream, &mut client.input, &core.settings, capacity);
    match race(taking, gone).await {
        Either::First(taken) => Some(taken),
        Either::Second(()) => None,
    }
}

/// Answers with a failure, before any byte of a response was written.
async fn fail(client: &mut Client, forward: &mut Forward, failure: Failure) -> Next {
    let all_read = forward.body.is_complete();
    let ready = forward.body.ready();
    forward.body.hand_on(&mut client.input, ready);
    let rejection = forward.asked.rejection(failure, !all_read);
    rejection.send(&client.stream, !all_read).await
}

/// Where sending the request has led.
enum Sent {
    /// Everything was sent and no response has begun.
    All,
    /// A final response came before the request's end, and forbids to go on.
    Refused,
    /// The response ran beside the request to its end.
    Beside(Next),
    Failed(Failure),
    Stale,
    ClientGone,
}

async fn attempt(
    core: &Core,
    client: &mut Client,
    forward: &mut Forward,
    sender: &mut Sender,
    (pool, connection): (&Pool, Connection),
) -> End {
    let asked = forward.asked;
    // The wait for the first byte has a clock of its own.
    let idle = Some(pool.endpoint().settings.idle);
    connection.stream.set_patience(None, idle);
    let mut receiver = Receiver::new(Input::new(core.blocks.clone()));
    let mut interim = Interim {
        left: INTERIM_RESPONSES,
        asked,
    };
    let sent = send(
        client,
        forward,
        (sender, idle),
        (&connection, &mut receiver, &mut interim),
    )
    .await;
    match sent {
        Sent::All => {}
        Sent::Refused => {
            connection.stream.set_patience(idle, idle);
            return refused(core, client, forward, &connection, receiver).await;
        }
        Sent::Beside(next) => return End::Done(next),
        Sent::Failed(failure) => return End::Failed(failure),
        Sent::Stale => return End::Stale,
        Sent::ClientGone => return End::Done(Next::Cut),
    }
    let first_byte = pool.endpoint().settings.first_byte;
    let upstream = (&connection, &mut receiver, &mut interim);
    match await_head(core, client, forward, (sender, first_byte), upstream).await {
        Sent::Failed(failure) => return End::Failed(failure),
        Sent::Stale => return End::Stale,
        Sent::ClientGone => return End::Done(Next::Cut),
        Sent::All | Sent::Refused | Sent::Beside(_) => {}
    }
    let mut source = Source {
        client: &client.stream,
        input: &mut client.input,
        reservation: &mut forward.reservation,
        body: &mut forward.body,
    };
    sender.commit(&mut source);
    connection.stream.set_patience(idle, idle);
    match prepare(&asked, &mut receiver, core.stop.is_set()) {
        Ok(prepared) => relay(core, client, (pool, connection), receiver, prepared).await,
        Err(failure) => End::Failed(failure),
    }
}

type Upstream<'a> = (&'a Connection, &'a mut Receiver, &'a mut Interim);

/// Sends the request while a read stays armed on the provider: it may speak first.
async fn send(
    client: &mut Client,
    forward: &mut Forward,
    (sender, idle): (&mut Sender, Option<Duration>),
    (connection, receiver, interim): Upstream<'_>,
) -> Sent {
    let asked = forward.asked;
    let stream = &client.stream;
    let outcome = {
        let mut source = Source {
            client: stream,
            input: &mut client.input,
            reservation: &mut forward.reservation,
            body: &mut forward.body,
        };
        let mut sending = pin!(sender.run(
            &mut source,
            &connection.stream,
            connection.reused,
            || { connection.acknowledged() }
        ));
        loop {
            let step = race(receiver.next_head(&connection.stream), sending.as_mut()).await;
            match step {
                Either::First(Ok(())) if receiver.head.status < 200 => {
                    if let Err(end) = interim.pass(receiver, stream).await {
                        return end;
                    }
                }
                Either::First(Ok(())) if forbids_more(receiver) => return Sent::Refused,
                Either::First(Ok(())) => match prepare(&asked, receiver, true) {
                    Ok(prepared) => {
                        connection.stream.set_patience(idle, idle);
                        client.answering.set(true);
                        return beside(stream, receiver, connection, prepared, sending).await;
                    }
                    Err(failure) => return Sent::Failed(failure),
                },
                Either::First(Err(error)) => break Err(Either::First(error)),
                Either::Second(Ok(())) => return Sent::All,
                Either::Second(Err(error)) => break Err(Either::Second(error)),
            }
        }
    };
    match outcome {
        Ok(sent) => sent,
        Err(Either::First(error)) => lost(connection, sender, &error),
        Err(Either::Second(SendError::ClientGone)) => Sent::ClientGone,
        Err(Either::Second(SendError::ClientSlow)) => Sent::Failed(Failure::RequestTimeout),
        Err(Either::Second(SendError::Body(error))) => Sent::Failed(error.into()),
        Err(Either::Second(SendError::Upstream(error)))
            if error.kind() == io::ErrorKind::TimedOut =>
        {
            Sent::Failed(Failure::UpstreamStalled)
        }
        Err(Either::Second(SendError::Upstream(_))) => {
            let last_words = last_words(receiver, interim, connection, stream);
            match race(last_words, sleep(ANSWER_AFTER_CUT)).await {
                Either::First(Ok(())) => Sent::Refused,
                Either::First(Err(error)) => lost(connection, sender, &error),
                Either::Second(()) => Sent::Failed(Failure::UpstreamClosed),
            }
        }
    }
}

/// The final head of a provider that takes no more bytes.
async fn last_words(
    receiver: &mut Receiver,
    interim: &mut Interim,
    connection: &Connection,
    client: &Stream,
) -> Result<(), ReceiveError> {
    loop {
        receiver.next_head(&connection.stream).await?;
        if receiver.head.status >= 200 {
            return Ok(());
        }
        let passed = interim.pass(receiver, client).await;
        passed.map_err(|_| ReceiveError::Closed { silent: false })?;
    }
}

/// Whether a response that came early ends the request: an error, or the end of the connection.
fn forbids_more(receiver: &Receiver) -> bool {
    let head = &receiver.head;
    head.status >= 300
        || ConnectionOptions::of(&head.fields, receiver.input.bytes())
            .is_ok_and(|options| !options.keeps_open(head.version))
}

/// What a lost upstream connection means: the retry rule. Only a reused connection that gave no
/// byte of a response, and only if the last byte of the request was not written yet or the peer
/// never acknowledged any of it. Everything else could be a second execution.
fn lost(connection: &Connection, sender: &Sender, error: &ReceiveError) -> Sent {
    match error {
        ReceiveError::Closed { silent: true }
            if connection.reused
                && sender.can_replay()
                && !(sender.has_tail_begun() && connection.acknowledged()) =>
        {
            Sent::Stale
        }
        ReceiveError::Closed { .. } => Sent::Failed(Failure::UpstreamClosed),
        ReceiveError::Head(_) => Sent::Failed(Failure::UpstreamMalformed),
    }
}

/// Waits for the final response head of a request that was sent completely.
async fn await_head(
    core: &Core,
    client: &mut Client,
    forward: &mut Forward,
    (sender, first_byte): (&mut Sender, Duration),
    upstream: Upstream<'_>,
) -> Sent {
    let mut timer = client.timer.take().unwrap_or_default();
    timer.set(Some(clock::now() + first_byte));
    let sent = answered(core, client, forward, (sender, &mut timer), upstream).await;
    client.timer = Some(timer);
    sent
}

async fn answered(
    core: &Core,
    client: &mut Client,
    forward: &mut Forward,
    (sender, timer): (&mut Sender, &mut Timer),
    (connection, receiver, interim): Upstream<'_>,
) -> Sent {
    let capacity = forward
        .body
        .ready()
        .saturating_add(core.settings.head.bytes);
    loop {
        let gone = client_gone(&client.stream, &mut client.input, &core.settings, capacity);
        let answer = race(receiver.next_head(&connection.stream), gone);
        let other = race(
            acknowledged(connection, sender.can_replay()),
            timer.expired(),
        );
        match race(answer, other).await {
            Either::First(Either::First(Ok(()))) if receiver.head.status < 200 => {
                if let Err(end) = interim.pass(receiver, &client.stream).await {
                    return end;
                }
            }
            Either::First(Either::First(Ok(()))) => return Sent::All,
            Either::First(Either::First(Err(error))) => return lost(connection, sender, &error),
            Either::First(Either::Second(())) => return Sent::ClientGone,
            Either::Second(Either::First(())) => {
                let input = &mut client.input;
                let body = &mut forward.body;
                sender.commit(&mut Source {
                    client: &client.stream,
                    input,
                    reservation: &mut forward.reservation,
                    body,
                });
            }
            Either::Second(Either::Second(())) => return Sent::Failed(Failure::FirstByteTimeout),
        }
    }
}

/// Waits until the peer acknowledged a byte of a request that is kept for a replay, so that a long
/// wait for the answer holds no block. For ever where nothing is kept.
async fn acknowledged(connection: &Connection, kept: bool) {
    if !kept {
        return pending().await;
    }
    first_acknowledgement(|| connection.acknowledged()).await;
}

/// Waits until the client has left. Bytes that it sends meanwhile are the next request: they are
/// kept up to `capacity` bytes in all, and beyond that the kernel keeps them.
async fn client_gone(client: &Stream, input: &mut Input, settings: &Settings, capacity: usize) {
    loop {
        if client.readable_ever().await.is_err() {
            return;
        }
        let Some(room) = input.room(capacity) else {
            return pending().await;
        };
        match client.try_read(room) {
            Ok(0) if settings.half_close == HalfClose::Tolerate => return pending().await,
            Ok(0) => return,
            Ok(count) => input.filled(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if input.is_empty() {
                    input.release();
                }
            }
            Err(_) => return,
        }
    }
}

/// Interim responses of one exchange.
struct Interim {
    left: u32,
    asked: Asked,
}

impl Interim {
    /// Passes an interim response on, to HTTP/1.1 clients only (RFC 9110 §15.2).
    async fn pass(&mut self, receiver: &mut Receiver, client: &Stream) -> Result<(), Sent> {
        let head = &receiver.head;
        if head.status == 101 {
            return Err(Sent::Failed(Failure::UpstreamSwitched));
        }
        let left = self.left.checked_sub(1);
        self.left = left.ok_or(Sent::Failed(Failure::UpstreamInterim))?;
        let bytes = receiver.input.bytes();
        let options = ConnectionOptions::of(&head.fields, bytes)
            .map_err(|_| Sent::Failed(Failure::UpstreamMalformed))?;
        // The client that expected 100 had it from the gateway before its body was read.
        let told = head.status == 100 && self.asked.expects_continue;
        if self.asked.version == Version::Http11 && !told {
            let out = interim_head(head, bytes, &options);
            let written = write_all(client, [&out], &mut 0).await;
            written.map_err(|_| Sent::ClientGone)?;
        }
        receiver.drop_head();
        Ok(())
    }
}

/// A response that is ready to be relayed.
struct Prepared {
    head: Vec<u8>,
    body: Body,
    framing: Framing,
    trailers: TrailerFields,
    /// Whether the provider keeps its connection, and for how many seconds it says so.
    upstream_keeps: bool,
    upstream_seconds: Option<u64>,
    /// Whether the client's connection closes afterwards.
    close: bool,
    /// Whether that close is what ends the body for the client.
    until_close: bool,
}

/// Judges the response head and writes the one for the client. `close` if the client's connection
/// cannot be used again whatever it asked for.
fn prepare(asked: &Asked, receiver: &mut Receiver, close: bool) -> Result<Prepared, Failure> {
    let (head, bytes) = (&receiver.head, receiver.input.bytes());
    let malformed = |_| Failure::UpstreamMalformed;
    let length = response_body(head, bytes, asked.is_head).map_err(malformed)?;
    let options = ConnectionOptions::of(&head.fields, bytes).map_err(malformed)?;
    let framing = match (length, asked.version) {
        (BodyLength::Chunked | BodyLength::UntilClose, Version::Http11) => Framing::Chunked,
        _ => Framing::Plain,
    };
    // HTTP/1.0 knows no chunks, so a body without a length ends with the connection.
    let until_close =
        framing == Framing::Plain && matches!(length, BodyLength::Chunked | BodyLength::UntilClose);
    let close = close || !asked.keeps_open;
    let rewrite = ResponseRewrite {
        id: asked.id,
        framing,
        close,
    };
    let wants_trailers = asked.wants_trailers && framing == Framing::Chunked;
    let prepared = Prepared {
        head: response_head(head, bytes, &options, rewrite),
        body: Body::new(length, u64::MAX, wants_trailers),
        framing,
        trailers: if wants_trailers {
            TrailerFields::Relay
        } else {
            TrailerFields::Drop
        },
        upstream_keeps: options.keeps_open(head.version) && length != BodyLength::UntilClose,
        upstream_seconds: keep_alive_seconds(field(&head.fields, bytes, "keep-alive")),
        close: close || until_close,
        until_close,
    };
    receiver.drop_head();
    Ok(prepared)
}

/// `timeout` of a `Keep-Alive` field (RFC 2068 §19.7.1.1), in seconds.
fn keep_alive_seconds(value: Option<&[u8]>) -> Option<u64> {
    let text = std::str::from_utf8(value?).ok()?;
    let mut parameters = text.split(',').filter_map(|part| part.split_once('='));
    let (_, seconds) = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("timeout"))?;
    seconds.trim().parse().ok()
}

impl Prepared {
    /// What becomes of the client's connection once the response ended this way.
    fn next(&self, result: &Result<(), RelayError>, request_read: bool) -> Next {
        match result {
            Ok(()) if !request_read => Next::Linger,
            Ok(()) if self.close => Next::Close,
            Ok(()) => Next::KeepAlive,
            Err(RelayError::ClientGone) => Next::Cut,
            // A body that ends with the connection would look complete after a plain close.
            Err(_) if self.until_close => Next::Reset,
            Err(_) => Next::Cut,
        }
    }
}

/// Relays the response of a request that was sent completely.
async fn relay(
    core: &Core,
    client: &mut Client,
    (pool, mut connection): (&Pool, Connection),
    mut receiver: Receiver,
    mut prepared: Prepared,
) -> End {
    client.answering.set(true);
    let out = Outgoing {
        client: &client.stream,
        head: &prepared.head,
        framing: prepared.framing,
        trailers: prepared.trailers,
    };
    let result = {
        let mut written = 0;
        let relaying = receiver.relay(&mut prepared.body, &out, &connection.stream, &mut written);
        let capacity = core.settings.head.bytes;
        let gone = client_gone(&client.stream, &mut client.input, &core.settings, capacity);
        match race(relaying, gone).await {
            Either::First(result) => result,
            Either::Second(()) => Err(RelayError::ClientGone),
        }
    };
    if result.is_ok() && prepared.upstream_keeps && receiver.input.is_empty() {
        if let Some(seconds) = prepared.upstream_seconds {
            connection.limit_idle(seconds);
        }
        pool.give_back(connection);
    }
    End::Done(prepared.next(&result, true))
}

/// Relays a response that runs beside the rest of the request; neither waits for the other.
async fn beside(
    client: &Stream,
    receiver: &mut Receiver,
    connection: &Connection,
    mut prepared: Prepared,
    mut sending: Pin<&mut impl Future<Output = Result<(), SendError>>>,
) -> Sent {
    let out = Outgoing {
        client,
        head: &prepared.head,
        framing: prepared.framing,
        trailers: prepared.trailers,
    };
    let (result, read) = {
        let mut written = 0;
        let mut relaying =
            pin!(receiver.relay(&mut prepared.body, &out, &connection.stream, &mut written));
        match race(relaying.as_mut(), sending.as_mut()).await {
            Either::First(result) => (result, false),
            Either::Second(Ok(())) => (relaying.await, true),
            // The provider may well answer to the end after it stopped reading.
            Either::Second(Err(SendError::Upstream(_))) => (relaying.await, false),
            Either::Second(Err(
                SendError::ClientGone | SendError::ClientSlow | SendError::Body(_),
            )) => (Err(RelayError::ClientGone), false),
        }
    };
    Sent::Beside(prepared.next(&result, read))
}

/// The provider answered before it had the request, and takes no more of it. What the client still
/// sends is read for a while, so that it can read the answer; the connection to the provider is
/// never used again.
async fn refused(
    core: &Core,
    client: &mut Client,
    forward: &mut Forward,
    connection: &Connection,
    mut receiver: Receiver,
) -> End {
    discard(core, client, &mut forward.body).await;
    let mut prepared = match prepare(&forward.asked, &mut receiver, true) {
        Ok(prepared) => prepared,
        Err(failure) => return End::Failed(failure),
    };
    client.answering.set(true);
    let out = Outgoing {
        client: &client.stream,
        head: &prepared.head,
        framing: prepared.framing,
        trailers: prepared.trailers,
    };
    let mut written = 0;
    let relaying = receiver.relay(&mut prepared.body, &out, &connection.stream, &mut written);
    let capacity = core.settings.head.bytes;
    let gone = client_gone(&client.stream, &mut client.input, &core.settings, capacity);
    let result = match race(relaying, gone).await {
        Either::First(result) => result,
        Either::Second(()) => Err(RelayError::ClientGone),
    };
    // What follows is never parsed as a request, even where the whole body was read.
    End::Done(prepared.next(&result, false))
}
