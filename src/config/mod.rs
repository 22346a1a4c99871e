//! What the operator wants, checked once and completely before anything is opened.
//!
//! Decides whether a file means one thing, and fills in every default. Three steps: `file` reads
//! YAML into a tree of values with lines, `resolve` gives them meaning, `effective` shows the
//! result. Refuses what is unknown, repeated, out of range or contradictory; reports all of it at
//! once, with line and key path, and never repeats a credential. Costs are paid at load only: a
//! resolved [`Config`] is plain data.

use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::auth::{ClientLimits, Digest, ProviderAuth};
use crate::observe::AccessLog;
use crate::tls::{self, Acceptor};

mod admin;
mod base_url;
mod clients;
mod conventional;
mod descriptors;
mod effective;
mod error;
mod file;
pub mod fuzzing;
mod limits;
mod models;
mod plugins;
mod provider;
mod quantity;
mod read;
mod resolve;
mod restart;
mod schema;
mod store;
mod switches;
mod usage;

pub use admin::Admin;
pub use base_url::{BaseUrl, BaseUrlError};
pub use descriptors::Descriptors;
pub use error::{ConfigError, Failure};
pub use file::FILE_BYTES_MAX;
pub use limits::{Limits, MemorySplit};
pub use models::ModelMapping;
pub use plugins::{AuthorityKey, Feature, FeatureConfig, Plugins, SessionClassification};
pub(crate) use quantity::{parse_duration, parse_size, show_duration, show_size};
pub use schema::key_paths;
pub use store::{Identity, Store, StoreUrl};
pub use usage::UsageMode;

use resolve::Sources;

/// A complete configuration: every key has its effective value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Listeners and threads.
    pub server: Server,
    /// Who may call.
    pub authentication: Authentication,
    /// Where operators ask; nowhere unless written.
    pub admin: Option<Admin>,
    /// Bounds on what one peer, and all of them together, can make the gateway hold.
    pub limits: Limits,
    /// Bounds on waiting.
    pub timeouts: Timeouts,
    /// Where records go.
    pub log: Log,
    /// What the gateway answers in the place of a model.
    pub switches: Switches,
    /// Conversations.
    pub identity: Identity,
    /// What the gateway issues keys with, `identity.authority_key_file`; one of its own for each start of the
    /// process if not written.
    pub authority: Option<AuthorityKey>,
    /// The ledger.
    pub store: Store,
    /// Optional features.
    pub plugins: Plugins,
    /// In the order of the file, disabled ones included; at least one is enabled.
    pub providers: Vec<Provider>,
    /// What was passed over in the environment, a line each, for the operator to read once.
    pub warnings: Vec<String>,
}

/// What the gateway answers in the place of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switches {
    /// Whether it does, and translates sessions. Default true: nothing else of a request changes.
    pub enabled: bool,
    /// Sessions with an id of their own at the providers, 0 to 1,000,000, about 100 bytes each.
    /// Default 100,000: far more than there are people to ask for one.
    pub max_entries: usize,
    /// Whether also on the paths of the Responses API. Default false: what other gateways with these
    /// switches do.
    pub responses: bool,
}

/// How a provider is told the session of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionForwarding {
    /// Not at all.
    #[default]
    None,
    /// As OpenCode Go reads it: the field `x-opencode-session`, and `session_id` in bodies of the OpenAI
    /// dialects; on requests whose model hit a mapping.
    OpencodeGo,
}

impl SessionForwarding {
    /// The word in the file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::OpencodeGo => "opencode-go",
        }
    }
}

/// Listeners and threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Addresses to accept on, no two alike. Default `127.0.0.1:8080`: nobody else can reach it.
    pub listen: Vec<SocketAddr>,
    /// Threads that serve connections.
    pub workers: Workers,
    /// How the kernel is asked.
    pub driver: Driver,
    /// What an end of input from a client means while its answer is being written.
    pub half_close: HalfClose,
    /// How clients are spoken to on every listener; in plain text if not at all.
    pub tls: Option<ServerTls>,
}

/// The certificate of the listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTls {
    /// The file of the certificate chain, as written.
    pub certificate: PathBuf,
    /// The file of the private key, as written.
    pub key: PathBuf,
    /// What was read from both.
    pub acceptor: Acceptor,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 8080))],
            workers: Workers::default(),
            driver: Driver::default(),
            half_close: HalfClose::default(),
            tls: None,
        }
    }
}

