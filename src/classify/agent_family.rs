//! The feature `agent-family`: which agent an exchange comes from, after a wider catalogue.
//!
//! A label of one exchange and not of a session: it is kept nowhere, and is never evidence for
//! `session-classification`, whose catalogue is closed. The same conservatism holds: names as whole words, two
//! families in one text are none, and tools count only as a cluster.

use crate::classify::catalogue::{Name, find, versioned, word};
use crate::classify::{ToolSet, UserAgent};

/// A family of coding agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentFamily {
    /// aider.
    Aider,
    /// Anthropic's Claude Code, and programs on its agent SDK.
    ClaudeCode,
    /// Cline.
    Cline,
    /// OpenAI's Codex in all its forms.
    Codex,
    /// Continue.
    Continue,
    /// GitHub Copilot.
    Copilot,
    /// Charm's Crush.
    Crush,
    /// Cursor.
    Cursor,
    /// Factory's Droid.
    Droid,
    /// Google's Gemini CLI.
    GeminiCli,
    /// Block's Goose.
    Goose,
    /// Nous Research's Hermes.
    Hermes,
    /// Kilo Code.
    Kilo,
    /// opencode.
    OpenCode,
    /// Pi.
    Pi,
    /// Qwen Code.
    QwenCode,
    /// Roo Code.
    Roo,
    /// Zed.
    Zed,
}

const NAMES: [Name<AgentFamily>; 33] = [
    versioned("aider", AgentFamily::Aider),
    versioned("claude-cli", AgentFamily::ClaudeCode),
    versioned("claude-code", AgentFamily::ClaudeCode),
    versioned("cline", AgentFamily::Cline),
    versioned("codex_cli_rs", AgentFamily::Codex),
    word("codex_exec", AgentFamily::Codex),
    word("codex_vscode", AgentFamily::Codex),
    word("codex-tui", AgentFamily::Codex),
    versioned("codex-cli", AgentFamily::Codex),
    versioned("continue", AgentFamily::Continue),
    word("githubcopilotchat", AgentFamily::Copilot),
    versioned("copilot", AgentFamily::Copilot),
    versioned("crush", AgentFamily::Crush),
    word("charm-crush", AgentFamily::Crush),
    versioned("cursor", AgentFamily::Cursor),
    word("factory-cli", AgentFamily::Droid),
    word("factory_cli", AgentFamily::Droid),
    word("factorydroid", AgentFamily::Droid),
    versioned("droid", AgentFamily::Droid),
    word("geminicli", AgentFamily::GeminiCli),
    versioned("gemini-cli", AgentFamily::GeminiCli),
    versioned("goose", AgentFamily::Goose),
    word("hermes-agent", AgentFamily::Hermes),
    versioned("hermes", AgentFamily::Hermes),
    word("kilo-code", AgentFamily::Kilo),
    word("opencode", AgentFamily::OpenCode),
    word("pi-coding-agent", AgentFamily::Pi),
    versioned("pi", AgentFamily::Pi),
    versioned("qwencode", AgentFamily::QwenCode),
    versioned("qwen-code", AgentFamily::QwenCode),
    word("roo-code", AgentFamily::Roo),
    versioned("roocode", AgentFamily::Roo),
    versioned("zed", AgentFamily::Zed),
];

impl AgentFamily {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::Aider,
        Self::ClaudeCode,
        Self::Cline,
        Self::Codex,
        Self::Continue,
        Self::Copilot,
        Self::Crush,
        Self::Cursor,
        Self::Droid,
        Self::GeminiCli,
        Self::Goose,
        Self::Hermes,
        Self::Kilo,
        Self::OpenCode,
        Self::Pi,
        Self::QwenCode,
        Self::Roo,
        Self::Zed,
    ];

    /// The family that a User-Agent names, if it is exactly one.
    #[must_use]
    pub fn of(agent: UserAgent<'_>) -> Option<Self> {
        find(agent, &NAMES)
    }

    /// Its word in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Aider => "aider",
            Self::ClaudeCode => "claude_code",
            Self::Cline => "cline",
            Self::Codex => "codex",
            Self::Continue => "continue",
            Self::Copilot => "copilot",
            Self::Crush => "crush",
            Self::Cursor => "cursor",
            Self::Droid => "droid",
            Self::GeminiCli => "gemini_cli",
            Self::Goose => "goose",
            Self::Hermes => "hermes",
            Self::Kilo => "kilo",
            Self::OpenCode => "opencode",
            Self::Pi => "pi",
            Self::QwenCode => "qwen_code",
            Self::Roo => "roo",
            Self::Zed => "zed",
        }
    }
}

/// Why an exchange is put down to an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentEvidence {
    /// Its client names this family.
    Named(AgentFamily),
    /// Its tools read, change and execute; of which agent is not known.
    CodingCluster,
    /// Its tools read, and change or execute, in a project.
    ProjectMarkerCluster,
}

impl AgentEvidence {
    /// What one exchange shows, the client's name first.
    #[must_use]
    pub fn of(agent: Option<UserAgent<'_>>, tools: ToolSet, marked: bool) -> Option<Self> {
        if let Some(family) = agent.and_then(AgentFamily::of) {
            Some(Self::Named(family))
        } else if tools.is_coding_cluster() {
            Some(Self::CodingCluster)
        } else if marked && tools.is_half_cluster() {
            Some(Self::ProjectMarkerCluster)
        } else {
            None
        }
    }

    /// How many there are.
    pub const COUNT: usize = AgentFamily::ALL.len() + 2;

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let named = AgentFamily::ALL.into_iter().map(Self::Named);
        named.chain([Self::CodingCluster, Self::ProjectMarkerCluster])
    }

    /// Its position among them.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Named(family) => family as usize,
            Self::CodingCluster => AgentFamily::ALL.len(),
            Self::ProjectMarkerCluster => AgentFamily::ALL.len() + 1,
        }
    }

    /// Its code.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Named(_) => "agent_family.client",
            Self::CodingCluster => "agent_family.coding_cluster",
            Self::ProjectMarkerCluster => "agent_family.project_marker_cluster",
        }
    }

    /// The family, or `unnamed` for tools without one.
    #[must_use]
    pub const fn family(self) -> &'static str {
        match self {
            Self::Named(family) => family.as_str(),
            Self::CodingCluster | Self::ProjectMarkerCluster => "unnamed",
        }
    }
}
