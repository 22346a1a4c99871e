//! What the configuration accepts, what it refuses and where it says so.

#![expect(clippy::panic, reason = "a test stops at the first surprise")]

use lanegate::auth::{Mode, Scheme, describe_auth};
use lanegate::config::{self, Config, Driver, HalfClose, ProviderDialect, SecretFrom, Workers};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

const PAGE: &str = include_str!("../docs/configuration.md");

/// The variables of the examples; `BLANK` shows that white space is no credential.
fn env(name: &str) -> Option<String> {
    let value = match name {
        "OPENAI_API_KEY" => "sk-openai-hush-secret",
        "ANTHROPIC_API_KEY" => "sk-ant-hush-secret",
        "LAPTOP_KEY" => "hush-key-of-the-laptop",
        "BLANK" => " \t",
        "TWO_LINES" => "sk-hush\nsecret",
        _ => return None,
    };
    Some(value.to_owned())
}

fn parse(text: &str) -> Config {
    config::parse(text, &env).unwrap_or_else(|error| panic!("{error}\n--\n{text}"))
}

fn refused(text: &str) -> String {
    match config::parse(text, &env) {
        Ok(config) => panic!("accepted:\n{text}\n--\n{}", config.effective_yaml()),
        Err(error) => error.to_string(),
    }
}

/// A file whose line 1 is `first` and which is sound otherwise.
fn with_first_line(first: &str) -> String {
    format!("{first}\nproviders:\n  - {{ name: a, dialect: openai, base_url: \"http://h\" }}\n")
}

/// A file with one provider; `extra` stands on line 5.
fn with_provider_line(extra: &str) -> String {
    format!("providers:\n  - name: a\n    dialect: openai\n    base_url: http://h\n    {extra}\n")
}

fn assert_refused(text: &str, expected: &str) {
    let message = refused(text);
    assert!(
        message.contains(expected),
        "expected {expected}\ngot {message}\n--\n{text}"
    );
    assert!(!message.contains("hush"), "a secret is shown: {message}");
}

#[test]
fn smallest_file_has_every_default() {
    let config = parse(&with_first_line(""));
    assert_eq!(config.server.listen, ["127.0.0.1:8080".parse().unwrap()]);
    assert_eq!(config.server.workers, Workers::Auto);
    assert_eq!(config.server.driver, Driver::Auto);
    assert_eq!(config.server.half_close, HalfClose::Cancel);
    assert_eq!(config.limits.head_bytes, 65_536);
    assert_eq!(config.limits.head_fields, 200);
    assert_eq!(config.limits.body_bytes, 32 * 1024 * 1024);
    assert_eq!(config.limits.window_bytes, 256 * 1024);
    assert_eq!(config.limits.memory_bytes, 512 * 1024 * 1024);
    assert_eq!(config.limits.connections, 10_000);
    let seconds = |count| Duration::from_secs(count);
    assert_eq!(config.timeouts.connect, seconds(5));
    assert_eq!(config.timeouts.head, seconds(30));
    assert_eq!(config.timeouts.idle, seconds(300));
    assert_eq!(config.timeouts.first_byte, seconds(600));
    assert_eq!(config.timeouts.keepalive, seconds(75));
    assert_eq!(config.timeouts.drain, seconds(900));
    assert_eq!(config.timeouts.grace, Duration::ZERO);
    assert_eq!(config.timeouts.linger, seconds(2));
    assert_eq!(config.timeouts.reservation, seconds(10));
    let [provider] = config.providers.as_slice() else {
        panic!("{config:?}")
    };
    assert_eq!(provider.auth.mode(), Mode::Unset);
    assert_eq!(provider.auth.scheme(), Scheme::Bearer);
    assert_eq!(
        describe_auth(&provider.auth, false).as_str(),
        "caller-passthrough"
    );
    assert_eq!(provider.keepalive_idle, seconds(4));
    assert_eq!(provider.timeouts.first_byte, seconds(600));
    assert!(provider.enabled && provider.default && !provider.local);
    assert!(provider.models.is_empty() && provider.list.is_empty());
}

