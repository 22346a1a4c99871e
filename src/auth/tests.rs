use super::*;

const MODES: [Mode; 4] = [Mode::Managed, Mode::Passthrough, Mode::None, Mode::Unset];
const SCHEMES: [Scheme; 2] = [Scheme::Bearer, Scheme::ApiKey];

fn auth(mode: Mode, secret: Option<&str>, scheme: Scheme, header: Option<&str>) -> ProviderAuth {
    let secret = secret.map(|text| Secret::new(text).unwrap());
    ProviderAuth::new(
        mode,
        secret,
        scheme,
        header.map(|name| HeaderName::new(name).unwrap()),
    )
}

fn written(auth: &ProviderAuth) -> (&str, &[u8]) {
    match auth.outgoing(false) {
        Outgoing::Write { name, value } => (name, value),
        other => panic!("expected a header, got {other:?}"),
    }
}

/// The table of the specification, written out once more and independently of `decide`.
fn expected_token(mode: Mode, secret: bool, scheme: Scheme, imposter: bool) -> &'static str {
    let own = if scheme == Scheme::Bearer {
        "Bearer"
    } else {
        "ApiKey"
    };
    match mode {
        Mode::Passthrough => "caller-passthrough",
        Mode::None => "none",
        Mode::Managed => [own, "none"][usize::from(!secret)],
        Mode::Unset if secret => own,
        Mode::Unset => ["caller-passthrough", "none"][usize::from(imposter)],
    }
}

#[test]
fn token_and_header_agree_in_every_combination() {
    let mut seen = 0;
    for mode in MODES {
        for secret in [None, Some("sk-1")] {
            for scheme in SCHEMES {
                for header in [None, Some("api-key")] {
                    for imposter in [false, true] {
                        let auth = auth(mode, secret, scheme, header);
                        let token = describe_auth(&auth, imposter);
                        let expected = expected_token(mode, secret.is_some(), scheme, imposter);
                        assert_eq!(token.as_str(), expected, "{auth:?} imposter={imposter}");
                        let name = header.unwrap_or_else(|| scheme.header());
                        let outgoing = match expected {
                            "Bearer" => Outgoing::Write {
                                name,
                                value: b"Bearer sk-1",
                            },
                            "ApiKey" => Outgoing::Write {
                                name,
                                value: b"sk-1",
                            },
                            "none" => Outgoing::Nothing { header },
                            _ => Outgoing::RelayCaller,
                        };
                        assert!(auth.outgoing(imposter) == outgoing, "{auth:?}");
                        seen += 1;
                    }
                }
            }
        }
    }
    assert_eq!(seen, 64);
}

#[test]
fn a6_each_scheme_writes_exactly_its_own_header() {
    let bearer = auth(Mode::Unset, Some("sk-1"), Scheme::Bearer, None);
    assert_eq!(written(&bearer), ("Authorization", &b"Bearer sk-1"[..]));
    let key = auth(Mode::Unset, Some("sk-1"), Scheme::ApiKey, None);
    assert_eq!(written(&key), ("x-api-key", &b"sk-1"[..]));
    for auth in [bearer, key] {
        assert!(auth.outgoing(false).removes(b"authorization"));
        assert!(auth.outgoing(false).removes(b"X-Api-Key"));
    }
}

#[test]
fn a7_custom_header_takes_the_value_of_the_scheme() {
    let key = auth(Mode::Managed, Some("sk-1"), Scheme::ApiKey, Some("api-key"));
    assert_eq!(written(&key), ("api-key", &b"sk-1"[..]));
    let bearer = auth(Mode::Managed, Some("sk-1"), Scheme::Bearer, Some("api-key"));
    assert_eq!(written(&bearer), ("api-key", &b"Bearer sk-1"[..]));
    for field in [&b"API-Key"[..], b"Authorization", b"x-api-key"] {
        assert!(bearer.outgoing(false).removes(field));
    }
}

