//! A request at its provider, and the two points of no return: no second attempt once the provider
//! may have understood the request, no answer of the gateway's own once the response has begun.

use std::io;
use std::pin::pin;
use std::time::{Duration, Instant};

use crate::buf::Input;
use crate::clock;
use crate::exchange::classified::settle;
use crate::exchange::decide::Forward;
use crate::exchange::linger::{Discarded, discard};
use crate::exchange::plan::{Plan, Planned, plan};
use crate::exchange::respond::{self, Interim, Stop, beside, client_gone, prepare};
use crate::exchange::told::note;
use crate::exchange::verdict::{Local, Verdict};
use crate::exchange::{Client, Core, Next};
use crate::failure::Failure;
use crate::http1::hop::ConnectionOptions;
use crate::identity::session::Session;
use crate::lane::{Decline, Judge, ReceiveError, Receiver, SendError, Sender, Sending, Source};
use crate::limits::ATTEMPTS;
use crate::observe::{EndReason, ProviderMeter, Way};
use crate::runtime::{Either, Timer, on_heap, race, sleep};
use crate::tls::Stream;
use crate::upstream::{ConnectError, Connection, Pool};
use crate::usage::Injection;

/// Pause between two looks whether the peer acknowledged a request that is kept for a replay.
const KEPT_LOOK: Duration = Duration::from_millis(100);

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
    /// The body was judged not to go to the provider, which has it without its end.
    Withheld,
}

/// Sends the request and relays the response; at most one more attempt under the retry rule.
pub(super) async fn forward(core: &Core, client: &mut Client, mut forward: Box<Forward>) -> Next {
    client.record.gathered = Some(client.record.elapsed());
    let next = match try_twice(core, client, &mut forward).await {
        Ok(next) => next,
        Err(failure) => fail(client, &mut forward, failure).await,
    };
    forward.account(&mut client.record);
    note(&mut client.record, &forward.body);
    settle(core, client, &forward.body);
    next
}

async fn try_twice(
    core: &Core,
    client: &mut Client,
    forward: &mut Forward,
) -> Result<Next, Failure> {
    let Planned {
        pool,
        head,
        patches,
        injection,
        to,
        verdict,
    } = match plan(core, client, forward)? {
        Plan::Forward(planned) => planned,
        Plan::Local(local) => return Ok(answer(client, forward, local).await),
    };
    client.record.session = verdict.session.as_ref().map(Session::source);
    client.record.way = way(forward);
    client.record.injection = injection;
    forward.asked.injects_usage = injection == Some(Injection::NoAnswer);
    let meter = core.meters.get(to.index);
    client.record.to = Some(to);
    let clocks = &pool.endpoint().settings;
    client
        .stream
        .set_patience(Some(core.settings.idle), Some(clocks.client_write));
    let share = pool.admit(&mut client.input).map_err(Failure::Connect)?;
    let mut sender = Sender::new(Sending {
        head,
        patches,
        chunked: forward.asked.chunked,
        window: core.settings.window_bytes,
        progress: clocks.request_progress,
        patience: clocks.idle,
        share,
    });
    let mut connection = take(core, client, meter, core.upstreams.take(pool, false)).await;
    for _ in 0..ATTEMPTS {
        let Some(taken) = connection else {
            client.record.end = EndReason::ClientClosed;
            return Ok(Next::Cut);
        };
        let taken = taken.map_err(Failure::Connect)?;
        client.record.attempts += 1;
        client.record.connected = Some(client.record.elapsed());
        // What came while the connection was taken is part of this body.
        forward.body.absorb(&mut client.input)?;
        let idle = taken.idle_for();
        let _active = meter
            .and_then(ProviderMeter::active)
            .map(|active| active.raised());
        let asked = (&mut sender, &verdict);
        let attempt = on_heap(|| attempt(core, client, forward, asked, (pool, taken)));
        match attempt.await {
            End::Done(next) => return Ok(next),
            End::Failed(failure) => return Err(failure),
            End::Withheld => {
                let local = verdict.take().ok_or(Failure::Internal)??;
                core.metrics.switches_aborted.add(1);
                return Ok(answer(client, forward, local).await);
            }
            End::Stale => {
                pool.died(idle);
                if let Some(meter) = meter {
                    meter.stale();
                }
                sender.rewind();
                connection = take(core, client, meter, core.upstreams.take(pool, true)).await;
            }
        }
    }
    Err(Failure::UpstreamClosed)
}