#[test]
fn every_key_of_a_full_file_arrives() {
    let config = parse(
        r#"
server: { listen: ["127.0.0.1:1", "[::1]:2"], workers: 3, driver: epoll, half_close: tolerate }
authentication: none
limits:
  { head_bytes: 8KiB, head_fields: 50, body_bytes: 1MiB, window_bytes: 32KiB, memory_bytes: 64MiB, connections: 100 }
timeouts: { connect: 1s, handshake: 1500ms, head: 2s, idle: 3m, first_byte: 4m, keepalive: 5s, drain: 1h, grace: 7s, linger: 250ms, reservation: 6s }
providers:
  - name: One
    dialect: anthropic
    base_url: http://127.0.0.1:9000/v1/
    secret_env: ANTHROPIC_API_KEY
    auth: managed
    auth_scheme: Bearer
    auth_header: api-key
    anthropic_version: "2023-06-01"
    default: true
    enabled: true
    local: false
    keepalive_idle: 30s
    timeouts: { connect: 7s, handshake: 6s, first_byte: 8s, idle: 9s }
    models: [{ from: "claude-*", to: "{model}" }]
    list: [claude-x]
"#,
    );
    assert_eq!(config.server.listen.len(), 2);
    assert_eq!(config.server.workers, Workers::Count(3));
    assert_eq!(config.server.driver, Driver::Epoll);
    assert_eq!(config.server.half_close, HalfClose::Tolerate);
    assert_eq!(config.limits.window_bytes, 32 * 1024);
    assert_eq!(config.limits.connections, 100);
    assert_eq!(config.timeouts.grace, Duration::from_secs(7));
    assert_eq!(config.timeouts.linger, Duration::from_millis(250));
    assert_eq!(config.timeouts.reservation, Duration::from_secs(6));
    let [provider] = config.providers.as_slice() else {
        panic!("{config:?}")
    };
    assert_eq!(provider.dialect, ProviderDialect::Anthropic);
    assert_eq!(
        (provider.base_url.port, provider.base_url.prefix.as_str()),
        (9000, "/v1")
    );
    assert_eq!(provider.secret_from, SecretFrom::Env);
    assert_eq!(provider.auth.header().unwrap().as_str(), "api-key");
    assert_eq!(provider.anthropic_version.as_deref(), Some("2023-06-01"));
    assert_eq!(provider.keepalive_idle, Duration::from_secs(30));
    assert_eq!(config.timeouts.handshake, Duration::from_millis(1500));
    assert_eq!(provider.timeouts.handshake, Duration::from_secs(6));
    assert_eq!(provider.timeouts.idle, Duration::from_secs(9));
    assert_eq!((provider.models.len(), provider.list.len()), (1, 1));
    assert!(
        !provider.local,
        "written down, so it beats the loopback address"
    );
}

#[test]
fn repeated_key_is_refused_with_path_and_both_lines() {
    assert_refused(
        "limits: {}\nproviders:\n  - name: a\n    dialect: openai\n    base_url: http://h\n    name: b\n",
        "config: line 6: providers[0].name: repeated key, first on line 3",
    );
    let text = format!("{}limits: {{}}\n", with_first_line("limits: {}"));
    assert_refused(
        &text,
        "config: line 4: limits: repeated key, first on line 1",
    );
}

#[test]
fn unknown_key_is_refused_with_a_suggestion() {
    for (extra, message) in [
        (
            "base-url: x",
            "line 5: providers[0].base-url: unknown key; did you mean `base_url`?",
        ),
        (
            "colour: red",
            "line 5: providers[0].colour: unknown key; known here: name, dialect",
        ),
        (
            "secret: sk-hush-secret",
            "line 5: providers[0].secret: unknown key",
        ),
        (
            "timeouts: { drain: 1s }",
            "line 5: providers[0].timeouts.drain: unknown key; known",
        ),
        (
            "compat: {}",
            "line 5: providers[0].compat: not available in this version",
        ),
        ("\"a b\": 1", "line 5: providers[0].\"a b\": unknown key"),
        ("1: x", "line 5: providers[0].1: unknown key"),
    ] {
        assert_refused(&with_provider_line(extra), message);
    }
    for (line, message) in [
        (
            "limit: {}",
            "line 1: limit: unknown key; did you mean `limits`?",
        ),
        ("faces: {}", "line 1: faces: not available in this version"),
        (
            "server: { tls: {} }",
            "line 1: server.tls.certificate: required, but not given",
        ),
        (
            "sk-hush-secret-0123456789abcdef: 1",
            "line 1: (a key of 31 bytes): unknown key",
        ),
        (
            "<<: { limits: {} }",
            "line 1: <<: merge keys are not supported",
        ),
    ] {
        assert_refused(&with_first_line(line), message);
    }
}

