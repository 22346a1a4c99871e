//! The keys of TLS: which files they take, and what is said of files that cannot be used.

#![expect(
    clippy::unwrap_used,
    reason = "a test stops at the first surprise, in its fixtures too"
)]

use std::fs;
use std::path::Path;

use lanegate::config::{self, Config};
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use tempfile::TempDir;

/// A folder with a certificate, its key, and what can be mistaken for them.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["gw.test".to_owned()]).unwrap();
    let other_key = KeyPair::generate().unwrap();
    let broken = cert.pem().replace("MII", "M!!");
    for (name, content) in [
        ("cert.pem", cert.pem()),
        ("key.pem", signing_key.serialize_pem()),
        ("other-key.pem", other_key.serialize_pem()),
        ("both.pem", cert.pem() + &signing_key.serialize_pem()),
        ("broken.pem", broken),
        (
            "no-certificate.pem",
            "-----BEGIN CERTIFICATE-----\naHVzaA==\n-----END CERTIFICATE-----\n".to_owned(),
        ),
        (
            "no-key.pem",
            "-----BEGIN PRIVATE KEY-----\naHVzaA==\n-----END PRIVATE KEY-----\n".to_owned(),
        ),
        ("empty.pem", String::new()),
        ("long.pem", "x".repeat((1 << 20) + 1)),
    ] {
        fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

/// The configuration with these lines in front of a provider with those keys.
fn load(folder: &Path, server: &str, provider: &str) -> Result<Config, String> {
    let path = folder.join("lanegate.yaml");
    let text = format!(
        "server:\n  listen: [\"127.0.0.1:0\"]\n  {server}\nproviders:\n  - name: a\n    \
         dialect: openai\n    {provider}\n"
    );
    fs::write(&path, text).unwrap();
    config::load(&path).map_err(|error| error.to_string())
}

const PLAIN: &str = "base_url: http://h";

#[test]
fn files_are_looked_up_from_the_folder_of_the_configuration() {
    let folder = folder();
    let config = load(
        folder.path(),
        "tls: { certificate: cert.pem, key: key.pem }",
        "base_url: https://h\n    ca_file: cert.pem",
    );
    let config = config.unwrap();
    let tls = config.server.tls.as_ref().unwrap();
    assert_eq!(
        (tls.certificate.as_path(), tls.key.as_path()),
        (Path::new("cert.pem"), Path::new("key.pem"))
    );
    let provider = &config.providers[0];
    assert_eq!(provider.ca_file.as_deref(), Some(Path::new("cert.pem")));
    assert!(provider.tls.is_some() && provider.base_url.tls);
    let shown = config.effective_yaml();
    assert!(
        shown.contains("tls: { certificate: \"cert.pem\", key: \"key.pem\" }"),
        "{shown}"
    );
    assert!(shown.contains("ca_file: \"cert.pem\""), "{shown}");
    fs::write(folder.path().join("shown.yaml"), &shown).unwrap();
    assert_eq!(
        config::load(&folder.path().join("shown.yaml")).unwrap(),
        config
    );
}

#[test]
fn one_file_may_hold_certificate_and_key() {
    let folder = folder();
    let both = "tls: { certificate: both.pem, key: both.pem }";
    assert!(load(folder.path(), both, PLAIN).is_ok());
}

#[test]
fn https_needs_no_file_and_keeps_connections_for_longer() {
    let folder = folder();
    let config = load(folder.path(), "workers: 1", "base_url: https://h").unwrap();
    assert!(config.providers[0].tls.is_some() && config.server.tls.is_none());
    assert_eq!(config.providers[0].keepalive_idle.as_secs(), 60);
    let config = load(folder.path(), "workers: 1", PLAIN).unwrap();
    assert!(config.providers[0].tls.is_none());
}

#[test]
fn a_listener_needs_both_files_and_they_must_belong_together() {
    let folder = folder();
    for (tls, message) in [
        ("{}", "server.tls.certificate: required, but not given"),
        ("{}", "server.tls.key: required, but not given"),
        (
            "{ certificate: cert.pem }",
            "line 3: server.tls.key: required, but not given",
        ),
        (
            "{ certificate: absent.pem, key: key.pem }",
            "line 3: server.tls.certificate: cannot read the file: ",
        ),
        (
            "{ certificate: cert.pem, key: long.pem }",
            "line 3: server.tls.key: cannot read the file: more than 1048576 bytes",
        ),
        (
            "{ certificate: key.pem, key: key.pem }",
            "line 3: server.tls.certificate: the file has no certificate",
        ),
        (
            "{ certificate: empty.pem, key: key.pem }",
            "line 3: server.tls.certificate: the file has no certificate",
        ),
        (
            "{ certificate: broken.pem, key: key.pem }",
            "line 3: server.tls.certificate: a certificate in the file is not readable",
        ),
        (
            "{ certificate: no-certificate.pem, key: key.pem }",
            "line 3: server.tls.certificate: a certificate in the file is not readable",
        ),
        (
            "{ certificate: cert.pem, key: cert.pem }",
            "line 3: server.tls.key: the file has no private key",
        ),
        (
            "{ certificate: cert.pem, key: no-key.pem }",
            "line 3: server.tls.key: expected a private key",
        ),
        (
            "{ certificate: cert.pem, key: other-key.pem }",
            "line 3: server.tls.key: the private key is not that of the first certificate",
        ),
        (
            "{ certificate: cert.pem, key: key.pem, verify: false }",
            "line 3: server.tls.verify: unknown key; known here: certificate, key",
        ),
    ] {
        let error = load(folder.path(), &format!("tls: {tls}"), PLAIN).unwrap_err();
        assert!(error.contains(message), "{tls}: {error}");
        assert!(
            !error.contains("hush") && !error.contains("aHVz"),
            "{error}"
        );
    }
}

#[test]
fn a_ca_file_is_for_https_and_has_certificates() {
    let folder = folder();
    for (provider, message) in [
        (
            "base_url: http://h\n    ca_file: cert.pem",
            "line 8: providers[0].ca_file: only for a base_url that starts with https://",
        ),
        (
            "base_url: https://h\n    ca_file: absent.pem",
            "line 8: providers[0].ca_file: cannot read the file: ",
        ),
        (
            "base_url: https://h\n    ca_file: key.pem",
            "line 8: providers[0].ca_file: the file has no certificate",
        ),
        (
            "base_url: https://h\n    ca_file: no-certificate.pem",
            "line 8: providers[0].ca_file: a certificate in the file is not readable",
        ),
        (
            "base_url: https://-h",
            "line 7: providers[0].base_url: expected a host that a certificate can be issued for",
        ),
        (
            "base_url: https://h\n    verify: false",
            "line 8: providers[0].verify: unknown key",
        ),
    ] {
        let error = load(folder.path(), "workers: 1", provider).unwrap_err();
        assert!(error.contains(message), "{provider}: {error}");
    }
}
