//! Certificates made for one test, and both sides of TLS that use them.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tempfile::TempDir;

/// Versions of the protocol that both sides of a test may speak.
pub(crate) const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

/// An authority of the test's own; its files live as long as it does.
#[derive(Debug)]
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    folder: TempDir,
}

/// A certificate and its key.
#[derive(Debug)]
pub(crate) struct Leaf {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

/// What is wrong with a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Expired,
    NotYetValid,
    OtherName,
}

impl Authority {
    /// Its name is `name`, and nobody but the gateways that are told so believe it.
    pub(crate) fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ca.pem"), certificate.pem()).unwrap();
        Self {
            certificate: certificate.der().clone(),
            issuer: Issuer::new(params, key),
            folder,
        }
    }

    pub(crate) fn new() -> Self {
        Self::named("authority of a test")
    }

    /// The authority's own certificate, as a file.
    pub(crate) fn ca_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A certificate for the loopback address and `localhost`, unless something is wrong with it.
    pub(crate) fn leaf(&self, fault: Option<Fault>) -> Leaf {
        let names = match fault {
            Some(Fault::OtherName) => vec!["other.test".to_owned()],
            _ => vec!["127.0.0.1".to_owned(), "localhost".to_owned()],
        };
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        match fault {
            Some(Fault::Expired) => params.not_after = date_time_ymd(2020, 1, 1),
            Some(Fault::NotYetValid) => params.not_before = date_time_ymd(4000, 1, 1),
            Some(Fault::OtherName) | None => {}
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Leaf { certificate, key }
    }

    /// Certificate and key as files.
    pub(crate) fn files(&self) -> (PathBuf, PathBuf) {
        let leaf = self.leaf(None);
        let path = |name| self.folder.path().join(name);
        fs::write(path("cert.pem"), leaf.certificate.pem()).unwrap();
        fs::write(path("key.pem"), leaf.key.serialize_pem()).unwrap();
        (path("cert.pem"), path("key.pem"))
    }

    /// A server whose certificate is good.
    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        self.leaf(None).server(&VERSIONS)
    }

    /// A client that believes this authority and nobody else.
    pub(crate) fn client(
        &self,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let mut config = ClientConfig::builder_with_protocol_versions(versions)
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Arc::new(config)
    }
}

impl Leaf {
    pub(crate) fn server(
        &self,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Arc<ServerConfig> {
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).unwrap();
        let mut config = ServerConfig::builder_with_protocol_versions(versions)
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Arc::new(config)
    }
}
