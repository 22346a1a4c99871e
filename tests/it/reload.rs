//! A new configuration while everything goes on: what is in force, for whom, and what survives.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::relay::assert_case;
use crate::support::certificates::{Authority, VERSIONS};
use crate::support::client::{BODY, CHAT, Client, chat, chunk, request};
use crate::support::gateway::{Driver, Gateway, Setup};
use crate::support::message::{End, Flow, Stop, eventually};
use crate::support::on_both_drivers;
use crate::support::origin::{Caller, Origin};

on_both_drivers!(
    open_streams_outlive_reloads,
    a_bad_configuration_changes_nothing,
    a_rewritten_secret_reaches_the_provider,
    routes_change_for_the_next_exchange_of_a_connection,
    a_new_certificate_is_shown_to_new_connections,
    a_new_authority_is_believed,
    warm_connections_survive_where_nothing_changed,
    what_takes_a_restart_is_listed,
);

fn in_force(gateway: &Gateway) {
    let said = gateway.reload();
    assert!(said.contains("is in force"), "{said}");
}

/// 200 streams through 100 reloads, each of which replaces what the streams run on: providers by name
/// with their resolvers, their pools, their routes.
fn open_streams_outlive_reloads(driver: Driver) {
    const STREAMS: usize = 200;
    const RELOADS: usize = 100;
    let phase = Arc::new(AtomicUsize::new(0));
    let origin = Origin::start({
        let phase = Arc::clone(&phase);
        move |caller| {
            if caller.request().is_none() {
                return;
            }
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
            caller.reply(head.as_bytes()).unwrap();
            for event in 0..3 {
                // Fifty reloads take several seconds each time: a signal is looked for every 100 ms.
                let turn = (0..10).any(|_| eventually(|| phase.load(Ordering::SeqCst) >= event));
                assert!(turn, "the test goes on");
                caller.reply(&chunk(&data(event))).unwrap();
            }
            caller.reply(b"0\r\n\r\n").unwrap();
        }
    });
    let setups = [
        Setup::in_front_of(driver, &origin).host("localhost"),
        Setup::in_front_of(driver, &origin)
            .host("localhost")
            .keys("keepalive_idle: 7s")
            .provider(
                "openai",
                origin.address(),
                "models: [{ from: \"a*\", to: b }]",
            ),
    ];
    let gateway = setups[0].start();
    let mut streams: Vec<_> = (0..STREAMS)
        .map(|_| {
            let mut client = gateway.connect();
            client.send(&chat(&[])).unwrap();
            let (_, head) = client.heads().unwrap();
            let flow = Flow::new(head.response_framing("POST").unwrap());
            (client, flow)
        })
        .collect();
    let threads = gateway.proc_status("Threads");
    for event in 0..3 {
        phase.store(event, Ordering::SeqCst);
        for (client, flow) in &mut streams {
            assert_eq!(flow.piece(&mut client.wire), Ok(data(event)));
        }
        if event < 2 {
            for number in 0..RELOADS / 2 {
                gateway.configure(&setups[(number + 1) % 2]);
                in_force(&gateway);
            }
        }
    }
    for (client, flow) in &mut streams {
        assert_eq!(flow.collect(&mut client.wire), (Vec::new(), End::Complete));
    }
    let said = format!("generation {} is in force", RELOADS + 1);
    assert!(gateway.output().contains(&said));
    let ended = eventually(|| gateway.proc_status("Threads") <= threads);
    assert!(ended, "threads are left of old generations");
}

fn data(event: usize) -> Vec<u8> {
    format!("data: {event}\n\n").into_bytes()
}

fn a_bad_configuration_changes_nothing(driver: Driver) {
    let origin = Origin::echoing();
    let setup = Setup::in_front_of(driver, &origin);
    let gateway = setup.start();
    let mut kept = gateway.connect();
    assert_case(&kept.exchange("POST", &chat(&["x-case: before"])), "before");
    for (yaml, expected) in [
        (
            "server: {}\nlimits:\n  connections: many\n",
            "config: line 3: limits.connections: ",
        ),
        (
            "server: {}\n\nproviders:\n  - { name: a, dialect: openai, base_url: nonsense }\n",
            "config: line 4: providers[0].base_url: ",
        ),
        ("providers: [", "config: line 1"),
        ("", "config: "),
    ] {
        gateway.configure_with(yaml);
        let said = gateway.reload();
        assert!(
            said.contains("not reloaded") && said.contains(expected),
            "{said}"
        );
        assert_case(&kept.exchange("POST", &chat(&["x-case: kept"])), "kept");
        let answer = gateway.connect().exchange("POST", &chat(&["x-case: new"]));
        assert_case(&answer, "new");
    }
    gateway.configure(&setup);
    let said = gateway.reload();
    assert!(said.contains("generation 2 is in force\n"), "{said}");
    assert_case(&kept.exchange("POST", &chat(&["x-case: after"])), "after");
    origin.look(|log| assert_eq!(log.connections, 1));
}

