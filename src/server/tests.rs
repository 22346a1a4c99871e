//! The parts of the process that cannot be seen, or not be waited for, from outside.

#![expect(
    clippy::disallowed_methods,
    reason = "tests block a core on purpose and watch it from another thread"
)]

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::rc::Rc;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};

use super::*;
use crate::config::Timeouts;
use crate::exchange::{Core, Generations, serve_connection};
use crate::observe::{AccessLog, Metrics};
use crate::runtime::{Listener, TcpStream as AcceptedStream, sleep, spawn};
use crate::server::heartbeat::Change;
use crate::upstream::EndpointId;

const DRIVERS: [Driver; 2] = [Driver::Epoll, Driver::IoUring];
const PATIENCE: Duration = Duration::from_secs(20);

/// Providers `first`, `second`, ... at these ports, and then more lines.
fn config(ports: &[u16], more: &str) -> Config {
    let mut yaml = format!("{more}\nproviders:\n");
    for (port, name) in ports.iter().zip(["first", "second", "third"]) {
        yaml.push_str(&format!(
            "  - {{ name: {name}, dialect: openai, base_url: \"http://127.0.0.1:{port}\", auth: none, \
             models: [{{ from: {name}, to: {name} }}] }}\n"
        ));
    }
    config::parse(&yaml, &|_| None).unwrap()
}

fn share(config: &Config) -> Share {
    let recorder = Recorder::start(AccessLog::None, None).unwrap();
    Share::new(config, 1, recorder.observer())
}

fn published(config: Config) -> (Arc<Published>, Generations) {
    let share = share(&config);
    let published = Arc::new(Published::new(Plan::first(
        config,
        &mut Meters::new(clock::now()),
    )));
    let generations = Generations::new(published.clone(), share.lasting(Part::WHOLE, 1));
    (published, generations)
}

fn publish(published: &Published, config: Config) {
    published.publish(
        published
            .plan()
            .next(config, &mut Meters::new(clock::now())),
    );
}

fn eventually(mut done: impl FnMut() -> bool) -> bool {
    (0..2000).any(|_| {
        let it_is = done();
        if !it_is {
            thread::sleep(Duration::from_millis(10));
        }
        it_is
    })
}

// ------------------------------------------------------------------------------------- generations

#[test]
fn an_exchange_keeps_its_generation_and_the_last_one_frees_it() {
    let (published, generations) = published(config(&[1, 2], ""));
    let old = generations.current();
    let (core, table) = (Rc::downgrade(&old), Arc::downgrade(&old.table));
    let plan = Arc::downgrade(&published.plan());
    publish(&published, config(&[3], ""));
    let new = generations.current();
    assert_eq!((old.generation, new.generation), (1, 2));
    assert!(plan.upgrade().is_none(), "the plan goes with the next one");
    assert!(Rc::ptr_eq(&new, &generations.current()), "built once");
    let names = |core: &Core| core.table.names(crate::dialect::Family::OpenAi).len();
    assert_eq!((names(&old), names(&new)), (2, 1));
    drop(old);
    assert!(core.upgrade().is_none() && table.upgrade().is_none());
}

#[test]
fn hundred_generations_leave_one() {
    let (published, generations) = published(config(&[1], ""));
    let mut old: Vec<Weak<_>> = Vec::new();
    for _ in 0..100 {
        old.push(Arc::downgrade(&generations.current().table));
        publish(&published, config(&[1], ""));
    }
    assert_eq!(generations.current().generation, 101);
    assert!(old.iter().all(|table| table.upgrade().is_none()));
}

#[test]
fn pools_go_on_where_their_endpoint_does() {
    let (published, generations) = published(config(&[1, 2], ""));
    let old = generations.current();
    // Another provider in front, and a changed one: what is known by position alone would go wrong.
    let yaml = "providers:\n  \
        - { name: new, dialect: openai, base_url: \"http://127.0.0.1:9\", auth: none, default: true }\n  \
        - { name: second, dialect: openai, base_url: \"http://127.0.0.1:2\", auth: none }\n  \
        - { name: first, dialect: openai, base_url: \"http://127.0.0.1:1\", auth: none, keepalive_idle: 7s }\n";
    publish(&published, config::parse(yaml, &|_| None).unwrap());
    let new = generations.current();
    let pool = |core: &Rc<Core>, index| {
        let pool = core.upstreams.pool(EndpointId::new(index)).unwrap();
        std::ptr::from_ref(pool)
    };
    assert_eq!(pool(&old, 1), pool(&new, 1));
    assert_ne!(pool(&old, 0), pool(&new, 2));
    assert_ne!(pool(&old, 0), pool(&new, 0));
}

