//! The response on its way: interim ones, the head for the client, the relay and its end.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};

use crate::buf::Input;
use crate::coding::Codings;
use crate::exchange::decide::{Asked, Forward};
use crate::exchange::rewrite::{ResponseRewrite, interim_head, response_head};
use crate::exchange::told::note;
use crate::exchange::{Answering, Client, Core, HalfClose, Next, Settings};
use crate::failure::Failure;
use crate::http1::emit;
use crate::http1::framing::{BodyLength, response_body};
use crate::http1::head::{ResponseHead, Version, field, values};
use crate::http1::hop::ConnectionOptions;
use crate::lane::{
    Body, Framing, Outgoing, Pace, Receiver, RelayError, SendError, TrailerFields, Watched,
    write_all,
};
use crate::limits::INTERIM_RESPONSES;
use crate::observe::{CoreMetrics, EndReason, Record};
use crate::runtime::{Either, race};
use crate::tls::Stream;
use crate::upstream::{Connection, Pool};
use crate::usage::{Form, Injection, Sieve, Tap};

/// Interim responses of one exchange.
pub(super) struct Interim {
    left: u32,
    asked: Asked,
}

/// Why an interim response ends the exchange.
pub(super) enum Stop {
    Failed(Failure),
    ClientGone,
}

impl Interim {
    pub(super) fn new(asked: Asked) -> Self {
        Self {
            left: INTERIM_RESPONSES,
            asked,
        }
    }

    /// Passes an interim response on, to HTTP/1.1 clients only (RFC 9110 §15.2).
    pub(super) async fn pass(
        &mut self,
        receiver: &mut Receiver,
        client: &Stream,
    ) -> Result<(), Stop> {
        let head = &receiver.head;
        if head.status == 101 {
            return Err(Stop::Failed(Failure::UpstreamSwitched));
        }
        let left = self.left.checked_sub(1);
        self.left = left.ok_or(Stop::Failed(Failure::UpstreamInterim))?;
        let bytes = receiver.input.bytes();
        let options = ConnectionOptions::of(&head.fields, bytes)
            .map_err(|_| Stop::Failed(Failure::UpstreamMalformed))?;
        // The client that expected 100 had it from the gateway before its body was read.
        let told = head.status == 100 && self.asked.expects_continue;
        if self.asked.version == Version::Http11 && !told {
            let out = interim_head(head, bytes, &options);
            let written = write_all(client, [&out], &mut 0).await;
            written.map_err(|_| Stop::ClientGone)?;
        }
        receiver.drop_head();
        Ok(())
    }
}

/// A response that is ready to be relayed.
pub(super) struct Prepared {
    status: u16,
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
    /// Why the extra chunk stays in it, where the gateway asked for one.
    unsifted: Option<Injection>,
}

/// Judges the response head and writes the one for the client. `close` if the client's connection
/// cannot be used again whatever it asked for.
pub(super) fn prepare(
    asked: &Asked,
    receiver: &mut Receiver,
    close: bool,
) -> Result<Prepared, Failure> {
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
    let content = asked.dialect.and_then(|_| content(head, bytes));
    let tap = asked.dialect.zip(content);
    let tap = tap.map(|(dialect, (form, codings))| Tap::new(dialect, form, codings));
    let sieve = asked
        .injects_usage
        .then(|| sieve(content, length))
        .transpose();
    let unsifted = sieve.as_ref().err().copied();
    let wants_trailers = asked.wants_trailers && framing == Framing::Chunked;
    let prepared = Prepared {
        status: head.status,
        head: response_head(head, bytes, &options, rewrite),
        body: Body::new(length, u64::MAX, wants_trailers)
            .tapped(tap)
            .sifted(sieve.unwrap_or_default()),
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
        unsifted,
    };
    receiver.drop_head();
    Ok(prepared)
}

/// How the content of an answer is written; none of one that is no success.
fn content(head: &ResponseHead, bytes: &[u8]) -> Option<(Form, Codings)> {
    (200..300).contains(&head.status).then(|| {
        (
            Form::of(field(&head.fields, bytes, "content-type")),
            Codings::of(values(&head.fields, bytes, "content-encoding")),
        )
    })
}

