//! What the environment makes of a configuration: the gate of the switches, and the variables that a
//! provider's name suggests (row A20 of the specification).

use lanegate::config::{Config, ConfigError, SecretFrom, SessionForwarding, Switches, parse};

fn read(text: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let set = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    parse(text, &set)
}

/// A provider with these keys.
fn provider(name: &str, rest: &str) -> String {
    format!(
        "providers: [{{ name: \"{name}\", dialect: openai, base_url: \"http://127.0.0.1:1\"{rest} }}]"
    )
}

/// The variable that a managed provider's credential comes from, and what would be sent.
fn found(name: &str, rest: &str, variables: &[(&str, &str)]) -> Option<(String, String)> {
    let text = provider(name, &format!(", auth: managed{rest}"));
    let config = read(&text, variables).ok()?;
    let [provider] = &config.providers[..] else {
        return None;
    };
    assert_eq!(provider.secret_from, SecretFrom::Env);
    let sent = format!("{:?}", provider.auth.outgoing(true));
    Some((provider.secret_env.clone()?, sent))
}

#[test]
fn a20_the_scheme_chooses_between_variables() {
    let all = [
        ("OPENAI_API_KEY", "api-key-1"),
        ("OPENAI_AUTH_TOKEN", "auth-token-1"),
        ("OPENAI_AUTHORIZATION_BEARER", "bearer-1"),
    ];
    let name = |rest, variables| found("openai", rest, variables).map(|(name, _)| name);
    let bearer = ", auth_scheme: bearer";
    let api_key = ", auth_scheme: api_key";
    for (rest, variables, expected) in [
        ("", &all[..], Some("OPENAI_AUTH_TOKEN")),
        (bearer, &all, Some("OPENAI_AUTH_TOKEN")),
        (api_key, &all, Some("OPENAI_API_KEY")),
        (
            bearer,
            &[all[0], all[2]],
            Some("OPENAI_AUTHORIZATION_BEARER"),
        ),
        (bearer, &all[..1], Some("OPENAI_API_KEY")),
        (api_key, &all[1..], Some("OPENAI_AUTH_TOKEN")),
        (api_key, &all[2..], Some("OPENAI_AUTHORIZATION_BEARER")),
        (api_key, &[], None),
    ] {
        assert_eq!(name(rest, variables).as_deref(), expected, "{rest}");
    }
}

#[test]
fn a20_blank_variables_hide_nothing() {
    let variables = [("OPENAI_AUTH_TOKEN", " "), ("OPENAI_API_KEY", "key-1")];
    let (name, _) = found("openai", "", &variables).unwrap();
    assert_eq!(name, "OPENAI_API_KEY");
    let variables = [("X_OPENAI_API_KEY", ""), ("X_API_KEY", "key-1")];
    let (name, _) = found("x-openai", "", &variables).unwrap();
    assert_eq!(name, "X_API_KEY");
}

#[test]
fn a20_providers_of_one_account_share_its_variable() {
    let base = [("OPENCODE_GO_API_KEY", "key-1")];
    for name in [
        "opencode-go-openai",
        "opencode-go-anthropic",
        "opencode-go-openai-chat",
        "OpenCode-Go-OpenAI",
    ] {
        assert!(found(name, "", &base).is_some(), "{name}");
    }
    // No dialect in it, or nothing before it.
    for name in ["opencode-go-chat", "opencode-goopenai"] {
        assert!(found(name, "", &base).is_none(), "{name}");
    }
    let both = [base[0], ("OPENCODE_GO_OPENAI_API_KEY", "key-2")];
    let (name, _) = found("opencode-go-openai", "", &both).unwrap();
    assert_eq!(name, "OPENCODE_GO_OPENAI_API_KEY");
    // One ending after the other, each under both names.
    let both = [base[0], ("OPENCODE_GO_AUTH_TOKEN", "key-3")];
    let (name, _) = found("opencode-go-openai", "", &both).unwrap();
    assert_eq!(name, "OPENCODE_GO_AUTH_TOKEN");
}

#[test]
fn what_the_file_says_about_a_credential_beats_the_names() {
    let variables = [("OPENAI_API_KEY", "by-name-1"), ("MINE", "mine-1")];
    let (name, sent) = found("openai", ", secret_env: MINE", &variables).unwrap();
    assert_eq!(
        (name.as_str(), sent.as_str()),
        ("MINE", "Write(Authorization)")
    );
    // A variable that the file names and that is unset is not replaced by another.
    assert!(found("openai", ", secret_env: OTHER", &variables).is_none());
}

#[test]
fn no_variable_changes_whose_credential_is_sent() {
    let variables = [
        ("OPENAI_API_KEY", "key-1"),
        ("OPENAI_BASE_URL", "http://127.0.0.1:2"),
    ];
    for rest in ["", ", auth: passthrough", ", auth: none"] {
        let text = provider("openai", rest);
        assert_eq!(
            read(&text, &variables).unwrap(),
            read(&text, &[]).unwrap(),
            "{rest}"
        );
    }
}

#[test]
fn a_credential_that_cannot_be_sent_is_refused_and_not_shown() {
    let text = provider("openai", ", auth: managed");
    let error = read(&text, &[("OPENAI_API_KEY", "SEKRET\u{1}x")])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("OPENAI_API_KEY") && error.contains("providers[0].auth"),
        "{error}"
    );
    assert!(!error.contains("SEKRET"), "{error}");
}

