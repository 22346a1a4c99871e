//! What is a switch and what is answered: rows S and I of the test tables.

use std::thread;

use serde_json::{Value, json};

use crate::captures::captures;
use crate::support::client::{CHAT, Response, request};
use crate::support::gateway::{Driver, Setup};
use crate::support::message::{eventually, find};
use crate::support::on_both_drivers;
use crate::support::origin::Origin;
use crate::switches::{
    ADMIN, MESSAGES, RESPONSES, SESSION, arrives, body, connections, field, json_of, minted, post,
    requests, scrape, session_fields, setup, stamped, start, text, who,
};

on_both_drivers!(
    i1_and_i5_a_switch_is_answered_without_a_provider,
    i2_and_s6_a_request_for_a_stream_goes_to_the_provider,
    i4_and_s7_other_texts_go_to_the_provider_as_they_came,
    i8_and_i3_off_everything_about_switches_is_off_and_on_it_is_back,
    i12_captures_arrive_the_same_with_switches_and_without,
    i13_the_environment_beats_the_file,
    i14_a_switch_that_cannot_be_routed_is_an_error,
    s14_no_piece_of_a_secret_is_shown,
    s22_a_body_with_two_readings_is_no_switch,
    s29_responses_are_switches_where_that_is_written,
    a_full_dictionary_forwards_and_counts,
    switches_are_flipped_under_load,
    whoami_says_what_the_switch_says,
);

fn i1_and_i5_a_switch_is_answered_without_a_provider(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = start(driver, &origin);
    let mut client = gateway.connect();
    for (path, model, expected) in [
        (
            CHAT,
            "gpt5.4",
            "Imposter: gpt5.4 → grok-code (auth: ApiKey, session: null)",
        ),
        (
            CHAT,
            "GPT5.4",
            "Imposter: GPT5.4 → grok-code (auth: ApiKey, session: null)",
        ),
        (
            "/openai/v1/chat/completions",
            "same-1",
            "Imposter: same-1 → same-1 (auth: ApiKey, session: null)",
        ),
        (
            CHAT,
            "plain-1",
            "Imposter: plain-1 → x (auth: Bearer, session: null)",
        ),
        (
            CHAT,
            "other \"m\"",
            "Passthrough: other \"m\" (auth: caller-passthrough, session: null)",
        ),
        (
            "/anthropic/v1/messages?beta=true",
            "claude-haiku-3",
            "Imposter: claude-haiku-3 → claude-3-5-haiku-latest (auth: ApiKey, session: null)",
        ),
        (
            MESSAGES,
            "x",
            "Passthrough: x (auth: caller-passthrough, session: null)",
        ),
    ] {
        let fields = ["Accept: text/event-stream"];
        let answer = post(&mut client, path, &fields, &body(model, "  --who?\n"));
        assert_eq!(answer.status, 200, "{answer:#?}");
        assert_eq!(text(&answer), expected);
        let kind = answer.head.value("content-type").unwrap();
        assert_eq!(kind, "application/json");
        assert!(!answer.closes(), "{answer:#?}");
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(body["model"], model);
        let (kind, expected, prefix) = if path.contains("messages") {
            (&body["type"], "message", "msg_who_")
        } else {
            (&body["object"], "chat.completion", "chatcmpl-who-")
        };
        assert_eq!(kind, expected);
        assert!(body["id"].as_str().unwrap().starts_with(prefix));
    }
    assert_eq!((connections(&origin), requests(&origin)), (0, 0));
    let line = gateway.access_line("a switch", |line| line["switch"] == "who");
    assert_eq!(
        (&line["lane"], &line["provider"]),
        (&json!("local"), &Value::Null)
    );
}

