//! `lanegate probe` from outside: its exit codes, and what a provider sees of it.

use std::net::TcpListener;
use std::process::{Command, Output};

use crate::support::gateway::{Driver, Gateway, Setup};
use crate::support::on_both_drivers;
use crate::support::origin::Origin;

on_both_drivers!(
    what_the_gateway_answers_is_printed,
    what_a_provider_answers_is_told_apart,
    what_is_refused_is_an_error,
);

fn probe(url: &str, arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lanegate"))
        .arg("probe")
        .args(arguments.split(' '))
        .args(["--url", url])
        .env("LANEGATE_TEST_CLIENT", "key-of-a-client-of-the-tests")
        .output()
        .unwrap()
}

fn url(gateway: &Gateway) -> String {
    format!("http://{}", gateway.address())
}

fn setup(driver: Driver, origin: &Origin) -> Setup {
    let rest = "session_forwarding: opencode-go, models: [{ from: m, to: n }]";
    Setup::new(driver)
        .provider("openai", origin.address(), rest)
        .provider("openai", origin.address(), "default: true")
        .provider(
            "anthropic",
            origin.address(),
            &format!("default: false, {rest}"),
        )
}

fn what_the_gateway_answers_is_printed(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = setup(driver, &origin)
        .with("switches: { responses: true }")
        .start();
    for (arguments, expected) in [
        (
            "who --dialect chat --model m",
            "Imposter: m → n (auth: none, session: null)",
        ),
        (
            "who --dialect messages --model m --session s",
            "Imposter: m → n (auth: none, session: s)",
        ),
        (
            "who --dialect responses --model x",
            "Passthrough: x (auth: none, session: null)",
        ),
    ] {
        let output = probe(&url(&gateway), arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments} {output:?}");
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            format!("{expected}\n")
        );
    }
    let ids = ["chat", "messages"].map(|dialect| {
        let output = probe(
            &url(&gateway),
            &format!("newsession --dialect {dialect} --model m --session s"),
        );
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let line = String::from_utf8(output.stdout).unwrap();
        line.strip_prefix("Session: s → ")
            .unwrap()
            .trim_end()
            .to_owned()
    });
    assert_eq!((ids[0].len(), &ids[0]), (32, &ids[1]));
    assert_eq!(origin.look(|log| log.connections), 0);
}

fn what_a_provider_answers_is_told_apart(driver: Driver) {
    let origin = Origin::echoing();
    let off = setup(driver, &origin)
        .with("switches: { enabled: false }")
        .start();
    let on = setup(driver, &origin).start();
    for (gateway, arguments) in [
        (&off, "who --dialect chat --model m"),
        (&on, "newsession --dialect chat --model x --session s"),
        (&on, "newsession --dialect messages --model m"),
        (&on, "who --dialect responses --model m"),
    ] {
        origin.forget();
        let output = probe(&url(gateway), arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments} {output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        assert_eq!(origin.look(|log| log.requests.len()), 1);
    }
}

fn what_is_refused_is_an_error(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = setup(driver, &origin)
        .variable("LANEGATE_TEST_CLIENT", "key-of-a-client-of-the-tests")
        .with("clients: [{ name: c, key_env: LANEGATE_TEST_CLIENT }]")
        .start();
    let who = "who --dialect chat --model m";
    let url = url(&gateway);
    let output = probe(&url, who);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("401 unauthorized")
    );
    let output = probe(&url, &format!("{who} --key-env LANEGATE_TEST_CLIENT"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    for (url, arguments) in [
        (format!("http://{free}"), who.to_owned()),
        ("https://127.0.0.1".to_owned(), who.to_owned()),
        ("ftp://x".to_owned(), who.to_owned()),
        (url.clone(), format!("{who} --key-env LANEGATE_TEST_UNSET")),
        (url.clone(), format!("{who} --session é")),
        (
            url,
            "who --dialect messages --model z --key-env LANEGATE_TEST_CLIENT".to_owned(),
        ),
    ] {
        let output = probe(&url, &arguments);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{url} {arguments} {output:?}"
        );
        assert!(output.stdout.is_empty());
        assert!(!output.stderr.is_empty());
    }
    assert_eq!(origin.look(|log| log.requests.len()), 0);
}
