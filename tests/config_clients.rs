//! What `authentication` and `clients` accept, what they refuse and where they say so.

#![expect(clippy::panic, reason = "a test stops at the first surprise")]

use std::fs;

use lanegate::config::{self, Authentication, Client, Config, ConfigError, KeyFrom};

const KEY: &str = "a-key-that-only-the-environment-has";
const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
/// Where a digest belongs.
const PLAIN: &str = "a-plain-key-that-stands-here-by-mistake-and-is-as-long-as-a-digest";
/// FIPS 180-4 of no bytes.
const OF_NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn environment(name: &str) -> Option<String> {
    match name {
        "FLEET_KEY" | "SAME_KEY" => Some(KEY.to_owned()),
        "BLANK" => Some("  ".to_owned()),
        "SHORT" => Some("only-15-bytes-x".to_owned()),
        "SPACED" => Some("Bearer a-key-with-its-scheme".to_owned()),
        _ => None,
    }
}

/// A file that begins with `lines`.
fn with_lines(lines: &str) -> String {
    format!("{lines}\nproviders: [{{ name: p, dialect: openai, base_url: \"http://h\" }}]\n")
}

fn read(lines: &str) -> Result<Config, ConfigError> {
    config::parse(&with_lines(lines), &environment)
}

fn clients(lines: &str) -> Vec<Client> {
    match read(lines) {
        Ok(config) => match config.authentication {
            Authentication::Clients(clients) => clients,
            other => panic!("{other:?}\n{lines}"),
        },
        Err(error) => panic!("{error}\n--\n{lines}"),
    }
}