fn a_rewritten_secret_reaches_the_provider(driver: Driver) {
    let origin = Origin::echoing();
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, "first-secret\n").unwrap();
    let keys = format!("secret_file: \"{}\"", secret.display());
    let gateway = Setup::in_front_of(driver, &origin).keys(&keys).start();
    let mut client = gateway.connect();
    let mut ask = || {
        assert_eq!(client.exchange("POST", &chat(&[])).status, 200);
        origin.look(|log| log.requests.last().unwrap().head.value("authorization"))
    };
    assert_eq!(ask().unwrap(), "Bearer first-secret");
    fs::write(&secret, "second-secret\n").unwrap();
    assert_eq!(
        ask().unwrap(),
        "Bearer first-secret",
        "read at a reload only"
    );
    in_force(&gateway);
    assert_eq!(ask().unwrap(), "Bearer second-secret");
    assert!(!gateway.output().contains("-secret"));
    origin.look(|log| {
        assert_eq!(
            log.connections, 1,
            "a secret is no property of a connection"
        )
    });
}

fn routes_change_for_the_next_exchange_of_a_connection(driver: Driver) {
    let (default, first, second) = (Origin::echoing(), Origin::echoing(), Origin::echoing());
    let base = || Setup::in_front_of(driver, &default);
    let setups = [
        base().provider("openai", first.address(), "models: [{ from: m, to: one }]"),
        base().provider("openai", first.address(), "models: [{ from: m, to: two }]"),
        base().provider(
            "openai",
            second.address(),
            "models: [{ from: m, to: three }]",
        ),
        base(),
    ];
    let gateway = setups[0].start();
    let mut client = gateway.connect();
    for (number, setup) in setups.iter().enumerate() {
        if number > 0 {
            gateway.configure(setup);
            in_force(&gateway);
        }
        for origin in [&default, &first, &second] {
            origin.forget();
        }
        assert_eq!(client.exchange("POST", &chat(&[])).status, 200);
        let origins = [
            (&first, "one"),
            (&first, "two"),
            (&second, "three"),
            (&default, "m"),
        ];
        let (origin, model) = origins[number];
        let seen = origin.look(|log| log.requests.last().unwrap().body.clone());
        let seen = String::from_utf8(seen).unwrap();
        assert_eq!(seen, BODY.replace("\"m\"", &format!("\"{model}\"")));
    }
}

fn a_new_certificate_is_shown_to_new_connections(driver: Driver) {
    let (old, new) = (Authority::named("old"), Authority::named("new"));
    let origin = Origin::echoing();
    let (certificate, key) = old.files();
    let gateway = Setup::in_front_of(driver, &origin)
        .listen_encrypted(&certificate, &key)
        .start();
    let believes = [old.client(&VERSIONS), new.client(&VERSIONS)];
    let mut open = Client::connect_encrypted(gateway.address(), &believes[0]);
    assert_case(&open.exchange("POST", &chat(&["x-case: old"])), "old");
    // Whole, but not a pair until both are there.
    let (new_certificate, new_key) = new.files();
    fs::copy(new_certificate, &certificate).unwrap();
    let said = gateway.reload();
    assert!(
        said.contains("not reloaded") && said.contains("server.tls.key: "),
        "{said}"
    );
    let mut still = Client::connect_encrypted(gateway.address(), &believes[0]);
    assert_case(&still.exchange("POST", &chat(&["x-case: still"])), "still");
    fs::copy(new_key, &key).unwrap();
    in_force(&gateway);
    let mut fresh = Client::connect_encrypted(gateway.address(), &believes[1]);
    assert_case(&fresh.exchange("POST", &chat(&["x-case: new"])), "new");
    let mut wary = Client::connect_encrypted(gateway.address(), &old.client(&VERSIONS));
    let refused = wary.send(&chat(&[])).is_err() || wary.response("POST").is_err();
    assert!(refused, "the old certificate is still shown");
    assert_case(&open.exchange("POST", &chat(&["x-case: open"])), "open");
}