/// A connection between two exchanges holds no generation, and the next exchange finds the newest.
#[test]
fn an_idle_connection_holds_no_generation() {
    for driver in DRIVERS {
        let published = published(config(&[1, 2], "")).0;
        let first = Arc::downgrade(&generations_of(&published).current().table);
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0)), 1)
            .unwrap()
            .remove(0);
        let address = listener.local_addr().unwrap();
        let serving = Arc::clone(&published);
        thread::spawn(move || {
            block_on(driver, async {
                let generations = Rc::new(generations_of(&serving));
                let listener = Listener::adopt(listener).unwrap();
                listener.readable().await.unwrap();
                let socket = AcceptedStream::adopt(listener.try_accept().unwrap()).unwrap();
                spawn(serve_connection(generations.clone(), socket));
                loop {
                    sleep(Duration::from_millis(5)).await;
                    // As the beat does.
                    drop(generations.current());
                }
            })
        });
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(models(&mut client).contains("second"));
        publish(&published, config(&[1], ""));
        assert!(
            eventually(|| first.upgrade().is_none()),
            "{driver}: an idle connection holds the first generation"
        );
        let answer = models(&mut client);
        assert!(
            answer.contains("first") && !answer.contains("second"),
            "{answer}"
        );
    }
}

fn generations_of(published: &Arc<Published>) -> Generations {
    let share = share(&published.plan().config);
    Generations::new(published.clone(), share.lasting(Part::WHOLE, 1))
}

/// The list of models that the gateway answers itself.
fn models(client: &mut TcpStream) -> String {
    client
        .write_all(b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    let mut piece = [0; 4096];
    let whole = |answer: &str| {
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let length = head
            .to_ascii_lowercase()
            .split_once("content-length: ")?
            .1
            .to_owned();
        Some(length.lines().next()?.parse::<usize>().ok()? == body.len())
    };
    while whole(&answer) != Some(true) {
        let count = client.read(&mut piece).unwrap();
        assert!(count > 0, "cut: {answer}");
        answer.push_str(std::str::from_utf8(&piece[..count]).unwrap());
    }
    answer
}

// ----------------------------------------------------------------------------------------- control

fn control(config: Config, reread: Option<Reread>) -> Control {
    let published = Arc::new(Published::new(Plan::first(
        config,
        &mut Meters::new(clock::now()),
    )));
    Control::new(
        published,
        Heartbeats::new(1, Bounds::default()),
        Meters::new(clock::now()),
        reread,
    )
}

#[test]
fn a_reload_puts_the_next_generation_in_force() {
    let reread = || Ok(config(&[3], "limits: { connections: 9 }"));
    let control = control(config(&[1, 2], ""), Some(Box::new(reread)));
    let report = control.reload().unwrap();
    assert_eq!(
        report.to_string(),
        "generation 2 is in force; limits.connections differs and needs a restart"
    );
    let InForce { generation, config } = control.in_force();
    assert_eq!((generation, config.providers.len()), (2, 1));
    assert_eq!(config.limits.connections, 10_000);
    assert_eq!(control.reload().unwrap().generation, 3);
}

#[test]
fn a_reload_that_fails_changes_nothing() {
    let reread = || config::parse("limits:\n  connections: many\n", &|_| None);
    let control = control(config(&[1], ""), Some(Box::new(reread)));
    let before = control.in_force();
    let error = control.reload().unwrap_err().to_string();
    assert!(error.contains("line 2: limits.connections: "), "{error}");
    let after = control.in_force();
    assert_eq!(after.generation, before.generation);
    assert!(Arc::ptr_eq(&after.config, &before.config));
}

#[test]
fn without_a_file_there_is_nothing_to_reload() {
    let control = control(config(&[1], ""), None);
    assert_eq!(control.reload(), Err(ReloadError::NoFile));
    assert_eq!(control.in_force().generation, 1);
}

#[test]
fn reloads_take_turns() {
    let inside = AtomicUsize::new(0);
    let reread = move || {
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at a time");
        thread::sleep(Duration::from_millis(2));
        inside.fetch_sub(1, Ordering::SeqCst);
        Ok(config(&[1], ""))
    };
    let control = control(config(&[1], ""), Some(Box::new(reread)));
    let mut numbers = thread::scope(|scope| {
        let asked: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| control.reload().unwrap().generation))
            .collect();
        asked
            .into_iter()
            .map(|it| it.join().unwrap())
            .collect::<Vec<_>>()
    });
    numbers.sort_unstable();
    assert_eq!(numbers, (2..=9).collect::<Vec<_>>());
}