/// Number of worker threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Workers {
    /// One per core that the process may use.
    #[default]
    Auto,
    /// Exactly so many, 1 to 1024.
    Count(usize),
}

/// Kernel interface of the workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Driver {
    /// io_uring where it is allowed, else epoll.
    #[default]
    Auto,
    /// io_uring, or refuse to start.
    IoUring,
    /// epoll.
    Epoll,
}

/// Meaning of a client's end of input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HalfClose {
    /// The client is gone: stop. A close and a half-close look the same on the wire, and a
    /// generation that nobody reads costs money.
    #[default]
    Cancel,
    /// Go on until a write fails.
    Tolerate,
}

/// Who may call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Authentication {
    /// Nothing is written: everyone who reaches a listener, all of which are loopback.
    #[default]
    Unset,
    /// Everyone who reaches a listener, in words.
    None,
    /// Who presents the key of one of these, and nobody where there are none.
    Clients(Vec<Client>),
}

/// One client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Name in logs; unique without regard to case.
    pub name: String,
    /// The SHA-256 of its key; unique.
    pub key: Digest,
    /// Where `key` came from.
    pub key_from: KeyFrom,
    /// Names of files by which the root of a workspace of this client is known.
    pub workspace_markers: Vec<String>,
    /// How much of the gateway it may have.
    pub limits: ClientLimits,
}

/// Where the digest of a client's key came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyFrom {
    /// `key_sha256`.
    Sha256,
    /// The key in this variable, `key_env`.
    Env(String),
    /// The key in this file, `key_file`, as written.
    File(PathBuf),
}

/// Where records go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The access log: one JSON object a line for each exchange. Default standard output.
    pub access: AccessLog,
}

/// Bounds on waiting, each 1 ms to 24 h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Resolving a provider's name and connecting to it. Default 5 s: two lost SYN packets are
    /// resent after 1 s and 3 s (RFC 6298 §2).
    pub connect: Duration,
    /// A TLS handshake, with providers and with clients. Default 5 s: two round trips and the
    /// arithmetic take well under one; a slower peer holds a connection on purpose.
    pub handshake: Duration,
    /// From the first byte of a request head to its last. Default 30 s: a head is one packet or
    /// two; a slower one holds a connection on purpose.
    pub head: Duration,
    /// Between two reads of a response that has begun, between two writes of a request, and between
    /// two reads of a request body that no provider waits for yet. Default 5 min: reasoning models
    /// pause for minutes where the provider sends no pings.
    pub idle: Duration,
    /// For each further 16 KiB of a request body, or its rest, while a provider or memory waits for it;
    /// time in which the gateway waits for the provider does not count. Default 10 s: 13 kbit/s, less
    /// than any network that carries an agent.
    pub request_progress: Duration,
    /// Between two writes of a response to a client that takes nothing. Default 5 min: an agent's
    /// process may be stopped for a while, and it holds one block only.
    pub client_write: Duration,
    /// From the request sent to the first byte of the response. Default 10 min: the limit at which
    /// the official SDKs give up on a whole request, so the caller decides first.
    pub first_byte: Duration,
    /// Between two requests on a client connection. Default 75 s: longer than the 60 s of common
    /// load balancers, so that they close idle connections and never meet a closed one.
    pub keepalive: Duration,
    /// From the signal to stop to the end of the last exchange, `grace` included. Default 15 min:
    /// `first_byte` and `idle` together, the longest silence that is no fault.
    pub drain: Duration,
    /// From the signal to stop to the moment when no more connections are accepted; readiness is
    /// refused from the signal on. Default 0 s: it is for load balancers that ask `/readyz`, and who
    /// has none should not wait for it. At most `drain`.
    pub grace: Duration,
    /// Reading on after an early error answer, so that the client can see it before a reset
    /// destroys it (RFC 9112 §9.6). Default 2 s. At most `drain`.
    pub linger: Duration,
    /// A body that has to be held, for memory to hold it in; then 503. Default 10 s: an upload of
    /// the largest size takes a few seconds, so the memory of one comes free, and a caller that is
    /// told early can try again.
    pub reservation: Duration,
    /// A request, for a connection to a provider that has as many as it may; then 503. Default
    /// 10 s: one of a hundred streams of a few minutes each ends every few seconds, and a caller
    /// that is told early can try again.
    pub connection_wait: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            handshake: Duration::from_secs(5),
            head: Duration::from_secs(30),
            idle: Duration::from_secs(5 * 60),
            request_progress: Duration::from_secs(10),
            client_write: Duration::from_secs(5 * 60),
            first_byte: Duration::from_secs(10 * 60),
            keepalive: Duration::from_secs(75),
            drain: Duration::from_secs(15 * 60),
            grace: Duration::ZERO,
            linger: Duration::from_secs(2),
            reservation: Duration::from_secs(10),
            connection_wait: Duration::from_secs(10),
        }
    }
}