/// What takes the extra chunk out of an answer. Where bytes that are missing would show, it stays.
fn sieve(content: Option<(Form, Codings)>, length: BodyLength) -> Result<Sieve, Injection> {
    match (content, length) {
        (Some((Form::Events, Codings::Plain)), BodyLength::Chunked | BodyLength::UntilClose) => {
            Ok(Sieve::default())
        }
        (Some((Form::Events, Codings::Plain)), _) => Err(Injection::AnswerSized),
        (Some((Form::Events, _)), _) => Err(Injection::AnswerCoded),
        _ => Err(Injection::NoStream),
    }
}

/// `timeout` of a `Keep-Alive` field (RFC 2068 §19.7.1.1), in seconds.
fn keep_alive_seconds(value: Option<&[u8]>) -> Option<u64> {
    let text = std::str::from_utf8(value?).ok()?;
    let mut parameters = text.split(',').filter_map(|part| part.split_once('='));
    let (_, seconds) = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("timeout"))?;
    seconds.trim().parse().ok()
}

impl Prepared {
    /// What becomes of the client's connection once the response ended for this reason.
    fn next(&self, end: EndReason, request_read: bool) -> Next {
        match end {
            EndReason::Complete if !request_read => Next::Linger,
            EndReason::Complete if self.close => Next::Close,
            EndReason::Complete => Next::KeepAlive,
            EndReason::ClientClosed => Next::Cut,
            // A body that ends with the connection would look complete after a plain close.
            _ if self.until_close => Next::Reset,
            _ => Next::Cut,
        }
    }

    /// Gives the client a field of the gateway's own.
    pub(super) fn give(&mut self, field: Option<(&str, String)>) {
        if let Some((name, value)) = field {
            // Before the empty line that ends the head.
            self.head.truncate(self.head.len().saturating_sub(2));
            emit::field(&mut self.head, name.as_bytes(), value.as_bytes());
            emit::end(&mut self.head);
        }
    }

    /// How its end is shown.
    pub(super) fn answering(&self) -> Answering {
        if self.until_close {
            Answering::UntilClose
        } else {
            Answering::Framed
        }
    }

    /// Notes in `record` that this response begins.
    fn begin(&self, record: &mut Record) {
        record.status = self.status;
        record.first_byte = Some(record.elapsed());
        // It may be cut off before its end is noted.
        self.note_injection(record);
    }

    fn note_injection(&self, record: &mut Record) {
        let sifted = self.unsifted.or_else(|| self.body.injection());
        record.injection = sifted.or(record.injection);
    }

    /// Notes in `record`, which says why it ended, what this response cost and what was taken out of it.
    fn end(&mut self, record: &mut Record) {
        self.note_injection(record);
        record.usage = self.body.usage(record.end == EndReason::Complete);
    }
}

/// The pace of a response whose head is there.
fn pace(metrics: &CoreMetrics) -> Pace<'_> {
    Pace::new(&metrics.added_to_response, &metrics.gaps)
}

fn end_of(relayed: Result<(), RelayError>) -> EndReason {
    match relayed {
        Ok(()) => EndReason::Complete,
        Err(RelayError::ClientGone) => EndReason::ClientClosed,
        Err(RelayError::ClientStalled) => EndReason::ClientWriteTimeout,
        Err(RelayError::UpstreamCut) => EndReason::UpstreamCut,
        Err(RelayError::UpstreamSilent) => EndReason::UpstreamIdleTimeout,
        Err(RelayError::Body(_)) => EndReason::UpstreamMalformed,
    }
}

/// Relays the response of a request that was sent completely.
pub(super) async fn relay(
    core: &Core,
    client: &mut Client,
    (pool, mut connection): (&Pool, Connection),
    mut receiver: Receiver,
    mut prepared: Prepared,
) -> Next {
    let end = relay_watched(core, client, &connection, &mut receiver, &mut prepared).await;
    if end == EndReason::Complete && prepared.upstream_keeps && receiver.input.is_empty() {
        if let Some(seconds) = prepared.upstream_seconds {
            connection.limit_idle(seconds);
        }
        pool.give_back(connection);
    }
    prepared.next(end, true)
}

