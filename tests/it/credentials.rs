//! Whose credentials reach whom: every placement of credentials in a request, through every kind of
//! route, with and without clients, held against the raw bytes on both sides.
//!
//! Each secret is written in letters of its own, so that four of them in a row are a piece of it.

use std::io::Write;
use std::net::TcpListener;

use serde_json::json;
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use crate::support::client::{Client, Response, chunk, head, request};
use crate::support::gateway::{Driver, Gateway, Setup};
use crate::support::message::{Head, find};
use crate::support::on_both_drivers;
use crate::support::origin::{Origin, Seen};

on_both_drivers!(
    with_clients_every_credential_stays_on_its_side,
    without_clients_every_credential_stays_on_its_side,
    failures_show_no_credential,
    nobody_is_shown_what_a_provider_was_sent,
);

/// A client's key for the gateway.
const KEY: &str = "WVWWVWVVVWWVWVWWVVWVWWWV";
/// As long, and of nobody.
const WRONG: &str = "VWWWVWVVVWWVWVWWVVWVWWWV";
/// The gateway's credential for its providers.
const MANAGED: &str = "QZZQZQQQZZQZQZZQ";
/// The client's own credential for a provider.
const CALLER: &str = "KJJKJKKKJJKJKJJK";

/// Whether four letters in a row are of this secret's alphabet.
fn shows(bytes: &[u8], secret: &str) -> bool {
    bytes
        .windows(4)
        .any(|window| window.iter().all(|byte| secret.as_bytes().contains(byte)))
}

/// Whose credential a kind of route sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sends {
    /// The gateway's, in this field with this value.
    Managed(&'static str, &'static str),
    /// What the client has for the provider.
    Callers,
    Nothing,
}

const BEARER: &str = "Bearer QZZQZQQQZZQZQZZQ";

/// The keys of a provider, with `SECRET` for the gateway's credential, and what follows from them for
/// a request whose model hits one of its mappings.
const ROUTES: [(&str, &str, Sends); 13] = [
    (
        "openai",
        "auth: managed, SECRET",
        Sends::Managed("Authorization", BEARER),
    ),
    (
        "openai",
        "auth: managed, SECRET, auth_scheme: api_key",
        Sends::Managed("x-api-key", MANAGED),
    ),
    (
        "openai",
        "auth: managed, SECRET, auth_header: api-key",
        Sends::Managed("api-key", BEARER),
    ),
    (
        "openai",
        "auth: managed, SECRET, auth_header: api-key, auth_scheme: api_key",
        Sends::Managed("api-key", MANAGED),
    ),
    (
        "anthropic",
        "auth: managed, SECRET",
        Sends::Managed("x-api-key", MANAGED),
    ),
    (
        "anthropic",
        "SECRET, auth_scheme: bearer",
        Sends::Managed("Authorization", BEARER),
    ),
    ("openai", "SECRET", Sends::Managed("Authorization", BEARER)),
    ("openai", "auth: passthrough", Sends::Callers),
    ("anthropic", "auth: passthrough, SECRET", Sends::Callers),
    (
        "openai",
        "auth: passthrough, SECRET, auth_header: api-key",
        Sends::Callers,
    ),
    ("openai", "auth: none", Sends::Nothing),
    (
        "anthropic",
        "auth: none, SECRET, auth_header: api-key",
        Sends::Nothing,
    ),
    // Without `auth` and a credential: an imposter gets none.
    ("openai", "auth_header: api-key", Sends::Nothing),
];