/// How the body travels.
fn way(forward: &Forward) -> Way {
    if forward.unpacked {
        Way::Canonical(Decline::PatchOnCoded)
    } else {
        Way::Wire
    }
}

/// Answers a switch. A connection that had part of the request is closed by now.
async fn answer(client: &mut Client, forward: &mut Forward, local: Local) -> Next {
    let ready = forward.body.ready();
    forward.body.hand_on(&mut client.input, ready);
    let record = &mut client.record;
    record.way = Way::Local;
    record.to = None;
    record.injection = None;
    record.switch = Some(local.switch);
    local.answer.send(&client.stream, record).await
}

/// A connection, or none if the client left before there was one: a request that nobody waits for
/// must not be run.
async fn take(
    core: &Core,
    client: &mut Client,
    meter: Option<&ProviderMeter>,
    taking: impl Future<Output = Result<Connection, ConnectError>>,
) -> Option<Result<Connection, ConnectError>> {
    let began = clock::now();
    let capacity = client.input.len().saturating_add(core.settings.head.bytes);
    let gone = client_gone(&client.stream, &mut client.input, &core.settings, capacity);
    let taken = match race(taking, gone).await {
        Either::First(taken) => taken,
        Either::Second(()) => return None,
    };
    let took = clock::now().saturating_duration_since(began);
    client.record.taking = client.record.taking.saturating_add(took);
    match (meter, &taken) {
        (Some(meter), Ok(connection)) if connection.reused => meter.reused(),
        (Some(meter), Ok(_)) => meter.opened(took),
        (Some(meter), Err(_)) => meter.failed(),
        (None, _) => {}
    }
    Some(taken)
}

/// Answers with a failure, before any byte of a response was written.
async fn fail(client: &mut Client, forward: &mut Forward, failure: Failure) -> Next {
    let all_read = forward.body.is_complete();
    let ready = forward.body.ready();
    forward.body.hand_on(&mut client.input, ready);
    let rejection = forward.asked.rejection(failure, !all_read);
    let record = &mut client.record;
    rejection.send(&client.stream, !all_read, record).await
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
    /// The body is not to go on.
    Withheld,
    Stale,
    ClientGone,
}

impl From<Stop> for Sent {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Failed(failure) => Self::Failed(failure),
            Stop::ClientGone => Self::ClientGone,
        }
    }
}

async fn attempt(
    core: &Core,
    client: &mut Client,
    forward: &mut Forward,
    (sender, verdict): (&mut Sender, &Verdict<'_>),
    (pool, connection): (&Pool, Connection),
) -> End {
    let asked = forward.asked;
    // The wait for the first byte has a clock of its own.
    let idle = Some(pool.endpoint().settings.idle);
    connection.stream.set_patience(None, idle);
    let mut receiver = Receiver::new(Input::new(core.blocks.clone()));
    let mut interim = Interim::new(asked);
    let upstream = (&connection, &mut receiver, &mut interim);
    let judge = verdict.judge();
    match send(core, client, forward, (sender, idle, judge), upstream).await {
        Sent::All => {}
        Sent::Refused => {
            // A decode needs its bytes for longer than they are kept here.
            let judge = judge.filter(|_| !forward.codings.is_coded());
            if discard(core, client, &mut forward.body, judge).await == Discarded::Withheld {
                return End::Withheld;
            }
            connection.stream.set_patience(idle, idle);
            let refused = respond::refused(core, client, forward, &connection, receiver);
            return refused.await.map_or_else(End::Failed, End::Done);
        }
        Sent::Beside(next) => return End::Done(next),
        Sent::Failed(failure) => return End::Failed(failure),
        Sent::Withheld => return End::Withheld,
        Sent::Stale => return End::Stale,
        Sent::ClientGone => return client_left(client),
    }
    let first_byte = pool.endpoint().settings.first_byte;
    let upstream = (&connection, &mut receiver, &mut interim);
    match await_head(core, client, forward, (sender, first_byte), upstream).await {
        Sent::Failed(failure) => return End::Failed(failure),
        Sent::Stale => return End::Stale,
        Sent::ClientGone => return client_left(client),
        Sent::All | Sent::Refused | Sent::Withheld | Sent::Beside(_) => {}
    }
    let mut source = Source {
        client: core.settings.watched(&client.stream),
        input: &mut client.input,
        reservation: &mut forward.reservation,
        body: &mut forward.body,
        judge: None,
    };
    sender.commit(&mut source);
    note(&mut client.record, &forward.body);
    settle(core, client, &forward.body);
    connection.stream.set_patience(idle, idle);
    match prepare(&asked, &mut receiver, core.stop.is_set()) {
        Ok(prepared) => {
            let upstream = (pool, connection);
            let relayed = respond::relay(core, client, upstream, receiver, prepared);
            End::Done(relayed.await)
        }
        Err(failure) => End::Failed(failure),
    }
}

fn client_left(client: &mut Client) -> End {
    client.record.end = EndReason::ClientClosed;
    End::Done(Next::Cut)
}

type Upstream<'a> = (&'a Connection, &'a mut Receiver, &'a mut Interim);