fn refusal(lines: &str) -> String {
    match read(lines) {
        Ok(config) => panic!("accepted:\n{lines}\n--\n{}", config.effective_yaml()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_key_of_a_client_arrives() {
    let clients = clients(&format!(
        "clients:\n  \
         - {{ name: ci-fleet, key_sha256: {A}, workspace_markers: [go.mod, \"My Project.sln\"], \
         limits: {{ concurrency: 200, requests_per_minute: 6000 }} }}\n  \
         - name: 2.laptop_B\n    key_env: FLEET_KEY\n"
    ));
    let [fleet, laptop] = clients.as_slice() else {
        panic!("{clients:?}")
    };
    assert_eq!(
        (fleet.name.as_str(), &fleet.key_from),
        ("ci-fleet", &KeyFrom::Sha256)
    );
    assert_eq!(fleet.key.to_string(), A);
    assert_eq!(fleet.workspace_markers, ["go.mod", "My Project.sln"]);
    assert_eq!(fleet.limits.concurrency.unwrap().get(), 200);
    assert_eq!(fleet.limits.requests_per_minute.unwrap().get(), 6000);
    assert_eq!(laptop.name, "2.laptop_B");
    assert_eq!(laptop.key_from, KeyFrom::Env("FLEET_KEY".to_owned()));
    assert_eq!(laptop.key, lanegate::auth::Digest::of(KEY.as_bytes()));
    assert!(laptop.workspace_markers.is_empty());
    assert_eq!(laptop.limits, lanegate::auth::ClientLimits::default());
}

#[test]
fn who_may_call_follows_from_what_is_written() {
    let one = format!("clients: [{{ name: a, key_sha256: {A} }}]");
    assert_eq!(read("").unwrap().authentication, Authentication::Unset);
    assert_eq!(
        read("authentication: none").unwrap().authentication,
        Authentication::None
    );
    assert_eq!(clients(&one).len(), 1);
    assert_eq!(clients(&format!("authentication: clients\n{one}")).len(), 1);
    assert!(clients("authentication: clients\nclients: []").is_empty());
    assert!(clients("clients: []").is_empty());
    for (lines, message) in [
        (
            "authentication: clients".to_owned(),
            "line 1: authentication: `clients` needs the list `clients`",
        ),
        (
            "authentication: clients\nclients: null".to_owned(),
            "line 1: authentication: `clients` needs the list",
        ),
        (
            format!("authentication: none\n{one}"),
            "line 1: authentication: `none` lets everybody in, but clients are listed",
        ),
        (
            "clients: { a: b }".to_owned(),
            "line 1: clients: expected a list, got a mapping",
        ),
        (
            "authentication: [clients]".to_owned(),
            "line 1: authentication: expected clients or none, got a list",
        ),
    ] {
        let refusal = refusal(&lines);
        assert!(refusal.contains(message), "{refusal}\n--\n{lines}");
    }
}

#[test]
fn listeners_that_others_reach_need_clients_or_none_in_words() {
    let open = "server: { listen: [\"127.0.0.1:1\", \"192.0.2.1:80\"] }";
    let refused = refusal(open);
    assert!(
        refused.contains("config: line 1: server.listen: 192.0.2.1:80 can be"),
        "{refused}"
    );
    let one = format!("clients: [{{ name: a, key_sha256: {A} }}]");
    for more in [one.as_str(), "authentication: none", "clients: []"] {
        read(&format!("{open}\n{more}")).unwrap();
    }
    // A flag in place of the list is held to the same.
    let outside = "[::]:80".parse().unwrap();
    let inside = "[::1]:80".parse().unwrap();
    let mut silent = read("").unwrap();
    let refused = silent.listen_on(outside).unwrap_err().to_string();
    assert!(
        refused.starts_with("config: --listen: [::]:80 can be reached"),
        "{refused}"
    );
    silent.listen_on(inside).unwrap();
    assert_eq!(silent.server.listen, [inside]);
    for more in [one.as_str(), "authentication: none"] {
        let mut config = read(more).unwrap();
        config.listen_on(outside).unwrap();
        assert_eq!(config.server.listen, [outside]);
    }
    let mock = "127.0.0.1:1".parse().unwrap();
    assert!(config::builtin(inside, mock).listen_on(outside).is_err());
}

/// The client in the flow mapping on line 2 is refused there, with this message and no key.
fn assert_refused(client: &str, message: &str) {
    let refusal = refusal(&format!("clients:\n  - {{ {client} }}"));
    assert!(refusal.contains("config: line 2: clients[0]"), "{refusal}");
    assert!(
        refusal.contains(message),
        "expected {message}\ngot {refusal}"
    );
    for secret in [KEY, PLAIN, "only-15-bytes", "a-key-with", "sk-lower"] {
        assert!(!refusal.contains(secret), "{refusal}");
    }
}

#[test]
fn wrong_keys_name_their_place_and_are_not_shown() {
    for (keys, message) in [
        (
            "",
            "clients[0]: a client needs one of key_sha256, key_env and key_file",
        ),
        (
            "key_env: UNSET",
            "key_env: a client needs a key, but the environment variable UNSET is",
        ),
        ("key_env: BLANK", "BLANK is unset or blank"),
        (
            "key_env: SHORT",
            "key_env: the value of SHORT: expected a key of 16 to 512 bytes, got 15",
        ),
        (
            "key_env: SPACED",
            "SPACED: expected visible ASCII without white space, got another byte at offset 6",
        ),
        (
            "key_env: sk-lower",
            "key_env: expected the name of an environment variable in capitals",
        ),
        (
            "key_file: /nowhere/at/all",
            "key_file: cannot read the file",
        ),
        (
            "key_sha256: PLAIN",
            "key_sha256: expected a SHA-256 as 64 hexadecimal digits (what",
        ),
        (
            "key_sha256: OF_NOTHING",
            "key_sha256: this is the SHA-256 of no bytes",
        ),
        (
            "key_sha256: DIGEST, key_env: FLEET_KEY",
            "key_env: a second key of this client, beside key_sha256",
        ),
        (
            "key_env: FLEET_KEY, key_file: x, key_sha256: DIGEST",
            "a second key of this client",
        ),
        ("key: DIGEST", "clients[0].key: unknown key"),
    ] {
        let keys = keys
            .replace("PLAIN", PLAIN)
            .replace("OF_NOTHING", OF_NOTHING);
        assert_refused(&format!("name: a, {}", keys.replace("DIGEST", A)), message);
    }
}

#[test]
fn wrong_names_limits_and_markers_name_their_place() {
    assert_refused("key_env: FLEET_KEY", "clients[0].name: required");
    let long = "n".repeat(65);
    for name in ["a b", "-a", "", "ä", "a/b", "a\\nb", &long] {
        assert_refused(
            &format!("name: \"{name}\", key_sha256: {A}"),
            "name: expected 1 to 64 letters, digits",
        );
    }
    let markers = format!("workspace_markers: [{}]", vec!["m"; 65].join(", "));
    for (keys, message) in [
        (
            "limits: { concurrency: 0 }",
            "clients[0].limits.concurrency: expected 1 to 1000000, got 0",
        ),
        (
            "limits: { requests_per_minute: 1000001 }",
            "requests_per_minute: expected 1 to 1000000",
        ),
        ("limits: { rpm: 1 }", "clients[0].limits.rpm: unknown key"),
        (
            "workspace_markers: go.mod",
            "workspace_markers: expected a list",
        ),
        (
            "workspace_markers: [\" x\"]",
            "workspace_markers[0]: expected 1 to 255 bytes",
        ),
        (
            &markers,
            "workspace_markers: expected at most 64 markers, got 65",
        ),
    ] {
        assert_refused(&format!("name: a, key_sha256: {A}, {keys}"), message);
    }
    assert!(refusal("clients: [x]").contains("line 1: clients[0]: expected a mapping"));
    assert!(refusal("clients: [null]").contains("line 1: clients[0].name: required"));
}

#[test]
fn no_two_clients_share_a_name_or_a_key() {
    let two = |first: &str, second: &str| {
        refusal(&format!("clients:\n  - {{ {first} }}\n  - {{ {second} }}"))
    };
    let upper = A.to_ascii_uppercase();
    for (first, second, message) in [
        (
            format!("name: Fleet, key_sha256: {A}"),
            format!("name: fleet, key_sha256: {B}"),
            "line 3: clients[1].name: \"fleet\" is the name of another client, at clients[0].name",
        ),
        (
            format!("name: a, key_sha256: {A}"),
            format!("name: b, key_sha256: {upper}"),
            "line 3: clients[1].key_sha256: the key of another client, at clients[0].key_sha256",
        ),
        (
            "name: a, key_env: FLEET_KEY".to_owned(),
            "name: b, key_env: SAME_KEY".to_owned(),
            "line 3: clients[1].key_env: the key of another client, at clients[0].key_env",
        ),
    ] {
        let refusal = two(&first, &second);
        assert!(
            refusal.contains(message),
            "expected {message}\ngot {refusal}"
        );
        assert!(!refusal.contains(A) && !refusal.contains(KEY), "{refusal}");
    }
}

#[test]
fn keys_in_files_are_read_without_their_line_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lanegate.yaml");
    let text = with_lines("clients: [{ name: a, key_file: a.key }]");
    fs::write(&path, text).unwrap();
    for content in [KEY.to_owned(), format!("{KEY}\n"), format!("{KEY}\r\n")] {
        fs::write(folder.path().join("a.key"), content).unwrap();
        let config = config::load(&path).unwrap();
        let Authentication::Clients(clients) = &config.authentication else {
            panic!("{config:?}")
        };
        assert_eq!(clients[0].key, lanegate::auth::Digest::of(KEY.as_bytes()));
        let shown = config.effective_yaml();
        assert!(shown.contains("key_file: \"a.key\""), "{shown}");
        assert!(!shown.contains(KEY) && !format!("{config:?}").contains(KEY));
    }
    for (content, message) in [
        (
            &b"\n"[..],
            "the file: expected a key of 16 to 512 bytes, got 0",
        ),
        (b"\xff", "the file is no text at offset 0"),
        (&[b'k'; 600], "cannot read the file"),
    ] {
        fs::write(folder.path().join("a.key"), content).unwrap();
        let refused = config::load(&path).unwrap_err().to_string();
        assert!(refused.contains(message), "{refused}");
    }
}

#[test]
fn what_is_shown_reads_back_and_holds_no_key() {
    for lines in [
        String::new(),
        "authentication: none".to_owned(),
        "clients: []".to_owned(),
        format!(
            "clients:\n  - {{ name: a, key_sha256: {A}, workspace_markers: [\"a\\\"b\"] }}\n  \
             - {{ name: b, key_env: FLEET_KEY, limits: {{ concurrency: 1, requests_per_minute: 2 }} }}"
        ),
    ] {
        let config = read(&lines).unwrap();
        let shown = config.effective_yaml();
        assert!(!shown.contains(KEY), "{shown}");
        assert_eq!(
            config::parse(&shown, &environment).unwrap(),
            config,
            "{shown}"
        );
    }
}

#[test]
fn thousands_of_clients_fit() {
    let list = |count: usize| {
        let client = |n: usize| format!("  - {{ name: client-{n}, key_sha256: \"{n:064x}\" }}\n");
        format!("clients:\n{}", (0..count).map(client).collect::<String>())
    };
    assert_eq!(clients(&list(5000)).len(), 5000);
    let refused = refusal(&list(5001));
    assert!(
        refused.contains("line 2: clients: expected at most 5000 clients, got 5001"),
        "{refused}"
    );
}