#[test]
fn wrong_server_is_refused_with_line_and_path() {
    for (line, message) in [
        (
            "server: { listen: [] }",
            "server.listen: expected 1 to 64 addresses, got 0",
        ),
        (
            "server: { listen: \"127.0.0.1:1\" }",
            "server.listen: expected a list, got \"127",
        ),
        (
            "server: { listen: [\"localhost:1\"] }",
            "server.listen[0]: expected an IP address",
        ),
        (
            "server: { listen: [8080] }",
            "server.listen[0]: expected an IP address and port",
        ),
        (
            "server: { listen: [\"127.0.0.1:1\", \"127.0.0.1:1\"] }",
            "server.listen[1]: 127.0.0.1:1 is listed twice",
        ),
        (
            "server: { workers: 0 }",
            "server.workers: expected 1 to 1024, got 0",
        ),
        (
            "server: { workers: 1025 }",
            "server.workers: expected 1 to 1024, got 1025",
        ),
        (
            "server: { workers: many }",
            "server.workers: expected auto or a number",
        ),
        (
            "server: { driver: kqueue }",
            "server.driver: expected auto or io_uring or epoll, got",
        ),
        (
            "server: { half_close: no }",
            "server.half_close: expected cancel or tolerate, got \"no\"",
        ),
        ("server: [1]", "server: expected a mapping, got a list"),
        (
            "authentication: all",
            "authentication: expected clients or none, got \"all\"",
        ),
    ] {
        assert_refused(
            &with_first_line(line),
            &format!("config: line 1: {message}"),
        );
    }
}

fn assert_first_line_refused(line: &str, message: &str) {
    assert_refused(
        &with_first_line(line),
        &format!("config: line 1: {message}"),
    );
}

#[test]
fn wrong_size_or_count_is_refused_with_line_and_path() {
    for (line, message) in [
        (
            "limits: { head_bytes: 64KB }",
            "limits.head_bytes: expected a size such as 64KiB",
        ),
        (
            "limits: { head_bytes: 4095 }",
            "limits.head_bytes: expected 4KiB to 1MiB, got 4095",
        ),
        (
            "limits: { head_bytes: 2MiB }",
            "limits.head_bytes: expected 4KiB to 1MiB, got 2MiB",
        ),
        (
            "limits: { head_bytes: 2048KiB }",
            "limits.head_bytes: expected 4KiB to 1MiB, got 2048KiB",
        ),
        (
            "limits: { head_bytes: 2097152 }",
            "limits.head_bytes: expected 4KiB to 1MiB, got 2097152",
        ),
        (
            "limits: { head_bytes: 0000000000000000000000001KiB }",
            "limits.head_bytes: expected 4KiB to 1MiB, got a text of 28 bytes",
        ),
        (
            "limits: { window_bytes: 2048KiB, body_bytes: 65536 }",
            "limits.window_bytes: one window of 2048KiB is larger than the largest body: raise \
             body_bytes (65536)",
        ),
        (
            "limits: { window_bytes: 16MiB, body_bytes: 64KiB }",
            "limits.window_bytes: one window of 16MiB is larger than the largest body: raise \
             body_bytes (64KiB)",
        ),
        (
            "store: { max_bytes: 1023KiB }",
            "store.max_bytes: expected 1MiB to 1024GiB, got 1023KiB",
        ),
        (
            "limits: { head_fields: 1.5 }",
            "limits.head_fields: expected a whole number, got 1.5",
        ),
        (
            "limits: { head_fields: -1 }",
            "limits.head_fields: expected a whole number, got -1",
        ),
        (
            "limits: { connections: 0 }",
            "limits.connections: expected 1 to 1000000, got 0",
        ),
        (
            "limits: { window_bytes: .inf }",
            "limits.window_bytes: expected a size",
        ),
    ] {
        assert_first_line_refused(line, message);
    }
}

#[test]
fn wrong_duration_is_refused_as_it_was_written() {
    for (line, message) in [
        (
            "timeouts: { idle: 5 }",
            "timeouts.idle: expected a duration such as 60s",
        ),
        (
            "timeouts: { idle: 0s }",
            "timeouts.idle: expected 1ms to 24h, got 0s",
        ),
        (
            "timeouts: { idle: 25h }",
            "timeouts.idle: expected 1ms to 24h, got 25h",
        ),
        (
            "timeouts: { idle: 86400001ms }",
            "timeouts.idle: expected 1ms to 24h, got 86400001ms",
        ),
        (
            "timeouts: { idle: 30d }",
            "timeouts.idle: expected 1ms to 1d, got 30d",
        ),
        (
            "store: { retention: 4000d }",
            "store.retention: expected 1m to 3650d, got 4000d",
        ),
        (
            "store: { retention: 96000h }",
            "store.retention: expected 1m to 87600h, got 96000h",
        ),
        (
            "identity: { adoption_window: 45d }",
            "identity.adoption_window: expected 1m to 30d, got 45d",
        ),
        (
            "timeouts: { grace: 1d }",
            "timeouts.grace: 1d is longer than drain 15m: the end of the process would cut it",
        ),
        (
            "timeouts: { linger: 90000ms, drain: 60s }",
            "timeouts.linger: 90000ms is longer than drain 60s",
        ),
    ] {
        assert_first_line_refused(line, message);
    }
}