#[test]
fn flags_of_a_provider_beat_the_file() {
    let text = "providers:\n\
                - { name: a, dialect: openai, base_url: \"http://127.0.0.1:1\", default: true }\n\
                - { name: b.c, dialect: openai, base_url: \"http://127.0.0.1:2\", session_forwarding: none }";
    let variables = [
        ("A_IS_DEFAULT", "False"),
        ("B_C_IS_DEFAULT", "true"),
        ("B_C_SESSION_FORWARDING", " OpenCode-Go "),
    ];
    let config = read(text, &variables).unwrap();
    let defaults: Vec<_> = config.providers.iter().map(|it| it.default).collect();
    assert_eq!(defaults, [false, true]);
    assert_eq!(
        config.providers[1].session_forwarding,
        SessionForwarding::OpencodeGo
    );
    let config = read(text, &[("B_C_ENABLED", "FALSE")]).unwrap();
    assert!(!config.providers[1].enabled);
    assert!(config.warnings.is_empty());
}

/// What a first configuration gets wrong, and what is on purpose.
#[test]
fn what_is_valid_and_most_likely_not_meant_is_warned_of() {
    let warnings = |keys: &str, variables: &[(&str, &str)]| {
        let text = provider("a", keys).replace("http://127.0.0.1:1", "http://127.0.0.1:1/api/v1");
        read(&text, variables).unwrap().warnings
    };
    let [version] = &warnings(", auth: none", &[])[..] else {
        panic!("one warning");
    };
    assert!(
        version.starts_with("line 1: providers[0].base_url: ends in /v1"),
        "{version}"
    );
    assert!(!version.contains("127.0.0.1"), "{version}");
    let unset = warnings(", secret_env: A_KEY", &[("A_KEY", " ")]);
    assert!(
        unset
            .iter()
            .any(|it| it.contains("secret_env: the environment variable A_KEY is unset or blank")),
        "{unset:?}"
    );
    for (keys, variables) in [
        (", secret_env: A_KEY", &[("A_KEY", "secret")][..]),
        (", secret_env: A_KEY, auth: passthrough", &[]),
        ("", &[]),
    ] {
        assert_eq!(warnings(keys, variables).len(), 1, "{keys}");
    }
}

#[test]
fn values_that_cannot_be_read_are_warned_of_once_and_change_nothing() {
    let text = provider("a", ", enabled: true");
    let variables = [
        ("A_ENABLED", "off"),
        ("A_SESSION_FORWARDING", "yes"),
        ("LANEGATE_SWITCHES_ENABLED", "maybe"),
        ("IMPOSTER_WHO_MESSAGE_ENABLED", "false"),
    ];
    let mut config = read(&text, &variables).unwrap();
    assert_eq!(
        std::mem::take(&mut config.warnings),
        [
            "LANEGATE_SWITCHES_ENABLED is neither true nor false and is ignored: switches.enabled stays",
            "A_SESSION_FORWARDING is neither none nor opencode-go and is ignored: \
             providers[0].session_forwarding stays",
            "A_ENABLED is neither true nor false and is ignored: providers[0].enabled stays",
        ]
    );
    assert_eq!(config, read(&text, &[]).unwrap());
}

/// Decision S8.
#[test]
fn i13_the_gate_is_ours_then_theirs_then_the_files() {
    let (ours, theirs) = ("LANEGATE_SWITCHES_ENABLED", "IMPOSTER_WHO_MESSAGE_ENABLED");
    for (written, variables, enabled) in [
        ("", &[][..], true),
        ("switches: { enabled: false }", &[], false),
        ("switches: { enabled: false }", &[(theirs, "true")], true),
        ("", &[(theirs, "FALSE")], false),
        ("", &[(ours, "true"), (theirs, "false")], true),
        ("", &[(ours, " "), (theirs, "false")], false),
        ("", &[(theirs, "yes_please")], true),
        ("", &[(theirs, "")], true),
    ] {
        let text = format!("{written}\n{}", provider("a", ""));
        let config = read(&text, variables).unwrap();
        assert_eq!(config.switches.enabled, enabled, "{written} {variables:?}");
    }
}

#[test]
fn switches_and_sessions_are_read_shown_and_bounded() {
    let text = format!(
        "switches: {{ max_entries: 7, responses: true }}\n{}",
        provider("a", ", session_forwarding: opencode_go")
    );
    let config = read(&text, &[]).unwrap();
    let expected = Switches {
        enabled: true,
        max_entries: 7,
        responses: true,
    };
    assert_eq!(config.switches, expected);
    assert_eq!(config, read(&config.effective_yaml(), &[]).unwrap());
    for (written, what) in [
        (
            "switches: { enabled: \"yes\" }",
            "switches.enabled: expected true or false",
        ),
        (
            "switches: { max_entries: 1000001 }",
            "switches.max_entries: expected 0 to 1000000",
        ),
        (
            "switches: { literals: [] }",
            "switches.literals: unknown key",
        ),
    ] {
        let error = read(&format!("{written}\n{}", provider("a", "")), &[])
            .unwrap_err()
            .to_string();
        assert!(error.contains(what), "{error}");
    }
    let error = read(&provider("a", ", session_forwarding: all"), &[])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("session_forwarding: expected none or opencode-go"),
        "{error}"
    );
}
