//! The providers as meant: each on its own, then what holds between them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::auth::HeaderName;
use crate::auth::Mode;
use crate::auth::ProviderAuth;
use crate::auth::Scheme;
use crate::auth::Secret;
use crate::config::base_url::BaseUrl;
use crate::config::conventional;
use crate::config::file::{Node, Value};
use crate::config::models;
use crate::config::read::{self, Reader, Section};
use crate::config::resolve::{Sources, wait_range};
use crate::config::schema::{PROVIDER, PROVIDER_TIMEOUTS};
use crate::config::usage;
use crate::config::{
    Provider, ProviderDialect, ProviderTimeouts, SecretFrom, SessionForwarding, Timeouts,
};
use crate::tls::{Authorities, Client};

/// Bytes of a credential file. Chosen: a credential has to fit a header many times over.
const SECRET_BYTES_MAX: usize = 16 * 1024;
/// Providers in a file. Chosen: names are compared pairwise with nothing faster than a map.
const PROVIDERS_MAX: usize = 1000;
/// Bytes of a provider's name and of an `anthropic-version`.
const NAME_BYTES_MAX: usize = 64;
/// Bytes of the name of an environment variable.
const VARIABLE_BYTES_MAX: usize = 128;
/// Plaintext servers are mostly local ones, whose defaults close after 5 s (Node's `http`, uvicorn);
/// a connection is given up before its server does.
pub(super) const KEEPALIVE_IDLE_PLAIN: Duration = Duration::from_secs(4);
/// See [`Provider::connections`].
pub(super) const CONNECTIONS: usize = 4096;
/// See [`Provider::waiting`].
pub(super) const WAITING: usize = 1024;
/// Public API endpoints keep connections for more than a minute.
const KEEPALIVE_IDLE_TLS: Duration = Duration::from_secs(60);

pub(super) fn all(
    reader: &mut Reader,
    root: &Section<'_>,
    timeouts: Timeouts,
    sources: &Sources<'_>,
) -> Vec<Provider> {
    let Some(items) = reader.list(root, "providers") else {
        if root.is_missing("providers") {
            reader.fail(
                root.line,
                "providers".into(),
                "expected at least one provider, got none",
            );
        }
        return Vec::new();
    };
    if items.is_empty() || items.len() > PROVIDERS_MAX {
        let what = format!(
            "expected 1 to {PROVIDERS_MAX} providers, got {}",
            items.len()
        );
        reader.fail(root.line_of(&["providers"]), "providers".into(), what);
        return Vec::new();
    }
    let count = items.len();
    let mut read = Vec::new();
    for (path, node) in items {
        let section = reader.section(node, path, &PROVIDER);
        if let Some(provider) = one(reader, &section, node, timeouts, sources) {
            read.push((section, provider));
        }
    }
    check_names(reader, &read);
    choose_defaults(reader, &mut read);
    let any_enabled = read.iter().any(|(_, provider)| provider.enabled);
    if read.len() == count && !any_enabled {
        let line = root.line_of(&["providers"]);
        reader.fail(
            line,
            "providers".into(),
            "expected at least one enabled provider",
        );
    }
    read.into_iter().map(|(_, provider)| provider).collect()
}