#[test]
fn wrong_provider_is_refused_with_line_and_path() {
    for (extra, message) in [
        (
            "keepalive_idle: x",
            "keepalive_idle: expected a duration such as 60s (units ms, s, m, h, d), got \"x\"",
        ),
        (
            "timeouts: { idle: 0s }",
            "timeouts.idle: expected 1ms to 24h",
        ),
        (
            "auth: managed",
            "auth: `managed` needs a credential: give secret_env or secret_file",
        ),
        (
            "auth: own",
            "auth: expected managed or passthrough or none, got \"own\"",
        ),
        (
            "auth_scheme: basic",
            "auth_scheme: expected bearer or api_key",
        ),
        (
            "auth_header: Host",
            "auth_header: this header is written or removed by the gateway",
        ),
        (
            "auth_header: content-type",
            "auth_header: this header is written or removed",
        ),
        (
            "auth_header: \"a b\"",
            "auth_header: expected a header name",
        ),
        ("auth_header: \"\"", "auth_header: expected a header name"),
        (
            "anthropic_version: \"2023-06-01\"",
            "anthropic_version: only for `dialect: anthropic`",
        ),
        (
            "enabled: \"true\"",
            "enabled: expected true or false, got \"true\"",
        ),
        (
            "enabled: yes",
            "enabled: expected true or false, got \"yes\"",
        ),
        ("local: 1", "local: expected true or false, got 1"),
        (
            "secret_env: sk-hush-secret",
            "secret_env: expected the name of an environment variable",
        ),
        (
            "secret_env: hush_lower",
            "secret_env: expected the name of an environment variable",
        ),
        (
            "secret_env: TWO_LINES",
            "secret_env: the value of TWO_LINES: expected visible ASCII",
        ),
        (
            "secret_file: hush/absent",
            "secret_file: cannot read the file: ",
        ),
    ] {
        let expected = format!("config: line 5: providers[0].{message}");
        assert_refused(&with_provider_line(extra), &expected);
    }
}

#[test]
fn misspelt_key_is_one_failure_and_not_missing_too() {
    for (text, message) in [
        (
            "provider: [{ name: a }]",
            "config: line 1: provider: unknown key; did you mean `providers`?",
        ),
        (
            "providers:\n  - { nam: a, dialect: openai, base_url: \"http://h\" }",
            "config: line 2: providers[0].nam: unknown key; did you mean `name`?",
        ),
    ] {
        assert_eq!(refused(text), message);
    }
}

/// A default stands in its place, which nobody wrote.
#[test]
fn what_was_refused_is_not_compared() {
    let provider = "providers: [{ name: a, dialect: openai, base_url: \"http://h\" }]";
    for (text, message) in [
        (
            "timeouts: { drain: 30d, linger: 20m }",
            "timeouts.drain: expected 1ms to 1d, got 30d",
        ),
        (
            "timeouts: { drain: 1s, linger: [1, 2], grace: 1s }",
            "timeouts.linger: expected a duration such as 60s (units ms, s, m, h, d), got a list",
        ),
        (
            "limits: { window_bytes: 1KiB, body_bytes: 64KiB }",
            "limits.window_bytes: expected 16KiB to 16MiB, got 1KiB",
        ),
        (
            "limits: { memory_bytes: 1KiB, body_bytes: 1024GiB }",
            "limits.memory_bytes: expected 64KiB to 1024GiB, got 1KiB",
        ),
    ] {
        assert_eq!(
            refused(&format!("{text}\n{provider}")),
            format!("config: line 1: {message}")
        );
    }
}

#[test]
fn file_without_usable_providers_is_refused() {
    let disabled =
        "providers:\n  - { name: a, dialect: openai, base_url: \"http://h\", enabled: false }";
    for (text, message) in [
        ("", "providers: expected at least one provider, got none"),
        (
            "# nothing\n",
            "providers: expected at least one provider, got none",
        ),
        (
            "providers:\n",
            "providers: expected at least one provider, got none",
        ),
        (
            "providers: []",
            "config: line 1: providers: expected 1 to 1000 providers, got 0",
        ),
        (
            "providers: {}",
            "config: line 1: providers: expected a list, got a mapping",
        ),
        (
            "providers: [1]",
            "config: line 1: providers[0]: expected a mapping, got 1",
        ),
        (
            "providers:\n  -\n",
            "providers[0]: expected a mapping, got nothing",
        ),
        ("[]", "config: line 1: expected a mapping, got a list"),
        (
            disabled,
            "config: line 2: providers: expected at least one enabled provider",
        ),
    ] {
        assert_refused(text, message);
    }
}