/// Fields of a request (`KEY!` the client's key, `MINE!` its credential for a provider, `WRONG!` a
/// key of nobody), and whether a gateway with clients lets it in.
const PLACEMENTS: [(&[&str], bool); 22] = [
    (&[], false),
    (&["Authorization: Bearer KEY!"], true),
    (&["authorization: BEARER KEY!"], true),
    (&["Authorization: KEY!"], true),
    (&["x-api-key: KEY!"], true),
    (&["X-API-Key: Bearer KEY!"], true),
    (&["X-Lanegate-Key: KEY!"], true),
    (&["x-lanegate-key: Bearer KEY!"], true),
    (
        &[
            "Authorization: Bearer KEY!",
            "x-api-key: KEY!",
            "X-Lanegate-Key: KEY!",
        ],
        true,
    ),
    (
        &["X-Lanegate-Key: KEY!", "Authorization: Bearer MINE!"],
        true,
    ),
    (
        &[
            "X-Lanegate-Key: KEY!",
            "Authorization: MINE!",
            "x-api-key: MINE!",
            "api-key: MINE!",
        ],
        true,
    ),
    (&["Authorization: Bearer KEY!", "x-api-key: MINE!"], true),
    (
        &[
            "Authorization: Bearer MINE!",
            "x-api-key: KEY!",
            "api-key: MINE!",
        ],
        true,
    ),
    (
        &["Authorization: Bearer KEY!", "Authorization: Bearer MINE!"],
        true,
    ),
    (&["x-api-key: MINE!", "x-api-key: KEY!"], true),
    (
        &[
            "Connection: X-Lanegate-Key, x-api-key",
            "X-Lanegate-Key: KEY!",
            "x-api-key: MINE!",
        ],
        true,
    ),
    (
        &[
            "Authorization: Bearer MINE!",
            "x-api-key: MINE!",
            "api-key: MINE!",
        ],
        false,
    ),
    (
        &["X-Lanegate-Key: WRONG!", "Authorization: Bearer KEY!"],
        false,
    ),
    (&["X-Lanegate-Key: KEY!", "X-Lanegate-Key: KEY!"], false),
    (&["X-Lanegate-Key:", "x-api-key: KEY!"], false),
    (&["Authorization: Bearer WRONG!"], false),
    (&["Proxy-Authorization: Bearer KEY!"], false),
];

fn filled(fields: &[&str]) -> Vec<String> {
    let fill = |field: &&str| {
        let field = field.replace("KEY!", KEY).replace("WRONG!", WRONG);
        field.replace("MINE!", CALLER)
    };
    fields.iter().map(fill).collect()
}