/// `None`: what is required is missing or wrong, which is noted.
fn one(
    reader: &mut Reader,
    section: &Section<'_>,
    node: &Node,
    timeouts: Timeouts,
    sources: &Sources<'_>,
) -> Option<Provider> {
    match node.value {
        Value::Map(_) => {}
        // An item without content is no section with defaults.
        Value::Null => {
            reader.fail(
                section.line,
                section.path(),
                "expected a mapping, got nothing",
            );
            return None;
        }
        _ => return None,
    }
    let name = reader.require(section, "name", read::line(NAME_BYTES_MAX));
    let dialects = [
        ("openai", ProviderDialect::OpenAi),
        ("anthropic", ProviderDialect::Anthropic),
    ];
    let dialect = reader.require(section, "dialect", read::word(&dialects));
    let base_url = reader.require(section, "base_url", |value| {
        BaseUrl::parse(read::text(value)?).map_err(|error| error.to_string())
    });
    let (ca_file, tls) = tls(reader, section, base_url.as_ref(), sources);
    let mut credential = credential(reader, section, sources);
    let anthropic_version = reader.take(section, "anthropic_version", version);
    let local = reader.take(section, "local", read::boolean);
    let keepalive_idle = reader.take(section, "keepalive_idle", read::duration(wait_range()));
    let mut most = |key| {
        let value = reader.take(section, key, read::count(1..=1_000_000));
        value.and_then(|value| usize::try_from(value).ok())
    };
    let (connections, waiting) = (most("connections"), most("waiting"));
    let usage = usage::mode(reader, section, dialect);
    let timeouts = own_timeouts(reader, section, timeouts);
    let models = models::mappings(reader, section);
    let list = models::list(reader, section);
    let named = name.as_deref().unwrap_or_default();
    let (default, enabled, forwarding) = flags(reader, section, (named, sources));
    let auth = auth(reader, section, (named, dialect, sources), &mut credential);
    let (name, dialect, base_url) = (name?, dialect?, base_url?);
    judge_versions(
        reader,
        section,
        (dialect, &base_url, anthropic_version.is_some()),
    );
    Some(Provider {
        name,
        dialect,
        auth,
        secret_env: credential.env,
        secret_file: credential.file,
        secret_from: credential.from,
        anthropic_version,
        default: default.unwrap_or_default(),
        enabled: enabled.unwrap_or(true),
        local: local.unwrap_or_else(|| base_url.is_loopback()),
        keepalive_idle: keepalive_idle.unwrap_or_else(|| default_idle(&base_url)),
        connections: connections.unwrap_or(CONNECTIONS),
        waiting: waiting.unwrap_or(WAITING),
        session_forwarding: forwarding,
        usage,
        timeouts,
        base_url,
        ca_file,
        tls,
        models,
        list,
    })
}

fn default_idle(base_url: &BaseUrl) -> Duration {
    if base_url.tls {
        KEEPALIVE_IDLE_TLS
    } else {
        KEEPALIVE_IDLE_PLAIN
    }
}

/// Versions where they do not belong.
fn judge_versions(
    reader: &mut Reader,
    section: &Section<'_>,
    (dialect, base_url, has_version): (ProviderDialect, &BaseUrl, bool),
) {
    if base_url.prefix.ends_with("/v1") {
        // As SDKs want it, whose paths begin after the version. A provider may be behind such a path all the same.
        let what = "ends in /v1, which the path of a request has already: the provider is asked for /v1/v1/...";
        reader.note(section, "base_url", what);
    }
    if has_version && dialect != ProviderDialect::Anthropic {
        let line = section.line_of(&["anthropic_version"]);
        let what = "only for `dialect: anthropic`";
        reader.fail(line, section.path_of("anthropic_version"), what);
    }
}

