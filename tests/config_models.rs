//! What `models` and `list` of a provider accept, what they refuse and where they say so.

#![expect(clippy::panic, reason = "a test stops at the first surprise")]

use lanegate::config::{self, Config, Provider};

/// A file with one provider; `extra` stands on line 5.
fn with_provider_lines(extra: &str) -> String {
    format!("providers:\n  - name: a\n    dialect: openai\n    base_url: http://h\n{extra}\n")
}

fn parse(text: &str) -> Config {
    config::parse(text, &|_| None).unwrap_or_else(|error| panic!("{error}\n--\n{text}"))
}

fn provider_with(extra: &str) -> Provider {
    let mut config = parse(&with_provider_lines(extra));
    config.providers.remove(0)
}

fn mapping(from: &str, to: &str) -> String {
    format!("    models: [{{ from: \"{from}\", to: \"{to}\" }}]")
}

fn assert_refused(extra: &str, expected: &str) {
    let text = with_provider_lines(extra);
    match config::parse(&text, &|_| None) {
        Ok(config) => panic!("accepted:\n{text}\n--\n{}", config.effective_yaml()),
        Err(error) => {
            let message = error.to_string();
            let expected = format!("config: {expected}");
            assert!(
                message.contains(&expected),
                "expected {expected}\ngot {message}\n--\n{text}"
            );
        }
    }
}

#[test]
fn models_keep_the_order_and_spelling_of_the_file() {
    let provider = provider_with(
        "    models:\n      - { from: GPT-5*, to: \"{model}\" }\n      - to: x\n        from: gpt-5-mini\n      \
         - { from: \"*\", to: \"a/{model}:{model}\" }\n    list: [gpt-5.4, GPT-5, gpt-5.4]",
    );
    let models: Vec<_> = provider
        .models
        .iter()
        .map(|it| (it.from.as_str(), it.to.as_str()))
        .collect();
    assert_eq!(
        models,
        [
            ("GPT-5*", "{model}"),
            ("gpt-5-mini", "x"),
            ("*", "a/{model}:{model}")
        ]
    );
    assert_eq!(provider.list, ["gpt-5.4", "GPT-5", "gpt-5.4"]);
}

#[test]
fn names_of_all_shapes_are_accepted() {
    let longest = "m".repeat(256);
    for (from, to) in [
        ("a", "b"),
        ("org/model:tag@1", "arn:aws:bedrock:eu-1::model/x"),
        ("my model", "mein größtes Modell"),
        ("模型*", "模型"),
        ("a{b}", "x"),
        ("*", "{model}{model}"),
        (longest.as_str(), longest.as_str()),
    ] {
        let provider = provider_with(&mapping(from, to));
        assert_eq!(
            (
                provider.models[0].from.as_str(),
                provider.models[0].to.as_str()
            ),
            (from, to)
        );
        let shown = parse(&with_provider_lines(&mapping(from, to))).effective_yaml();
        assert_eq!(
            parse(&shown).providers[0].models,
            provider.models,
            "{shown}"
        );
    }
}

#[test]
fn empty_lists_are_no_models() {
    for extra in ["    models: []\n    list: []", "    models:\n    list:"] {
        let provider = provider_with(extra);
        assert!(provider.models.is_empty() && provider.list.is_empty());
    }
}

#[test]
fn star_stands_only_at_the_end_of_from() {
    for from in ["*a", "a*b", "**", "gpt-**", "a*b*"] {
        assert_refused(
            &mapping(from, "x"),
            &format!(
                "line 5: providers[0].models[0].from: `*` stands only at the end, once, got {from:?}"
            ),
        );
    }
    assert_refused(
        &mapping("gpt-5*", "gpt-6*"),
        "line 5: providers[0].models[0].to: `*` stands only in `from`; {model} is the name that \
         the caller sent",
    );
    assert_refused(
        "    list: [a, gpt-*]",
        "line 5: providers[0].list[1]: expected the whole name of a model, got \"gpt-*\" with a `*`",
    );
}

#[test]
fn braces_stand_only_around_model_in_to() {
    for to in [
        "{name}",
        "{Model}",
        "{ model }",
        "{}",
        "{",
        "}",
        "{model",
        "model}",
        "{{model}}",
        "{mo{model}del}",
    ] {
        assert_refused(
            &mapping("a", to),
            &format!(
                "line 5: providers[0].models[0].to: braces stand only in {{model}}, got {to:?}"
            ),
        );
    }
    assert_refused(
        &mapping("{model}", "a"),
        "line 5: providers[0].models[0].from: {model} stands only in `to`",
    );
    assert_refused(
        "    list: [\"x{model}\"]",
        "line 5: providers[0].list[0]: {model} stands only in `to`",
    );
}