#[test]
fn required_fields_of_a_provider_are_asked_for_and_checked() {
    for (fields, message) in [
        ("dialect: openai, base_url: \"http://h\"", "name: required"),
        ("name: a, base_url: \"http://h\"", "dialect: required"),
        ("name: a, dialect: openai", "base_url: required"),
        ("name: \" \"", "name: expected 1 to 64 bytes"),
        ("name: \"a\\nb\"", "name: expected 1 to 64 bytes"),
        ("name: 1", "name: expected a text, got 1; put it in quotes"),
        (
            "name: a, dialect: gemini",
            "dialect: expected openai or anthropic, got \"gemini\"",
        ),
        (
            "base_url: \"ftp://h\"",
            "base_url: expected an absolute URL such as https://api.openai.com",
        ),
        (
            "base_url: \"http://hush:x@h\"",
            "base_url: a URL with user or password",
        ),
        (
            "base_url: \"http://h/?k=hush\"",
            "base_url: a query (?) is refused",
        ),
        ("base_url: h", "base_url: expected an absolute URL"),
    ] {
        let text = format!("providers:\n  - {{ {fields} }}\n");
        assert_refused(&text, &format!("config: line 2: providers[0].{message}"));
    }
}

/// Two openai providers with the given rest of their fields, on lines 2 and 3.
fn pair(first: &str, second: &str) -> String {
    let provider =
        |rest: &str| format!("  - {{ dialect: openai, base_url: \"http://h\", {rest} }}\n");
    format!("providers:\n{}{}", provider(first), provider(second))
}

#[test]
fn names_differ_in_more_than_letter_case() {
    assert_refused(
        &pair("name: Main", "name: mAIN"),
        "config: line 3: providers[1].name: \"mAIN\" is the name of another provider, on line 2",
    );
}

#[test]
fn one_enabled_default_per_dialect() {
    assert_refused(
        &pair("name: a, default: true", "name: b, default: true"),
        "config: line 3: providers[1].default: a second default of dialect openai; the first is \
         providers[0].default",
    );
    let named = |config: &Config| {
        config
            .default_provider(ProviderDialect::OpenAi)
            .map(|provider| provider.name.clone())
    };
    let second_off = parse(&pair(
        "name: a, default: true",
        "name: b, default: true, enabled: false",
    ));
    assert_eq!(named(&second_off).as_deref(), Some("a"));
    assert_eq!(
        second_off.default_provider(ProviderDialect::Anthropic),
        None
    );
    assert_eq!(named(&parse(&pair("name: a", "name: b"))), None);
    assert_eq!(
        named(&parse(&pair("name: a", "name: b, enabled: false"))).as_deref(),
        Some("a")
    );
    let opted_out = parse(&pair("name: a, default: false", "name: b, enabled: false"));
    assert_eq!(named(&opted_out), None);
}

#[test]
fn open_listener_needs_authentication_none_written_down() {
    for address in [
        "0.0.0.0:80",
        "[::]:80",
        "192.0.2.1:80",
        "[::ffff:192.0.2.1]:80",
    ] {
        let line = format!("server: {{ listen: [\"127.0.0.1:1\", \"{address}\"] }}");
        assert_refused(&with_first_line(&line), "line 1: server.listen: ");
        assert_refused(&with_first_line(&line), "write `authentication: none`");
        parse(&format!("authentication: none\n{}", with_first_line(&line)));
    }
    for address in [
        "127.0.0.1:80",
        "127.9.9.9:80",
        "[::1]:80",
        "[::ffff:127.0.0.1]:80",
    ] {
        parse(&with_first_line(&format!(
            "server: {{ listen: [\"{address}\"] }}"
        )));
    }
}

#[test]
fn admin_is_off_unless_written_and_closed_to_other_machines_without_a_key() {
    assert_eq!(parse(&with_first_line("")).admin, None);
    assert_eq!(parse(&with_first_line("admin: null")).admin, None);
    let admin = parse(&with_first_line("admin: {}")).admin.unwrap();
    assert_eq!(admin.listen, "127.0.0.1:9901".parse().unwrap());
    assert!(admin.key.is_none());
    for (line, expected) in [
        (
            "admin: { listen: \"0.0.0.0:9901\" }",
            "admin.listen: 0.0.0.0:9901 can be reached",
        ),
        (
            "admin: { listen: \"[::]:9901\", key_env: null }",
            "admin.listen: [::]:9901 can be reached",
        ),
        (
            "admin: { listen: \"127.0.0.1:8080\" }",
            "admin.listen: 127.0.0.1:8080 is one of server.listen",
        ),
        (
            "admin: { listen: 9901 }",
            "admin.listen: expected an IP address and port",
        ),
        (
            "admin: { key_env: NOT_SET }",
            "admin.key_env: NOT_SET is unset or blank",
        ),
        (
            "admin: { key_env: hush }",
            "admin.key_env: expected the name of an environment variable",
        ),
        ("admin: { key: a }", "admin.key: unknown key"),
    ] {
        assert_refused(&with_first_line(line), expected);
    }
    let line = "admin: { listen: \"0.0.0.0:1\", key_env: \"OPENAI_API_KEY\" }";
    let config = parse(&with_first_line(line));
    assert!(config.admin.as_ref().unwrap().key.is_some());
    assert!(config.effective_yaml().contains(line));
    assert_eq!(parse(&config.effective_yaml()).admin, config.admin);
    let mapped = "admin: { listen: \"[::ffff:127.0.0.1]:1\" }";
    assert!(parse(&with_first_line(mapped)).admin.is_some());
}

