//! What holds for every configuration file, as a function that panics if it does not. The fuzz
//! target calls it with what the fuzzer makes up, `tests/corpus.rs` with the committed seeds.

use crate::config::Authentication;
use crate::config::Config;
use crate::config::ConfigError;
use crate::config::ProviderDialect;
use crate::config::parse_bytes;

/// A file is refused with places in it, or means one thing that can be shown and read again.
pub fn file(input: &[u8]) {
    match parse_bytes(input) {
        Ok(mut config) => {
            let shown = config.effective_yaml();
            // They name lines, and what is shown has others.
            config.warnings.clear();
            check_memory(&config);
            check_providers(&config);
            check_clients(&config);
            let again = parse_bytes(shown.as_bytes()).map(|mut again| {
                again.warnings.clear();
                again
            });
            assert_eq!(again, Ok(config), "{shown}");
        }
        Err(error) => check_error(&error, input),
    }
}

fn check_memory(config: &Config) {
    let limits = config.limits;
    let split = limits.memory();
    let parts = [split.responses, split.requests, split.reservations];
    let sum = parts.into_iter().sum::<u64>();
    assert_eq!(sum, limits.memory_bytes & !1);
    let window = u64::try_from(limits.window_bytes).unwrap_or(u64::MAX);
    assert!(limits.body_bytes.saturating_add(window) <= split.reservations);
    assert!(window <= limits.body_bytes && window <= split.requests / 16);
}

fn check_providers(config: &Config) {
    let providers = &config.providers;
    assert!(providers.iter().any(|provider| provider.enabled));
    for dialect in [ProviderDialect::OpenAi, ProviderDialect::Anthropic] {
        let defaults = providers
            .iter()
            .filter(|it| it.default && it.dialect == dialect);
        assert!(defaults.count() <= 1);
    }
    for provider in providers {
        for mapping in &provider.models {
            check_text(&mapping.from);
            check_text(&mapping.to);
            let star = mapping.from.find('*');
            assert!(star.is_none_or(|at| at + 1 == mapping.from.len()));
            let sent = mapping.to.replace("{model}", "m");
            assert!(!sent.contains(['*', '{', '}']), "{sent}");
        }
        for name in &provider.list {
            check_text(name);
            assert!(!name.contains('*'), "{name}");
        }
    }
}

fn check_clients(config: &Config) {
    let outside = "192.0.2.1:1".parse();
    let opens = outside.is_ok_and(|address| config.clone().listen_on(address).is_ok());
    let listen = &config.server.listen;
    let inside = listen.iter().all(|it| it.ip().to_canonical().is_loopback());
    assert!(inside || opens, "{listen:?}");
    let Authentication::Clients(clients) = &config.authentication else {
        return;
    };
    for (index, client) in clients.iter().enumerate() {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        assert!((1..=64).contains(&client.name.len()) && client.name.bytes().all(inner));
        for other in clients.iter().skip(index + 1) {
            assert!(!client.name.eq_ignore_ascii_case(&other.name));
            assert!(client.key != other.key);
        }
    }
}

fn check_text(text: &str) {
    assert!(!text.trim().is_empty() && text.len() <= 256, "{text:?}");
    assert!(!text.chars().any(char::is_control), "{text:?}");
}

fn check_error(error: &ConfigError, input: &[u8]) {
    assert!(!error.failures().is_empty());
    // Any of these ends a line in YAML 1.2 or in a terminal; a last line may be empty.
    let ends = input.iter().filter(|byte| matches!(byte, b'\n' | b'\r'));
    let lines = u64::try_from(ends.count()).unwrap_or(u64::MAX);
    for failure in error.failures() {
        let line = failure.line.unwrap_or(1);
        assert!((1..=lines.saturating_add(1)).contains(&line), "{failure}");
        assert!(!failure.what.is_empty());
    }
}