// -------------------------------------------------------------------------------------- heartbeats

/// A core that runs what a worker runs, and is then blocked: not ready first, not alive later, and back.
#[test]
fn a_blocked_core_becomes_unready_and_then_dead() {
    for driver in DRIVERS {
        let bounds = Bounds {
            ready: Duration::from_millis(600),
            alive: Duration::from_millis(1200),
        };
        let heartbeats = Heartbeats::new(2, bounds);
        let mut watch = Watch::new(heartbeats.clone());
        let published = published(config(&[1], "")).0;
        let drain = Arc::new(Drain::new(0));
        let (ended, ends) = bounded(2);
        let (block, blocked) = bounded::<Duration>(1);
        let (cores, doors) = Cores::new(2, 10).unwrap();
        for (core, door) in doors.into_iter().enumerate() {
            let worker = Worker {
                part: Part { index: core, of: 2 },
                cores: Arc::clone(&cores),
                door,
                share: share(&published.plan().config),
                heartbeats: heartbeats.clone(),
                published: Arc::clone(&published),
                listeners: Vec::new(),
                drain: Arc::clone(&drain),
            };
            let blocked = blocked.clone();
            start(driver, ended.clone(), move || async move {
                if core == 1 {
                    spawn(async move {
                        loop {
                            sleep(Duration::from_millis(5)).await;
                            if let Ok(time) = blocked.try_recv() {
                                thread::sleep(time);
                            }
                        }
                    });
                }
                worker.run().await;
            })
            .unwrap();
        }
        thread::sleep(Duration::from_millis(700));
        assert!(heartbeats.ready() && heartbeats.alive() && watch.look().is_empty());
        block.send(Duration::from_secs(3)).unwrap();
        assert!(eventually(|| !heartbeats.ready()));
        assert!(heartbeats.alive(), "unready comes first");
        assert_eq!(watch.look(), [Change::Silent(1)]);
        assert!(eventually(|| !heartbeats.alive()));
        assert!(watch.look().is_empty(), "said once");
        assert!(eventually(|| heartbeats.ready() && heartbeats.alive()));
        assert_eq!(watch.look(), [Change::Back(1)]);
        let mut course = Course::new(drain, Arc::new(Metrics::new(2)));
        let said = course.look(clock::now(), Timeouts::default()).unwrap();
        assert_eq!(said, "told to stop: 0 exchanges run, with 900s to finish");
        for _ in 0..2 {
            ends.recv_timeout(PATIENCE).unwrap();
        }
        // A core that ended is not missed.
        thread::sleep(bounds.alive + Duration::from_millis(100));
        assert!(heartbeats.alive() && watch.look().is_empty());
    }
}

// ------------------------------------------------------------------------------------------ panics

const PANICS_IN: &str = "LANEGATE_TEST_PANICS_IN";

/// The child of the next test: a core that panics outside an exchange.
#[test]
#[ignore = "ends its process; the next test starts it in one of its own"]
fn core_that_panics() {
    let place = std::env::var(PANICS_IN).unwrap();
    let driver = DRIVERS[usize::from(place.ends_with("ring"))];
    let in_task = place.starts_with("task");
    let (ended, ends) = bounded(1);
    start(driver, ended, move || async move {
        let nothing = std::hint::black_box(Vec::<u8>::new());
        if !in_task {
            let _never = nothing[0];
        }
        spawn(async move {
            let _never = nothing[0];
        });
        std::future::pending::<()>().await;
    })
    .unwrap();
    // Neither an end nor a time-out is what the parent waits for.
    let _none = ends.recv_timeout(PATIENCE);
    std::process::exit(0);
}

#[test]
fn a_panic_outside_an_exchange_ends_the_process() {
    for place in ["core epoll", "core ring", "task epoll", "task ring"] {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "server::tests::core_that_panics"])
            .env(PANICS_IN, place)
            .output()
            .unwrap();
        assert_eq!(child.status.code(), Some(1), "{place}: {child:?}");
    }
}
