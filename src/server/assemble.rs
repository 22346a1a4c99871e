//! From a configuration to what the cores work with.

use std::collections::HashSet;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use uuid::Uuid;

use crate::auth::{Authority, Client, Clients, Meters};
use crate::buf::Budget;
use crate::classify::{Policy, has_project_marker};
use crate::config::{
    self, Authentication, BaseUrl, Config, ProviderDialect, SessionForwarding, UsageMode,
};
use crate::decider::Decider;
use crate::dialect::Family;
use crate::exchange::{
    Core, Features, HalfClose, Keeping, Lasting, Settings, Telling, anthropic_version,
};
use crate::http1::head::HeadLimits;
use crate::ledger::{Desk, Ledger};
use crate::limits::{Part, REMOTE_AT_ONCE};
use crate::observe::{Metrics, Observer, ProviderMeter, ProviderMetrics};
use crate::route::{Mapping, Pattern, Provider, Table};
use crate::runtime::{Driver, Gate};
use crate::server::workers;
use crate::switch::{self, Dictionary};
use crate::tls::{self, Acceptor, Authorities};
use crate::upstream::{self, Endpoint, Quota, Resolvers, Upstreams};

/// Where the remote service is, which no configuration changes for another host.
const REMOTE_ENDPOINT: &str = "https://api.typesafe.ai/v1/systemone";

/// What is shared out at the start and stays so, whatever the configuration says later.
#[derive(Clone, Debug)]
pub(super) struct Share {
    pub(super) request_bytes: usize,
    handshakes: usize,
    pub(super) budget: Budget,
    pub(super) observer: Observer,
    pub(super) metrics: Arc<Metrics>,
    pub(super) dictionary: Arc<Dictionary>,
    ledger: Vec<Telling>,
    pub(super) authority: Option<Authority>,
    pub(super) keeping: Option<Keeping>,
}

impl Share {
    /// The share of one of `workers` cores.
    pub(super) fn new(config: &Config, workers: usize, observer: Observer) -> Self {
        let memory = config.limits.memory();
        let requests = usize::try_from(memory.requests).unwrap_or(usize::MAX);
        Self {
            request_bytes: requests / workers,
            handshakes: config.limits.handshakes,
            budget: Budget::new(memory.reservations),
            observer,
            metrics: Arc::new(Metrics::new(workers)),
            dictionary: Arc::new(Dictionary::new(config.switches.max_entries)),
            ledger: Vec::new(),
            authority: own_authority(),
            keeping: None,
        }
    }

    /// The same share, with this ledger.
    pub(super) fn with_ledger(mut self, ledger: &Ledger) -> Self {
        let tellers = (0..self.metrics.cores()).map_while(|core| ledger.teller(core));
        let desk = ledger.desk();
        self.ledger = tellers
            .map(|teller| Telling {
                teller,
                desk: desk.clone(),
            })
            .collect();
        self
    }

    /// The same share, with what is kept of sessions; `driver` for who asks the remote service.
    pub(super) fn with_sessions(mut self, ledger: &Ledger, driver: Driver) -> Self {
        let sessions = ledger.sessions();
        self.keeping = Some(Keeping {
            decider: Decider::new(driver, sessions.clone()),
            sessions,
        });
        self
    }

    /// Where the ledger is asked, if there is one.
    pub(super) fn desk(&self) -> Option<&Desk> {
        self.ledger.first().map(|ledger| &ledger.desk)
    }

    /// What one core has from its start on; `seed` makes its request ids its own.
    pub(super) fn lasting(&self, part: Part, seed: u64) -> Lasting {
        let quota = Quota {
            part,
            request_bytes: self.request_bytes,
            handshakes: Gate::new(self.handshakes),
        };
        let (clients, metrics) = (Gate::new(self.handshakes), self.metrics.core(part.index));
        let (budget, observer) = (self.budget.clone(), self.observer.clone());
        let dictionary = Arc::clone(&self.dictionary);
        let ledger = self.ledger.get(part.index).cloned();
        let lasting = Lasting::new(
            quota,
            clients,
            (budget, observer, metrics),
            dictionary,
            seed,
        );
        Lasting {
            authority: self.authority.clone(),
            keeping: self.keeping.clone(),
            ..lasting.telling(ledger)
        }
    }
}

