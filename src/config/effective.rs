//! A resolved configuration as YAML: every key with its effective value, no credential.
//!
//! What is printed reads back as the same configuration, so that it can be compared and kept.

use std::fmt::{self, Write};
use std::num::NonZeroU32;
use std::path::PathBuf;

use crate::auth::ClientLimits;
use crate::auth::Mode;
use crate::auth::Scheme;
use crate::auth::describe_auth;
use crate::config::quantity::{show_about, show_duration, show_size};
use crate::config::{
    Admin, Authentication, Config, Driver, FeatureConfig, HalfClose, KeyFrom, Limits, Plugins,
    Provider, ProviderTimeouts, SecretFrom, Server, SessionClassification, Store, StoreUrl,
    Switches, Timeouts, Workers,
};
use crate::observe::AccessLog;

pub(super) fn yaml(config: &Config) -> String {
    let mut out = String::new();
    // Writing to a `String` cannot fail.
    let written = write_all(&mut out, config);
    debug_assert!(written.is_ok());
    out
}

fn write_all(out: &mut String, config: &Config) -> fmt::Result {
    write_server(out, &config.server)?;
    write_authentication(out, &config.authentication)?;
    write_admin(out, config.admin.as_ref())?;
    write_limits(out, config.limits)?;
    write_timeouts(out, config.timeouts)?;
    writeln!(out, "log:\n  access: {}", access(config.log.access))?;
    write_switches(out, config.switches)?;
    write_identity(out, config)?;
    write_store(out, &config.store)?;
    write_plugins(out, &config.plugins)?;
    writeln!(out, "providers:")?;
    config
        .providers
        .iter()
        .try_for_each(|provider| write_provider(out, provider))?;
    write_sums(out, config)
}

/// What it comes to, for an operator who compares it with what the machine has.
fn write_sums(out: &mut String, config: &Config) -> fmt::Result {
    let (workers, of_machine) = match config.server.workers {
        Workers::Count(count) => (count, ""),
        Workers::Auto => (
            std::thread::available_parallelism().map_or(1, Into::into),
            ", as this machine has cores",
        ),
    };
    let descriptors = config.descriptors(workers);
    let split = config.limits.memory();
    writeln!(out, "# with {workers} workers{of_machine}:")?;
    writeln!(out, "#   descriptors: {descriptors}")?;
    writeln!(
        out,
        "#   memory: {} responses + {} requests + {} reservations = {}",
        show_about(split.responses),
        show_about(split.requests),
        show_about(split.reservations),
        show_size(config.limits.memory_bytes)
    )
}

fn write_server(out: &mut String, server: &Server) -> fmt::Result {
    let listen: Vec<String> = server.listen.iter().map(|it| format!("\"{it}\"")).collect();
    writeln!(out, "server:\n  listen: [{}]", listen.join(", "))?;
    match server.workers {
        Workers::Auto => writeln!(out, "  workers: auto")?,
        Workers::Count(count) => writeln!(out, "  workers: {count}")?,
    }
    let driver = match server.driver {
        Driver::Auto => "auto",
        Driver::IoUring => "io_uring",
        Driver::Epoll => "epoll",
    };
    let half_close = match server.half_close {
        HalfClose::Cancel => "cancel",
        HalfClose::Tolerate => "tolerate",
    };
    writeln!(out, "  driver: {driver}\n  half_close: {half_close}")?;
    match &server.tls {
        None => writeln!(out, "  tls: null"),
        Some(tls) => writeln!(
            out,
            "  tls: {{ certificate: {}, key: {} }}",
            quoted(&tls.certificate.display().to_string()),
            quoted(&tls.key.display().to_string())
        ),
    }
}

