//! The client's side of the one connection that is no HTTP: the one to a database.
//!
//! It is spoken on a thread and a reactor of its own, so the stream is another one than that of the cores. Whom
//! it believes is the same.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

use crate::tls::Authorities;
use crate::tls::client::{NotAServerName, believing};

/// The protocol inside, for servers that ask (PostgreSQL 17, "SSL Session Encryption").
const ALPN: &[u8] = b"postgresql";

/// How a database is spoken to.
#[derive(Clone)]
pub struct DatabaseClient {
    authorities: Authorities,
    config: Arc<ClientConfig>,
}

impl DatabaseClient {
    /// A client of servers whose certificate comes from the public roots or from `authorities`, and has the
    /// name under which they are connected to.
    ///
    /// # Errors
    /// Never: the result is that of the shared maker of both kinds of clients.
    pub fn new(authorities: Authorities) -> Result<Self, NotAServerName> {
        let mut config = believing(&authorities)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self {
            authorities,
            config: Arc::new(config),
        })
    }
}

/// Two are alike if they believe the same.
impl PartialEq for DatabaseClient {
    fn eq(&self, other: &Self) -> bool {
        self.authorities == other.authorities
    }
}

impl Eq for DatabaseClient {}

impl fmt::Debug for DatabaseClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseClient")
            .field("authorities", &self.authorities)
            .finish_non_exhaustive()
    }
}

/// Whether a connection failed because of the certificate of the other side, or what it says in TLS.
#[must_use]
pub fn is_distrust(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let inner = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        if error.is::<rustls::Error>() || inner.is_some_and(|inner| inner.is::<rustls::Error>()) {
            return true;
        }
        cause = error.source();
    }
    false
}

impl<S> MakeTlsConnect<S> for DatabaseClient
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = DatabaseStream<S>;
    type TlsConnect = DatabaseHandshake;
    type Error = NotAServerName;

    fn make_tls_connect(&mut self, host: &str) -> Result<DatabaseHandshake, NotAServerName> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| NotAServerName)?;
        let connector = TlsConnector::from(Arc::clone(&self.config));
        Ok(DatabaseHandshake { connector, name })
    }
}

/// A handshake that is to come.
pub struct DatabaseHandshake {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl fmt::Debug for DatabaseHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseHandshake").finish_non_exhaustive()
    }
}

impl<S> TlsConnect<S> for DatabaseHandshake
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = DatabaseStream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<DatabaseStream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let handshake = self.connector.connect(self.name, stream);
        Box::pin(async move { handshake.await.map(DatabaseStream) })
    }
}

/// An encrypted stream.
#[derive(Debug)]
pub struct DatabaseStream<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for DatabaseStream<S> {
    /// None: the certificate and its name are always verified, which is what binding would add.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for DatabaseStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for DatabaseStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
