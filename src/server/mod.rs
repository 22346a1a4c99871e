//! The process: listeners, one worker per core, signals, new configurations, and the end.
//!
//! Main binds every socket before a worker starts, so that a port in use is an error of the start
//! and not of a core. A panic outside an exchange ends the process: a dead core would silently keep
//! its share of the connections.

mod accept;
mod assemble;
mod balance;
mod descriptors;
mod drain;
mod heartbeat;
mod operations;
mod publish;
mod reload;
#[cfg(test)]
mod tests;
mod worker;

pub use descriptors::Shortage;
pub use reload::{Control, InForce, ReloadError, ReloadReport, Reread};

use std::fmt;
use std::future::Future;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::admin::Admin;
use crate::auth::{Meters, Secret};
use crate::clock;
use crate::config::{self, Config};
use crate::ledger::{Desk, Ledger, Place, StoreError, Storing};
use crate::limits::{BEAT_MS, Part};
use crate::observe::Recorder;
use crate::runtime::{Driver, bind, block_on, descriptors_max, raise_descriptors};
use crate::server::assemble::{Plan, Share};
use crate::server::balance::Cores;
use crate::server::drain::{Course, Drain};
use crate::server::heartbeat::{Bounds, Heartbeats, Watch};
use crate::server::operations::Operated;
use crate::server::publish::Published;
use crate::server::reload::FIRST_RESOLUTION;
use crate::server::worker::Worker;

/// How the process runs, once it serves.
#[derive(Clone, Debug)]
pub struct Running {
    /// The addresses that are listened on.
    pub addresses: Vec<SocketAddr>,
    /// Where operators ask, if anywhere.
    pub admin: Option<SocketAddr>,
    /// The driver in use.
    pub driver: Driver,
    /// Number of workers.
    pub workers: usize,
    /// Asks things of the process while it runs.
    pub control: Control,
}

impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("listening on ")?;
        for (position, address) in self.addresses.iter().enumerate() {
            let comma = if position == 0 { "" } else { ", " };
            write!(f, "{comma}{address}")?;
        }
        write!(f, " (driver {}, workers {})", self.driver, self.workers)?;
        match self.admin {
            Some(address) => write!(f, ", admin on {address}"),
            None => Ok(()),
        }
    }
}