/// `default`, `enabled` and `session_forwarding`: from the variables of the provider, else from the file.
fn flags(
    reader: &mut Reader,
    section: &Section<'_>,
    (name, sources): (&str, &Sources<'_>),
) -> (Option<bool>, Option<bool>, SessionForwarding) {
    let forwarding = session_forwarding(reader, section, (name, sources));
    let [default, enabled] =
        [("default", "_IS_DEFAULT"), ("enabled", "_ENABLED")].map(|(key, suffix)| {
            let written = reader.take(section, key, read::boolean);
            let variable = (name, suffix, section.path_of(key));
            conventional::flag(reader, sources, variable, written)
        });
    (default, enabled, forwarding)
}

/// From the variable of the provider, else from the file.
fn session_forwarding(
    reader: &mut Reader,
    section: &Section<'_>,
    (name, sources): (&str, &Sources<'_>),
) -> SessionForwarding {
    let words = [
        ("none", SessionForwarding::None),
        ("opencode-go", SessionForwarding::OpencodeGo),
        ("opencode_go", SessionForwarding::OpencodeGo),
        ("opencodego", SessionForwarding::OpencodeGo),
    ];
    let written = reader.take(section, "session_forwarding", read::word(&words));
    let variable = conventional::variable(name, "_SESSION_FORWARDING", sources);
    let Some((name, text)) = variable else {
        return written.unwrap_or_default();
    };
    let found = read::word(&words)(&Value::Text(text.trim().to_owned()));
    found.unwrap_or_else(|_| {
        let key = section.path_of("session_forwarding");
        reader.warn(&name, "none nor opencode-go", &key);
        written.unwrap_or_default()
    })
}

/// Its own bounds on waiting, or those of all.
fn own_timeouts(reader: &mut Reader, section: &Section<'_>, all: Timeouts) -> ProviderTimeouts {
    let waits = reader.subsection(section, "timeouts", &PROVIDER_TIMEOUTS);
    let mut wait = |key, all| {
        reader
            .take(&waits, key, read::duration(wait_range()))
            .unwrap_or(all)
    };
    ProviderTimeouts {
        connect: wait("connect", all.connect),
        handshake: wait("handshake", all.handshake),
        first_byte: wait("first_byte", all.first_byte),
        idle: wait("idle", all.idle),
        request_progress: wait("request_progress", all.request_progress),
        client_write: wait("client_write", all.client_write),
        connection_wait: wait("connection_wait", all.connection_wait),
    }
}

/// `ca_file` as written, and how an encrypted provider is spoken to.
fn tls(
    reader: &mut Reader,
    section: &Section<'_>,
    base_url: Option<&BaseUrl>,
    sources: &Sources<'_>,
) -> (Option<PathBuf>, Option<Client>) {
    let read = reader.take(section, "ca_file", |value| {
        let (path, text) = sources.pem(value)?;
        let authorities = Authorities::from_pem(&text).map_err(|error| error.to_string())?;
        Ok((path, authorities))
    });
    let (ca_file, authorities) = read.unzip();
    match base_url {
        Some(url) if url.tls => {
            let client = reader.take(section, "base_url", |_| {
                Client::new(&url.host, authorities.unwrap_or_default())
                    .map_err(|error| error.to_string())
            });
            (ca_file, client)
        }
        Some(_) if ca_file.is_some() => {
            let line = section.line_of(&["ca_file"]);
            let what = "only for a base_url that starts with https://";
            reader.fail(line, section.path_of("ca_file"), what);
            (ca_file, None)
        }
        _ => (ca_file, None),
    }
}

fn version(value: &Value) -> Result<String, String> {
    let text = read::text(value)?;
    let fits = (1..=NAME_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic());
    fits.then(|| text.to_owned()).ok_or_else(|| {
        format!(
            "expected a version such as \"2023-06-01\", got {}",
            value.shown()
        )
    })
}

/// The credential of one provider and where it was looked for.
struct Credential {
    env: Option<String>,
    file: Option<PathBuf>,
    secret: Option<Secret>,
    from: SecretFrom,
    /// Whether a failure was noted where it was looked for.
    failed: bool,
}

impl Credential {
    /// Looks in the variables that the provider's name suggests, if the file names no place.
    fn complete(
        &mut self,
        reader: &mut Reader,
        section: &Section<'_>,
        (name, scheme, sources): (&str, Scheme, &Sources<'_>),
    ) {
        if self.env.is_some() || self.file.is_some() {
            return;
        }
        let Some((variable, text)) = conventional::secret(name, scheme, sources) else {
            return;
        };
        match secret(&text) {
            Ok(secret) => {
                (self.secret, self.from) = (Some(secret), SecretFrom::Env);
                self.env = Some(variable);
            }
            Err(error) => {
                self.failed = true;
                let what = format!("the value of {variable}: {error}");
                reader.fail(section.line_of(&["auth"]), section.path_of("auth"), what);
            }
        }
    }
}

/// The file wins; a variable that is unset or blank counts as no credential.
fn credential(reader: &mut Reader, section: &Section<'_>, sources: &Sources<'_>) -> Credential {
    let failures_before = reader.failures.len();
    let env = reader.take(section, "secret_env", variable);
    let file = reader.take(section, "secret_file", |value| {
        read::text(value).map(PathBuf::from)
    });
    let from_file = file
        .as_deref()
        .and_then(|path| reader.take(section, "secret_file", |_| secret_of_file(path, sources)));
    let from_env = env.as_deref().filter(|_| file.is_none()).and_then(|name| {
        let text = sources.variable(name)?;
        reader.take(section, "secret_env", |_| {
            secret(&text).map_err(|error| format!("the value of {name}: {error}"))
        })
    });
    let (secret, from) = match (from_file, from_env) {
        (Some(secret), _) => (Some(secret), SecretFrom::File),
        (None, Some(secret)) => (Some(secret), SecretFrom::Env),
        (None, None) => (None, SecretFrom::Unset),
    };
    let failed = reader.failures.len() > failures_before;
    Credential {
        env,
        file,
        secret,
        from,
        failed,
    }
}

/// Only names in capitals (POSIX.1-2017 §8.1), so that a credential written here by mistake is
/// refused, and a name can be shown.
pub(super) fn variable(value: &Value) -> Result<String, String> {
    let text = read::text(value)?;
    let fits = (1..=VARIABLE_BYTES_MAX).contains(&text.len())
        && !text.starts_with(|first: char| first.is_ascii_digit())
        && text
            .bytes()
            .all(|byte| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'_'));
    fits.then(|| text.to_owned()).ok_or_else(|| {
        "expected the name of an environment variable in capitals such as OPENAI_API_KEY \
         (what came is not shown)"
            .into()
    })
}

fn secret_of_file(path: &Path, sources: &Sources<'_>) -> Result<Secret, String> {
    let bytes = (sources.file)(path, SECRET_BYTES_MAX)
        .map_err(|error| format!("cannot read the file: {error}"))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        format!(
            "the file is no text at offset {}",
            error.utf8_error().valid_up_to()
        )
    })?;
    secret(&text).map_err(|error| format!("the file: {error}"))
}

