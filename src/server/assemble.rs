//! From a configuration to what the cores work with.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::auth::{Client, Clients, Meters};
use crate::buf::{Budget, Pool};
use crate::config::{self, Authentication, Config, ProviderDialect};
use crate::dialect::Family;
use crate::exchange::{Core, HalfClose, Lasting, Settings, anthropic_version};
use crate::http1::head::HeadLimits;
use crate::observe::Observer;
use crate::route::{Mapping, Pattern, Provider, Table};
use crate::tls::Acceptor;
use crate::upstream::{self, Endpoint, Resolvers, Upstreams};

/// One generation, from which each core builds its state.
#[derive(Debug)]
pub(super) struct Plan {
    /// Counts from 1 on.
    pub(super) generation: u64,
    table: Arc<Table>,
    clients: Option<Arc<Clients>>,
    endpoints: Vec<Arc<Endpoint>>,
    pub(super) resolvers: Resolvers,
    settings: Settings,
    tls: Option<Acceptor>,
    observer: Observer,
    block_bytes: usize,
    budget: Budget,
    /// Client connections that one core may have.
    pub(super) connections: usize,
    /// Longest wait for running exchanges at the end.
    pub(super) drain: Duration,
}

impl Plan {
    /// `meters` are those of the process.
    pub(super) fn new(
        config: &Config,
        workers: usize,
        meters: &mut Meters,
        observer: Observer,
    ) -> Self {
        let providers: Vec<_> = config
            .providers
            .iter()
            .filter(|provider| provider.enabled)
            .cloned()
            .collect();
        let endpoints: Vec<_> = providers.iter().map(endpoint).collect();
        let memory = config.limits.memory();
        let requests = usize::try_from(memory.requests).unwrap_or(usize::MAX);
        Self {
            clients: clients(&config.authentication, meters),
            resolvers: Resolvers::start(&endpoints),
            generation: 1,
            table: Arc::new(Table::new(providers.iter().map(provider).collect())),
            endpoints,
            settings: settings(config),
            tls: config.server.tls.as_ref().map(|tls| tls.acceptor.clone()),
            observer,
            block_bytes: requests / workers,
            budget: Budget::new(memory.reservations),
            connections: config.limits.connections.div_ceil(workers),
            drain: config.timeouts.drain,
        }
    }

    /// What one core has from its start on; `seed` makes its request ids its own.
    pub(super) fn lasting(&self, seed: u64) -> Lasting {
        Lasting::new(
            Pool::new(self.block_bytes),
            self.budget.clone(),
            self.observer.clone(),
            seed,
        )
    }

    /// The state of one core in this generation.
    pub(super) fn core(&self, lasting: &Lasting, _previous: Option<&Core>) -> Core {
        Core {
            generation: self.generation,
            settings: self.settings,
            tls: self.tls.clone(),
            table: Arc::clone(&self.table),
            clients: self.clients.clone(),
            upstreams: Upstreams::new(&self.endpoints),
            blocks: lasting.blocks.clone(),
            budget: lasting.budget.clone(),
            stop: lasting.stop.clone(),
            ids: Rc::clone(&lasting.ids),
            panics: Rc::clone(&lasting.panics),
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

fn settings(config: &Config) -> Settings {
    let Config {
        server,
        limits,
        timeouts,
        ..
    } = config;
    Settings {
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
    }
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

fn endpoint(provider: &config::Provider) -> Arc<Endpoint> {
    let url = &provider.base_url;
    Arc::new(Endpoint::new(upstream::Settings {
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
        keepalive_idle: provider.keepalive_idle,
    }))
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
