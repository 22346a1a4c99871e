//! One client connection, exchange after exchange, and the order of stages of each.
//!
//! The order is written once, in [`exchange`]: head, decision, body gathered, provider, response.
//! Both points of no return are in `attempt`.

mod admit;
mod attempt;
mod classified;
mod decide;
mod gather;
mod generation;
mod intake;
mod linger;
mod outcome;
mod plan;
mod reject;
mod respond;
mod rewrite;
mod told;
mod unpack;
mod verdict;
mod whoami;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

pub use classified::{Features, Keeping};
pub use generation::{Blueprint, Generations, Lasting};
pub use rewrite::anthropic_version;
pub use told::Telling;

use crate::auth::{Clients, PrincipalId};
use crate::buf::{Budget, Input, Pool};
use crate::exchange::classified::Turning;
use crate::exchange::decide::{Decision, decide};
use crate::exchange::intake::Arrival;
use crate::exchange::reject::Rejection;
use crate::failure::Failure;
use crate::http1::head::{HeadLimits, RequestHead};
use crate::lane::Watched;
use crate::observe::{
    CoreMetrics, EndReason, Observer, ProviderMeter, Record, RequestId, RequestIds,
};
use crate::route::{ProviderId, Table, guess_family};
use crate::runtime::{Either, Stop, TcpStream, Timer, on_heap, race, sleep, turn};
use crate::switch::{Dictionary, Gate};
use crate::tls::{Acceptor, Stream};
use crate::upstream::Upstreams;

/// Requests that came in one piece and are served one after the other before everything else on the
/// core has a turn.
const PIPELINED_BURST: u32 = 16;

/// Whether the end of the client's sending direction ends its exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HalfClose {
    /// It is a cancel: a close and a half-close look the same on the wire.
    Cancel,
    /// The exchange goes on until a write fails.
    Tolerate,
}

/// What an exchange needs to know of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bounds of a request head.
    pub head: HeadLimits,
    /// Whether switches are answered.
    pub switches: Gate,
    /// Longest request body, decoded.
    pub body_bytes: u64,
    /// Most bytes of a body that are gathered before it is forwarded.
    pub window_bytes: usize,
    /// What the end of the client's stream means.
    pub half_close: HalfClose,
    /// A TLS handshake must be over within this time.
    pub handshake: Duration,
    /// A request head must arrive within this time of its first byte.
    pub head_timeout: Duration,
    /// An idle client connection is kept for this long.
    pub keepalive: Duration,
    /// Longest wait for the next bytes of a body that no provider waits for yet.
    pub idle: Duration,
    /// Longest wait for [`crate::limits::REQUEST_PROGRESS_BYTES`] of a body that is held.
    pub request_progress: Duration,
    /// Longest wait for a client to take bytes.
    pub client_write: Duration,
    /// Longest wait for memory to hold a body.
    pub reservation: Duration,
    /// How long what a client still sends after an early answer is read.
    pub linger: Duration,
    /// Whether ids that agents send of their own accord name a conversation.
    pub native_identity: bool,
}

impl Settings {
    /// The client as it is watched while its request waits for something else.
    fn watched<'a>(&self, client: &'a Stream) -> Watched<'a> {
        Watched {
            client,
            half_close: self.half_close == HalfClose::Cancel,
        }
    }
}

/// What the exchanges of one generation share on one core.
#[derive(Debug)]
pub struct Core {
    /// Number of the generation, from 1 on.
    pub generation: u64,
    /// Of the configuration.
    pub settings: Settings,
    /// How clients are spoken to where the listeners are encrypted.
    pub tls: Option<Acceptor>,
    /// Who may call; everybody if there is no such table. The same one for all cores.
    pub clients: Option<Arc<Clients>>,
    /// Their names for records, in the order of the table; copies like [`Self::labels`].
    pub client_labels: Vec<Arc<str>>,
    /// Providers.
    pub table: Arc<Table>,
    /// Their names for records, in the order of the table: copies of this core's own, so that no other
    /// core counts their uses.
    pub labels: Vec<Arc<str>>,
    /// Whether they are on this machine, in the same order.
    pub locals: Vec<bool>,
    /// The ids that sessions got; the same one for all cores.
    pub dictionary: Arc<Dictionary>,
    /// Where answers and outcomes go, if there is a ledger.
    pub ledger: Option<Telling>,
    /// What is made of sessions and agents, where a feature is enabled.
    pub features: Option<Features>,
    /// Connections to them.
    pub upstreams: Upstreams,
    /// Blocks for bytes.
    pub blocks: Pool,
    /// Memory for bodies that are held, of all cores.
    pub budget: Budget,
    /// Given when the process ends.
    pub stop: Stop,
    /// Request ids of this core.
    pub ids: Rc<RequestIds>,
    /// Where the records of exchanges go.
    pub observer: Observer,
    /// The numbers of this core.
    pub metrics: Arc<CoreMetrics>,
    /// Its part in the numbers of the providers, in the order of the table.
    pub meters: Vec<ProviderMeter>,
}