/// The digest of a key is no key, and has to be there for the text to read back the same.
fn write_authentication(out: &mut String, authentication: &Authentication) -> fmt::Result {
    let clients = match authentication {
        Authentication::Unset => {
            writeln!(out, "# everyone, on loopback listeners")?;
            return writeln!(out, "authentication: null\nclients: null");
        }
        Authentication::None => return writeln!(out, "authentication: none\nclients: null"),
        Authentication::Clients(clients) => clients,
    };
    writeln!(out, "authentication: clients")?;
    if clients.is_empty() {
        return writeln!(out, "# nobody\nclients: []");
    }
    writeln!(out, "clients:")?;
    for client in clients {
        writeln!(out, "  - name: {}", quoted(&client.name))?;
        let (digest, env, file) = match &client.key_from {
            KeyFrom::Sha256 => (Some(client.key.to_string()), None, None),
            KeyFrom::Env(name) => (None, Some(name.as_str()), None),
            KeyFrom::File(path) => (None, None, Some(path.display().to_string())),
        };
        writeln!(out, "    key_sha256: {}", or_null(digest.as_deref()))?;
        writeln!(out, "    key_env: {}", or_null(env))?;
        writeln!(out, "    key_file: {}", or_null(file.as_deref()))?;
        let markers: Vec<_> = client
            .workspace_markers
            .iter()
            .map(|it| quoted(it))
            .collect();
        writeln!(out, "    workspace_markers: [{}]", markers.join(", "))?;
        writeln!(out, "    limits:")?;
        let ClientLimits {
            concurrency,
            requests_per_minute,
        } = client.limits;
        let shown =
            |limit: Option<NonZeroU32>| limit.map_or_else(|| "null".into(), |it| it.to_string());
        writeln!(out, "      concurrency: {}", shown(concurrency))?;
        writeln!(
            out,
            "      requests_per_minute: {}",
            shown(requests_per_minute)
        )?;
    }
    Ok(())
}

fn write_admin(out: &mut String, admin: Option<&Admin>) -> fmt::Result {
    let Some(admin) = admin else {
        return writeln!(out, "admin: null");
    };
    let (listen, key_env) = (admin.listen, or_null(admin.key_env.as_deref()));
    writeln!(out, "admin: {{ listen: \"{listen}\", key_env: {key_env} }}")
}

fn write_limits(out: &mut String, limits: Limits) -> fmt::Result {
    let wide = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    writeln!(out, "limits:")?;
    writeln!(out, "  head_bytes: {}", show_size(wide(limits.head_bytes)))?;
    writeln!(out, "  head_fields: {}", limits.head_fields)?;
    writeln!(out, "  body_bytes: {}", show_size(limits.body_bytes))?;
    writeln!(
        out,
        "  window_bytes: {}",
        show_size(wide(limits.window_bytes))
    )?;
    writeln!(out, "  memory_bytes: {}", show_size(limits.memory_bytes))?;
    let split = limits.memory();
    writeln!(
        out,
        "  # responses {}, requests {}, reservations {}",
        show_about(split.responses),
        show_about(split.requests),
        show_about(split.reservations)
    )?;
    writeln!(out, "  connections: {}", limits.connections)?;
    writeln!(out, "  handshakes: {}", limits.handshakes)
}

fn write_switches(out: &mut String, switches: Switches) -> fmt::Result {
    let Switches {
        enabled,
        max_entries,
        responses,
    } = switches;
    writeln!(out, "switches:")?;
    writeln!(out, "  enabled: {enabled}")?;
    writeln!(out, "  max_entries: {max_entries}")?;
    writeln!(out, "  responses: {responses}")
}

fn write_identity(out: &mut String, config: &Config) -> fmt::Result {
    let window = show_duration(config.identity.adoption_window);
    writeln!(out, "identity:\n  adoption_window: {window}")?;
    writeln!(out, "  native: {}", config.identity.native)?;
    let file = config.authority.as_ref().map(|key| key.file.display());
    let file = file.map(|file| file.to_string());
    writeln!(out, "  authority_key_file: {}", or_null(file.as_deref()))
}

fn write_plugins(out: &mut String, plugins: &Plugins) -> fmt::Result {
    if plugins.features.is_empty() {
        return writeln!(out, "plugins:\n  features: []");
    }
    writeln!(out, "plugins:\n  features:")?;
    for feature in &plugins.features {
        writeln!(out, "    - id: {}", feature.config.id())?;
        writeln!(out, "      enabled: {}", feature.enabled)?;
        match &feature.config {
            FeatureConfig::AgentFamily => writeln!(out, "      config: {{}}")?,
            FeatureConfig::SessionClassification(session) => write_session(out, session)?,
        }
    }
    Ok(())
}

