//! The optional features, each an entry of `plugins.features`.
//!
//! What is written for a feature is checked whether it is enabled or not. Values are never shown: a credential
//! may stand where the name of a variable belongs.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::auth::Authority;
use crate::classify::{
    AGENT_PREFIXES_MAX, IgnoredPrefix, LEASE_MARGIN, Mode, Policy, RemotePolicy, Threshold,
};
use crate::config::file::{Node, Value};
use crate::config::read::{self, Reader, Section};
use crate::config::resolve::Sources;
use crate::config::schema::{
    FEATURE, FEATURE_AGENT, FEATURE_HEURISTIC, FEATURE_REMOTE, FEATURE_SESSION, IDENTITY, PLUGINS,
};
use crate::config::{BaseUrl, Store, StoreUrl};
use crate::limits::REMOTE_ATTEMPTS_MAX;

/// The longest attempt at the remote service; a request of the fleet's own waits for none of it.
const TIMEOUT_MAX: Duration = Duration::from_secs(30);
const LEASE_MAX: Duration = Duration::from_mins(2);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Bytes of the file of the key, which has 32 or more.
const KEY_FILE_BYTES_MAX: usize = 4096;
/// Bytes of the name of a variable.
const VARIABLE_BYTES_MAX: usize = 128;
/// Bytes of an endpoint.
const ENDPOINT_BYTES_MAX: usize = 256;

/// The features that are written, enabled or not, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plugins {
    /// Each id at most once.
    pub features: Vec<Feature>,
}

/// An entry of `plugins.features`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Whether it is there at all.
    pub enabled: bool,
    /// Which one, and how.
    pub config: FeatureConfig,
}

/// What a feature can be set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeatureConfig {
    /// Whether sessions are those of coding agents.
    SessionClassification(SessionClassification),
    /// Which agent an exchange comes from; has no keys.
    AgentFamily,
}

/// The feature `session-classification`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionClassification {
    /// What is made of evidence.
    pub policy: Policy,
    /// Where tests have the remote service, in place of its own address.
    pub endpoint: Option<BaseUrl>,
}

/// The key that what the gateway issues is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityKey {
    /// The file, as written.
    pub file: PathBuf,
    /// What was read from it.
    pub authority: Authority,
}

impl FeatureConfig {
    /// Its id in the file.
    #[must_use]
    pub const fn id(&self) -> &'static str {
        match self {
            Self::SessionClassification(_) => "session-classification",
            Self::AgentFamily => "agent-family",
        }
    }
}

impl Plugins {
    /// The feature `session-classification`, if it is enabled.
    #[must_use]
    pub fn session_classification(&self) -> Option<&SessionClassification> {
        self.enabled().find_map(|config| match config {
            FeatureConfig::SessionClassification(session) => Some(session),
            FeatureConfig::AgentFamily => None,
        })
    }

    /// Whether the feature `agent-family` is enabled.
    #[must_use]
    pub fn agent_family(&self) -> bool {
        self.enabled().any(|it| *it == FeatureConfig::AgentFamily)
    }

    fn enabled(&self) -> impl Iterator<Item = &FeatureConfig> {
        let enabled = self.features.iter().filter(|feature| feature.enabled);
        enabled.map(|feature| &feature.config)
    }
}

/// The key of `identity.authority_key_file`.
pub(super) fn authority(
    reader: &mut Reader,
    root: &Section<'_>,
    sources: &Sources<'_>,
) -> Option<AuthorityKey> {
    // The section was opened and judged with the other keys of it.
    let section = Reader::default().subsection(root, "identity", &IDENTITY);
    reader.take(&section, "authority_key_file", |value| {
        let file = PathBuf::from(read::text(value)?);
        let bytes = (sources.file)(&file, KEY_FILE_BYTES_MAX)
            .map_err(|error| format!("cannot read the file: {error}"))?;
        let authority =
            Authority::new(bytes.trim_ascii_end()).map_err(|error| format!("the file: {error}"))?;
        Ok(AuthorityKey { file, authority })
    })
}

pub(super) fn plugins(
    reader: &mut Reader,
    root: &Section<'_>,
    (store, authority): (&Store, Option<&AuthorityKey>),
    sources: &Sources<'_>,
) -> Plugins {
    let section = reader.subsection(root, "plugins", &PLUGINS);
    let mut features = Vec::new();
    let mut first_lines = BTreeMap::new();
    for (path, node) in reader.list(&section, "features").unwrap_or_default() {
        let section = reader.section(node, path, &FEATURE);
        let Some(feature) = feature(reader, &section, sources) else {
            continue;
        };
        let line = section.line_of(&["id"]);
        if let Some(first) = first_lines.insert(feature.config.id(), line) {
            let first = first.unwrap_or_default();
            let what = format!("a second entry of this feature, first on line {first}");
            reader.fail(line, section.path_of("id"), what);
        }
        if let (true, FeatureConfig::SessionClassification(_)) = (feature.enabled, &feature.config)
            && let Err(what) = can_keep(store, authority)
        {
            reader.fail(line, section.path_of("id"), what);
        }
        features.push(feature);
    }
    Plugins { features }
}