#[test]
fn relations_between_limits_give_the_sum() {
    for (line, message) in [
        (
            "limits: { body_bytes: 128KiB }",
            "limits.window_bytes: one window of 256KiB is larger",
        ),
        (
            "limits: { memory_bytes: 4MiB, body_bytes: 1MiB, connections: 1 }",
            "limits.memory_bytes: 4MiB less 1 connections x 16KiB response buffer leaves 4080KiB; \
             half of that, 2040KiB, has to hold 16 windows x 256KiB = 4MiB, because a few slow \
             uploads must not use all of it: raise memory_bytes to at least 8208KiB, or lower",
        ),
        (
            "limits: { body_bytes: 256MiB }",
            "limits.memory_bytes: 512MiB less 10000 connections x 16KiB response buffer leaves \
             364288KiB; half of that, 182144KiB, has to hold the largest body 256MiB + one window \
             256KiB = 262400KiB, because a body whose model comes last must fit: raise \
             memory_bytes to at least 684800KiB, or lower",
        ),
        (
            "limits: { connections: 40000 }",
            "limits.memory_bytes: 512MiB less 40000 connections x 16KiB response buffer leaves 0;",
        ),
        (
            "timeouts: { drain: 1s }",
            "timeouts.linger: 2s is longer than drain 1s",
        ),
        (
            "timeouts: { drain: 5s, grace: 6s }",
            "timeouts.grace: 6s is longer than drain 5s",
        ),
    ] {
        assert_refused(
            &with_first_line(line),
            &format!("config: line 1: {message}"),
        );
    }
}

#[test]
fn named_smallest_memory_is_accepted_and_a_byte_less_is_not() {
    for limits in [
        "connections: 1",
        "connections: 100000",
        "connections: 3, body_bytes: 1MiB",
        "connections: 3, body_bytes: 1000001, window_bytes: 16KiB",
        "connections: 3, body_bytes: 4MiB",
    ] {
        let line = |memory: &str| {
            with_first_line(&format!("limits: {{ {limits}, memory_bytes: {memory} }}"))
        };
        let message = refused(&line("64KiB"));
        let (_, rest) = message
            .split_once("raise memory_bytes to at least ")
            .unwrap();
        let (smallest, _) = rest.split_once(',').unwrap();
        let config = parse(&line(smallest));
        let split = config.limits.memory();
        assert_eq!(split.requests, split.reservations, "{limits}");
        let less = config.limits.memory_bytes - 1;
        assert_refused(
            &line(&less.to_string()),
            &format!("raise memory_bytes to at least {smallest}, or"),
        );
    }
}

#[test]
fn effective_yaml_shows_how_memory_is_shared_out() {
    let shown = parse(&with_first_line("")).effective_yaml();
    let comment =
        "  memory_bytes: 512MiB\n  # responses 156MiB, requests 178MiB, reservations 178MiB\n";
    assert!(shown.contains(comment), "{shown}");
}

#[test]
fn all_failures_come_at_once_in_the_order_of_the_file() {
    let text = "limits: { head_fields: 0 }\ntimeouts: { idle: x }\nproviders:\n  - name: a\n    \
                dialect: gemini\n    base_url: ftp://h\n  - name: b\n    color: red\n";
    let error = config::parse(text, &env).unwrap_err();
    let found: Vec<_> = error
        .failures()
        .iter()
        .map(|it| (it.line.unwrap(), it.path.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            (1, "limits.head_fields"),
            (2, "timeouts.idle"),
            (5, "providers[0].dialect"),
            (6, "providers[0].base_url"),
            (7, "providers[1].dialect"),
            (7, "providers[1].base_url"),
            (8, "providers[1].color"),
        ]
    );
    assert_eq!(error.to_string().lines().count(), found.len());
}

#[test]
fn managed_names_the_missing_variable() {
    for name in ["NOT_SET", "BLANK"] {
        assert_refused(
            &with_provider_line(&format!("secret_env: {name}\n    auth: managed")),
            &format!(
                "line 6: providers[0].auth: `managed` needs a credential, but the environment \
                 variable {name} is unset or blank"
            ),
        );
    }
}