fn a_new_authority_is_believed(driver: Driver) {
    let (old, new) = (Authority::named("old"), Authority::named("new"));
    let origin = Origin::start_encrypted(new.server(), Caller::echo_all);
    let ca_file = old.ca_file();
    let gateway = Setup::in_front_of(driver, &origin)
        .encrypted(&ca_file)
        .start();
    let mut client = gateway.connect();
    let answer = client.exchange("POST", &chat(&[]));
    let code = answer.gateway_error();
    assert_eq!(code.as_deref(), Some("upstream_certificate_unknown_issuer"));
    fs::copy(new.ca_file(), &ca_file).unwrap();
    in_force(&gateway);
    assert_case(
        &client.exchange("POST", &chat(&["x-case: believed"])),
        "believed",
    );
}

fn warm_connections_survive_where_nothing_changed(driver: Driver) {
    let authority = Authority::new();
    let origin = Origin::start_encrypted(authority.server(), |caller| {
        caller.echo_all();
        caller.until_closed();
    });
    let other = Origin::echoing();
    let base = || Setup::in_front_of(driver, &origin).encrypted(&authority.ca_file());
    let gateway = base().start();
    let mut client = gateway.connect();
    let mut ask = || {
        assert_case(&client.exchange("POST", &chat(&["x-case: warm"])), "warm");
        origin.look(|log| log.requests.last().unwrap().connection)
    };
    assert_eq!(ask(), 0);
    in_force(&gateway);
    assert_eq!(ask(), 0, "the same file");
    gateway.configure(&base().provider("openai", other.address(), "models: [{ from: x, to: x }]"));
    in_force(&gateway);
    assert_eq!(ask(), 0, "another provider beside it");
    gateway.configure(&base().keys("timeouts: { first_byte: 9m }"));
    in_force(&gateway);
    // Closed without a further exchange, so that nothing is left of a provider that is gone.
    origin.wait("the end of the old connection", |log| log.has_ended(0));
    assert_eq!(ask(), 1);
}

fn what_takes_a_restart_is_listed(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = Setup::in_front_of(driver, &origin).start();
    let changed = "limits: { memory_bytes: 1GiB, head_fields: 20 }\ntimeouts: { drain: 1m }";
    let setup = Setup::in_front_of(driver, &origin).with(changed);
    gateway.configure(&setup.clone().listen(gateway.address()));
    let said = gateway.reload();
    let expected =
        "generation 2 is in force; server.listen, limits.memory_bytes differ and need a restart\n";
    assert!(said.ends_with(expected), "{said}");
    // What the file says of them goes for nothing while the command line says something else.
    let file = "server: { listen: [\"127.0.0.1:0\"], workers: 7, driver: auto }\n";
    let rest = format!(
        "providers: [{{ name: a, dialect: openai, base_url: \"http://{}\", auth: none }}]\n",
        origin.address()
    );
    gateway.configure_with(&format!("{file}{rest}"));
    let said = gateway.reload();
    assert!(said.ends_with("generation 3 is in force\n"), "{said}");
    let many: Vec<_> = (0..30).map(|n| format!("x-{n}: y")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    let asked = request("POST", CHAT, &many, BODY.as_bytes());
    let mut client = gateway.connect();
    assert_eq!(client.exchange("POST", &asked).status, 200);
    gateway.configure(&setup);
    in_force(&gateway);
    assert_eq!(
        client.exchange("POST", &asked).status,
        431,
        "limits.head_fields is in force"
    );
    assert_eq!(client.wire.ending(), Stop::Fin);
}

#[test]
fn without_a_file_there_is_nothing_to_reload() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_lanegate"))
        .args(["serve", "--listen", "127.0.0.1:0", "--workers", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("listening on")));
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::HUP).unwrap();
    let mut line = String::new();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    errors.read_line(&mut line).unwrap();
    // It goes on, until it is told to end.
    std::thread::sleep(Duration::from_millis(200));
    let went_on = child.try_wait().unwrap().is_none();
    kill_process(pid, Signal::TERM).unwrap();
    let status = child.wait().unwrap();
    assert!(line.contains("nothing to reload"), "{line}");
    assert!(went_on && status.success(), "{status}");
}
