//! The rules, row by row of the specification of `session-classification`.

mod kept;

use std::time::Duration;

use crate::classify::*;
use crate::dialect::Dialect;
use crate::peek::{Capture, Demand, Peek, ToolBits, ToolName, ToolNames};

fn agent(text: &str) -> Option<UserAgent<'_>> {
    UserAgent::accept(text.as_bytes())
}

fn family(text: &str) -> Option<&'static str> {
    agent(text).and_then(Family::of).map(Family::as_str)
}

fn tools(names: &[&str]) -> ToolSet {
    let bits = names
        .iter()
        .map(|name| ToolEvidence::reduce(ToolName::Named(name)));
    ToolEvidence::of(bits.fold(0, |all, bits| all | bits)).session()
}

fn local(policy: &Policy, client: &str, names: &[&str], markers: &[&str]) -> Local {
    policy.evaluate(Turn {
        agent: agent(client),
        tools: tools(names),
        marked: has_project_marker(markers.iter().copied()),
    })
}

fn heuristic(client: &str, names: &[&str], markers: &[&str]) -> Option<&'static str> {
    let local = local(&Policy::default(), client, names, markers);
    local.evidence.map(Evidence::as_str)
}

fn ignoring(prefix: &str) -> Policy {
    Policy {
        ignored: vec![IgnoredPrefix::new(prefix).unwrap()],
        ..Policy::default()
    }
}

fn remote() -> RemotePolicy {
    RemotePolicy {
        api_key_env: "KEY".into(),
        timeout: Duration::from_millis(750),
        attempts_max: 2,
        lease: Duration::from_secs(2),
        backoff: Duration::from_secs(10),
        threshold: Threshold::new(0.9).unwrap(),
    }
}

#[test]
fn rows_1_to_3_codex_by_its_name_in_any_dress() {
    for text in [
        "codex_cli_rs/1.2.3",
        "  CODEX_CLI_RS/1.2.3\t",
        "proxy/2 (codex_cli_rs/1.2.3)",
    ] {
        let found = heuristic(text, &[], &[]);
        assert_eq!(found, Some("client_family.codex"), "{text}");
    }
}

#[test]
fn rows_4_to_7_the_other_families() {
    for (text, expected) in [
        ("roo-code/1.2.3", "roo"),
        ("opencode/1.2.26", "opencode"),
        ("@mariozechner/pi-coding-agent/0.55.3", "pi"),
        ("client pi/1.2", "pi"),
        ("factory-cli/1", "droid"),
        ("factory_cli/1", "droid"),
        ("factorydroid/1", "droid"),
        ("droid/1", "droid"),
        ("hermes-agent/1.0 NousResearch", "hermes"),
        ("NousResearch/HERMES-AGENT/1.0", "hermes"),
        ("hermes/1.0", "hermes"),
    ] {
        assert_eq!(family(text), Some(expected), "{text}");
    }
}

#[test]
fn row_8_names_of_libraries_and_of_others_are_no_evidence() {
    for text in [
        "Anthropic/JS",
        "OpenAI/JS",
        "Go-http-client/1.1",
        "Aider",
        "Android/15",
        "",
        "   ",
        "pi",
        "hermes 1.0",
        "codex-cli/0.42.0",
        "claude-cli/1.0",
    ] {
        assert_eq!(family(text), None, "{text}");
    }
}

#[test]
fn row_9_a_name_inside_a_word_is_not_that_name() {
    for text in [
        "Anthropic/JS (not-opencode)",
        "OpenAI/JS (roo-code-helper)",
        "prefixopencode/1",
        "factory-cli-wrapper/1",
        "prefixhermes-agent/1",
        "random/not-opencode",
        "api/1",
        "opencode_2",
    ] {
        assert_eq!(family(text), None, "{text}");
    }
}

#[test]
fn row_10_two_families_are_none() {
    assert_eq!(family("opencode/1.2.26 roo-code/1.2.3"), None);
    assert_eq!(family("opencode/1 opencode/2 (opencode)"), Some("opencode"));
}

#[test]
fn row_11_letters_of_other_alphabets_are_letters() {
    assert_eq!(family("écodex_cli_rs/1.2.3"), None);
    assert_eq!(family("é CODEX_CLI_RS/1.2.3"), Some("codex"));
    assert_eq!(family("codex_cli_rsé"), None);
}