fn i2_and_s6_a_request_for_a_stream_goes_to_the_provider(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = start(driver, &origin);
    let mut client = gateway.connect();
    let named = field("session_id", SESSION);
    for (path, model) in [(CHAT, "same-m"), (CHAT, "other"), (MESSAGES, "other")] {
        for literal in ["--who?", "--newsession"] {
            let mut sent: Value = serde_json::from_slice(&body(model, literal)).unwrap();
            sent["stream"] = json!(true);
            let sent = sent.to_string();
            let seen = arrives(
                &mut client,
                &origin,
                &request("POST", path, &[&named], sent.as_bytes()),
            );
            let arrived = String::from_utf8(seen.body).unwrap();
            assert!(
                arrived.contains(r#""stream":true"#) && arrived.contains(literal),
                "{arrived}"
            );
        }
    }
    // Nothing was made.
    assert!(who(&mut client, CHAT, &[&named], "gpt5.4").ends_with("session: caller-session-1)"));
}

fn i4_and_s7_other_texts_go_to_the_provider_as_they_came(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = start(driver, &origin);
    let mut client = gateway.connect();
    for said in [
        "hello world",
        "who?",
        "Who?",
        "--WHO?",
        "please --who?",
        "--who? now",
        "--newsessions",
    ] {
        for (path, model) in [(CHAT, "other"), (CHAT, "plain-1"), (MESSAGES, "other")] {
            let sent = body(model, said);
            let seen = arrives(&mut client, &origin, &request("POST", path, &[], &sent));
            let arrived = json_of(&seen);
            assert_eq!(arrived["messages"][0]["content"], said);
            if model == "other" {
                assert_eq!(seen.body, sent);
            }
        }
    }
    // Token counting, embeddings and the like never are switches (decision S6).
    for path in [
        "/v1/messages/count_tokens",
        "/v1/embeddings",
        "/v1/chat/completions/x",
    ] {
        let sent = request(
            "POST",
            path,
            &["Content-Type: application/json"],
            &body("other", "--who?"),
        );
        let _seen = arrives(&mut client, &origin, &sent);
    }
}

fn i8_and_i3_off_everything_about_switches_is_off_and_on_it_is_back(driver: Driver) {
    let origin = Origin::echoing();
    let on = setup(driver, &origin);
    let off = setup(driver, &origin).with("switches: { enabled: false }");
    let gateway = on.start();
    let mut client = gateway.connect();
    let named = field("session_id", SESSION);
    let id = minted(&mut client, CHAT, &[&named], "gpt5.4");
    gateway.configure(&off);
    assert!(gateway.reload().contains("is in force"));
    let sent = request("POST", CHAT, &[&named], &body("gpt5.4", "--who?"));
    let seen = arrives(&mut client, &origin, &sent);
    assert_eq!(json_of(&seen)["messages"][0]["content"], "--who?");
    assert_eq!(session_fields(&seen), stamped(SESSION));
    assert_eq!(json_of(&seen)["session_id"], SESSION);
    gateway.configure(&on);
    assert!(gateway.reload().contains("is in force"));
    let seen = arrives(
        &mut client,
        &origin,
        &request("POST", CHAT, &[&named], &body("gpt5.4", "hi")),
    );
    assert_eq!(session_fields(&seen), stamped(&id));
}

/// Row I12 over every capture of a real client; the cases of JSON are in `facts.rs`.
fn i12_captures_arrive_the_same_with_switches_and_without(driver: Driver) {
    let origin = Origin::echoing();
    let at = origin.address();
    let routes = [
        "default: true",
        r#"models: [{ from: "*", to: "{model}" }, { from: "x", to: "y" }]"#,
    ];
    let gateways = routes.map(|rest| {
        [true, false].map(|enabled| {
            let mut setup = Setup::new(driver);
            for dialect in ["openai", "anthropic"] {
                setup = setup.provider(dialect, at, rest);
            }
            setup
                .with(&format!(
                    "switches: {{ enabled: {enabled}, responses: true }}"
                ))
                .start()
        })
    });
    let mut compared = 0;
    for capture in captures() {
        for route in &gateways {
            let [on, off] = route.each_ref().map(|gateway| {
                origin.forget();
                let answer = gateway.connect().exchange("POST", &capture.bytes);
                let seen = origin.look(|log| log.requests.first().cloned());
                (
                    answer.status,
                    seen.map(|seen| (seen.head.start(), seen.head, seen.body, seen.trailers)),
                )
            });
            assert_eq!(on, off, "{}", capture.name);
            compared += usize::from(on.1.is_some());
        }
    }
    assert!(compared > 200, "only {compared} arrived");
}

fn i13_the_environment_beats_the_file(driver: Driver) {
    let origin = Origin::echoing();
    let (ours, theirs) = ("LANEGATE_SWITCHES_ENABLED", "IMPOSTER_WHO_MESSAGE_ENABLED");
    for (variables, written, answered, warned) in [
        (&[(theirs, "false")][..], "", false, None),
        (&[(theirs, "yes_please")], "", true, Some(theirs)),
        (&[(ours, "TRUE"), (theirs, "false")], "", true, None),
        (&[(ours, " "), (theirs, "False")], "", false, None),
        (
            &[(ours, "0"), (theirs, "true")],
            "switches: { enabled: false }",
            false,
            Some(ours),
        ),
        (
            &[(ours, "true")],
            "switches: { enabled: false }",
            true,
            None,
        ),
        (&[], "switches: { enabled: false }", false, None),
    ] {
        let mut setup = setup(driver, &origin).with(written);
        for (name, value) in variables {
            setup = setup.variable(name, value);
        }
        let gateway = setup.start();
        origin.forget();
        let answer = post(&mut gateway.connect(), CHAT, &[], &body("gpt5.4", "--who?"));
        assert_eq!(answer.status, 200);
        assert_eq!(requests(&origin) == 0, answered, "{variables:?}");
        let said = gateway.output();
        let warnings: Vec<_> = said
            .lines()
            .filter(|line| line.contains("warning"))
            .collect();
        match warned {
            Some(name) => {
                assert_eq!(warnings.len(), 1, "{said}");
                assert!(
                    warnings[0].contains(name) && warnings[0].contains("switches.enabled"),
                    "{said}"
                );
            }
            None => assert!(warnings.is_empty(), "{said}"),
        }
    }
}

fn i14_a_switch_that_cannot_be_routed_is_an_error(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = setup(driver, &origin).start();
    let nowhere = Setup::new(driver)
        .provider(
            "openai",
            origin.address(),
            r#"default: false, models: [{ from: "a", to: "b" }]"#,
        )
        .start();
    // Where the head decides, a model is not needed to forward, but to answer.
    let decided = Setup::in_front_of(driver, &origin).start();
    let asked = br#"{"messages":[{"role":"user","content":"--who?"}]}"#;
    for gateway in [&gateway, &decided] {
        for (path, asked) in [
            (CHAT, &asked[..]),
            (MESSAGES, asked),
            (
                CHAT,
                br#"{"model":" ","messages":[{"role":"user","content":"--who?"}]}"#,
            ),
            (
                CHAT,
                br#"{"model":7,"messages":[{"role":"user","content":"--who?"}]}"#,
            ),
        ] {
            let answer = post(&mut gateway.connect(), path, &[], asked);
            assert_eq!(
                (answer.status, answer.gateway_error().as_deref()),
                (400, Some("no_model")),
                "{answer:#?}"
            );
        }
    }
    let answer = post(&mut nowhere.connect(), CHAT, &[], &body("z", "--who?"));
    assert_eq!(
        (answer.status, answer.gateway_error().as_deref()),
        (404, Some("unknown_model"))
    );
    assert_eq!(requests(&origin), 0);
}

/// Secrets in letters of their own: four of them in a row are a piece of one.
const OURS: &str = "QZZQZQQQZZQZQZZQ";

const CALLERS: &str = "KJJKJKKKJJKJKJJK";

const KEY: &str = "WVWWVWVVVWWVWVWWVVWVWWWV";

/// A provider of every kind of credential, scheme and session, and the models that lead to them, with
/// the dialect of each.
fn every_kind(driver: Driver, origin: &Origin) -> (Setup, Vec<(&'static str, String)>) {
    let at = format!("base_url: \"http://{}\"", origin.address());
    let mut setup = Setup::new(driver)
        .variable("LANEGATE_TEST_OWN", OURS)
        .variable("LANEGATE_TEST_CLIENT", KEY)
        .with("clients: [{ name: c, key_env: LANEGATE_TEST_CLIENT }]");
    let mut models = Vec::new();
    for number in 0..2 * 4 * 2 * 2 * 2 {
        // The number in digits of its own: one for each choice.
        let choice = |of: usize, step: usize| number / step % of;
        let dialect = ["openai", "anthropic"][choice(2, 1)];
        let auth = ["", "auth: managed, ", "auth: passthrough, ", "auth: none, "][choice(4, 2)];
        let secret = ["secret_env: LANEGATE_TEST_OWN, ", ""][choice(2, 8)];
        let scheme = ["bearer", "api_key"][choice(2, 16)];
        let told = ["none", "opencode-go"][choice(2, 32)];
        if auth.contains("managed") && secret.is_empty() {
            continue;
        }
        setup = setup.provider_as(&format!(
            "name: PROVIDER-{number}, dialect: {dialect}, {at}, {auth}{secret}auth_scheme: {scheme}, \
             session_forwarding: {told}, default: {}, models: [{{ from: m{number}x, to: t{number} }}]",
            number < 2
        ));
        models.push((dialect, format!("m{number}x")));
    }
    for dialect in ["openai", "anthropic"] {
        models.push((dialect, "the-default".to_owned()));
    }
    (setup, models)
}

fn s14_no_piece_of_a_secret_is_shown(driver: Driver) {
    let origin = Origin::echoing();
    let (setup, models) = every_kind(driver, &origin);
    let gateway = setup.start();
    let mut client = gateway.connect();
    let (key, auth, api_key) = (
        field("X-Lanegate-Key", KEY),
        field("Authorization", &format!("Bearer {CALLERS}")),
        field("x-api-key", CALLERS),
    );
    let (mut answers, mut asked) = (Vec::new(), 0);
    let mut heard = |answer: Response| {
        assert_eq!(answer.status, 200, "{answer:#?}");
        answers.extend(answer.body);
        asked += 1;
    };
    for (dialect, model) in &models {
        let (path, dialect) = match *dialect {
            "openai" => (CHAT, "chat"),
            _ => (MESSAGES, "messages"),
        };
        for named in [&[][..], &["session_id: session-9"]] {
            let fields = [&[key.as_str(), &auth, &api_key], named].concat();
            for literal in ["--who?", "--newsession"] {
                heard(post(&mut client, path, &fields, &body(model, literal)));
            }
            let whoami = format!("/lanegate/whoami?dialect={dialect}&model={model}");
            heard(client.exchange("GET", &request("GET", &whoami, &fields, b"")));
        }
    }
    assert!(eventually(|| gateway.access_lines().len() == asked));
    let (answers, log) = (String::from_utf8(answers).unwrap(), gateway.output());
    for secret in [OURS, CALLERS, KEY] {
        let pieces = |text: &str| {
            let all = text.as_bytes().windows(4);
            let of_secret = |byte: &u8| secret.as_bytes().contains(byte);
            all.filter(|it| it.iter().all(of_secret)).count()
        };
        assert_eq!((pieces(&answers), pieces(&log)), (0, 0), "{answers}{log}");
    }
    for word in ["PROVIDER-", "127.0.0.1", "http:"] {
        assert!(!answers.contains(word), "{answers}");
    }
    for word in ["session-9", "Imposter:", "Session:", "--who?"] {
        assert!(!log.contains(word), "{log}");
    }
}

/// Changed by decision G12: the origin takes the last value.
fn s22_a_body_with_two_readings_is_no_switch(driver: Driver) {
    let origin = Origin::echoing();
    let read = start(driver, &origin);
    let decided = Setup::in_front_of(driver, &origin).start();
    for streams in [
        r#""stream":true,"stream":false"#,
        r#""stream":false,"stream":true"#,
        r#""stream":false,"Stream":false"#,
    ] {
        let sent = format!(
            r#"{{"model":"gpt5.4",{streams},"messages":[{{"role":"user","content":"--who?"}}]}}"#
        );
        let answer = post(&mut read.connect(), CHAT, &[], sent.as_bytes());
        assert_eq!(
            (answer.status, answer.gateway_error().as_deref()),
            (400, Some("ambiguous_body"))
        );
        let seen = arrives(
            &mut decided.connect(),
            &origin,
            &request("POST", CHAT, &[], sent.as_bytes()),
        );
        assert_eq!(String::from_utf8(seen.body).unwrap(), sent);
    }
}

fn s29_responses_are_switches_where_that_is_written(driver: Driver) {
    let origin = Origin::echoing();
    let without = start(driver, &origin);
    let with = setup(driver, &origin)
        .with("switches: { responses: true }")
        .start();
    let text_input = r#"{"model":"gpt5.4","input":"--who?"}"#;
    let items = r#"{"model":"gpt5.4","input":[{"role":"user","content":[{"type":"input_text","text":"--who?"}]}]}"#;
    // A list of messages makes no difference on this path.
    let messages = r#"{"model":"gpt5.4","messages":[{"role":"user","content":"--who?"}]}"#;
    for sent in [text_input, items, messages] {
        let _seen = arrives(
            &mut without.connect(),
            &origin,
            &request("POST", RESPONSES, &[], sent.as_bytes()),
        );
    }
    origin.forget();
    for sent in [text_input, items] {
        let answer = post(&mut with.connect(), RESPONSES, &[], sent.as_bytes());
        assert_eq!(
            text(&answer),
            "Imposter: gpt5.4 → grok-code (auth: ApiKey, session: null)"
        );
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(
            (&body["object"], &body["status"]),
            (&json!("response"), &json!("completed"))
        );
        assert!(body["id"].as_str().unwrap().starts_with("resp_who_"));
    }
    assert_eq!(requests(&origin), 0);
}

fn a_full_dictionary_forwards_and_counts(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = setup(driver, &origin)
        .with(ADMIN)
        .with("switches: { max_entries: 2 }")
        .start();
    let mut client = gateway.connect();
    let ids = ["session_id: a", "session_id: b"]
        .map(|named| minted(&mut client, CHAT, &[named], "gpt5.4"));
    let sent = request(
        "POST",
        CHAT,
        &["session_id: c"],
        &body("gpt5.4", "--newsession"),
    );
    let seen = arrives(&mut client, &origin, &sent);
    assert_eq!(session_fields(&seen), stamped("c"));
    assert_eq!(
        minted(&mut client, CHAT, &["session_id: a"], "gpt5.4"),
        ids[0]
    );
    let counted = eventually(|| {
        let page = scrape(&gateway);
        page.count("lanegate_switch_answers_total{switch=\"newsession\"}") == 3
            && page.count("lanegate_switch_answers_total{switch=\"who\"}") == 0
            && page.count("lanegate_switch_entries") == 2
            && page.count("lanegate_switch_refused_total") == 1
            && page.count("lanegate_switch_aborted_upstream_total") == 0
    });
    assert!(counted, "{:?}", scrape(&gateway));
}

/// Each answer is that of a generation as a whole: either answered here, or arrived as it was sent.
fn switches_are_flipped_under_load(driver: Driver) {
    let origin = Origin::echoing();
    let on = setup(driver, &origin);
    let off = setup(driver, &origin).with("switches: { enabled: false }");
    let gateway = setup(driver, &origin).workers(2).start();
    let named = field("session_id", SESSION);
    let id = minted(&mut gateway.connect(), CHAT, &[&named], "gpt5.4");
    let (gateway, named, id) = (&gateway, &named, &id);
    let counts: Vec<(usize, usize)> = thread::scope(|scope| {
        let load = || {
            let mut client = gateway.connect();
            let (mut here, mut there) = (0, 0);
            for _ in 0..400 {
                let answer = post(&mut client, CHAT, &[named], &body("gpt5.4", "--who?"));
                assert_eq!(answer.status, 200);
                if find(&answer.body, b"Imposter").is_some() {
                    assert!(text(&answer).contains(id));
                    here += 1;
                } else {
                    there += 1;
                }
            }
            (here, there)
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(load)).collect();
        for number in 0..12 {
            gateway.configure(if number % 2 == 0 { &off } else { &on });
            assert!(gateway.reload().contains("is in force"));
        }
        threads.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let there: usize = counts.iter().map(|(_, there)| there).sum();
    assert_eq!(requests(&origin), there);
    origin.look(|log| {
        for seen in &log.requests {
            assert_eq!(session_fields(seen), stamped(SESSION));
        }
    });
    // The last word was on.
    assert!(who(&mut gateway.connect(), CHAT, &[named], "gpt5.4").contains(id.as_str()));
}

fn whoami_says_what_the_switch_says(driver: Driver) {
    let origin = Origin::echoing();
    let gateway = start(driver, &origin);
    let ask = |query: &str, fields: &[&str]| {
        let path = format!("/lanegate/whoami{query}");
        gateway
            .connect()
            .exchange("GET", &request("GET", &path, fields, b""))
    };
    let named = field("session_id", SESSION);
    let answer = ask("?dialect=chat&model=gpt5%2E4", &[&named]);
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(
        body,
        json!({
            "dialect": "chat", "model": "gpt5.4", "route": "imposter", "target": "grok-code", "auth": "ApiKey",
            "session": SESSION, "session_source": "captured", "translated": false, "switches": true,
        })
    );
    let id = minted(&mut gateway.connect(), CHAT, &[&named], "gpt5.4");
    let answer = ask("?model=gpt5.4&dialect=responses", &[&named]);
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(
        (&body["session"], &body["translated"]),
        (&json!(id), &json!(true))
    );
    let answer = ask(
        "?model=m&dialect=messages",
        &[&named, "Authorization: Bearer x"],
    );
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(
        (
            &body["route"],
            &body["target"],
            &body["auth"],
            &body["session"],
            &body["session_source"]
        ),
        (
            &json!("passthrough"),
            &Value::Null,
            &json!("caller-passthrough"),
            &Value::Null,
            &json!("none")
        )
    );
    let long = format!("?dialect=chat&model={}", "m".repeat(300));
    for (query, code) in [
        ("", "malformed_query"),
        ("?dialect=chat", "malformed_query"),
        ("?dialect=soap&model=m", "malformed_query"),
        ("?dialect=chat&model=a&model=b", "malformed_query"),
        ("?dialect=chat&model=%ff", "malformed_query"),
        ("?dialect=chat&model=%20", "no_model"),
        (&long, "model_too_long"),
    ] {
        let answer = ask(query, &[]);
        assert_eq!(
            (answer.status, answer.gateway_error().as_deref()),
            (400, Some(code)),
            "{query}"
        );
    }
    assert_eq!(connections(&origin), 0);
    // Somebody else's path, method by method.
    let answer = gateway
        .connect()
        .exchange("POST", &request("POST", "/lanegate/whoami", &[], b"{}"));
    assert_eq!(answer.status, 404);
}
