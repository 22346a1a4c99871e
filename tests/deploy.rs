//! What deploy/ hands out still fits the program: its examples are configurations, its limits agree.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lanegate::config;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tempfile::TempDir;

const FOLDER: &str = "deploy/examples";
const UNIT: &str = include_str!("../deploy/lanegate.service");
const CONTAINERFILE: &str = include_str!("../deploy/Containerfile");
const MANIFEST: &str = include_str!("../Cargo.toml");

/// A folder with the examples and the files that they name.
fn site() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["gateway.test".to_owned()]).unwrap();
    for name in ["tls", "secrets"] {
        fs::create_dir(at(name)).unwrap();
    }
    for (name, content) in [
        ("tls/certificate.pem", cert.pem()),
        ("tls/key.pem", signing_key.serialize_pem()),
        ("tls/site-authority.pem", cert.pem()),
        ("secrets/openai", "sk-openai-hush\n".to_owned()),
        ("secrets/anthropic", "sk-ant-hush\n".to_owned()),
        (
            "secrets/developers",
            "a-key-of-developers-hush\n".to_owned(),
        ),
        (
            "secrets/sessions",
            "hush, the key of sessions of the site".to_owned(),
        ),
    ] {
        fs::write(at(name), content).unwrap();
    }
    for name in examples() {
        fs::copy(Path::new(FOLDER).join(&name), at(&name)).unwrap();
    }
    folder
}

fn examples() -> BTreeSet<String> {
    fs::read_dir(FOLDER)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// What the examples name.
const VARIABLES: [(&str, &str); 6] = [
    ("OPENAI_API_KEY", "sk-openai-hush"),
    ("ANTHROPIC_API_KEY", "sk-ant-hush"),
    ("TYPESAFE_API_KEY", "ts-hush"),
    ("LANEGATE_KEY", "a-key-of-a-client-hush"),
    ("LANEGATE_ADMIN_KEY", "a-key-of-operators-hush"),
    (
        "LANEGATE_STORE_URL",
        "postgres://lanegate:hush@ledger.example.internal/lanegate",
    ),
];

/// `lanegate check`, with or without the variables that the examples name.
fn check(folder: &Path, example: &str, variables: &[(&str, &str)]) -> (bool, String, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_lanegate"))
        .args(["check", "--config"])
        .arg(folder.join(example))
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (done.status.success(), text(done.stdout), text(done.stderr))
}

#[test]
fn every_example_is_a_configuration() {
    let site = site();
    let names = examples();
    assert!(names.len() >= 3, "{names:?}");
    for name in names {
        let (accepted, effective, errors) = check(site.path(), &name, &VARIABLES);
        assert!(accepted, "{name}: {errors}");
        assert!(!effective.contains("hush"), "{name} shows a secret");
    }
}

#[test]
fn no_example_starts_without_its_credentials() {
    let site = site();
    fs::remove_dir_all(site.path().join("secrets")).unwrap();
    for name in examples() {
        let (accepted, _, errors) = check(site.path(), &name, &[]);
        assert!(!accepted, "{name}");
        let missing = ["providers[", "clients["];
        assert!(
            missing.iter().any(|path| errors.contains(path)),
            "{name}: {errors}"
        );
    }
}

/// A fleet that lost one of these would be open, unseen or forgetful.
#[test]
fn fleet_has_keys_an_admin_listener_a_store_and_usage() {
    let site = site();
    let (accepted, effective, errors) = check(site.path(), "fleet.yaml", &VARIABLES);
    assert!(accepted, "{errors}");
    for part in [
        "\nauthentication: clients\n",
        "\nadmin: { listen: ",
        "\n  url_env: \"LANEGATE_STORE_URL\"\n",
        "\n    usage: inject\n",
    ] {
        assert!(effective.contains(part), "{part}: {effective}");
    }
    for missing in ["LANEGATE_ADMIN_KEY", "LANEGATE_STORE_URL"] {
        let mut variables = VARIABLES.to_vec();
        variables.retain(|(name, _)| *name != missing);
        let (accepted, _, errors) = check(site.path(), "fleet.yaml", &variables);
        assert!(!accepted && errors.contains(missing), "{errors}");
    }
}

#[test]
fn service_manager_waits_longer_than_the_drain() {
    let minutes = UNIT
        .lines()
        .find_map(|line| line.strip_prefix("TimeoutStopSec=")?.strip_suffix("min"));
    let limit = Duration::from_secs(60 * minutes.unwrap().parse::<u64>().unwrap());
    let smallest = "providers: [{ name: a, dialect: openai, base_url: \"http://h\" }]";
    let config = config::parse(smallest, &|_| None).unwrap();
    assert!(limit > config.timeouts.drain, "{limit:?}");
    let seconds = CONTAINERFILE.split("--time ").nth(1).unwrap();
    let seconds: u64 = seconds.split(' ').next().unwrap().parse().unwrap();
    assert!(
        Duration::from_secs(seconds) > config.timeouts.drain,
        "{seconds}"
    );
}

#[test]
fn admin_listener_of_the_container_is_reached_from_outside_and_asks_for_a_key() {
    let example = CONTAINERFILE
        .lines()
        .find_map(|line| line.strip_prefix("#   admin: "))
        .unwrap();
    let providers = "providers: [{ name: a, dialect: openai, base_url: \"http://h\" }]";
    let yaml = format!("admin: {example}\n{providers}\n");
    let key = |name: &str| (name == "LANEGATE_ADMIN_KEY").then(|| "k".repeat(32));
    let admin = config::parse(&yaml, &key).unwrap().admin.unwrap();
    assert!(!admin.listen.ip().is_loopback() && admin.key.is_some());
    let keyless = yaml.replace(", key_env: LANEGATE_ADMIN_KEY", "");
    assert!(keyless != yaml && config::parse(&keyless, &key).is_err());
}

#[test]
fn container_is_built_with_the_compiler_that_the_project_names() {
    let version = MANIFEST
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"'))
        .unwrap();
    let [build, run] = ["AS build", "FROM debian:"].map(|mark| {
        let line = CONTAINERFILE.lines().find(|line| line.contains(mark));
        line.unwrap()
    });
    assert!(build.starts_with(&format!("FROM rust:{version}-slim-bookworm ")));
    assert_eq!(run, "FROM debian:bookworm-slim");
}