/// Line ends at the end are what editors and `echo` leave there.
pub(super) fn secret(text: &str) -> Result<Secret, String> {
    Secret::new(text.trim_end_matches(['\r', '\n'])).map_err(|error| error.to_string())
}

fn auth(
    reader: &mut Reader,
    section: &Section<'_>,
    (name, dialect, sources): (&str, Option<ProviderDialect>, &Sources<'_>),
    credential: &mut Credential,
) -> ProviderAuth {
    let modes = [
        ("managed", Mode::Managed),
        ("passthrough", Mode::Passthrough),
        ("none", Mode::None),
    ];
    let mode = reader
        .take(section, "auth", read::word(&modes))
        .unwrap_or(Mode::Unset);
    let schemes = [
        ("bearer", Scheme::Bearer),
        ("api_key", Scheme::ApiKey),
        ("api-key", Scheme::ApiKey),
        ("ApiKey", Scheme::ApiKey),
    ];
    let scheme = reader.take(section, "auth_scheme", read::word(&schemes));
    let by_dialect = match dialect {
        Some(ProviderDialect::Anthropic) => Scheme::ApiKey,
        Some(ProviderDialect::OpenAi) | None => Scheme::Bearer,
    };
    let header = reader.take(section, "auth_header", |value| {
        HeaderName::new(read::text(value)?).map_err(|error| error.to_string())
    });
    let scheme = scheme.unwrap_or(by_dialect);
    if mode == Mode::Managed {
        credential.complete(reader, section, (name, scheme, sources));
    }
    if mode == Mode::Managed && credential.secret.is_none() && !credential.failed {
        let what = match &credential.env {
            Some(name) => format!(
                "`managed` needs a credential, but the environment variable {name} is unset \
                 or blank"
            ),
            None => "`managed` needs a credential: give secret_env or secret_file".to_owned(),
        };
        reader.fail(section.line_of(&["auth"]), section.path_of("auth"), what);
    }
    if let (Mode::Unset, None, Some(name)) = (mode, &credential.secret, &credential.env)
        && !credential.failed
    {
        let what = format!(
            "the environment variable {name} is unset or blank: the credentials of clients are passed on. \
             `auth: passthrough` says that this is meant, `auth: managed` that it is not"
        );
        reader.note(section, "secret_env", &what);
    }
    ProviderAuth::new(mode, credential.secret.clone(), scheme, header)
}

fn check_names(reader: &mut Reader, read: &[(Section<'_>, Provider)]) {
    let mut lines = BTreeMap::new();
    for (section, provider) in read {
        let line = section.line_of(&["name"]);
        if let Some(first) = lines.insert(provider.name.to_lowercase(), line).flatten() {
            let what = format!(
                "{:?} is the name of another provider, on line {first} (letter case does not count)",
                provider.name
            );
            reader.fail(line, section.path_of("name"), what);
        }
    }
}

/// At most one per dialect among the enabled; an only one is it unless it says otherwise.
fn choose_defaults(reader: &mut Reader, read: &mut [(Section<'_>, Provider)]) {
    for (_, provider) in read.iter_mut() {
        provider.default &= provider.enabled;
    }
    for dialect in [ProviderDialect::OpenAi, ProviderDialect::Anthropic] {
        let mut enabled: Vec<_> = read
            .iter_mut()
            .filter(|(_, provider)| provider.enabled && provider.dialect == dialect)
            .collect();
        if let [(section, provider)] = enabled.as_mut_slice() {
            provider.default |= section.get("default").is_none();
        }
        let mut defaults = enabled.iter().filter(|(_, provider)| provider.default);
        let Some((first, _)) = defaults.next() else {
            continue;
        };
        for (section, _) in defaults {
            let what = format!(
                "a second default of dialect {}; the first is {}",
                dialect.as_str(),
                first.path_of("default")
            );
            reader.fail(
                section.line_of(&["default"]),
                section.path_of("default"),
                what,
            );
        }
    }
}
