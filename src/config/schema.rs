//! The keys of each section: those of this version, and those that the schema has reserved.
//!
//! One list serves the reader, which refuses all others, and the page `docs/configuration.md`,
//! whose test asks for every one of them.

/// The keys of one section.
#[derive(Debug)]
pub(super) struct Keys {
    /// Understood now.
    pub(super) known: &'static [&'static str],
    /// Part of the schema, refused with a message of their own until they work.
    pub(super) later: &'static [&'static str],
}

pub(super) const ROOT: Keys = Keys {
    known: &[
        "server",
        "admin",
        "authentication",
        "clients",
        "limits",
        "timeouts",
        "log",
        "switches",
        "identity",
        "store",
        "plugins",
        "providers",
    ],
    later: &["faces", "prompt_sources"],
};

pub(super) const SERVER: Keys = Keys {
    known: &["listen", "workers", "driver", "half_close", "tls"],
    later: &[],
};

pub(super) const SERVER_TLS: Keys = Keys {
    known: &["certificate", "key"],
    later: &[],
};

pub(super) const ADMIN: Keys = Keys {
    known: &["listen", "key_env"],
    later: &[],
};

pub(super) const CLIENT: Keys = Keys {
    known: &[
        "name",
        "key_sha256",
        "key_env",
        "key_file",
        "workspace_markers",
        "limits",
    ],
    later: &[],
};

pub(super) const CLIENT_LIMITS: Keys = Keys {
    known: &["concurrency", "requests_per_minute"],
    later: &[],
};

pub(super) const LIMITS: Keys = Keys {
    known: &[
        "head_bytes",
        "head_fields",
        "body_bytes",
        "window_bytes",
        "memory_bytes",
        "connections",
        "handshakes",
    ],
    later: &[],
};

pub(super) const TIMEOUTS: Keys = Keys {
    known: &[
        "connect",
        "handshake",
        "head",
        "idle",
        "request_progress",
        "client_write",
        "first_byte",
        "keepalive",
        "drain",
        "grace",
        "linger",
        "reservation",
        "connection_wait",
    ],
    later: &[],
};

pub(super) const PROVIDER: Keys = Keys {
    known: &[
        "name",
        "dialect",
        "base_url",
        "ca_file",
        "secret_env",
        "secret_file",
        "auth",
        "auth_scheme",
        "auth_header",
        "anthropic_version",
        "default",
        "enabled",
        "local",
        "keepalive_idle",
        "connections",
        "waiting",
        "session_forwarding",
        "usage",
        "timeouts",
        "models",
        "list",
    ],
    later: &["chunked", "compat", "faces", "liveness"],
};

pub(super) const PROVIDER_TIMEOUTS: Keys = Keys {
    known: &[
        "connect",
        "handshake",
        "first_byte",
        "idle",
        "request_progress",
        "client_write",
        "connection_wait",
    ],
    later: &[],
};

pub(super) const LOG: Keys = Keys {
    known: &["access"],
    later: &[],
};

pub(super) const SWITCHES: Keys = Keys {
    known: &["enabled", "max_entries", "responses"],
    later: &[],
};

pub(super) const IDENTITY: Keys = Keys {
    known: &["adoption_window", "native", "authority_key_file"],
    later: &[],
};

pub(super) const STORE: Keys = Keys {
    known: &[
        "url",
        "url_env",
        "url_file",
        "ca_file",
        "retention",
        "max_bytes",
        "flush_interval",
    ],
    later: &[],
};

pub(super) const PLUGINS: Keys = Keys {
    known: &["features"],
    later: &[],
};

pub(super) const FEATURE: Keys = Keys {
    known: &["id", "enabled", "config"],
    later: &[],
};

/// The keys of `config` of the feature `session-classification`.
pub(super) const FEATURE_SESSION: Keys = Keys {
    known: &["mode", "heuristic", "remote"],
    later: &[],
};

pub(super) const FEATURE_HEURISTIC: Keys = Keys {
    known: &["ignored_user_agent_prefixes"],
    later: &[],
};

pub(super) const FEATURE_REMOTE: Keys = Keys {
    known: &[
        "provider",
        "api_key_env",
        "timeout",
        "max_attempts_per_session",
        "lease_ttl",
        "retry_backoff",
        "positive_threshold",
        "endpoint",
    ],
    later: &[],
};

/// The keys of `config` of the feature `agent-family`: none.
pub(super) const FEATURE_AGENT: Keys = Keys {
    known: &[],
    later: &[],
};

pub(super) const MODEL: Keys = Keys {
    known: &["from", "to"],
    later: &["caching", "input", "max_tokens", "reasoning_efforts"],
};

/// Path of every key of this version, such as `limits.head_bytes` and `providers[].name`.
#[must_use]
pub fn key_paths() -> Vec<String> {
    let sections = [
        ("", &ROOT),
        ("server.", &SERVER),
        ("server.tls.", &SERVER_TLS),
        ("admin.", &ADMIN),
        ("clients[].", &CLIENT),
        ("clients[].limits.", &CLIENT_LIMITS),
        ("limits.", &LIMITS),
        ("timeouts.", &TIMEOUTS),
        ("log.", &LOG),
        ("switches.", &SWITCHES),
        ("identity.", &IDENTITY),
        ("store.", &STORE),
        ("plugins.", &PLUGINS),
        ("plugins.features[].", &FEATURE),
        ("plugins.features[].config.", &FEATURE_SESSION),
        ("plugins.features[].config.heuristic.", &FEATURE_HEURISTIC),
        ("plugins.features[].config.remote.", &FEATURE_REMOTE),
        ("providers[].", &PROVIDER),
        ("providers[].timeouts.", &PROVIDER_TIMEOUTS),
        ("providers[].models[].", &MODEL),
    ];
    sections
        .into_iter()
        .flat_map(|(prefix, keys)| keys.known.iter().map(move |key| format!("{prefix}{key}")))
        .collect()
}