impl Core {
    /// The name of a provider for a record.
    fn label(&self, provider: ProviderId) -> Arc<str> {
        self.labels
            .get(provider.index())
            .cloned()
            .unwrap_or_default()
    }

    /// The name of a client for a record.
    fn client_label(&self, principal: PrincipalId) -> Option<Arc<str>> {
        self.client_labels.get(principal.index()).cloned()
    }

    /// The name of a client.
    fn client_name(&self, principal: PrincipalId) -> &str {
        self.client_labels
            .get(principal.index())
            .map_or("", |name| name)
    }

    /// Counts and hands over the record of an exchange that is over.
    fn observe(&self, mut record: Record) {
        self.tell(&mut record);
        self.metrics.exchange(&record);
        let to = record.to.as_ref().map(|to| to.index);
        if let Some(meter) = to.and_then(|index| self.meters.get(index)) {
            meter.response(record.status);
            // Without a head of the provider's the status is one that the gateway chose.
            if let Some(first_byte) = record.first_byte {
                meter.answered(record.status, first_byte);
            }
            if let Some(usage) = &record.usage {
                meter.usage(usage);
            }
            if let Some(injection) = record.injection {
                meter.injection(injection);
            }
        }
        self.observer.observe(record);
    }
}

/// A client's connection between and during exchanges.
#[derive(Debug)]
struct Client {
    stream: Stream,
    input: Input,
    head: RequestHead,
    /// The bytes of the head that is being served; the spans of `head` lie in it.
    head_text: Vec<u8>,
    /// The clock of whatever this connection waits for; one for its life, because moving it is cheap
    /// and making it is not.
    timer: Option<Timer>,
    /// How far the response of the present exchange is.
    answering: Cell<Answering>,
    /// What is known of the present exchange.
    record: Record,
    /// What is known of the session that this connection speaks for.
    turn: Turning,
}

/// Whether the provider's response has begun for the client, and what marks its end there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answering {
    /// It has not.
    No,
    /// A length or a last chunk.
    Framed,
    /// The end of the connection.
    UntilClose,
}

/// What becomes of the client's connection after an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The next head may follow.
    KeepAlive,
    /// Everything was said.
    Close,
    /// The client is gone, or must see that the response broke off.
    Cut,
    /// An answer was given before the request was read: read on for a while, then close.
    Linger,
    /// Nothing that follows may look like a clean end.
    Reset,
}

/// Serves one client connection to its end. What happens once in its life is on the heap: the state of
/// it would otherwise be part of every connection, idle ones too.
pub async fn serve_connection(generations: Rc<Generations>, socket: TcpStream) {
    let generations = &*generations;
    let metrics = &generations.lasting().metrics;
    metrics.accepted.add(1);
    let Some(stream) = opened(generations, socket).await else {
        return metrics.handshake_failures.add(1);
    };
    let mut client = Client {
        stream,
        input: Input::new(generations.lasting().blocks.clone()),
        head: RequestHead::default(),
        head_text: Vec::new(),
        timer: None,
        answering: Cell::new(Answering::No),
        record: Record::begin(RequestId::default()),
        turn: Turning::default(),
    };
    let mut first = true;
    let mut pipelined = 0_u32;
    loop {
        if !intake::begins(generations, &mut client, first).await {
            return client.stream.notify_close();
        }
        let core = generations.current();
        let next = match intake::next_head(&core, &mut client, first).await {
            Arrival::Head => {
                let _running = metrics.exchanges.raised();
                run(generations, &core, &mut client).await
            }
            Arrival::Closed => return client.stream.notify_close(),
            Arrival::Failed(failure) => {
                client.record = Record::begin(core.ids.next());
                Box::pin(refuse(&mut client, failure, false)).await
            }
        };
        client.record.duration = client.record.elapsed();
        core.observe(client.record.take());
        first = false;
        match next {
            Next::KeepAlive if core.stop.is_set() => {
                return Box::pin(linger::close(&core, client)).await;
            }
            Next::KeepAlive if client.input.is_empty() => {}
            Next::KeepAlive => {
                // The next request is here already, and may be answered without any wait.
                pipelined = pipelined.wrapping_add(1);
                if pipelined.is_multiple_of(PIPELINED_BURST) {
                    turn().await;
                }
            }
            Next::Close => return Box::pin(linger::close(&core, client)).await,
            Next::Cut => return,
            Next::Linger => return Box::pin(linger::drain_and_close(&core, client)).await,
            Next::Reset => return client.stream.reset_on_close(),
        }
    }
}