#[test]
fn blank_long_and_unprintable_names_are_refused_everywhere() {
    let long = "m".repeat(257);
    for name in [
        "", " ", "\\t", " a", "a ", "a\\nb", "\\0", "\\x7f", "\\u0085", "\\u00a0", &long,
    ] {
        let rule = "expected a model name of 1 to 256 bytes";
        assert_refused(
            &mapping(name, "a"),
            &format!("line 5: providers[0].models[0].from: {rule}"),
        );
        assert_refused(
            &mapping("a", name),
            &format!("line 5: providers[0].models[0].to: {rule}"),
        );
        let list = format!("    list: [\"{name}\"]");
        assert_refused(&list, &format!("line 5: providers[0].list[0]: {rule}"));
    }
}

#[test]
fn wrong_shapes_are_refused_with_line_and_path() {
    for (extra, message) in [
        (
            "    models: gpt-5",
            "line 5: providers[0].models: expected a list, got \"gpt-5\"",
        ),
        (
            "    models: { gpt-5: x }",
            "line 5: providers[0].models: expected a list, got a mapping",
        ),
        (
            "    models: [gpt-5]",
            "line 5: providers[0].models[0]: expected a mapping, got \"gpt-5\"",
        ),
        (
            "    models:\n      -",
            "line 6: providers[0].models[0].from: required, but not given",
        ),
        (
            "    models:\n      - { from: a, to: b }\n      - from: c\n",
            "line 7: providers[0].models[1].to: required, but not given",
        ),
        (
            "    models:\n      - from: a\n        to: 5\n",
            "line 7: providers[0].models[0].to: expected a text, got 5; put it in quotes",
        ),
        (
            "    models: [{ from: a, to: }]",
            "line 5: providers[0].models[0].to: required",
        ),
        (
            "    models:\n      - from: a\n        to: b\n        from: c\n",
            "line 8: providers[0].models[0].from: repeated key, first on line 6",
        ),
        (
            "    models: [{ form: a, to: b }]",
            "line 5: providers[0].models[0].form: unknown key; known here: from, to",
        ),
        (
            "    list: a",
            "line 5: providers[0].list: expected a list, got \"a\"",
        ),
        (
            "    list: [4.1]",
            "line 5: providers[0].list[0]: expected a text, got 4.1",
        ),
        (
            "    list: [[a]]",
            "line 5: providers[0].list[0]: expected a text, got a list",
        ),
    ] {
        assert_refused(extra, message);
    }
    for later in [
        "caching: true",
        "max_tokens: 1",
        "input: [text]",
        "reasoning_efforts: []",
    ] {
        let (key, _) = later.split_once(':').unwrap();
        assert_refused(
            &format!("    models: [{{ from: a, to: b, {later} }}]"),
            &format!("line 5: providers[0].models[0].{key}: not available in this version"),
        );
    }
}

#[test]
fn models_and_names_have_a_largest_number() {
    let entries = |entry: &str, count| vec![entry; count].join(", ");
    let models = |count| format!("    models: [{}]", entries("{ from: a, to: b }", count));
    let list = |count| format!("    list: [{}]", entries("a", count));
    assert_eq!(provider_with(&models(1000)).models.len(), 1000);
    assert_eq!(provider_with(&list(1000)).list.len(), 1000);
    let message = "expected at most 1000 entries, got 1001";
    assert_refused(
        &models(1001),
        &format!("line 5: providers[0].models: {message}"),
    );
    assert_refused(
        &list(1001),
        &format!("line 5: providers[0].list: {message}"),
    );
}

#[test]
fn all_failures_of_a_provider_come_at_once() {
    let extra = "    models:\n      - { from: \"*a\", to: \"{x}\" }\n      - { from: b, to: c, caching: true }\n    \
                 list:\n      - d*\n    default: maybe";
    let error = config::parse(&with_provider_lines(extra), &|_| None).unwrap_err();
    let found: Vec<_> = error
        .failures()
        .iter()
        .map(|it| (it.line.unwrap(), it.path.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            (6, "providers[0].models[0].from"),
            (6, "providers[0].models[0].to"),
            (7, "providers[0].models[1].caching"),
            (9, "providers[0].list[0]"),
            (10, "providers[0].default"),
        ]
    );
}