/// One generation, from which each core builds its state.
#[derive(Debug)]
pub(super) struct Plan {
    /// Counts from 1 on.
    pub(super) generation: u64,
    /// What all of this follows from.
    pub(super) config: Arc<Config>,
    table: Arc<Table>,
    clients: Option<Arc<Clients>>,
    locals: Vec<bool>,
    endpoints: Vec<Arc<Endpoint>>,
    pub(super) resolvers: Resolvers,
    settings: Settings,
    session: Option<Arc<Policy>>,
    remote: Option<Arc<Endpoint>>,
    tls: Option<Acceptor>,
    /// The numbers of the providers, in the order of the table.
    pub(super) metrics: Vec<Arc<ProviderMetrics>>,
    cores: usize,
}

impl Plan {
    /// The generation of the start. `meters` are those of the process.
    pub(super) fn first(config: Config, meters: &mut Meters) -> Self {
        Self::new(1, config, meters, None)
    }

    /// The generation after this one. What did not change is taken over: sessions that can be resumed,
    /// resolved names, and with the endpoints the connections of the cores.
    pub(super) fn next(&self, config: Config, meters: &mut Meters) -> Self {
        Self::new(
            self.generation.saturating_add(1),
            config,
            meters,
            Some(self),
        )
    }

    fn new(generation: u64, config: Config, meters: &mut Meters, previous: Option<&Self>) -> Self {
        let acceptor = config.server.tls.as_ref().map(|tls| &tls.acceptor);
        let kept = previous.and_then(|previous| previous.tls.as_ref());
        let tls = kept.filter(|kept| acceptor == Some(*kept)).or(acceptor);
        let endpoints: Vec<_> = enabled(&config)
            .map(|provider| endpoint(provider, previous))
            .collect();
        let resolvers = previous.map(|previous| &previous.resolvers);
        let remote = remote(&config, previous);
        let resolved: Vec<_> = endpoints.iter().chain(&remote).cloned().collect();
        let cores = previous.map_or_else(|| workers(config.server.workers), |it| it.cores);
        let metrics = enabled(&config)
            .map(|provider| metrics(&provider.name, previous, cores))
            .collect();
        Self {
            metrics,
            cores,
            generation,
            clients: clients(&config.authentication, meters),
            table: Arc::new(Table::new(enabled(&config).map(provider).collect())),
            resolvers: Resolvers::start(&resolved, resolvers),
            session: config
                .plugins
                .session_classification()
                .map(|it| Arc::new(it.policy.clone())),
            remote,
            locals: enabled(&config).map(is_local).collect(),
            endpoints,
            settings: settings(&config),
            tls: tls.cloned(),
            config: Arc::new(config),
        }
    }

    /// Where a provider of this generation is reached.
    fn endpoint(&self, name: &str) -> Option<&Arc<Endpoint>> {
        let position = enabled(&self.config).position(|provider| provider.name == name)?;
        self.endpoints.get(position)
    }

    /// The state of one core in this generation.
    pub(super) fn core(&self, lasting: &Lasting, previous: Option<&Core>) -> Core {
        Core {
            generation: self.generation,
            settings: self.settings,
            tls: self.tls.clone(),
            table: Arc::clone(&self.table),
            clients: self.clients.clone(),
            locals: self.locals.clone(),
            ledger: lasting.ledger.clone(),
            features: self.features(lasting),
            upstreams: Upstreams::new(
                &self.endpoints,
                &lasting.quota,
                previous.map(|core| &core.upstreams),
            ),
            blocks: lasting.blocks.clone(),
            budget: lasting.budget.clone(),
            dictionary: Arc::clone(&lasting.dictionary),
            stop: lasting.stop.clone(),
            ids: Rc::clone(&lasting.ids),
            metrics: Arc::clone(&lasting.metrics),
            meters: self
                .metrics
                .iter()
                .map(|provider| ProviderMeter::new(provider, &lasting.metrics))
                .collect(),
            observer: lasting.observer.clone(),
            client_labels: self
                .clients
                .iter()
                .flat_map(|clients| clients.iter())
                .map(|it| it.name.as_str().into())
                .collect(),
            labels: self
                .table
                .providers()
                .map(|it| it.name.as_str().into())
                .collect(),
        }
    }
}