/// One exchange to its end, whether that is its own or not.
async fn run(generations: &Generations, core: &Core, client: &mut Client) -> Next {
    let future: Pin<Box<dyn Future<Output = Next> + '_>> = on_heap(|| exchange(core, client));
    match race(unwound(future), generations.lasting().end.wait()).await {
        Either::First(Some(next)) => next,
        Either::First(None) => Box::pin(after_panic(core, client)).await,
        Either::Second(()) => Box::pin(drained(client)).await,
    }
}

/// The process ends before the exchange did: 503 if nothing was answered yet, else an end that the
/// client cannot take for the response's own.
async fn drained(client: &mut Client) -> Next {
    client.record.end = EndReason::Drained;
    match client.answering.get() {
        Answering::UntilClose => Next::Reset,
        Answering::Framed => Next::Cut,
        // An answer of the gateway's own is on its way, and has a length.
        Answering::No if client.record.status != 0 => Next::Cut,
        Answering::No => {
            let to_head = is_head(client);
            refuse(client, Failure::Stopping, to_head).await
        }
    }
}

/// The connection ready for requests: after the handshake where the listeners are encrypted. A peer
/// that fails at it was told so by an alert and is not worth more.
async fn opened(generations: &Generations, socket: TcpStream) -> Option<Stream> {
    let core = generations.current();
    let Some(acceptor) = &core.tls else {
        return Some(Stream::Plain(socket));
    };
    let shaking = async {
        let _turn = generations.lasting().handshakes.enter().await;
        acceptor.accept(socket).await
    };
    match Box::pin(race(shaking, sleep(core.settings.handshake))).await {
        Either::First(Ok(stream)) => Some(Stream::Tls(Box::new(stream))),
        Either::First(Err(_)) | Either::Second(()) => None,
    }
}

/// Whether the present request has the method HEAD, whose answer has no body.
fn is_head(client: &Client) -> bool {
    client.head.method.of(&client.head_text) == b"HEAD"
}

/// Answers bytes that did not become a request, or a request that is not served to its end.
async fn refuse(client: &mut Client, failure: Failure, to_head: bool) -> Next {
    let rejection = Rejection {
        failure,
        family: client
            .record
            .family
            .unwrap_or_else(|| guess_family(client.input.bytes())),
        id: client.record.id,
        close: true,
        to_head,
    };
    let sent = rejection.send(&client.stream, true, &mut client.record);
    sent.await
}

/// An exchange failed by a defect of this gateway: 500 if nothing was answered yet. What it knew of
/// the request is gone with it, so the connection ends.
async fn after_panic(core: &Core, client: &mut Client) -> Next {
    core.metrics.panics.add(1);
    if client.answering.get() != Answering::No {
        client.record.end = EndReason::Internal;
        return Next::Reset;
    }
    let to_head = is_head(client);
    refuse(client, Failure::Internal, to_head).await
}

/// The stages of one exchange, in their order.
async fn exchange(core: &Core, client: &mut Client) -> Next {
    client.record = Record::begin(core.ids.next());
    client.answering.set(Answering::No);
    let Settings {
        idle, client_write, ..
    } = core.settings;
    client.stream.set_patience(Some(idle), Some(client_write));
    let text = client.input.bytes().get(..client.head.len);
    client.head_text.clear();
    client.head_text.extend_from_slice(text.unwrap_or_default());
    client.input.consume(client.head.len);
    let noted = (&mut client.record, &mut client.turn);
    match decide(core, &client.head, &client.head_text, noted) {
        Decision::Local(answer) => answer.send(&client.stream, &mut client.record).await,
        Decision::Report(report) => outcome::answer(core, client, &report).await,
        Decision::Reject { rejection, unread } => {
            let record = &mut client.record;
            rejection.send(&client.stream, unread, record).await
        }
        Decision::Forward(mut forward) => {
            client.record.family = Some(forward.asked.family);
            client.record.dialect = forward.asked.dialect;
            match gather::gather(core, client, &mut forward).await {
                Ok(()) => attempt::forward(core, client, forward).await,
                Err(end) => gather::ended(client, &forward, end).await,
            }
        }
    }
}

/// Runs a future to its end; none if it panics. The process lives on: what the future borrowed is
/// thrown away with the connection.
async fn unwound<T>(mut future: Pin<Box<dyn Future<Output = T> + '_>>) -> Option<T> {
    poll_fn(
        |cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(polled) => polled.map(Some),
            Err(_) => std::task::Poll::Ready(None),
        },
    )
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn polled(future: Pin<Box<dyn Future<Output = u8> + '_>>) -> Poll<Option<u8>> {
        let mut guarded = pin!(unwound(future));
        guarded
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_panic_ends_its_exchange_and_nothing_else() {
        assert_eq!(polled(Box::pin(async { 7 })), Poll::Ready(Some(7)));
        assert_eq!(polled(Box::pin(std::future::pending())), Poll::Pending);
        let panics = async { std::hint::black_box(Vec::<u8>::new())[0] };
        assert_eq!(polled(Box::pin(panics)), Poll::Ready(None));
    }
}
