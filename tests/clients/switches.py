"""Switches through the official SDKs: a gateway of its own, which tells its provider sessions, on two cores."""

from pathlib import Path

from child import run_checks
from processes import Gateway
from report import Labelled
from sdks import Sdks

HERE = Path(__file__).resolve().parent
SECONDS_MAX = 120

CONFIGURATION = """\
server:
  listen: ["127.0.0.1:0"]
  driver: {driver}
  workers: 2
timeouts: {{ drain: 5s, linger: 2s }}
providers:
  - name: openai
    dialect: openai
    base_url: "{provider}"
    auth: none
    session_forwarding: opencode-go
    models: [{{ from: mock-model, to: "{{model}}" }}]
  - name: anthropic
    dialect: anthropic
    base_url: "{provider}"
    auth: none
    session_forwarding: opencode-go
    models: [{{ from: mock-model, to: "{{model}}" }}]
"""


def run(binary: Path, driver: str, provider: str, sdks: Sdks, check: Labelled) -> None:
    """All checks, each of which prints a line."""
    clients = {
        "python": [str(sdks.python), str(HERE / "python" / "switch_checks.py")],
        "node": ["node", str(HERE / "node" / "switch_checks.mjs")],
    }
    variables = {"PYTHONDONTWRITEBYTECODE": "1", "LANEGATE_CLIENTS_NODE": str(sdks.node)}
    with Gateway(binary, driver, provider, CONFIGURATION) as gateway:
        for name, command in clients.items():
            run_checks(name, [*command, gateway.url, provider], variables, SECONDS_MAX, check)