impl Plan {
    /// The features of one core; none where none is enabled.
    fn features(&self, lasting: &Lasting) -> Option<Features> {
        let agent_family = self.config.plugins.agent_family();
        if self.session.is_none() && !agent_family {
            return None;
        }
        let authority = self.config.authority.as_ref().map(|key| &key.authority);
        if let (Some(keeping), Some(_)) = (&lasting.keeping, &self.session) {
            keeping.sessions.open();
        }
        if let (Some(keeping), Some(_)) = (&lasting.keeping, &self.remote) {
            keeping.decider.start();
        }
        Some(Features {
            session: self.session.clone(),
            agent_family,
            authority: authority.or(lasting.authority.as_ref())?.clone(),
            keeping: lasting.keeping.clone(),
            remote: self.remote.clone(),
            marked: marked(&self.config.authentication),
        })
    }
}

/// A key of this process's own, from 256 random bits and more.
fn own_authority() -> Option<Authority> {
    let random: Vec<u8> = (0..8).flat_map(|_| *Uuid::now_v7().as_bytes()).collect();
    Authority::new(&random).ok()
}

/// The clients whose workspace has a project's marker.
fn marked(authentication: &Authentication) -> HashSet<Arc<str>> {
    let Authentication::Clients(clients) = authentication else {
        return HashSet::new();
    };
    let marked = clients
        .iter()
        .filter(|it| has_project_marker(it.workspace_markers.iter().map(String::as_str)));
    marked.map(|it| it.name.as_str().into()).collect()
}

/// Where the remote service is, if it is asked: its own address, in production.
fn remote(config: &Config, previous: Option<&Plan>) -> Option<Arc<Endpoint>> {
    let session = config.plugins.session_classification()?;
    let policy = session.policy.remote.as_ref()?;
    let own = BaseUrl::parse(REMOTE_ENDPOINT).ok()?;
    let url = session.endpoint.as_ref().unwrap_or(&own);
    // Where encryption is meant and cannot be had, nobody is asked: the request has a credential.
    let tls = match url.tls {
        true => Some(tls::Client::new(&url.host, Authorities::default()).ok()?),
        false => None,
    };
    // The attempt itself ends first, and so says of every part of it that it took too long.
    let limit = policy.timeout.saturating_mul(2);
    let settings = upstream::Settings {
        host: url.host.clone(),
        port: url.port,
        authority: url.authority.clone(),
        prefix: url.prefix.clone(),
        connect: limit,
        tls,
        handshake: limit,
        first_byte: limit,
        idle: limit,
        request_progress: limit,
        client_write: limit,
        connections: REMOTE_AT_ONCE,
        waiting: REMOTE_AT_ONCE,
        connection_wait: limit,
        keepalive_idle: limit,
    };
    match previous.and_then(|previous| previous.remote.as_ref()) {
        Some(kept) if kept.settings == settings => Some(Arc::clone(kept)),
        _ => Some(Arc::new(Endpoint::new(settings))),
    }
}

