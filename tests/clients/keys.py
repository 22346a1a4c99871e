"""Clients by their keys through the official SDKs: a gateway of its own, which has a list of them."""

import json
import os
import time
from collections import Counter
from pathlib import Path

from child import run_checks
from journal import Journal
from processes import Gateway
from report import Labelled
from sdks import Sdks

HERE = Path(__file__).resolve().parent
SECONDS_MAX = 120
# From the end of an exchange to its line in the log.
LINES_SECONDS_MAX = 10
LOOK_SECONDS = 0.05

CLIENTS = ("python", "node")
PROVIDER_KEY = "sk-of-the-provider"
CONFIGURATION = """\
server:
  listen: ["127.0.0.1:0"]
  driver: {driver}
timeouts: {{ drain: 5s, linger: 2s }}
clients:
  - {{ name: python, key_env: LANEGATE_CLIENTS_KEY_PYTHON }}
  - {{ name: node, key_env: LANEGATE_CLIENTS_KEY_NODE }}
providers:
  - {{ name: openai, dialect: openai, base_url: "{provider}", secret_env: LANEGATE_CLIENTS_PROVIDER_KEY }}
  - {{ name: anthropic, dialect: anthropic, base_url: "{provider}", secret_env: LANEGATE_CLIENTS_PROVIDER_KEY }}
"""


def run(binary: Path, driver: str, provider: str, sdks: Sdks, check: Labelled) -> None:
    """All checks, each of which prints a line."""
    commands = {
        "python": [str(sdks.python), str(HERE / "python" / "key_checks.py")],
        "node": ["node", str(HERE / "node" / "key_checks.mjs")],
    }
    variables = {"PYTHONDONTWRITEBYTECODE": "1", "LANEGATE_CLIENTS_NODE": str(sdks.node)}
    os.environ["LANEGATE_CLIENTS_PROVIDER_KEY"] = PROVIDER_KEY
    for name in CLIENTS:
        os.environ[f"LANEGATE_CLIENTS_KEY_{name.upper()}"] = key_of(name)
    journal = Journal(provider)
    journal.clear()
    with Gateway(binary, driver, provider, CONFIGURATION) as gateway:
        for name, command in commands.items():
            run_checks(name, [*command, gateway.url, key_of(name)], variables, SECONDS_MAX, check)
        # Of each SDK one stream with the right key. A stranger is refused before anything else is known.
        expected = Counter((name, dialect, 200) for name in CLIENTS for dialect in ("chat", "messages"))
        expected[None, None, 401] = 2 * len(CLIENTS)
        check("the access log counts each exchange for its client", logged(gateway, expected.total()), expected)
        keys = [key_of(name) in gateway.log() for name in CLIENTS]
        check("the log has no key", any(keys), False)
    heads = [record["head"] for record in journal.records()]
    seen = Counter((PROVIDER_KEY in head, any(key_of(name) in head for name in CLIENTS)) for head in heads)
    check("the provider sees its own key, never a client's, and nothing of a stranger", seen, {(True, False): 4})


def key_of(name: str) -> str:
    return f"key-of-the-client-{name}-0123456789"


def logged(gateway: Gateway, lines: int) -> Counter:
    """How many exchanges there were by client, dialect and status, once there are that many lines."""
    give_up = time.monotonic() + LINES_SECONDS_MAX
    while True:
        found = [json.loads(line) for line in gateway.log().splitlines() if line.startswith("{") and line.endswith("}")]
        if len(found) >= lines or time.monotonic() > give_up:
            return Counter((line["client"], line["dialect"], line["status"]) for line in found)
        time.sleep(LOOK_SECONDS)