/// Whose clients a provider serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderDialect {
    /// Chat Completions and Responses.
    OpenAi,
    /// Messages.
    Anthropic,
}

impl ProviderDialect {
    /// The word in the file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
        }
    }
}

/// One provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// Name in logs; unique without regard to case.
    pub name: String,
    /// Whose clients it serves.
    pub dialect: ProviderDialect,
    /// Where it is.
    pub base_url: BaseUrl,
    /// The file of further authorities whose certificates are believed, as written.
    pub ca_file: Option<PathBuf>,
    /// How it is spoken to, where `base_url` is encrypted.
    pub tls: Option<tls::Client>,
    /// The credential and how it is presented.
    pub auth: ProviderAuth,
    /// The environment variable of the credential, as written.
    pub secret_env: Option<String>,
    /// The file of the credential, as written.
    pub secret_file: Option<PathBuf>,
    /// Where the credential in `auth` came from.
    pub secret_from: SecretFrom,
    /// Value of `anthropic-version` for callers that send none.
    pub anthropic_version: Option<String>,
    /// Whether it takes what no other provider of its dialect takes. False while disabled.
    pub default: bool,
    /// Disabled providers get no traffic.
    pub enabled: bool,
    /// Whether its work is done on hardware of the operator.
    pub local: bool,
    /// Longest rest of a connection before it is closed instead of used again.
    pub keepalive_idle: Duration,
    /// Connections to it at a time, idle ones included; shared out to the cores, at least one
    /// each. Default 4096: far more streams than a provider grants one account, and few of the
    /// 28,000 local ports that a kernel has for one address.
    pub connections: usize,
    /// Requests that wait for a connection at a time, shared out to the cores, at least one each.
    /// Default 1024: what may begin within `timeouts.connection_wait` and not more.
    pub waiting: usize,
    /// How it is told the session of a request.
    pub session_forwarding: SessionForwarding,
    /// Whether it is asked for usage.
    pub usage: UsageMode,
    /// Own bounds on waiting, or those of [`Config::timeouts`].
    pub timeouts: ProviderTimeouts,
    /// The models it takes, in match order.
    pub models: Vec<ModelMapping>,
    /// Names that the model list shows beside the literal ones of `models`.
    pub list: Vec<String>,
}

/// Where a credential came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretFrom {
    /// There is none.
    Unset,
    /// The variable that `secret_env` names.
    Env,
    /// `secret_file`.
    File,
}

/// The bounds on waiting that a provider can have of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProviderTimeouts {
    /// See [`Timeouts::connect`].
    pub connect: Duration,
    /// See [`Timeouts::handshake`].
    pub handshake: Duration,
    /// See [`Timeouts::first_byte`].
    pub first_byte: Duration,
    /// See [`Timeouts::idle`].
    pub idle: Duration,
    /// See [`Timeouts::request_progress`].
    pub request_progress: Duration,
    /// See [`Timeouts::client_write`].
    pub client_write: Duration,
    /// See [`Timeouts::connection_wait`].
    pub connection_wait: Duration,
}

impl From<Timeouts> for ProviderTimeouts {
    fn from(all: Timeouts) -> Self {
        Self {
            connect: all.connect,
            handshake: all.handshake,
            first_byte: all.first_byte,
            idle: all.idle,
            request_progress: all.request_progress,
            client_write: all.client_write,
            connection_wait: all.connection_wait,
        }
    }
}

impl Config {
    /// The enabled provider that takes what no other of `dialect` takes.
    #[must_use]
    pub fn default_provider(&self, dialect: ProviderDialect) -> Option<&Provider> {
        self.providers
            .iter()
            .find(|provider| provider.default && provider.dialect == dialect)
    }

    /// Listens on `address` only, whatever the file says.
    ///
    /// # Errors
    /// It can be reached from other machines, and nothing is written about who may call.
    pub fn listen_on(&mut self, address: SocketAddr) -> Result<(), ConfigError> {
        resolve::check_reach(&self.authentication, &[address]).map_err(|what| Failure {
            line: None,
            path: "--listen".to_owned(),
            what,
        })?;
        self.server.listen = vec![address];
        Ok(())
    }