/// Why the process did not serve.
#[derive(Debug)]
pub enum StartError {
    /// An address cannot be listened on.
    Bind(SocketAddr, io::Error),
    /// The driver that the configuration insists on is not to be had.
    Driver(Driver, io::Error),
    /// There are not enough descriptors to serve anybody.
    Descriptors(Shortage),
    /// A thread or a signal handler cannot be made.
    System(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind(address, error) if error.kind() == io::ErrorKind::AddrInUse => write!(
                f,
                "{address} is in use: another process listens there; stop it or choose another \
                 address"
            ),
            Self::Bind(address, error) => write!(f, "cannot listen on {address}: {error}"),
            Self::Driver(driver, error) => write!(f, "the driver {driver} cannot be used: {error}"),
            Self::Descriptors(shortage) => write!(f, "cannot start: {shortage}"),
            Self::System(error) => write!(f, "cannot start: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// Serves until SIGTERM or SIGINT, then lets running exchanges finish within `timeouts.drain` and ends
/// those left so that their clients see it. A second signal ends the process at once with status 1. SIGHUP reads the configuration again with
/// `reread`, where there is a file to read; standard error says what came of it.
///
/// # Errors
/// When the start fails; nothing was served then.
pub fn run(
    config: Config,
    reread: Option<Reread>,
    ready: impl FnOnce(&Running),
) -> Result<(), StartError> {
    let stop = stop_signal().map_err(StartError::System)?;
    let reload = flag_of(SIGHUP).map_err(StartError::System)?;
    let driver = driver(config.server.driver);
    block_on(driver, async {}).map_err(|error| StartError::Driver(driver, error))?;
    let workers = workers(config.server.workers);
    let connections = connections(&config, workers)?;
    let (cores, doors) = Cores::new(workers, connections).map_err(StartError::System)?;
    let (listeners, addresses) = listen(&config.server.listen, workers)?;
    let admin = bound_admin(&config)?;
    let ledger = ledger(&config, workers).map_err(StartError::System)?;
    let follower = ledger.as_ref().map(Ledger::follower);
    let recorder = Recorder::start(config.log.access, follower).map_err(StartError::System)?;
    let mut meters = Meters::new(clock::now());
    let mut share = Share::new(&config, workers, recorder.observer());
    if let Some(ledger) = &ledger {
        share = share.with_ledger(ledger).with_sessions(ledger, driver);
    }
    let heartbeats = Heartbeats::new(workers, Bounds::default());
    let plan = Plan::first(config, &mut meters);
    plan.resolvers.wait_first(FIRST_RESOLUTION);
    let published = Arc::new(Published::new(plan));
    let control = Control::new(Arc::clone(&published), heartbeats.clone(), meters, reread);
    let drain = Arc::new(Drain::new(listeners.iter().map(Vec::len).sum()));
    let course = Course::new(Arc::clone(&drain), Arc::clone(&share.metrics));
    let (ended, ends) = bounded(workers);
    for (index, (listeners, door)) in listeners.into_iter().zip(doors).enumerate() {
        let worker = Worker {
            part: Part { index, of: workers },
            cores: Arc::clone(&cores),
            door,
            share: share.clone(),
            heartbeats: heartbeats.clone(),
            published: Arc::clone(&published),
            listeners,
            drain: Arc::clone(&drain),
        };
        start(driver, ended.clone(), move || worker.run()).map_err(StartError::System)?;
    }
    let mut admin_address = None;
    if let Some((listener, key)) = admin {
        admin_address = listener.local_addr().ok();
        let operations = Arc::new(Operated {
            control: control.clone(),
            published,
            share,
            stop: Arc::clone(&stop),
        });
        let admin = Admin {
            listener,
            key,
            operations,
        };
        admin.start().map_err(StartError::System)?;
    }
    ready(&Running {
        addresses,
        admin: admin_address,
        driver,
        workers,
        control: control.clone(),
    });
    let flags = Flags { stop, reload };
    let desk = ledger.as_ref().map(Ledger::desk);
    attend(&ends, workers, &flags, &control, (course, desk));
    // The last records become rows on their way through the log.
    recorder.finish();
    if let Some(ledger) = ledger {
        ledger.finish();
    }
    Ok(())
}

/// The socket of the admin listener and its key, if there is to be one.
fn bound_admin(config: &Config) -> Result<Option<(TcpListener, Option<Secret>)>, StartError> {
    let Some(admin) = config.admin.clone() else {
        return Ok(None);
    };
    let listener = TcpListener::bind(admin.listen);
    let listener = listener.map_err(|error| StartError::Bind(admin.listen, error))?;
    Ok(Some((listener, admin.key)))
}

/// What the operator should hear when the state of the store changes.
fn ledger_news(trouble: Option<StoreError>) -> String {
    match trouble {
        Some(error) => format!("the ledger is not being stored: {error}"),
        None => "the ledger is being stored again".to_owned(),
    }
}

/// The ledger, unless the configuration wants none.
fn ledger(config: &Config, workers: usize) -> io::Result<Option<Ledger>> {
    let place = match &config.store.url {
        config::StoreUrl::None => return Ok(None),
        config::StoreUrl::Memory => Place::Memory,
        config::StoreUrl::Sqlite(path) => Place::Sqlite(path.clone()),
        config::StoreUrl::Postgres(database) => Place::Postgres(database.clone()),
    };
    let storing = Storing {
        place,
        retention: config.store.retention,
        bytes_max: config.store.max_bytes,
        flush_interval: config.store.flush_interval,
    };
    let ledger = Ledger::start(storing, config.identity.adoption_window, workers)?;
    Ok(Some(ledger))
}

/// The listeners of each worker, and the addresses that they have.
fn listen(
    wanted: &[SocketAddr],
    workers: usize,
) -> Result<(Vec<Vec<TcpListener>>, Vec<SocketAddr>), StartError> {
    let mut listeners: Vec<Vec<TcpListener>> = (0..workers).map(|_| Vec::new()).collect();
    let mut addresses = Vec::new();
    for address in wanted {
        let bound = bind(*address, workers).map_err(|e| StartError::Bind(*address, e))?;
        addresses.extend(bound.first().and_then(|socket| socket.local_addr().ok()));
        for (worker, socket) in listeners.iter_mut().zip(bound) {
            worker.push(socket);
        }
    }
    Ok((listeners, addresses))
}

/// The client connections that this process has descriptors for, at most `limits.connections`.
fn connections(config: &Config, workers: usize) -> Result<usize, StartError> {
    let Some(shortage) = descriptors::shortage(config, workers, raise_descriptors()) else {
        return Ok(config.limits.connections);
    };
    let fit = shortage.connections;
    let fit = fit.ok_or(StartError::Descriptors(shortage))?;
    report(&shortage.to_string());
    Ok(fit)
}

/// What [`run`] would say of this process's descriptors, if they are not enough.
#[must_use]
pub fn shortage(config: &Config) -> Option<Shortage> {
    descriptors::shortage(config, workers(config.server.workers), descriptors_max())
}

/// What signals have asked for.
struct Flags {
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
}

/// Attends to the process until each worker has ended, or has no more time to. Their threads stay parked:
/// a runtime that is torn down with operations in flight is not worth the risk, and the process is about
/// to end.
fn attend(
    ends: &Receiver<()>,
    workers: usize,
    flags: &Flags,
    control: &Control,
    (mut course, desk): (Course, Option<Desk>),
) {
    let mut trouble = None;
    let mut watch = Watch::new(control.heartbeats());
    let mut running = workers;
    while running > 0 && !course.is_out_of_time(clock::now()) {
        match ends.recv_timeout(Duration::from_millis(BEAT_MS)) {
            Ok(()) => running -= 1,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        // Signals that came meanwhile are one: the file is read after the last of them.
        if flags.reload.swap(false, Ordering::Relaxed) {
            let _reported = reload_and_report(control);
        }
        for change in watch.look() {
            report(&change.to_string());
        }
        if let Some(desk) = &desk
            && desk.trouble() != trouble
        {
            trouble = desk.trouble();
            report(&ledger_news(trouble));
        }
        if told_to_stop(&flags.stop)
            && let Some(news) = course.look(clock::now(), control.in_force().config.timeouts)
        {
            report(&news);
        }
    }
    report(&course.outcome());
}

/// Reads the configuration again and tells the operator what came of it, whoever asked.
fn reload_and_report(control: &Control) -> Result<ReloadReport, ReloadError> {
    let reloaded = control.reload();
    match &reloaded {
        Ok(done) => report(&done.to_string()),
        Err(error) => report(&error.to_string()),
    }
    reloaded
}

/// Runs `work` on a thread of its own; its panic is the end of the process.
fn start<F: Future<Output = ()>>(
    driver: Driver,
    ended: Sender<()>,
    work: impl FnOnce() -> F + Send + 'static,
) -> io::Result<()> {
    let serve = move || {
        let served = catch_unwind(AssertUnwindSafe(|| {
            block_on(driver, async {
                work().await;
                // Nobody waits any more if main is gone.
                let _main_gone = ended.send(());
                std::future::pending::<()>().await;
            })
        }));
        // A worker only gets here by a panic or because its runtime could not be built.
        if let Ok(Err(error)) = served {
            report(&format!("a worker cannot run: {error}"));
        }
        std::process::exit(1);
    };
    thread::Builder::new()
        .name("lanegate-core".to_owned())
        .spawn(serve)?;
    Ok(())
}

/// Tells the operator. In one piece, so that no other line comes in between.
fn report(words: &str) {
    let line = format!("lanegate: {words}\n");
    // Who closed standard error does not want to hear more.
    let _nobody_reads = io::stderr().lock().write_all(line.as_bytes());
}

/// A flag that the first SIGTERM or SIGINT sets; the second ends the process.
fn stop_signal() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        // Order matters: the first delivery finds the flag unset and only sets it.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// A flag that each delivery of a signal sets.
fn flag_of(signal: i32) -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal, Arc::clone(&flag))?;
    Ok(flag)
}

/// Whether the process was told to end.
fn told_to_stop(stop: &AtomicBool) -> bool {
    stop.load(Ordering::Relaxed)
}

fn driver(wanted: config::Driver) -> Driver {
    match wanted {
        config::Driver::Auto => Driver::detect(),
        config::Driver::IoUring => Driver::IoUring,
        config::Driver::Epoll => Driver::Epoll,
    }
}

fn workers(wanted: config::Workers) -> usize {
    match wanted {
        config::Workers::Auto => thread::available_parallelism().map_or(1, Into::into),
        config::Workers::Count(count) => count,
    }
}
