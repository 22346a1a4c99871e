use super::*;
use crate::auth::{Mode, ProviderAuth, Scheme, Secret};

fn provider(name: &str, default: bool, models: &[(&str, &str)]) -> Provider {
    let models = models.iter().map(|(from, to)| Mapping {
        from: Pattern::new(from),
        to: (*to).to_owned(),
    });
    Provider {
        name: name.to_owned(),
        family: Family::OpenAi,
        default,
        auth: ProviderAuth::none(),
        takes_sessions: false,
        injects_usage: false,
        anthropic_version: None,
        models: models.collect(),
        list: Vec::new(),
    }
}

fn named<'a>(table: &'a Table, routed: &Routed) -> &'a str {
    &table.provider(routed.provider).unwrap().name
}

#[test]
fn a1_literals_and_prefixes_match_without_case() {
    let cases = [
        ("gpt5.4", "gpt5.4", true),
        ("gpt5.4", "GPT5.4", true),
        ("gpt5.4", "gpt5.40", false),
        ("gpt5.40", "gpt5.4", false),
        ("claude-haiku-*", "claude-haiku-", true),
        ("claude-haiku-*", "Claude-Haiku-3", true),
        ("claude-haiku-*", "claude-haik", false),
        ("*", "anything", true),
        ("*", "", true),
        ("", "", false),
        ("", "x", false),
        ("gpt*", "gp\u{2060}t", false),
        ("gp*", "gp\u{20ac}", true),
        ("g\u{20ac}*", "g", false),
    ];
    for (pattern, model, expected) in cases {
        assert_eq!(
            Pattern::new(pattern).matches(model),
            expected,
            "{pattern} {model}"
        );
    }
}

#[test]
fn a2_the_client_model_is_put_in_each_time_it_is_named() {
    for (to, expected) in [
        ("{model}", "Gpt-5"),
        ("x/{model}", "x/Gpt-5"),
        ("{model}-{model}", "Gpt-5-Gpt-5"),
        ("grok", "grok"),
    ] {
        let mapping = Mapping {
            from: Pattern::new("gpt*"),
            to: to.to_owned(),
        };
        assert_eq!(mapping.target("Gpt-5"), expected);
    }
}

#[test]
fn a3_the_first_provider_that_matches_wins_in_declaration_order() {
    let table = Table::new(vec![
        provider("zulu", false, &[("gpt-4*", "a"), ("gpt-5*", "b")]),
        provider("alpha", false, &[("gpt-5*", "c"), ("gpt*", "d")]),
        provider("default", true, &[]),
    ]);
    for (model, name, target) in [
        ("gpt-5-mini", "zulu", Some("b")),
        ("gpt-4", "zulu", Some("a")),
        ("gpt-3", "alpha", Some("d")),
        ("o1", "default", None),
    ] {
        let routed = table.route(Family::OpenAi, model).unwrap();
        assert_eq!(named(&table, &routed), name, "{model}");
        assert_eq!(routed.model.as_deref(), target, "{model}");
        assert_eq!(routed.imposter, target.is_some(), "{model}");
    }
}

#[test]
fn a4_what_matches_nothing_goes_to_the_default_or_nowhere() {
    let models: &[(&str, &str)] = &[("gpt-5", "x")];
    let with = Table::new(vec![provider("a", true, models)]);
    let routed = with.route(Family::OpenAi, "o1").unwrap();
    assert_eq!((routed.imposter, routed.model), (false, None));
    let without = Table::new(vec![provider("a", false, models)]);
    assert_eq!(without.route(Family::OpenAi, "o1"), None);
    assert_eq!(with.route(Family::Anthropic, "gpt-5"), None);
}

#[test]
fn a_model_that_keeps_its_name_is_an_imposter_without_a_patch() {
    let table = Table::new(vec![provider(
        "a",
        false,
        &[("gpt*", "{model}"), ("o1", "o1")],
    )]);
    for model in ["gpt-5", "o1"] {
        let routed = table.route(Family::OpenAi, model).unwrap();
        assert!(routed.imposter);
        assert_eq!(routed.model, None, "{model}");
    }
    let other_case = table.route(Family::OpenAi, "O1").unwrap();
    assert_eq!(other_case.model.as_deref(), Some("o1"));
}

#[test]
fn a_family_with_one_destination_is_routed_by_the_head() {
    let one = Table::new(vec![provider("a", true, &[])]);
    assert!(one.only(Family::OpenAi).is_some());
    let kept = Table::new(vec![provider("a", true, &[("*", "{model}")])]);
    assert!(kept.only(Family::OpenAi).is_some());
    let idle = Table::new(vec![provider("a", true, &[]), provider("b", false, &[])]);
    assert!(idle.only(Family::OpenAi).is_some(), "nothing leads to b");
}

#[test]
fn a_family_with_two_destinations_or_an_alias_is_not() {
    for providers in [
        vec![provider("a", true, &[("x", "y")])],
        vec![provider("a", true, &[("x", "x")])],
        vec![
            provider("a", true, &[]),
            provider("b", false, &[("x", "{model}")]),
        ],
        vec![provider("a", false, &[("*", "{model}")])],
    ] {
        assert_eq!(Table::new(providers).only(Family::OpenAi), None);
    }
}

#[test]
fn a_provider_whose_credential_depends_on_the_model_is_not_routed_by_the_head() {
    let mut keyless = provider("a", true, &[("gpt*", "{model}")]);
    keyless.auth = ProviderAuth::new(Mode::Unset, None, Scheme::Bearer, None);
    assert_eq!(Table::new(vec![keyless]).only(Family::OpenAi), None);
    let mut managed = provider("a", true, &[("gpt*", "{model}")]);
    let secret = Secret::new("k").ok();
    managed.auth = ProviderAuth::new(Mode::Managed, secret, Scheme::Bearer, None);
    assert!(Table::new(vec![managed]).only(Family::OpenAi).is_some());
}

#[test]
fn a17_names_are_listed_once_in_declaration_order() {
    let mut second = provider("two", false, &[("b", "y"), ("a", "z"), ("c*", "{model}")]);
    second.list = vec!["c-1".to_owned(), "b".to_owned()];
    let table = Table::new(vec![provider("one", true, &[("a", "x")]), second]);
    let expected = [("a", "one"), ("b", "two"), ("c-1", "two")];
    assert_eq!(table.names(Family::OpenAi), expected);
    assert!(table.names(Family::Anthropic).is_empty());
}
