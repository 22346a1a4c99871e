//! What is read of features, and what is refused.

use super::*;
use crate::config::{Config, ConfigError, parse};

const PROVIDER: &str =
    "providers: [{ name: a, dialect: openai, base_url: \"http://127.0.0.1:1\", auth: none }]";
const REMOTE: &str = "provider: jev, api_key_env: JEV, timeout: 750ms, max_attempts_per_session: 1, \
    lease_ttl: 2s, retry_backoff: 0s, positive_threshold: 0.9";

fn read(plugins: &str) -> Result<Config, ConfigError> {
    let variable = |name: &str| (name == "JEV").then(|| "hush-hush".to_owned());
    parse(&format!("{plugins}\n{PROVIDER}"), &variable)
}

fn session(config: &str) -> Result<Config, ConfigError> {
    read(&format!(
        "plugins: {{ features: [{{ id: session-classification, enabled: true, config: {config} }}] }}"
    ))
}

fn asking(mode: &str, remote: &str) -> Result<Config, ConfigError> {
    session(&format!("{{ mode: {mode}, remote: {{ {remote} }} }}"))
}

#[test]
fn row_32_nothing_written_is_the_heuristic_mode() {
    for config in [
        "{}",
        "null",
        "{ mode: \"\" }",
        "{ heuristic: null }",
        "{ mode: heuristic }",
    ] {
        let read = session(config).unwrap();
        let session = read.plugins.session_classification().unwrap();
        assert_eq!(session.policy, Policy::default(), "{config}");
        let shown = read.effective_yaml();
        assert_eq!(parse(&shown, &|_| None), Ok(read), "{shown}");
    }
}

#[test]
fn a_feature_that_is_not_enabled_is_not_there_but_has_to_be_right() {
    let off = |config: &str| {
        read(&format!(
            "plugins: {{ features: [{{ id: session-classification, enabled: false, config: {config} }}] }}"
        ))
    };
    // No variable has to be set for what is off.
    let remote = REMOTE.replace("JEV", "UNSET");
    let config = off(&format!("{{ mode: jev, remote: {{ {remote} }} }}")).unwrap();
    assert_eq!(config.plugins.session_classification(), None);
    assert!(off("{ mode: jev }").is_err());
    assert!(read("plugins: null").unwrap().plugins.features.is_empty());
}

#[test]
fn all_of_a_remote_mode_is_read_and_shown() {
    let read = asking("hybrid", REMOTE).unwrap();
    let policy = &read.plugins.session_classification().unwrap().policy;
    let remote = policy.remote.as_ref().unwrap();
    assert_eq!(policy.mode, Mode::Hybrid);
    assert_eq!(remote.timeout, Duration::from_millis(750));
    assert_eq!((remote.attempts_max, remote.backoff), (1, Duration::ZERO));
    let shown = read.effective_yaml();
    assert!(!shown.contains("hush"), "{shown}");
    let variable = |name: &str| (name == "JEV").then(|| "other".to_owned());
    assert_eq!(parse(&shown, &variable), Ok(read), "{shown}");
}