fn settings(config: &Config) -> Settings {
    let Config {
        server,
        limits,
        timeouts,
        switches,
        ..
    } = config;
    Settings {
        switches: switch::Gate {
            enabled: switches.enabled,
            responses: switches.responses,
        },
        head: HeadLimits {
            bytes: limits.head_bytes,
            fields: limits.head_fields,
        },
        body_bytes: limits.body_bytes,
        window_bytes: limits.window_bytes,
        half_close: match server.half_close {
            config::HalfClose::Cancel => HalfClose::Cancel,
            config::HalfClose::Tolerate => HalfClose::Tolerate,
        },
        handshake: timeouts.handshake,
        head_timeout: timeouts.head,
        keepalive: timeouts.keepalive,
        idle: timeouts.idle,
        request_progress: timeouts.request_progress,
        client_write: timeouts.client_write,
        reservation: timeouts.reservation,
        linger: timeouts.linger,
        native_identity: config.identity.native,
    }
}

/// Whether a provider is on this machine (decision I3): it says so, or its address does.
fn is_local(provider: &config::Provider) -> bool {
    let host = provider.base_url.host.as_str();
    let inner = host.trim_start_matches('[').trim_end_matches(']');
    let address = inner.parse::<IpAddr>();
    provider.local
        || host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

fn enabled(config: &Config) -> impl Iterator<Item = &config::Provider> {
    config.providers.iter().filter(|provider| provider.enabled)
}

fn clients(authentication: &Authentication, meters: &mut Meters) -> Option<Arc<Clients>> {
    let Authentication::Clients(clients) = authentication else {
        return None;
    };
    let client = |client: &config::Client| Client {
        name: client.name.clone(),
        key: client.key,
        allowance: meters.allowance(&client.name, client.limits),
    };
    let clients = Clients::new(clients.iter().map(client).collect());
    meters.prune();
    Some(Arc::new(clients))
}

/// The numbers of a provider go on as long as its name does.
fn metrics(name: &str, previous: Option<&Plan>, cores: usize) -> Arc<ProviderMetrics> {
    let kept = previous.and_then(|previous| previous.metrics.iter().find(|it| it.name() == name));
    kept.map_or_else(|| Arc::new(ProviderMetrics::new(name, cores)), Arc::clone)
}

/// The endpoint of the previous generation where nothing about it changed.
fn endpoint(provider: &config::Provider, previous: Option<&Plan>) -> Arc<Endpoint> {
    let url = &provider.base_url;
    let settings = upstream::Settings {
        host: url.host.clone(),
        port: url.port,
        authority: url.authority.clone(),
        prefix: url.prefix.clone(),
        connect: provider.timeouts.connect,
        tls: provider.tls.clone(),
        handshake: provider.timeouts.handshake,
        first_byte: provider.timeouts.first_byte,
        idle: provider.timeouts.idle,
        request_progress: provider.timeouts.request_progress,
        client_write: provider.timeouts.client_write,
        connections: provider.connections,
        waiting: provider.waiting,
        connection_wait: provider.timeouts.connection_wait,
        keepalive_idle: provider.keepalive_idle,
    };
    match previous.and_then(|previous| previous.endpoint(&provider.name)) {
        Some(kept) if kept.settings == settings => Arc::clone(kept),
        Some(old) => Arc::new(Endpoint::following(settings, old)),
        None => Arc::new(Endpoint::new(settings)),
    }
}

fn provider(provider: &config::Provider) -> Provider {
    let family = match provider.dialect {
        ProviderDialect::OpenAi => Family::OpenAi,
        ProviderDialect::Anthropic => Family::Anthropic,
    };
    Provider {
        family,
        default: provider.default,
        name: provider.name.clone(),
        models: provider.models.iter().map(mapping).collect(),
        list: provider.list.clone(),
        auth: provider.auth.clone(),
        takes_sessions: provider.session_forwarding == SessionForwarding::OpencodeGo,
        injects_usage: provider.usage == UsageMode::Inject,
        anthropic_version: (family == Family::Anthropic)
            .then(|| anthropic_version(provider.anthropic_version.as_deref())),
    }
}

fn mapping(model: &config::ModelMapping) -> Mapping {
    Mapping {
        from: Pattern::new(&model.from),
        to: model.to.clone(),
    }
}
