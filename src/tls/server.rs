//! The server's side: the certificate that clients are shown.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{Error, ServerConfig, ServerConnection};

use crate::runtime::TcpStream;
use crate::tls::{ALPN, HandshakeError, PemError, TlsStream, pem};

/// How clients are spoken to. Clones share one key for tickets, so that every core resumes what any
/// core began; nothing is remembered of a session here.
#[derive(Clone)]
pub struct Acceptor {
    chain: Vec<CertificateDer<'static>>,
    key: Arc<PrivateKeyDer<'static>>,
    config: Arc<ServerConfig>,
}

impl Acceptor {
    /// A server with the certificate chain of one PEM text, its own certificate first, and the key of
    /// another (or of the same).
    ///
    /// # Errors
    /// When either text lacks what it should have, or they do not belong together.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, PemError> {
        let chain = pem::certificates(chain)?;
        let key = pem::private_key(key)?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(rustls::ALL_VERSIONS)
            // Never: this provider has a cipher for every version.
            .map_err(|_| PemError::Key)?
            .with_no_client_auth()
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(|error| match error {
                Error::InconsistentKeys(_) => PemError::Mismatch,
                Error::InvalidCertificate(_) => PemError::Certificate,
                _ => PemError::Key,
            })?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        // Without a ticketer sessions are remembered here instead, a bounded number of them.
        if let Ok(ticketer) = Ticketer::new() {
            config.ticketer = ticketer;
        }
        Ok(Self {
            chain,
            key: Arc::new(key),
            config: Arc::new(config),
        })
    }

    /// Shakes hands over a connection that was just accepted. May be dropped while it waits.
    ///
    /// # Errors
    /// See [`HandshakeError`]; a client that does not speak TLS is one.
    pub async fn accept(&self, stream: TcpStream) -> Result<TlsStream, HandshakeError> {
        let session = ServerConnection::new(Arc::clone(&self.config));
        let session = session.map_err(HandshakeError::from)?;
        let stream = TlsStream::new(stream, session.into());
        stream.shake_hands().await?;
        Ok(stream)
    }
}

/// Two are alike if they show the same certificate.
impl PartialEq for Acceptor {
    fn eq(&self, other: &Self) -> bool {
        self.chain == other.chain && self.key == other.key
    }
}

impl Eq for Acceptor {}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor")
            .field("certificates", &self.chain.len())
            .finish_non_exhaustive()
    }
}