/// Sends the request while a read stays armed on the provider: it may speak first.
async fn send(
    core: &Core,
    client: &mut Client,
    forward: &mut Forward,
    (sender, idle, judge): (&mut Sender, Option<Duration>, Option<&dyn Judge>),
    (connection, receiver, interim): Upstream<'_>,
) -> Sent {
    let asked = forward.asked;
    let stream = &client.stream;
    let outcome = {
        let mut source = Source {
            client: core.settings.watched(stream),
            input: &mut client.input,
            reservation: &mut forward.reservation,
            body: &mut forward.body,
            judge,
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
                    if let Err(stop) = interim.pass(receiver, stream).await {
                        return stop.into();
                    }
                }
                Either::First(Ok(())) if forbids_more(receiver) => return Sent::Refused,
                Either::First(Ok(())) => match prepare(&asked, receiver, true) {
                    Ok(mut prepared) => {
                        prepared.give(client.turn.take_token());
                        connection.stream.set_patience(idle, idle);
                        client.answering.set(prepared.answering());
                        let client = (core.settings.watched(stream), &mut client.record, core);
                        let upstream = (receiver, connection);
                        return Sent::Beside(beside(client, upstream, prepared, sending).await);
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
        Err(Either::Second(SendError::ClientSlow)) => Sent::Failed(Failure::BodyTooSlow),
        Err(Either::Second(SendError::Withheld)) => Sent::Withheld,
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
    let clocks = (&mut timer, clock::now() + first_byte);
    let sent = answered(core, client, forward, (sender, clocks), upstream).await;
    client.timer = Some(timer);
    sent
}

/// What was kept for a replay is dropped once the peer has acknowledged a byte, so that a long wait
/// for the answer holds no block. Most answers come before the first look.
async fn answered(
    core: &Core,
    client: &mut Client,
    forward: &mut Forward,
    (sender, (timer, deadline)): (&mut Sender, (&mut Timer, Instant)),
    (connection, receiver, interim): Upstream<'_>,
) -> Sent {
    let capacity = forward
        .body
        .ready()
        .saturating_add(core.settings.head.bytes);
    loop {
        let look = sender.can_replay().then(|| clock::now() + KEPT_LOOK);
        timer.set(Some(look.map_or(deadline, |look| look.min(deadline))));
        let gone = client_gone(&client.stream, &mut client.input, &core.settings, capacity);
        let answer = race(receiver.next_head(&connection.stream), gone);
        match race(answer, timer.expired()).await {
            Either::First(Either::First(Ok(()))) if receiver.head.status < 200 => {
                if let Err(stop) = interim.pass(receiver, &client.stream).await {
                    return stop.into();
                }
            }
            Either::First(Either::First(Ok(()))) => return Sent::All,
            Either::First(Either::First(Err(error))) => return lost(connection, sender, &error),
            Either::First(Either::Second(())) => return Sent::ClientGone,
            Either::Second(()) if clock::now() >= deadline => {
                return Sent::Failed(Failure::FirstByteTimeout);
            }
            Either::Second(()) if connection.acknowledged() => {
                sender.commit(&mut Source {
                    client: core.settings.watched(&client.stream),
                    input: &mut client.input,
                    reservation: &mut forward.reservation,
                    body: &mut forward.body,
                    judge: None,
                });
            }
            Either::Second(()) => {}
        }
    }
}