#[test]
fn row_12_a_user_agent_that_cannot_be_accepted_is_absent_and_never_cut() {
    let longest = format!("opencode/{}", "1".repeat(USER_AGENT_BYTES_MAX - 9));
    assert_eq!(family(&longest), Some("opencode"));
    assert_eq!(family(&format!("{longest}1")), None);
    for text in [
        "opencode/1\0",
        "opencode/1\u{85}a",
        "opencode/1\r\nx",
        "opencode/1\u{7f}a",
    ] {
        assert_eq!(family(text), None, "{text:?}");
    }
    assert!(UserAgent::accept(b"opencode/1 \xff").is_none());
}

#[test]
fn rows_13_and_14_tools_that_read_change_and_execute() {
    let names = ["Read", "Grep", "Edit", "Bash"];
    for client in ["Anthropic/JS", ""] {
        let found = heuristic(client, &names, &[]);
        assert_eq!(found, Some("tooling.distinct_coding_cluster"));
    }
}

#[test]
fn rows_15_and_16_half_a_cluster_is_nothing_without_a_project() {
    assert_eq!(heuristic("", &["Read", "Grep", "Edit"], &[]), None);
    assert_eq!(heuristic("", &["Read", "Edit"], &[".git"]), None);
}

#[test]
fn rows_17_and_18_half_a_cluster_in_a_project() {
    let marker = Some("tooling.project_marker_cluster");
    let edits = ["read_file", "search_files", "write_file"];
    assert_eq!(heuristic("", &edits, &["go.mod"]), marker);
    let runs = ["read_file", "execute_command"];
    assert_eq!(heuristic("", &runs, &["package.json"]), marker);
}

#[test]
fn row_19_one_generic_tool_is_nothing() {
    for name in ["bash", "web_search", "read_file", "grep", "browser"] {
        assert_eq!(heuristic("", &[name], &["go.mod"]), None, "{name}");
    }
}

/// The body's texts, model and descriptions are never looked at; only names of tools are.
#[test]
fn rows_20_and_22_prose_models_and_descriptions_are_not_evidence() {
    let body = br#"{"model":"gpt-5-codex","messages":[{"role":"user","content":"fix the bug in main.rs
```rust\nfn main() {}\n``` of this repository, bash read edit"}],
"tools":[{"type":"function","function":{"name":"lookup","description":"read edit bash grep code"}}]}"#;
    let body = String::from_utf8_lossy(body).replace('\n', " ");
    let wanted = ToolBits::by(ToolEvidence::reduce);
    let mut peek = Peek::with(Dialect::Chat, Demand::TOOL_NAMES, Capture::Bounded, wanted);
    peek.push(body.as_bytes()).unwrap();
    peek.finish().unwrap();
    let seen = ToolEvidence::of(peek.tool_names().bits());
    assert_eq!(seen.session(), ToolSet::EMPTY | Tool::UnknownSeen);
    assert_eq!(seen.family(), ToolSet::EMPTY | Tool::UnknownSeen);
}

#[test]
fn row_21_a_tool_that_only_agents_have_is_not_in_the_table() {
    assert_eq!(
        heuristic("Anthropic/JS", &["attempt_completion"], &[]),
        None
    );
}

#[test]
fn rows_23_and_26_an_ignored_prefix_is_literal_and_silences_only_the_name() {
    let policy = ignoring("  Codex_CLI_rs/ ");
    let name = "codex_cli_rs/1.2.3";
    let excluded = Local {
        evidence: None,
        excluded: true,
    };
    assert_eq!(local(&policy, name, &[], &[]), excluded);
    assert!(policy.asks(excluded).is_none());
    let cluster = local(&policy, name, &["read", "edit", "bash"], &[]);
    assert_eq!(cluster.evidence, Some(Evidence::CodingCluster));
    assert!(!cluster.excluded);
    // Nobody who is not of a known family is excluded.
    assert_eq!(
        local(&ignoring("curl"), "curl/8", &[], &[]),
        Local::default()
    );
    let pattern = local(&ignoring("codex.*"), name, &[], &[]);
    assert_eq!(pattern.evidence, Some(Evidence::Codex));
}

