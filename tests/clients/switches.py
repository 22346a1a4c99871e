"""Switches through the official SDKs: a gateway of its own, which tells its provider sessions, on two cores."""

import os
import subprocess
import sys
from pathlib import Path

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
    variables = {"NO_PROXY": "127.0.0.1", "PYTHONDONTWRITEBYTECODE": "1", "LANEGATE_CLIENTS_NODE": str(sdks.node)}
    steering = ("openai_", "anthropic_", "http_proxy", "https_proxy", "all_proxy", "node_options")
    kept = {name: value for name, value in os.environ.items() if not name.lower().startswith(steering)}
    with Gateway(binary, driver, provider, CONFIGURATION) as gateway:
        for name, command in clients.items():
            done = subprocess.run(
                [*command, gateway.url, provider],
                env=kept | variables,
                capture_output=True,
                text=True,
                timeout=SECONDS_MAX,
                check=False,
            )
            for line in done.stdout.splitlines():
                check.line(line)
            if done.returncode != 0 or not done.stdout:
                print(done.stderr, file=sys.stderr)
                check(f"{name} ends well", done.returncode, 0)