/// What is known of sessions is kept with the ledger; a key that outlives the process needs a file.
fn can_keep(store: &Store, authority: Option<&AuthorityKey>) -> Result<(), &'static str> {
    match store.url {
        StoreUrl::None => Err("needs a store, but store.url is none"),
        StoreUrl::Memory => Ok(()),
        StoreUrl::Sqlite(_) | StoreUrl::Postgres(_) if authority.is_some() => Ok(()),
        StoreUrl::Sqlite(_) | StoreUrl::Postgres(_) => Err(
            "what is stored can only be found again with a key of its own: identity.authority_key_file is \
             required with this store.url",
        ),
    }
}

fn feature(reader: &mut Reader, section: &Section<'_>, sources: &Sources<'_>) -> Option<Feature> {
    let ids = [("session-classification", true), ("agent-family", false)];
    let session = reader.require(
        section,
        "id",
        quiet(
            read::word(&ids),
            "one of the ids of features: session-classification, agent-family",
        ),
    );
    let enabled = reader.require(section, "enabled", quiet(read::boolean, "true or false"));
    let config = if session? {
        let keys = reader.subsection(section, "config", &FEATURE_SESSION);
        let session = session_classification(reader, &keys, (enabled == Some(true), sources))?;
        FeatureConfig::SessionClassification(session)
    } else {
        reader.subsection(section, "config", &FEATURE_AGENT);
        FeatureConfig::AgentFamily
    };
    Some(Feature {
        enabled: enabled?,
        config,
    })
}

/// The same reading, with a failure that says what was expected and not what came.
fn quiet<T>(
    read: impl FnOnce(&Value) -> Result<T, String>,
    expected: &str,
) -> impl FnOnce(&Value) -> Result<T, String> {
    move |value| read(value).map_err(|_| format!("expected {expected}"))
}