    /// Every effective value as YAML that reads back as this configuration. Credentials appear as
    /// a comment that says where they came from.
    #[must_use]
    pub fn effective_yaml(&self) -> String {
        effective::yaml(self)
    }
}

/// Reads a file, with the environment of this process. Relative paths in it are looked up from the
/// folder of the configuration file.
///
/// # Errors
/// The file cannot be read, or [`ConfigError`] lists what is wrong with it.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    let bytes = read_at_most(path, FILE_BYTES_MAX)
        .map_err(|error| Failure::of_file(format!("cannot read {}: {error}", path.display())))?;
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    let read = |file: &Path, bytes_max| read_at_most(&folder.join(file), bytes_max);
    resolve_bytes(
        &bytes,
        &Sources {
            env: &variable_of_process,
            file: &read,
        },
    )
}

/// Reads a text; `env` answers for environment variables. Relative paths are looked up from the
/// current folder.
///
/// # Errors
/// [`ConfigError`] lists what is wrong.
pub fn parse(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Config, ConfigError> {
    let file = &read_at_most;
    resolve_bytes(text.as_bytes(), &Sources { env, file })
}

/// Reads hostile bytes in a world without variables and files. For fuzzing.
///
/// # Errors
/// [`ConfigError`] lists what is wrong.
pub fn parse_bytes(bytes: &[u8]) -> Result<Config, ConfigError> {
    let nowhere = |_: &Path, _| Err(io::ErrorKind::NotFound.into());
    resolve_bytes(
        bytes,
        &Sources {
            env: &|_| None,
            file: &nowhere,
        },
    )
}

/// A variable of this process. Lossy, so that one which is no text is refused as a credential and not
/// overlooked.
fn variable_of_process(name: &str) -> Option<String> {
    std::env::var_os(name).map(|text| text.to_string_lossy().into_owned())
}

/// A gateway in front of the scripted provider: one provider per dialect, no credentials.
#[must_use]
pub fn builtin(listen: SocketAddr, mock: SocketAddr) -> Config {
    let timeouts = Timeouts::default();
    let provider = |dialect: ProviderDialect| Provider {
        name: format!("mock-{}", dialect.as_str()),
        dialect,
        base_url: BaseUrl::of(mock),
        ca_file: None,
        tls: None,
        auth: ProviderAuth::none(),
        secret_env: None,
        secret_file: None,
        secret_from: SecretFrom::Unset,
        anthropic_version: None,
        default: true,
        enabled: true,
        local: mock.ip().to_canonical().is_loopback(),
        keepalive_idle: provider::KEEPALIVE_IDLE_PLAIN,
        connections: provider::CONNECTIONS,
        waiting: provider::WAITING,
        session_forwarding: SessionForwarding::None,
        usage: UsageMode::Relay,
        timeouts: timeouts.into(),
        models: Vec::new(),
        list: Vec::new(),
    };
    let mut reader = read::Reader::default();
    let sources = Sources {
        env: &variable_of_process,
        file: &read_at_most,
    };
    let switches = switches::with_environment(Switches::default(), &mut reader, &sources);
    Config {
        switches,
        warnings: reader.warnings,
        server: Server {
            listen: vec![listen],
            ..Server::default()
        },
        authentication: Authentication::Unset,
        admin: None,
        limits: Limits::default(),
        timeouts,
        log: Log::default(),
        identity: Identity::default(),
        authority: None,
        store: Store::default(),
        plugins: Plugins::default(),
        providers: vec![
            provider(ProviderDialect::OpenAi),
            provider(ProviderDialect::Anthropic),
        ],
    }
}

fn resolve_bytes(bytes: &[u8], sources: &Sources<'_>) -> Result<Config, ConfigError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let what = "not readable as UTF-8".to_owned();
        Failure {
            line: u64::try_from(line).ok(),
            path: String::new(),
            what,
        }
    })?;
    resolve::resolve(&file::parse(text)?, sources)
}

/// Reads a whole file of at most `bytes_max`; a longer one is an error, never cut.
fn read_at_most(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let one_more = u64::try_from(bytes_max).map_or(u64::MAX, |max| max.saturating_add(1));
    File::open(path)?.take(one_more).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        let what = format!("more than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}