fn write_session(out: &mut String, session: &SessionClassification) -> fmt::Result {
    let policy = &session.policy;
    let ignored = policy.ignored.iter().map(|it| quoted(it.as_str()));
    let ignored: Vec<_> = ignored.collect();
    writeln!(out, "      config:\n        mode: {}", policy.mode.as_str())?;
    writeln!(out, "        heuristic:")?;
    let ignored = ignored.join(", ");
    writeln!(out, "          ignored_user_agent_prefixes: [{ignored}]")?;
    let Some(remote) = &policy.remote else {
        return writeln!(out, "        remote: null");
    };
    writeln!(out, "        remote:\n          provider: jev")?;
    writeln!(out, "          api_key_env: {}", remote.api_key_env)?;
    for (key, duration) in [
        ("timeout", remote.timeout),
        ("lease_ttl", remote.lease),
        ("retry_backoff", remote.backoff),
    ] {
        writeln!(out, "          {key}: {}", show_duration(duration))?;
    }
    let attempts = remote.attempts_max;
    writeln!(out, "          max_attempts_per_session: {attempts}")?;
    let threshold = remote.threshold.get();
    writeln!(out, "          positive_threshold: {threshold:?}")?;
    let endpoint = session.endpoint.as_ref().map(ToString::to_string);
    writeln!(out, "          endpoint: {}", or_null(endpoint.as_deref()))
}

fn write_store(out: &mut String, store: &Store) -> fmt::Result {
    let url = match &store.url {
        StoreUrl::None => "none".to_owned(),
        StoreUrl::Memory => "memory:".to_owned(),
        StoreUrl::Sqlite(path) => format!("sqlite:{}", path.display()),
        StoreUrl::Postgres(database) => database.to_string(),
    };
    let elsewhere = store.url_env.is_some() || store.url_file.is_some();
    if elsewhere {
        writeln!(out, "store:\n  # url: {}\n  url: null", quoted(&url))?;
    } else {
        writeln!(out, "store:\n  url: {}", quoted(&url))?;
    }
    let shown = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let (env, file) = (&store.url_env, shown(&store.url_file));
    writeln!(out, "  url_env: {}", or_null(env.as_deref()))?;
    writeln!(out, "  url_file: {}", or_null(file.as_deref()))?;
    let ca_file = shown(&store.ca_file);
    writeln!(out, "  ca_file: {}", or_null(ca_file.as_deref()))?;
    writeln!(out, "  retention: {}", show_duration(store.retention))?;
    writeln!(out, "  max_bytes: {}", show_size(store.max_bytes))?;
    let flush = show_duration(store.flush_interval);
    writeln!(out, "  flush_interval: {flush}")
}

const fn access(log: AccessLog) -> &'static str {
    match log {
        AccessLog::Stdout => "stdout",
        AccessLog::Stderr => "stderr",
        AccessLog::None => "none",
    }
}

fn write_timeouts(out: &mut String, timeouts: Timeouts) -> fmt::Result {
    writeln!(out, "timeouts:")?;
    for (key, wait) in [
        ("connect", timeouts.connect),
        ("handshake", timeouts.handshake),
        ("head", timeouts.head),
        ("idle", timeouts.idle),
        ("request_progress", timeouts.request_progress),
        ("client_write", timeouts.client_write),
        ("first_byte", timeouts.first_byte),
        ("keepalive", timeouts.keepalive),
        ("drain", timeouts.drain),
        ("grace", timeouts.grace),
        ("linger", timeouts.linger),
        ("reservation", timeouts.reservation),
        ("connection_wait", timeouts.connection_wait),
    ] {
        writeln!(out, "  {key}: {}", show_duration(wait))?;
    }
    Ok(())
}

