"""The agents: where each is installed, how it is told of the gateway, and how one turn of it is started.

Each gets a key that no provider may ever see, a model name that only the gateway knows, and leave to run
commands; updates, telemetry and lists from elsewhere are switched off as its documents say.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# What an agent sends to the gateway; the gateway writes the provider's own.
AGENT_KEY = "sk-of-the-agent"
PROMPT = "Run the command."


@dataclass(frozen=True)
class Place:
    """Where a turn happens."""

    # Folder that has the `node_modules` of all agents.
    packages: Path
    # URL of the gateway.
    gateway: str
    home: Path
    # Folder that the agent works in.
    workspace: Path

    def package(self, name: str) -> Path:
        return self.packages / "node_modules" / name


@dataclass(frozen=True)
class Agent:
    """One agent in one dialect."""

    name: str
    # The end of the path that its model calls go to.
    path: str
    # The name that it asks for.
    model: str
    # Writes its files of settings.
    prepare: Callable[[Place], None]
    command: Callable[[Place], list[str]]
    variables: Callable[[Place], dict[str, str]]


def claude_code() -> Agent:
    model = "agent-claude"

    def command(place: Place) -> list[str]:
        binary = place.package("@anthropic-ai/claude-code-linux-x64") / "claude"
        # It refuses to skip all permissions as root, so the one tool is allowed by name.
        return [str(binary), "--print", PROMPT, "--model", model, "--allowedTools", "Bash"]

    def variables(place: Place) -> dict[str, str]:
        switches = ("DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER", "DISABLE_ERROR_REPORTING")
        return {
            "ANTHROPIC_BASE_URL": place.gateway,
            "ANTHROPIC_API_KEY": AGENT_KEY,
            "CLAUDE_CONFIG_DIR": str(place.home / ".claude"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            **{name: "1" for name in switches},
        }

    return Agent("claude-code", "/v1/messages", model, nothing, command, variables)


def codex(provider: str) -> Agent:
    """With a provider of its own, or with the built-in one, which first tries a WebSocket and has to be told no."""
    model = f"agent-codex-{provider}"
    settings = {
        "own": """\
model_provider = "gateway"
[model_providers.gateway]
name = "gateway"
base_url = "{url}/v1"
env_key = "CODEX_API_KEY"
wire_api = "responses"
""",
        "builtin": """\
openai_base_url = "{url}/v1"
""",
    }

    def prepare(place: Place) -> None:
        folder = place.home / ".codex"
        folder.mkdir()
        common = [f'model = "{model}"', "check_for_update_on_startup = false", "analytics = { enabled = false }"]
        settled = "\n".join([*common, settings[provider].format(url=place.gateway)])
        (folder / "config.toml").write_text(settled)

    def command(place: Place) -> list[str]:
        binary = place.package("@openai/codex") / "vendor" / "x86_64-unknown-linux-musl" / "bin" / "codex"
        # Its sandbox needs a kernel that not every container has; the workspace is a temporary folder.
        free = ["--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check"]
        return [str(binary), "exec", *free, PROMPT]

    def variables(place: Place) -> dict[str, str]:
        return {"CODEX_HOME": str(place.home / ".codex"), "CODEX_API_KEY": AGENT_KEY}

    return Agent(f"codex ({provider} provider)", "/v1/responses", model, prepare, command, variables)


def opencode() -> Agent:
    model = "agent-opencode"

    def prepare(place: Place) -> None:
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "gateway",
            "options": {"baseURL": f"{place.gateway}/v1", "apiKey": AGENT_KEY},
            "models": {model: {"name": model}},
        }
        settings = {
            "autoupdate": False,
            "share": "disabled",
            "permission": "allow",
            "provider": {"gateway": provider},
        }
        (place.home / "opencode.json").write_text(json.dumps(settings))

    def command(place: Place) -> list[str]:
        binary = place.package("opencode-linux-x64-baseline") / "bin" / "opencode"
        return [str(binary), "run", "--model", f"gateway/{model}", PROMPT]

    def variables(place: Place) -> dict[str, str]:
        switches = ("MODELS_FETCH", "AUTOUPDATE", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
        return {
            "OPENCODE_CONFIG": str(place.home / "opencode.json"),
            **{f"OPENCODE_DISABLE_{name}": "1" for name in switches},
        }

    return Agent("opencode", "/v1/chat/completions", model, prepare, command, variables)


def pi(api: str, path: str, base: str) -> Agent:
    """Pi speaks all three dialects; each is asked for by the name of its `api`."""
    model = f"agent-pi-{api}"

    def prepare(place: Place) -> None:
        folder = place.home / ".pi" / "agent"
        folder.mkdir(parents=True)
        provider = {
            "baseUrl": f"{place.gateway}{base}",
            "api": api,
            "apiKey": AGENT_KEY,
            "models": [{"id": model}],
        }
        (folder / "models.json").write_text(json.dumps({"providers": {"gateway": provider}}))

    def command(place: Place) -> list[str]:
        launcher = place.package("@mariozechner/pi-coding-agent") / "dist" / "cli.js"
        return ["node", str(launcher), "--print", "--provider", "gateway", "--model", model, PROMPT]

    def variables(place: Place) -> dict[str, str]:
        folder = str(place.home / ".pi" / "agent")
        return {"PI_CODING_AGENT_DIR": folder, "PI_OFFLINE": "1", "PI_TELEMETRY": "0"}

    return Agent(f"pi ({api})", path, model, prepare, command, variables)


def nothing(_: Place) -> None:
    """For an agent that is told everything on its command line and in its environment."""


AGENTS = (
    claude_code(),
    codex("own"),
    codex("builtin"),
    opencode(),
    pi("openai-completions", "/v1/chat/completions", "/v1"),
    pi("anthropic-messages", "/v1/messages", ""),
    pi("openai-responses", "/v1/responses", "/v1"),
)