/// Relays a response until it or the client ends.
async fn relay_watched(
    core: &Core,
    client: &mut Client,
    connection: &Connection,
    receiver: &mut Receiver,
    prepared: &mut Prepared,
) -> EndReason {
    client.answering.set(prepared.answering());
    prepared.give(client.turn.take_token());
    prepared.begin(&mut client.record);
    core.tell(&mut client.record);
    let out = Outgoing {
        pace: pace(&core.metrics),
        client: &client.stream,
        head: &prepared.head,
        framing: prepared.framing,
        trailers: prepared.trailers,
    };
    let written = &mut client.record.response_bytes;
    let relaying = receiver.relay(&mut prepared.body, &out, &connection.stream, written);
    let capacity = core.settings.head.bytes;
    let gone = client_gone(&client.stream, &mut client.input, &core.settings, capacity);
    client.record.end = match race(relaying, gone).await {
        Either::First(result) => end_of(result),
        Either::Second(()) => EndReason::ClientClosed,
    };
    prepared.end(&mut client.record);
    client.record.end
}

/// Relays a response that runs beside the rest of the request; neither waits for the other.
pub(super) async fn beside(
    (client, record, core): (Watched<'_>, &mut Record, &Core),
    (receiver, connection): (&mut Receiver, &Connection),
    mut prepared: Prepared,
    mut sending: Pin<&mut impl Future<Output = Result<(), SendError>>>,
) -> Next {
    prepared.begin(record);
    // Without a name in the head the body says which conversation it is, and part of it is still to come.
    if record.names_conversation() {
        core.tell(record);
    }
    let out = Outgoing {
        pace: pace(&core.metrics),
        client: client.client,
        head: &prepared.head,
        framing: prepared.framing,
        trailers: prepared.trailers,
    };
    let (end, read) = {
        let written = &mut record.response_bytes;
        let relaying = receiver.relay(&mut prepared.body, &out, &connection.stream, written);
        let mut relaying = pin!(relaying);
        let sent = match race(relaying.as_mut(), sending.as_mut()).await {
            Either::First(result) => Err((end_of(result), false)),
            Either::Second(Ok(())) => Ok(true),
            // The provider may well answer to the end after it stopped reading.
            Either::Second(Err(SendError::Upstream(_))) => Ok(false),
            Either::Second(Err(SendError::ClientGone)) => Err((EndReason::ClientClosed, false)),
            Either::Second(Err(SendError::ClientSlow)) => {
                Err((EndReason::RequestProgressTimeout, false))
            }
            Either::Second(Err(SendError::Body(_) | SendError::Withheld)) => {
                Err((EndReason::Rejected, false))
            }
        };
        match sent {
            Err(over) => over,
            Ok(read) => match race(relaying, Box::pin(client.left())).await {
                Either::First(result) => (end_of(result), read),
                Either::Second(()) => (EndReason::ClientClosed, read),
            },
        }
    };
    record.end = end;
    prepared.end(record);
    prepared.next(end, read)
}

/// The provider answered before it had the request, and takes no more of it. What the client still
/// sends was read for a while, so that it can read the answer; the connection to the provider is
/// never used again.
pub(super) async fn refused(
    core: &Core,
    client: &mut Client,
    forward: &Forward,
    connection: &Connection,
    mut receiver: Receiver,
) -> Result<Next, Failure> {
    note(&mut client.record, &forward.body);
    let mut prepared = prepare(&forward.asked, &mut receiver, true)?;
    let end = relay_watched(core, client, connection, &mut receiver, &mut prepared).await;
    // What follows is never parsed as a request, even where the whole body was read.
    Ok(prepared.next(end, false))
}

/// Waits until a client whose bytes are not read any more has left. On the heap: it is rare, and a
/// timer is large.
async fn left(settings: &Settings, client: &Stream) {
    Box::pin(settings.watched(client).left()).await;
}

/// Waits until the client has left. Bytes that it sends meanwhile are the next request: they are
/// kept up to `capacity` bytes in all, and beyond that the kernel keeps them.
pub(super) async fn client_gone(
    client: &Stream,
    input: &mut Input,
    settings: &Settings,
    capacity: usize,
) {
    loop {
        if client.readable_ever().await.is_err() {
            return;
        }
        let Some(room) = input.room(capacity) else {
            return left(settings, client).await;
        };
        match client.try_read(room) {
            Ok(0) if settings.half_close == HalfClose::Tolerate => {
                return left(settings, client).await;
            }
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