#[test]
fn secret_file_wins_and_loses_its_line_end() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("key"), "sk-from-file\r\n").unwrap();
    let path = folder.path().join("lanegate.yaml");
    let text = with_provider_line("secret_env: NOT_SET\n    secret_file: key");
    fs::write(&path, &text).unwrap();
    let config = config::load(&path).unwrap();
    let [provider] = config.providers.as_slice() else {
        panic!("{config:?}")
    };
    assert_eq!(provider.secret_from, SecretFrom::File);
    assert_eq!(provider.secret_file, Some(PathBuf::from("key")));
    let written = format!("{:?}", provider.auth);
    assert!(
        written.contains("set") && !written.contains("sk-from"),
        "{written}"
    );
    assert!(
        config
            .effective_yaml()
            .contains("# secret: set (from file)")
    );
    for (content, message) in [
        (
            "",
            "the file: expected a credential, got nothing but white space",
        ),
        ("sk hush\tsecret", "the file: expected visible ASCII"),
    ] {
        fs::write(folder.path().join("key"), content).unwrap();
        let error = config::load(&path).unwrap_err().to_string();
        assert!(
            error.contains(message) && error.contains("line 6"),
            "{error}"
        );
        assert!(!error.contains("hush"), "{error}");
    }
}

#[test]
fn file_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("absent.yaml");
    let error = config::load(&path).unwrap_err().to_string();
    assert!(
        error.starts_with("config: cannot read ") && error.contains("absent.yaml"),
        "{error}"
    );
    fs::write(&path, "#".repeat(config::FILE_BYTES_MAX + 1)).unwrap();
    let error = config::load(&path).unwrap_err().to_string();
    assert!(error.contains("more than 1048576 bytes"), "{error}");
}

#[test]
fn broken_yaml_is_refused_with_its_line_and_without_its_text() {
    for (text, line) in [
        ("a: [1\nb: hush", "line 2: "),
        ("limits: {}\n\thush: 1", "line 2: "),
        ("limits: {}\n---\nlimits: {}", "line 2: "),
        ("x: *hush", "line 1: "),
    ] {
        let message = refused(text);
        assert!(message.contains("not readable as YAML: "), "{message}");
        assert!(message.contains(line), "{message}");
        assert!(!message.contains("hush"), "{message}");
    }
    let error = config::parse_bytes(b"limits: {}\n\n\xff")
        .unwrap_err()
        .to_string();
    assert_eq!(error, "config: line 3: not readable as UTF-8");
}

#[test]
fn hostile_files_end_in_an_error() {
    let bombs = [
        "[".repeat(100_000),
        "{a: ".repeat(100_000),
        "- ".repeat(100_000),
        format!(
            "a: &a [x, x]\nb: &b [{0}]\nc: &c [{1}]\nd: &d [{2}]\ne: [{3}]\n",
            ["*a"; 50].join(", "),
            ["*b"; 50].join(", "),
            ["*c"; 50].join(", "),
            ["*d"; 50].join(", ")
        ),
        format!("x: [{}]", "1,".repeat(100_000)),
        "a: &a [*a]".to_owned(),
        "k: 1\n".repeat(19_000),
    ];
    for bomb in bombs {
        assert!(config::parse_bytes(bomb.as_bytes()).is_err());
    }
}

/// Every cut and every single-byte change of the effective file: no panic, and what is accepted
/// reads back the same.
#[test]
fn damaged_files_are_refused_or_mean_one_thing() {
    let whole = parse(&with_first_line("")).effective_yaml();
    let mut cases: Vec<Vec<u8>> = (0..whole.len())
        .map(|cut| whole.as_bytes()[..cut].to_vec())
        .collect();
    for at in 0..whole.len() {
        for byte in [b':', b'0', b'\n', b'"', b'-', 0xff] {
            let mut case = whole.clone().into_bytes();
            case[at] = byte;
            cases.push(case);
        }
    }
    let mut accepted = 0;
    for case in cases {
        if let Ok(config) = config::parse_bytes(&case) {
            let shown = config.effective_yaml();
            assert_eq!(
                config::parse_bytes(shown.as_bytes()).unwrap(),
                config,
                "{shown}"
            );
            accepted += 1;
        }
    }
    assert!(accepted > 100, "{accepted}");
}

#[test]
fn anchors_of_whole_values_work() {
    let config = parse(
        "providers:\n  - { name: a, dialect: openai, base_url: \"http://h\", timeouts: &t { idle: 1s } }\n  \
         - { name: b, dialect: anthropic, base_url: \"http://h\", timeouts: *t }\n",
    );
    assert!(
        config
            .providers
            .iter()
            .all(|it| it.timeouts.idle == Duration::from_secs(1))
    );
}

