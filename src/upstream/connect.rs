//! Opening a connection, and what is remembered of it while it is used.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::clock;
use crate::limits::ADDRESSES;
use crate::runtime::{Either, Gate, TcpStream, race, sleep};
use crate::tls::{Client, HandshakeError, Stream};
use crate::upstream::Endpoint;
use crate::upstream::places::Place;

/// Look again for a first address this often while the resolver has not answered.
const ADDRESS_LOOK: Duration = Duration::from_millis(10);

/// Why no connection came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// The name has not resolved within the connect limit.
    Unresolved,
    /// Every address refused or was out of reach.
    Refused,
    /// No address answered within the connect limit.
    TimedOut,
    /// This machine has no descriptor or port left.
    Exhausted,
    /// The provider has all the requests that it may have, and no turn came in time.
    Busy,
    /// The provider's certificate is not valid any more, or not yet.
    CertificateExpired,
    /// The provider's certificate is for other names than that of its base URL.
    CertificateName,
    /// The provider's certificate comes from nobody who is believed.
    CertificateIssuer,
    /// No encrypted connection came about for another reason.
    Tls,
    /// The provider did not shake hands within the limit.
    HandshakeTimedOut,
}

impl From<HandshakeError> for ConnectError {
    fn from(error: HandshakeError) -> Self {
        match error {
            HandshakeError::Expired => Self::CertificateExpired,
            HandshakeError::Name => Self::CertificateName,
            HandshakeError::Issuer => Self::CertificateIssuer,
            HandshakeError::Protocol => Self::Tls,
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unresolved => "the provider's name did not resolve in time",
            Self::Refused => "the provider refused the connection",
            Self::TimedOut => "the provider did not accept a connection in time",
            Self::Exhausted => "the gateway has no descriptor or port left",
            Self::Busy => "the provider is at its limit of requests; try again",
            Self::CertificateExpired => "the provider's certificate is expired or not valid yet",
            Self::CertificateName => "the provider's certificate is not for the name in base_url",
            Self::CertificateIssuer => {
                "the provider's certificate comes from no authority that is believed; name a private \
                 one in ca_file"
            }
            Self::Tls => "the provider and the gateway could not agree on TLS; is it an https port?",
            Self::HandshakeTimedOut => "the provider did not finish the TLS handshake in time",
        })
    }
}

/// A connection to a provider, in use by one exchange.
#[derive(Debug)]
pub struct Connection {
    /// The connection itself.
    pub stream: Stream,
    /// Whether an earlier exchange already used it: the server may have closed it meanwhile.
    pub reused: bool,
    /// Bytes written before the first one of this exchange.
    written_before: u64,
    /// When it became idle; the time of opening while it was never idle.
    pub(super) idle_since: Instant,
    /// The server's own idle limit, from `Keep-Alive: timeout`.
    pub(super) server_limit: Option<Duration>,
    /// Declared after the stream, so that the place is free once the stream is closed.
    place: Place,
}

impl Connection {
    fn fresh(stream: Stream, place: Place) -> Self {
        Self {
            stream,
            place,
            reused: false,
            written_before: 0,
            idle_since: clock::now(),
            server_limit: None,
        }
    }

    /// Closes the connection and keeps its place.
    pub(super) fn into_place(self) -> Place {
        self.place
    }

    /// Marks the connection as taken again.
    pub(super) fn taken_again(mut self) -> Self {
        self.written_before = self.stream.written();
        self.reused = true;
        self
    }

    /// Whether the peer's kernel has acknowledged any byte of this exchange. When in doubt yes.
    #[must_use]
    pub fn acknowledged(&self) -> bool {
        !self
            .stream
            .bytes_acked()
            .is_ok_and(|now| now <= self.written_before)
    }

    /// How long it was idle, or how old it is if it never was.
    #[must_use]
    pub fn idle_for(&self) -> Duration {
        self.idle_since.elapsed()
    }

    /// Remembers the server's idle limit, one second earlier, since its clock started before ours.
    pub fn limit_idle(&mut self, seconds: u64) {
        self.server_limit = Some(Duration::from_secs(seconds.saturating_sub(1)));
    }
}

/// Opens a connection, trying the endpoint's addresses in order within its connect limit, and then
/// shakes hands where the endpoint is encrypted. A failed handshake is not tried at another address:
/// one name has one certificate.
pub(super) async fn open(
    endpoint: &Endpoint,
    place: Place,
    handshakes: &Gate,
) -> Result<Connection, ConnectError> {
    let settings = &endpoint.settings;
    let opened = match race(try_addresses(endpoint), sleep(settings.connect)).await {
        Either::First(opened) => opened?,
        Either::Second(()) if endpoint.addresses().is_empty() => {
            return Err(ConnectError::Unresolved);
        }
        Either::Second(()) => return Err(ConnectError::TimedOut),
    };
    let stream = match &settings.tls {
        None => Stream::Plain(opened),
        Some(client) => encrypt(client, opened, settings.handshake, handshakes).await?,
    };
    Ok(Connection::fresh(stream, place))
}

async fn encrypt(
    client: &Client,
    opened: TcpStream,
    limit: Duration,
    handshakes: &Gate,
) -> Result<Stream, ConnectError> {
    let shaking = async {
        let _turn = handshakes.enter().await;
        client.connect(opened).await
    };
    match race(shaking, sleep(limit)).await {
        Either::First(shaken) => Ok(Stream::Tls(Box::new(shaken?))),
        Either::Second(()) => Err(ConnectError::HandshakeTimedOut),
    }
}

async fn try_addresses(endpoint: &Endpoint) -> Result<TcpStream, ConnectError> {
    // Bounded by the connect limit around this future.
    while endpoint.addresses().is_empty() {
        sleep(ADDRESS_LOOK).await;
    }
    let addresses = endpoint.addresses();
    let share = share(endpoint.settings.connect, addresses.len());
    let mut last = ConnectError::Refused;
    for address in addresses.iter().take(ADDRESSES) {
        match race(connect(*address), sleep(share)).await {
            Either::First(Ok(stream)) => return Ok(stream),
            Either::First(Err(error)) => last = error,
            Either::Second(()) => last = ConnectError::TimedOut,
        }
    }
    Err(last)
}

/// Part of the connect limit that one of several addresses may use up.
fn share(limit: Duration, addresses: usize) -> Duration {
    let parts = u32::try_from(addresses.clamp(1, ADDRESSES)).unwrap_or(1);
    limit / parts
}

async fn connect(address: SocketAddr) -> Result<TcpStream, ConnectError> {
    TcpStream::connect(address)
        .await
        .map_err(|error| match error.raw_os_error() {
            // EMFILE, ENFILE, EADDRNOTAVAIL, ENOBUFS, ENOMEM
            Some(24 | 23 | 99 | 105 | 12) => ConnectError::Exhausted,
            Some(110) => ConnectError::TimedOut,
            _ => ConnectError::Refused,
        })
}