#[test]
fn row_24_an_exclusion_or_later_evidence_never_takes_back() {
    let mut known = Classification::by(Evidence::Codex);
    assert!(!known.accept(Evidence::CodingCluster));
    assert_eq!(known.evidence(), Some(Evidence::Codex));
    assert_eq!(known.revision(), 1);
    assert!(SessionView::new(known).is_coding_agent());
}

#[test]
fn row_25_a_stored_positive_of_revision_0_is_nothing() {
    let words = ("coding_agent", "local_identity", "high");
    let code = "client_family.codex";
    assert_eq!(Classification::stored(words, code, 0), None);
    let known = Classification::stored(words, code, 1);
    assert_eq!(known, Some(Classification::by(Evidence::Codex)));
}

#[test]
fn row_49_words_that_this_program_does_not_write_are_refused() {
    let code = "client_family.codex";
    for words in [
        ("not_coding", "local_identity", "high"),
        ("coding_agent", "local_tooling", "high"),
        ("coding_agent", "local_identity", "low"),
        ("", "local_identity", ""),
        ("unknown", "", ""),
    ] {
        assert_eq!(Classification::stored(words, code, 1), None, "{words:?}");
    }
    let words = ("coding_agent", "local_identity", "high");
    assert_eq!(
        Classification::stored(words, "client_family.other", 1),
        None
    );
    let unknown = Some(Classification::Unknown);
    assert_eq!(Classification::stored(("", "", ""), "", 0), unknown);
    assert_eq!(Classification::stored(("", "", ""), "", 1), None);
}

#[test]
fn rows_27_and_51_to_53_who_identifies_and_who_is_asked_in_which_mode() {
    let decisive = Local {
        evidence: Some(Evidence::Codex),
        excluded: false,
    };
    let in_mode = |mode, remote| Policy {
        mode,
        remote,
        ..Policy::default()
    };
    let heuristic = in_mode(Mode::Heuristic, None);
    assert!(heuristic.asks(Local::default()).is_none());
    let jev = in_mode(Mode::Jev, Some(remote()));
    assert_eq!(jev.promotes(decisive), None);
    assert!(jev.asks(decisive).is_some());
    assert!(jev.asks(Local::default()).is_some());
    let hybrid = in_mode(Mode::Hybrid, Some(remote()));
    assert_eq!(hybrid.promotes(decisive), Some(Evidence::Codex));
    assert!(hybrid.asks(decisive).is_none());
    assert!(hybrid.asks(Local::default()).is_some());
}

#[test]
fn rows_28_and_29_which_markers_count() {
    let late: Vec<&str> = [".git"; MARKERS_MAX]
        .into_iter()
        .chain(["go.mod"])
        .collect();
    assert!(!has_project_marker(late));
    let long = format!("{}.csproj", "a".repeat(MARKER_BYTES_MAX));
    for marker in [
        &*long,
        "/repo/go.mod",
        "../go.mod",
        "src\\go.mod",
        "repo-go.mod-backup",
        ".csproj",
        "go.mod\n",
        "",
        ".git",
        "main.rs",
    ] {
        assert!(!is_project_marker(marker), "{marker:?}");
    }
    for marker in [
        "MYAPP.CSPROJ",
        "Go.MoD",
        "a.slnx",
        "App.xcworkspace",
        "Gemfile",
    ] {
        assert!(is_project_marker(marker), "{marker}");
    }
}

#[test]
fn row_30_weak_turns_do_not_add_up() {
    for _ in 0..128 {
        for names in [&["read"][..], &["edit"], &["bash"], &["grep"], &[]] {
            assert_eq!(heuristic("OpenAI/JS", names, &[]), None);
        }
    }
}

#[test]
fn row_31_any_number_of_unknown_tools_is_one_bit() {
    let mut evidence = ToolBits::by(ToolEvidence::reduce);
    for number in 0..10_000 {
        evidence.name(ToolName::Named(&format!("tool_{number}")));
    }
    evidence.name(ToolName::BeyondBound);
    let session = |bits: &ToolBits| ToolEvidence::of(bits.bits()).session();
    assert_eq!(session(&evidence), ToolSet::EMPTY | Tool::UnknownSeen);
    for name in ["read", "edit", "bash"] {
        evidence.name(ToolName::Named(name));
    }
    assert!(session(&evidence).is_coding_cluster());
}