#[test]
fn a8_bearer_is_not_doubled_in_any_case() {
    for secret in ["Bearer x", "bearer x", "BEARER x"] {
        let bearer = auth(Mode::Managed, Some(secret), Scheme::Bearer, None);
        assert_eq!(written(&bearer).1, secret.as_bytes());
    }
    let lookalike = auth(Mode::Managed, Some("bearerx"), Scheme::Bearer, None);
    assert_eq!(written(&lookalike).1, b"Bearer bearerx");
}

#[test]
fn a9_imposter_without_secret_never_borrows_the_callers() {
    let keyless = auth(Mode::Unset, None, Scheme::Bearer, None);
    let outgoing = keyless.outgoing(true);
    assert!(outgoing == Outgoing::Nothing { header: None });
    assert!(outgoing.removes(b"Authorization") && outgoing.removes(b"x-api-key"));
}

#[test]
fn where_no_credential_is_sent_none_comes_in_the_providers_own_field_either() {
    let none = auth(Mode::None, Some("sk-1"), Scheme::Bearer, Some("api-key"));
    let keyless = auth(Mode::Managed, None, Scheme::Bearer, Some("api-key"));
    for auth in [none, keyless] {
        let outgoing = auth.outgoing(false);
        for field in [&b"API-Key"[..], b"authorization", b"X-API-KEY"] {
            assert!(outgoing.removes(field), "{auth:?}");
        }
        assert!(!outgoing.removes(b"x-goog-api-key"));
    }
}

#[test]
fn a10_keyless_passthrough_relays_whatever_the_caller_sent() {
    let keyless = auth(Mode::Unset, None, Scheme::ApiKey, None);
    let outgoing = keyless.outgoing(false);
    assert!(outgoing == Outgoing::RelayCaller);
    assert!(!outgoing.removes(b"authorization") && !outgoing.removes(b"x-api-key"));
}

#[test]
fn a11_account_id_goes_with_the_callers_credential_only() {
    let managed = auth(Mode::Managed, Some("sk-1"), Scheme::Bearer, None);
    assert!(managed.outgoing(false).removes(b"ChatGPT-Account-Id"));
    assert!(!managed.outgoing(false).removes(b"originator"));
    let relayed = auth(Mode::Passthrough, Some("sk-1"), Scheme::Bearer, None);
    assert!(!relayed.outgoing(false).removes(b"chatgpt-account-id"));
}

#[test]
fn debug_never_shows_a_secret() {
    let auth = auth(Mode::Managed, Some("sk-very-secret"), Scheme::Bearer, None);
    let shown = format!("{auth:?} {:?}", auth.outgoing(false));
    assert!(
        !shown.contains("very") && shown.contains("Secret(set)"),
        "{shown}"
    );
}

#[test]
fn secret_must_be_sendable() {
    assert_eq!(Secret::new(" \t "), Err(SecretError::Blank));
    assert_eq!(Secret::new(""), Err(SecretError::Blank));
    for (text, at) in [
        ("a\nb", 1),
        ("a b ", 3),
        (" ab", 0),
        ("aé", 1),
        ("a\x7f", 1),
        ("a\tb", 1),
    ] {
        assert_eq!(
            Secret::new(text),
            Err(SecretError::NotVisible { at }),
            "{text:?}"
        );
    }
    assert_eq!(Secret::new("Bearer x").unwrap().expose(), "Bearer x");
}

#[test]
fn header_name_must_be_a_free_token() {
    for name in ["", "a b", "a:", "é", "x\r\ny", "a\"", "(a)", "a,b"] {
        assert_eq!(
            HeaderName::new(name),
            Err(HeaderNameError::NotToken),
            "{name:?}"
        );
    }
    for name in [
        "Host",
        "transfer-encoding",
        "Content-Type",
        "CONNECTION",
        "TE",
        "X-Router-Agent",
    ] {
        assert_eq!(
            HeaderName::new(name),
            Err(HeaderNameError::Reserved),
            "{name}"
        );
    }
    for name in ["api-key", "Ocp-Apim-Subscription-Key", "x!#$%&'*+-.^_`|~9"] {
        assert_eq!(HeaderName::new(name).unwrap().as_str(), name);
    }
}