fn session_classification(
    reader: &mut Reader,
    section: &Section<'_>,
    (enabled, sources): (bool, &Sources<'_>),
) -> Option<SessionClassification> {
    let mode = match section.get("mode") {
        Some(_) => reader.take(section, "mode", mode)?,
        None => Mode::default(),
    };
    let heuristic = reader.subsection(section, "heuristic", &FEATURE_HEURISTIC);
    let ignored = prefixes(reader, &heuristic);
    let written = section.get("remote").is_some();
    let (path, line) = (section.path_of("remote"), section.line_of(&["remote"]));
    let remote = match (mode, written) {
        (Mode::Heuristic, false) => None,
        (Mode::Heuristic, true) => {
            reader.fail(
                line,
                path,
                "the mode heuristic asks nobody: take this out, or change the mode",
            );
            return None;
        }
        (Mode::Jev | Mode::Hybrid, false) => {
            reader.fail(
                line,
                path,
                "required in the modes jev and hybrid, but not given",
            );
            return None;
        }
        (Mode::Jev | Mode::Hybrid, true) => {
            let section = reader.subsection(section, "remote", &FEATURE_REMOTE);
            Some(remote(reader, &section, (enabled, sources))?)
        }
    };
    let (remote, endpoint) = remote.unzip();
    Some(SessionClassification {
        policy: Policy {
            mode,
            ignored,
            remote,
        },
        endpoint: endpoint.flatten(),
    })
}

fn mode(value: &Value) -> Result<Mode, String> {
    let expected = || "expected heuristic, jev or hybrid".to_owned();
    let Value::Text(text) = value else {
        return Err(expected());
    };
    let text = text.trim();
    if text.is_empty() {
        return Ok(Mode::default());
    }
    let known = Mode::ALL.into_iter().find(|mode| mode.as_str() == text);
    known.ok_or_else(expected)
}

fn prefixes(reader: &mut Reader, section: &Section<'_>) -> Vec<IgnoredPrefix> {
    const KEY: &str = "ignored_user_agent_prefixes";
    let items = reader.list(section, KEY).unwrap_or_default();
    if items.len() > AGENT_PREFIXES_MAX {
        let what = format!(
            "expected at most {AGENT_PREFIXES_MAX} prefixes, got {}",
            items.len()
        );
        reader.fail(section.line_of(&[KEY]), section.path_of(KEY), what);
        return Vec::new();
    }
    let mut prefixes: Vec<IgnoredPrefix> = Vec::new();
    for (path, node) in items {
        match prefix(node) {
            Ok(prefix) if prefixes.contains(&prefix) => {}
            Ok(prefix) => prefixes.push(prefix),
            Err(what) => reader.fail(Some(node.line), path, what),
        }
    }
    prefixes
}

fn prefix(node: &Node) -> Result<IgnoredPrefix, String> {
    match &node.value {
        Value::Text(text) => IgnoredPrefix::new(text).map_err(|error| error.to_string()),
        _ => Err("expected a text; put it in quotes".to_owned()),
    }
}

fn remote(
    reader: &mut Reader,
    section: &Section<'_>,
    (enabled, sources): (bool, &Sources<'_>),
) -> Option<(RemotePolicy, Option<BaseUrl>)> {
    reader.require(
        section,
        "provider",
        quiet(read::word(&[("jev", ())]), "jev"),
    );
    let api_key_env = reader.require(section, "api_key_env", |value| {
        variable(value, enabled, sources)
    });
    let mut time = |key, low: Duration, high: Duration, expected: &str| {
        let expected = format!("a duration {expected}");
        reader.require(section, key, |value| {
            quiet(read::duration(low..=high), &expected)(value)
        })
    };
    let least = Duration::from_millis(1);
    let timeout = time("timeout", least, TIMEOUT_MAX, "of 1ms to 30s");
    let lease = time("lease_ttl", least, LEASE_MAX, "of at most 2m");
    let backoff = time("retry_backoff", Duration::ZERO, BACKOFF_MAX, "of 0s to 30s");
    let attempts = quiet(
        read::count(1..=u64::from(REMOTE_ATTEMPTS_MAX)),
        "a whole number from 1 to 5",
    );
    let attempts = reader.require(section, "max_attempts_per_session", attempts);
    let threshold = reader.require(section, "positive_threshold", threshold);
    let endpoint = reader.take(section, "endpoint", endpoint);
    let (timeout, lease) = (timeout?, lease?);
    if lease <= timeout + LEASE_MARGIN {
        let what = "has to be more than 100ms longer than timeout, so that no lease ends before its attempt";
        let line = section.line_of(&["lease_ttl"]);
        reader.fail(line, section.path_of("lease_ttl"), what);
        return None;
    }
    let policy = RemotePolicy {
        api_key_env: api_key_env?.into(),
        timeout,
        attempts_max: u32::try_from(attempts?).ok()?,
        lease,
        backoff: backoff?,
        threshold: threshold?,
    };
    Some((policy, endpoint))
}

/// The name of a variable, which has a value where the feature is enabled.
fn variable(value: &Value, enabled: bool, sources: &Sources<'_>) -> Result<String, String> {
    let is_name = |text: &str| {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        (1..=VARIABLE_BYTES_MAX).contains(&text.len())
            && text.bytes().all(inner)
            && !text.starts_with(|first: char| first.is_ascii_digit())
    };
    match value {
        Value::Text(text) if is_name(text) => {
            if enabled && sources.variable(text).is_none() {
                return Err("the environment variable of this name is unset or blank".to_owned());
            }
            Ok(text.clone())
        }
        _ => Err(format!(
            "expected the name of an environment variable: up to {VARIABLE_BYTES_MAX} letters, digits and `_`, no \
             digit first (what came is not shown)"
        )),
    }
}

fn threshold(value: &Value) -> Result<Threshold, String> {
    let number = match value {
        Value::Natural(1) => Some(1.0),
        Value::OtherNumber(number) => Some(*number),
        _ => None,
    };
    let threshold = number.and_then(Threshold::new);
    threshold.ok_or_else(|| "expected a number above 0 and at most 1".to_owned())
}

/// Only for tests: elsewhere the service is where it is, and nothing is sent to another.
fn endpoint(value: &Value) -> Result<BaseUrl, String> {
    let expected = || {
        format!(
            "expected http:// and a loopback address with port and path, at most {ENDPOINT_BYTES_MAX} bytes (what \
             came is not shown)"
        )
    };
    let Value::Text(text) = value else {
        return Err(expected());
    };
    if text.len() > ENDPOINT_BYTES_MAX {
        return Err(expected());
    }
    let url = BaseUrl::parse(text).map_err(|_| expected())?;
    let is_here = url.host.parse::<IpAddr>().is_ok_and(|it| it.is_loopback());
    (is_here && !url.tls).then_some(url).ok_or_else(expected)
}