#[test]
fn names_of_tools_are_whole_and_known() {
    for name in [
        "readFile",
        "searchFile",
        "write-file",
        "executeCommand",
        "shell",
        "codex",
        "assistant_action",
        "edit_file",
        "mcp__files__read",
        "read file",
        "",
    ] {
        assert_eq!(Tool::of(name), Tool::UnknownSeen, "{name}");
    }
    assert_eq!(Tool::of("  NotebookEdit "), Tool::FileEdit);
    assert_eq!(Tool::of("web.run"), Tool::WebAccess);
    assert_eq!(Tool::of("remove_directory"), Tool::FileRemove);
}

#[test]
fn row_36_prefixes_are_bounded_in_lower_case() {
    // Two bytes that become three.
    let grows = "\u{23a}".repeat(64);
    assert_eq!(IgnoredPrefix::new(&grows), Err(PrefixError::TooLong(192)));
    let long = "a".repeat(AGENT_PREFIX_BYTES_MAX + 1);
    assert_eq!(IgnoredPrefix::new(&long), Err(PrefixError::TooLong(129)));
    assert!(IgnoredPrefix::new(&long[1..]).is_ok());
    assert_eq!(IgnoredPrefix::new(" "), Err(PrefixError::Blank));
    assert_eq!(IgnoredPrefix::new("a\u{85}"), Err(PrefixError::Control));
    let first = IgnoredPrefix::new("Ähnlich").unwrap();
    assert!(first.as_str().starts_with('ä'));
}

#[test]
fn codes_are_short_and_of_plain_letters() {
    let codes = Evidence::ALL.map(Evidence::as_str);
    for code in codes {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        assert!(code.len() <= 64 && code.bytes().all(plain), "{code}");
        assert_eq!(Evidence::from_code(code).map(Evidence::as_str), Some(code));
    }
    assert_eq!(Evidence::from_code("remote.below_threshold"), None);
}

/// How another part of the gateway would ask: one question, and nothing of its own.
#[test]
fn a_consumer_asks_the_view_and_nothing_else() {
    fn compaction(view: SessionView) -> &'static str {
        if view.is_coding_agent() {
            "coding"
        } else {
            "generic"
        }
    }
    assert_eq!(compaction(SessionView::default()), "generic");
    let known = SessionView::new(Classification::by(Evidence::Roo));
    assert_eq!(compaction(known), "coding");
}

#[test]
fn agent_family_knows_more_clients_and_tools_than_the_first_catalogue() {
    for (text, expected) in [
        (
            "claude-cli/2.1.197 (external, sdk-cli)",
            Some("claude_code"),
        ),
        (
            "claude-cli/2.1.332 (external, sdk-ts, agent-sdk/0.3.332)",
            Some("claude_code"),
        ),
        (
            "codex_exec/0.171.0 (Debian 12.0.0; x86_64) dumb (codex_exec; 0.171.0)",
            Some("codex"),
        ),
        (
            "opencode/1.18.33 ai-sdk/provider-utils/4.0.23 runtime/bun/1.3.14",
            Some("opencode"),
        ),
        ("QwenCode/0.15.10 (linux; x64)", Some("qwen_code")),
        ("GeminiCLI/0.9 (linux; x64)", Some("gemini_cli")),
        ("crush/1 goose/1", None),
        ("OpenAI/Python 3.57.0", None),
        ("continue", None),
        ("curl/7.88.1", None),
    ] {
        let found = agent(text).and_then(AgentFamily::of);
        assert_eq!(found.map(AgentFamily::as_str), expected, "{text}");
    }
    for (name, expected) in [
        ("shell", Tool::OsCommand),
        ("MultiEdit", Tool::FileEdit),
        ("mcp__files__read_file", Tool::FileRead),
        ("mcp__shell", Tool::UnknownSeen),
        ("str_replace_based_edit_tool", Tool::FileEdit),
        ("TodoWrite", Tool::UnknownSeen),
    ] {
        assert_eq!(Tool::of_family(name), expected, "{name}");
    }
    let mut names = AgentFamily::ALL.map(AgentFamily::as_str);
    names.sort_unstable();
    assert_eq!(names, AgentFamily::ALL.map(AgentFamily::as_str));
}