#[test]
fn effective_yaml_shows_no_secret_and_reads_back_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("cert"), folder.path().join("key"));
    let made = rcgen::generate_simple_self_signed(vec!["gw.test".to_owned()]).unwrap();
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let full = "authentication: clients\nclients: [{ name: c.1, key_sha256: DIGEST, workspace_markers: [go.mod], \
                limits: { concurrency: 2, requests_per_minute: 60 } }]\nserver: { listen: [\"[::]:0\"], workers: 2, driver: io_uring, \
                tls: { certificate: CERTIFICATE, key: KEY } }\n\
                limits: { body_bytes: 33554433 }\ntimeouts: { linger: 1500ms }\n\
                plugins: { features: [{ id: session-classification, enabled: true, \
                config: { mode: hybrid, heuristic: { ignored_user_agent_prefixes: [x] }, \
                remote: { provider: jev, api_key_env: OPENAI_API_KEY, timeout: 750ms, max_attempts_per_session: 1, \
                lease_ttl: 2s, retry_backoff: 0s, positive_threshold: 0.9 } } }] }\nproviders:\n  \
                - { name: \"a\\\"\\\\ é\", dialect: openai, base_url: \"http://h/p\", secret_env: OPENAI_API_KEY, auth: managed }\n  \
                - { name: b, dialect: anthropic, base_url: \"https://[::1]\", ca_file: CERTIFICATE, secret_env: NOT_SET, auth: none }\n  \
                - { name: c, dialect: openai, base_url: \"http://h\", auth: passthrough, default: true, enabled: false }\n  \
                - { name: d, dialect: anthropic, base_url: \"http://h\", secret_env: ANTHROPIC_API_KEY, auth_header: x-key, \
                models: [{ from: \"*\", to: \"é/{model}\" }, { from: \"1\", to: \"null\" }], list: [\"a b\", \"'\\\"\"] }\n";
    let full = full
        .replace("DIGEST", &format!("\"{}\"", "ab".repeat(32)))
        .replace("CERTIFICATE", certificate.to_str().unwrap())
        .replace("KEY }", &format!("{} }}", key.display()));
    let config = parse(&full);
    let shown = config.effective_yaml();
    assert!(!shown.contains("hush"), "{shown}");
    assert!(
        shown.contains("# secret: set (from env OPENAI_API_KEY)"),
        "{shown}"
    );
    assert!(shown.contains("# secret: unset"), "{shown}");
    assert!(shown.contains("# sent: ApiKey"), "{shown}");
    assert_eq!(parse(&shown), config, "{shown}");
    for path in config::key_paths() {
        let key = path.rsplit('.').next().unwrap();
        assert!(
            shown.contains(&format!("{key}:")),
            "{path} is missing in\n{shown}"
        );
    }
}

#[test]
fn builtin_serves_both_dialects_from_one_address() {
    let (listen, mock) = (
        "127.0.0.1:0".parse().unwrap(),
        "127.0.0.1:4000".parse().unwrap(),
    );
    let config = config::builtin(listen, mock);
    for dialect in [ProviderDialect::OpenAi, ProviderDialect::Anthropic] {
        let provider = config.default_provider(dialect).unwrap();
        assert_eq!(provider.base_url.to_string(), "http://127.0.0.1:4000");
        assert_eq!(describe_auth(&provider.auth, false).as_str(), "none");
        assert!(provider.local);
    }
    assert_eq!(config.server.listen, [listen]);
    assert_eq!(parse(&config.effective_yaml()).timeouts, config.timeouts);
}

#[test]
fn page_has_a_row_for_every_key() {
    for path in config::key_paths() {
        let row = format!("| `{path}` |");
        assert!(
            PAGE.contains(&row),
            "docs/configuration.md has no row {row}"
        );
    }
    let rows = PAGE.lines().filter(|line| line.starts_with("| `"));
    let known = config::key_paths();
    for row in rows {
        let path = row.split('`').nth(1).unwrap();
        assert!(
            known.iter().any(|key| key == path),
            "docs/configuration.md has a row for {path}"
        );
    }
}

#[test]
fn page_shows_only_examples_that_work() {
    let blocks: Vec<&str> = PAGE
        .split("```yaml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(blocks.len() >= 3, "{}", blocks.len());
    for block in blocks {
        parse(block);
    }
}

#[test]
fn page_gives_the_real_defaults() {
    let shown = parse(&with_first_line("")).effective_yaml();
    let effective: Vec<&str> = shown.lines().collect();
    for section in ["limits", "timeouts"] {
        for path in config::key_paths()
            .iter()
            .filter(|path| path.starts_with(&format!("{section}.")))
        {
            let key = path.rsplit('.').next().unwrap();
            let start = effective
                .iter()
                .position(|line| *line == format!("{section}:"))
                .unwrap();
            let value = effective[start..]
                .iter()
                .find_map(|it| it.trim().strip_prefix(&format!("{key}: ")));
            let row = PAGE
                .lines()
                .find(|line| line.starts_with(&format!("| `{path}` |")))
                .unwrap();
            let default = row.split('|').nth(3).unwrap().trim().trim_matches('`');
            assert_eq!(Some(default), value, "{path}");
        }
    }
}
