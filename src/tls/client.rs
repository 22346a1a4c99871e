//! The client's side: whom to believe, and under which name.

use std::fmt;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::limits::TLS_TICKETS;
use crate::runtime::TcpStream;
use crate::tls::{ALPN, HandshakeError, PemError, TlsStream, pem};

/// Certificates that are believed beside the public roots.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Authorities(Vec<CertificateDer<'static>>);

impl Authorities {
    /// The certificates of a PEM text.
    ///
    /// # Errors
    /// When there is none, or one is not readable.
    pub fn from_pem(text: &[u8]) -> Result<Self, PemError> {
        let certificates = pem::certificates(text)?;
        let mut trial = RootCertStore::empty();
        for certificate in &certificates {
            let added = trial.add(certificate.clone());
            added.map_err(|_| PemError::Certificate)?;
        }
        Ok(Self(certificates))
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authorities({} certificates)", self.0.len())
    }
}

/// The host of a URL is nothing that a certificate can be issued for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAServerName;

impl fmt::Display for NotAServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a host that a certificate can be issued for: a DNS name or an IP")
    }
}

impl std::error::Error for NotAServerName {}

/// What believes the public roots and these authorities.
pub(super) fn believing(authorities: &Authorities) -> Result<ClientConfig, NotAServerName> {
    let mut roots = RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    // Each was accepted when it was read.
    roots.add_parsable_certificates(authorities.0.iter().cloned());
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(rustls::ALL_VERSIONS)
        // Never: this provider has a cipher for every version.
        .map_err(|_| NotAServerName)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

/// How a provider is spoken to. Clones share the memory of sessions, so that every core resumes
/// what any core began.
#[derive(Clone)]
pub struct Client {
    name: ServerName<'static>,
    authorities: Authorities,
    config: Arc<ClientConfig>,
}

impl Client {
    /// A client of the server with this name (a host without brackets), whose certificate must come
    /// from the public roots or from `authorities`.
    ///
    /// # Errors
    /// When no certificate could have that name.
    pub fn new(host: &str, authorities: Authorities) -> Result<Self, NotAServerName> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| NotAServerName)?;
        let mut config = believing(&authorities)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::in_memory_sessions(TLS_TICKETS);
        Ok(Self {
            name,
            authorities,
            config: Arc::new(config),
        })
    }

    /// Shakes hands over a connection that was just opened. May be dropped while it waits.
    ///
    /// # Errors
    /// See [`HandshakeError`].
    pub async fn connect(&self, stream: TcpStream) -> Result<TlsStream, HandshakeError> {
        let session = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        let session = session.map_err(HandshakeError::from)?;
        let stream = TlsStream::new(stream, session.into());
        stream.shake_hands().await?;
        Ok(stream)
    }
}

/// Two are alike if they believe the same about the same server.
impl PartialEq for Client {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.authorities == other.authorities
    }
}

impl Eq for Client {}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("authorities", &self.authorities)
            .finish_non_exhaustive()
    }
}