fn digest() -> String {
    let digest = Sha256::digest(KEY.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A file with the gateway's credential, while this lives.
fn secret_file() -> NamedTempFile {
    let mut secret = NamedTempFile::new().unwrap();
    secret.write_all(MANAGED.as_bytes()).unwrap();
    secret
}

/// A gateway with a provider for each row of [`ROUTES`], which takes the model `route-N`.
fn gateway(driver: Driver, origin: &Origin, clients: bool) -> (Gateway, NamedTempFile) {
    let secret = secret_file();
    let mut setup = Setup::new(driver);
    if clients {
        let digest = digest();
        setup = setup.with(&format!(
            "clients: [{{ name: c, key_sha256: \"{digest}\" }}]"
        ));
    }
    let file = format!("secret_file: \"{}\"", secret.path().display());
    for (number, (dialect, keys, _)) in ROUTES.iter().enumerate() {
        let address = origin.address();
        setup = setup.provider_as(&format!(
            "name: p{number}, dialect: {dialect}, base_url: \"http://{address}\", {}, \
             models: [{{ from: \"route-{number}\", to: \"{{model}}\" }}]",
            keys.replace("SECRET", &file)
        ));
    }
    (setup.start(), secret)
}

fn path(dialect: &str) -> &'static str {
    match dialect {
        "anthropic" => "/v1/messages",
        _ => "/v1/chat/completions",
    }
}

fn body(number: usize) -> Vec<u8> {
    let messages = json!([{"role": "user", "content": "hi"}]);
    json!({"model": format!("route-{number}"), "messages": messages})
        .to_string()
        .into()
}

/// A request, plain or with trailer fields that hold every credential again.
fn asked(target: &str, fields: &[String], body: &[u8], trailers: bool) -> Vec<u8> {
    let mut fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    if !trailers {
        return request("POST", target, &fields, body);
    }
    fields.extend(["Transfer-Encoding: chunked", "TE: trailers"]);
    let head = head("POST", target, &fields);
    let ending = format!(
        "0\r\nX-Lanegate-Key: {KEY}\r\nAuthorization: Bearer {KEY}\r\nx-api-key: {CALLER}\r\n\r\n"
    );
    [head.as_bytes(), b"\r\n", &chunk(body), ending.as_bytes()].concat()
}

fn raw_of(head: &Head) -> Vec<u8> {
    let lines = head.field_lines().join(&b"\r\n"[..]);
    [head.start().as_bytes(), b"\r\n", &lines, b"\r\n"].concat()
}

/// Every byte that the origin got.
fn raw_request(seen: &Seen) -> Vec<u8> {
    let trailers = seen.trailers.join(&b"\r\n"[..]);
    [raw_of(&seen.head), seen.body.clone(), trailers].concat()
}

/// Every byte that the client got.
fn raw_answer(answer: &Response) -> Vec<u8> {
    let interim: Vec<u8> = answer.interim.iter().flat_map(raw_of).collect();
    let trailers = answer.trailers.join(&b"\r\n"[..]);
    [interim, raw_of(&answer.head), answer.body.clone(), trailers].concat()
}

/// The credential lines that should arrive, written out independently of the gateway: name in lower
/// case and value.
fn expected(sends: Sends, fields: &[String], clients: bool) -> Vec<(String, String)> {
    let is_key = |line: &str| clients && line.contains(KEY);
    let name = |line: &str| line.split(':').next().unwrap().to_ascii_lowercase();
    // A field that held the key is used up, and so is what came under its name beside it.
    let used_up: Vec<_> = fields
        .iter()
        .filter(|f| is_key(f))
        .map(|f| name(f))
        .collect();
    let dropped: Vec<_> = fields
        .iter()
        .filter_map(|field| field.strip_prefix("Connection: "))
        .flat_map(|names| names.split(", "))
        .map(str::to_ascii_lowercase)
        .collect();
    let own = match sends {
        Sends::Managed(name, value) => {
            return vec![(name.to_ascii_lowercase(), value.to_owned())];
        }
        Sends::Nothing => return Vec::new(),
        Sends::Callers => ["authorization", "x-api-key", "api-key"],
    };
    let relayed = |field: &&String| {
        let name = name(field);
        own.contains(&name.as_str()) && !used_up.contains(&name) && !dropped.contains(&name)
    };
    let split = |field: &String| {
        let (_, value) = field.split_once(": ").unwrap();
        (name(field), value.to_owned())
    };
    fields.iter().filter(relayed).map(split).collect()
}

/// `api-key` belongs to the credentials only where the provider looks there; elsewhere it is a field
/// like any other, and relayed.
fn arrived(seen: &Seen, keys: &str, sends: Sends) -> Vec<(String, String)> {
    let mut names = vec!["authorization", "x-api-key"];
    if sends == Sends::Callers || keys.contains("auth_header") {
        names.push("api-key");
    }
    let lines = seen.head.field_lines().iter().map(|line| {
        let line = String::from_utf8(line.clone()).unwrap();
        let (name, value) = line.split_once(':').unwrap();
        (name.to_ascii_lowercase(), value.trim().to_owned())
    });
    lines
        .filter(|(name, _)| names.contains(&name.as_str()))
        .collect()
}

fn check_all(driver: Driver, clients: bool) {
    let origin = Origin::echoing();
    let (gateway, _secret) = gateway(driver, &origin, clients);
    let mut client = gateway.connect();
    let mut forwarded = 0;
    for (number, (dialect, keys, sends)) in ROUTES.iter().enumerate() {
        for (fields, let_in) in PLACEMENTS {
            for trailers in [false, true] {
                let row = format!("clients={clients} {dialect} {keys}: {fields:?} {trailers}");
                let fields = filled(fields);
                origin.forget();
                let asked = asked(path(dialect), &fields, &body(number), trailers);
                let answer = client.exchange("POST", &asked);
                if answer.closes() {
                    client = Client::connect(gateway.address());
                }
                let shown = raw_answer(&answer);
                for secret in [KEY, MANAGED, CALLER] {
                    assert!(!shows(&shown, secret), "{row}: {answer:#?}");
                }
                let seen = origin.look(|log| log.requests.clone());
                if clients && !let_in {
                    assert_eq!(answer.status, 401, "{row}: {answer:#?}");
                    assert!(seen.is_empty(), "{row}: {seen:#?}");
                    continue;
                }
                assert_eq!(answer.status, 200, "{row}: {answer:#?}");
                assert_eq!(seen.len(), 1, "{row}: {seen:#?}");
                let seen = &seen[0];
                forwarded += 1;
                let raw = raw_request(seen);
                assert!(!(clients && shows(&raw, KEY)), "{row}: {seen:#?}");
                let managed = matches!(sends, Sends::Managed(..));
                assert_eq!(shows(&raw, MANAGED), managed, "{row}: {seen:#?}");
                let got = arrived(seen, keys, *sends);
                assert_eq!(got, expected(*sends, &fields, clients), "{row}: {seen:#?}");
                for own in ["x-lanegate-key", "proxy-authorization"] {
                    assert!(!seen.head.has(own), "{row}: {seen:#?}");
                }
            }
        }
    }
    let let_in = PLACEMENTS.iter().filter(|(_, let_in)| *let_in || !clients);
    assert_eq!(forwarded, 2 * ROUTES.len() * let_in.count());
    let output = gateway.output();
    for secret in [KEY, MANAGED, CALLER] {
        assert!(!shows(output.as_bytes(), secret), "{output}");
    }
}

fn with_clients_every_credential_stays_on_its_side(driver: Driver) {
    check_all(driver, true);
}

fn without_clients_every_credential_stays_on_its_side(driver: Driver) {
    check_all(driver, false);
}

/// A gateway whose only provider, of the model `m`, is not there.
fn without_provider(driver: Driver) -> (Gateway, NamedTempFile) {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let secret = secret_file();
    let clients = format!(
        "clients: [{{ name: c, key_sha256: \"{}\", limits: {{ requests_per_minute: 9 }} }}]",
        digest()
    );
    let provider = format!(
        "name: p, dialect: openai, base_url: \"http://{}\", secret_file: \"{}\", \
         models: [{{ from: m, to: n }}]",
        gone.local_addr().unwrap(),
        secret.path().display()
    );
    let setup = Setup::new(driver).with(&clients).provider_as(&provider);
    (setup.start(), secret)
}

/// Every answer that the gateway makes itself, on a managed route with credentials in every place.
fn failures_show_no_credential(driver: Driver) {
    let (gateway, _secret) = without_provider(driver);
    let places = |key: &str| {
        let bearer = format!("Authorization: Bearer {KEY}");
        [
            bearer,
            format!("X-Lanegate-Key: {key}"),
            format!("x-api-key: {CALLER}"),
        ]
    };
    let rows: [(&str, &str, &str, &str, u16); 11] = [
        ("POST", "/v1/chat/completions", "", r#"{"model":"m"}"#, 502),
        ("POST", "/v1/chat/completions", "", r#"{"model":"#, 400),
        (
            "POST",
            "/v1/chat/completions",
            "",
            r#"{"model":"m","model":"n"}"#,
            400,
        ),
        ("POST", "/v1/messages", "", r#"{"model":"x"}"#, 404),
        ("POST", "/elsewhere", "", "{}", 404),
        ("POST", "/v1/../x", "", "{}", 400),
        ("TRACE", "/v1/models", "", "", 501),
        ("POST", "/v1/responses", "Expect: 200-ok", "{}", 417),
        ("GET", "/v1/models", "", "", 200),
        ("POST", "/v1/chat/completions", WRONG, "{}", 401),
        ("HEAD", "/", WRONG, "", 200),
    ];
    let mut answers = Vec::new();
    for (method, target, more, body, status) in rows {
        let mut fields = places(if more == WRONG { WRONG } else { KEY }).to_vec();
        fields.extend((more.contains(':')).then(|| more.to_owned()));
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        let asked = request(method, target, &fields, body.as_bytes());
        let answer = gateway.connect().exchange(method, &asked);
        let row = format!("{method} {target} {body}");
        assert_eq!(answer.status, status, "{row}: {answer:#?}");
        answers.push(answer);
    }
    let fields = places(KEY);
    let fields = fields.each_ref().map(String::as_str);
    while answers.len() < 40 {
        let asked = request("GET", "/v1/models", &fields, b"");
        answers.push(gateway.connect().exchange("GET", &asked));
    }
    assert!(answers.iter().any(|answer| answer.status == 429));
    for answer in answers {
        let raw = raw_answer(&answer);
        for secret in [KEY, WRONG, MANAGED, CALLER] {
            assert!(!shows(&raw, secret), "{answer:#?}");
        }
    }
}

/// A server that answers TRACE says in the body of its answer what it was sent, credentials included.
fn nobody_is_shown_what_a_provider_was_sent(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = Setup::in_front_of(driver, &origin).start();
    for target in [
        "/v1/chat/completions",
        "/v1/models",
        "/anthropic/v1/messages",
        "/",
    ] {
        let mut client = gateway.connect();
        let answer = client.exchange("TRACE", &request("TRACE", target, &[], b""));
        assert_eq!(answer.status, 501, "{target}: {answer:#?}");
        assert!(find(&answer.body, b"method").is_some(), "{answer:#?}");
    }
    assert_eq!(origin.look(|log| log.connections), 0);
}
