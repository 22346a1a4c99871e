//! Certificates and keys from the text of a PEM file (RFC 7468).

use std::fmt;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Why the content of a file cannot be used. Never shows any of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PemError {
    /// There is no certificate.
    NoCertificate,
    /// A certificate cannot be read.
    Certificate,
    /// There is no private key.
    NoKey,
    /// The private key cannot be read, or is of a kind that is not supported.
    Key,
    /// The key is not that of the first certificate.
    Mismatch,
}

impl fmt::Display for PemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoCertificate => "the file has no certificate (BEGIN CERTIFICATE)",
            Self::Certificate => "a certificate in the file is not readable as X.509 in PEM",
            Self::NoKey => "the file has no private key (BEGIN PRIVATE KEY)",
            Self::Key => "expected a private key in PEM, RSA, ECDSA (P-256, P-384) or Ed25519",
            Self::Mismatch => "the private key is not that of the first certificate",
        })
    }
}

impl std::error::Error for PemError {}

/// All certificates, in the order of the file; at least one.
pub(super) fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let all = all.map_err(|_| PemError::Certificate)?;
    if all.is_empty() {
        return Err(PemError::NoCertificate);
    }
    Ok(all)
}

/// The first private key.
pub(super) fn private_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, PemError> {
    match PrivateKeyDer::pem_slice_iter(text).next() {
        Some(Ok(key)) => Ok(key),
        Some(Err(_)) => Err(PemError::Key),
        None => Err(PemError::NoKey),
    }
}