fn write_provider(out: &mut String, provider: &Provider) -> fmt::Result {
    let auth = &provider.auth;
    let mode = match auth.mode() {
        Mode::Managed => "managed",
        Mode::Passthrough => "passthrough",
        Mode::None => "none",
        Mode::Unset => "null",
    };
    let scheme = match auth.scheme() {
        Scheme::Bearer => "bearer",
        Scheme::ApiKey => "api_key",
    };
    let shown = |path: &Option<PathBuf>| path.as_deref().map(|path| path.display().to_string());
    let secret_file = shown(&provider.secret_file);
    writeln!(out, "  - name: {}", quoted(&provider.name))?;
    writeln!(out, "    dialect: {}", provider.dialect.as_str())?;
    writeln!(
        out,
        "    base_url: {}",
        quoted(&provider.base_url.to_string())
    )?;
    writeln!(
        out,
        "    ca_file: {}",
        or_null(shown(&provider.ca_file).as_deref())
    )?;
    writeln!(out, "    # secret: {}", secret_shown(provider))?;
    writeln!(
        out,
        "    secret_env: {}",
        or_null(provider.secret_env.as_deref())
    )?;
    writeln!(out, "    secret_file: {}", or_null(secret_file.as_deref()))?;
    writeln!(out, "    # sent: {}", describe_auth(auth, false))?;
    writeln!(out, "    auth: {mode}")?;
    writeln!(out, "    auth_scheme: {scheme}")?;
    writeln!(
        out,
        "    auth_header: {}",
        or_null(auth.header().map(|name| name.as_str()))
    )?;
    writeln!(
        out,
        "    anthropic_version: {}",
        or_null(provider.anthropic_version.as_deref())
    )?;
    writeln!(out, "    default: {}", provider.default)?;
    writeln!(out, "    enabled: {}", provider.enabled)?;
    writeln!(out, "    local: {}", provider.local)?;
    writeln!(
        out,
        "    keepalive_idle: {}",
        show_duration(provider.keepalive_idle)
    )?;
    writeln!(out, "    connections: {}", provider.connections)?;
    writeln!(out, "    waiting: {}", provider.waiting)?;
    let forwarding = provider.session_forwarding.as_str();
    writeln!(out, "    session_forwarding: {forwarding}")?;
    writeln!(out, "    usage: {}", provider.usage.as_str())?;
    write_waits(out, provider.timeouts)?;
    write_models(out, provider)
}

fn write_waits(out: &mut String, timeouts: ProviderTimeouts) -> fmt::Result {
    writeln!(out, "    timeouts:")?;
    for (key, wait) in [
        ("connect", timeouts.connect),
        ("handshake", timeouts.handshake),
        ("first_byte", timeouts.first_byte),
        ("idle", timeouts.idle),
        ("request_progress", timeouts.request_progress),
        ("client_write", timeouts.client_write),
        ("connection_wait", timeouts.connection_wait),
    ] {
        writeln!(out, "      {key}: {}", show_duration(wait))?;
    }
    Ok(())
}

fn write_models(out: &mut String, provider: &Provider) -> fmt::Result {
    if provider.models.is_empty() {
        writeln!(out, "    models: []")?;
    } else {
        writeln!(out, "    models:")?;
    }
    for mapping in &provider.models {
        let (from, to) = (quoted(&mapping.from), quoted(&mapping.to));
        writeln!(out, "      - {{ from: {from}, to: {to} }}")?;
    }
    let list: Vec<String> = provider.list.iter().map(|name| quoted(name)).collect();
    writeln!(out, "    list: [{}]", list.join(", "))
}

fn secret_shown(provider: &Provider) -> String {
    match (provider.secret_from, &provider.secret_env) {
        (SecretFrom::File, _) => "set (from file)".into(),
        (SecretFrom::Env, Some(name)) => format!("set (from env {name})"),
        (SecretFrom::Env, None) | (SecretFrom::Unset, _) => "unset".into(),
    }
}

fn or_null(text: Option<&str>) -> String {
    text.map_or_else(|| "null".into(), quoted)
}

/// YAML double-quoted style, ASCII only (YAML 1.2.2 §5.7).
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            ' '..='~' => out.push(character),
            other => out.push_str(&format!("\\U{:08x}", u32::from(other))),
        }
    }
    out.push('"');
    out
}