/// What is refused, and that the value is not in the message.
#[test]
fn rows_33_to_35_what_is_refused_is_named_and_not_repeated() {
    let with = |key: &str, value: &str| {
        let parts = REMOTE.split(", ").map(|part| match part.split_once(": ") {
            Some((name, _)) if name == key => format!("{key}: {value}"),
            _ => part.to_owned(),
        });
        asking("jev", &parts.collect::<Vec<_>>().join(", "))
    };
    for (key, value) in [
        ("timeout", "0s"),
        ("timeout", "31s"),
        ("timeout", "750"),
        ("max_attempts_per_session", "0"),
        ("max_attempts_per_session", "6"),
        ("max_attempts_per_session", "\"1\""),
        ("lease_ttl", "850ms"),
        ("lease_ttl", "121s"),
        ("retry_backoff", "-1s"),
        ("retry_backoff", "31s"),
        ("positive_threshold", "0"),
        ("positive_threshold", "1.01"),
        ("positive_threshold", ".nan"),
        ("positive_threshold", "\"0.95\""),
        ("provider", "other"),
        ("api_key_env", "\"Bearer sk-live-1\""),
        ("api_key_env", "UNSET"),
        ("api_key_env", "1JEV"),
    ] {
        let error = with(key, value).unwrap_err().to_string();
        let path = format!("plugins.features[0].config.remote.{key}: ");
        assert!(
            error.starts_with(&format!("config: line 1: {path}")),
            "{error}"
        );
        let what = error.split_once(&path).unwrap().1;
        let word = value.trim_matches('"');
        assert!(word.len() < 4 || !what.contains(word), "{error}");
    }
    assert!(with("lease_ttl", "851ms").is_ok());
    assert!(with("positive_threshold", "1").is_ok());
}

#[test]
fn rows_33_and_36_shapes_that_are_refused() {
    let long = "a".repeat(129);
    let many = vec!["\"a\""; 17].join(", ");
    let prefixes = |list: &str| {
        session(&format!(
            "{{ heuristic: {{ ignored_user_agent_prefixes: [{list}] }} }}"
        ))
    };
    for refused in vec![
        session("{ enabled: false }"),
        session("{ mode: automatic }"),
        session("{ mode: 1 }"),
        session("{ mode: jev }"),
        asking("heuristic", REMOTE),
        session("{ heuristic: { more: 1 } }"),
        session("{ mode: heuristic, mode: heuristic }"),
        asking("jev", &format!("{REMOTE}, more: 1")),
        asking("jev", &REMOTE.replace(", retry_backoff: 0s", "")),
        prefixes(&format!("\"{long}\"")),
        prefixes(&many),
        prefixes("\"\""),
        prefixes("1"),
        read("plugins: { features: [{ id: other, enabled: true }] }"),
        read("plugins: { features: [{ id: agent-family }] }"),
        read("plugins: { features: [{ id: agent-family, enabled: true, config: { a: 1 } }] }"),
        read(
            "plugins: { features: [{ id: agent-family, enabled: true }, { id: agent-family, enabled: false }] }",
        ),
        read(
            "store: { url: none }\nplugins: { features: [{ id: session-classification, enabled: true }] }",
        ),
        read(
            "store: { url: \"sqlite:a.db\" }\nplugins: { features: [{ id: session-classification, enabled: true }] }",
        ),
        read(
            "store: { url: \"postgres://u@h/d\" }\nplugins: { features: [{ id: session-classification, enabled: true }] }",
        ),
    ] {
        let error = refused.unwrap_err().to_string();
        assert!(
            !error.contains("automatic") && !error.contains(&long),
            "{error}"
        );
    }
    let twice = prefixes("\"Curl/\", \" curl/ \"").unwrap();
    let session = twice.plugins.session_classification().unwrap();
    assert_eq!(session.policy.ignored.len(), 1);
}

#[test]
fn row_59_an_endpoint_is_on_this_machine_or_refused() {
    let at = |endpoint: &str| asking("jev", &format!("{REMOTE}, endpoint: \"{endpoint}\""));
    let read = at("http://127.0.0.1:4000/v1/systemone").unwrap();
    assert!(
        read.plugins
            .session_classification()
            .unwrap()
            .endpoint
            .is_some()
    );
    for endpoint in [
        "http://127.0.0.1.evil.test/",
        "http://localhost:1/",
        "https://api.example.com/",
        "http://user@127.0.0.1/",
        "http://127.0.0.1/?a",
        "http://127.0.0.1/#a",
        "ftp://127.0.0.1/",
        "http://192.0.2.1/",
    ] {
        let error = at(endpoint).unwrap_err().to_string();
        assert!(
            !error.contains("evil") && !error.contains(endpoint),
            "{error}"
        );
    }
}
