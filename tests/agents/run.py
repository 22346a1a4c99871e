#!/usr/bin/env python3
"""Real agents through a real gateway: each is asked for something and has to call a tool for it.

    tests/agents/run.py [PATH OF A RELEASE BINARY]

The scripted provider (docs/mock.md) tells every agent to run one command and then says goodbye. The command's
output appears nowhere in what was sent to the agent, so a provider that receives it knows that the command was
run, and that the second half of the conversation came through the gateway too. README.md in this folder says
what is checked. Prints a line for each check, and ends with 1 if one failed.
"""

import os
import socket
import sys
import time
from pathlib import Path

from agents import AGENT_KEY, AGENTS, Agent
from turn import TURN_SECONDS_MAX, Outcome, take

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "clients"))

import installation  # noqa: E402
from journal import Journal  # noqa: E402
from processes import Gateway, Mock  # noqa: E402
from report import Labelled, Report  # noqa: E402

DRIVERS = ("epoll", "io_uring")
# The shell computes it: the provider's request has no such text.
COMMAND = "echo ran-$((6*7))-times | tee ran.txt"
WRITTEN = "ran.txt"
MARKER = "ran-42-times"
# What the scripted provider says once it has a tool result.
FAREWELL = "The lanegate mock says hello."
PROVIDER_KEY = "sk-of-the-provider"
# Model names of the agents lead to `workshop` under other names; anything else is seen to go elsewhere.
CONFIGURATION = """\
server:
  listen: ["127.0.0.1:0"]
  driver: {driver}
timeouts: {{ drain: 5s, linger: 2s }}
providers:
  - name: openai-elsewhere
    dialect: openai
    base_url: "{provider}/elsewhere"
    auth: none
    default: true
  - name: anthropic-elsewhere
    dialect: anthropic
    base_url: "{provider}/elsewhere"
    auth: none
    default: true
  - name: openai-workshop
    dialect: openai
    base_url: "{provider}/workshop"
    secret_env: LANEGATE_AGENTS_PROVIDER_KEY
    models: [{{ from: "agent-*", to: "workshop/{{model}}" }}]
  - name: anthropic-workshop
    dialect: anthropic
    base_url: "{provider}/workshop"
    secret_env: LANEGATE_AGENTS_PROVIDER_KEY
    models: [{{ from: "agent-*", to: "workshop/{{model}}" }}]
"""


def main() -> int:
    binary = Path(sys.argv[1] if len(sys.argv) > 1 else "target/release/lanegate").resolve()
    if not os.access(binary, os.X_OK):
        print(f"{binary} is no program; build it with `cargo build --release --locked`", file=sys.stderr)
        return 2
    packages = installed()
    os.environ["LANEGATE_AGENTS_PROVIDER_KEY"] = PROVIDER_KEY
    report = Report()
    # Bound and not listening: whoever calls home is refused, and nobody else can take the port.
    with socket.socket() as closed, Mock(binary, f"tool; command={COMMAND}") as mock:
        closed.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{closed.getsockname()[1]}"
        for driver in DRIVERS:
            with Gateway(binary, driver, mock.url, CONFIGURATION) as gateway:
                for agent in AGENTS:
                    journal = Journal(mock.url)
                    journal.clear()
                    outcome = take(agent, packages, gateway.url, nowhere, WRITTEN)
                    judge(agent, outcome, journal.records(), report.labelled(driver, agent.name))
    print(f"{report.passed} passed, {report.failed} failed")
    return 1 if report.failed or not report.passed else 0


def installed() -> Path:
    """Folder with the pinned agents, which bring their programs inside their packages."""
    manifests = [HERE / "package.json", HERE / "package-lock.json"]
    pinned = [*(file.read_bytes() for file in manifests), installation.node_version()]
    begun = time.monotonic()
    folder = installation.once("agents", pinned, lambda folder: installation.npm(folder, manifests))
    print(f"agents in {folder}, ready after {time.monotonic() - begun:.1f} s", flush=True)
    return folder


def judge(agent: Agent, outcome: Outcome, records: list[dict], check: Labelled) -> None:
    """The checks of one turn."""
    failed_before = check.report.failed
    check(f"ends well within {TURN_SECONDS_MAX} s", outcome.ending, 0)
    check("prints the last words of the provider", FAREWELL in outcome.output, True)
    check("runs the command in its workspace", (outcome.written or "").strip(), MARKER)
    calls = [record for record in records if record["model"] is not None]
    results = [record for record in calls if MARKER in (record["tool_result"] or "")]
    check("the provider receives the result of the tool", len(results), 1)
    routed = (f"/workshop{agent.path}", f"workshop/{agent.model}")
    check("its alias leads to the provider and the name there", {way(record) for record in calls}, {routed})
    check("every call comes whole and is answered", {whole(record) for record in calls}, {True})
    keys = {tuple(key in record["head"] for key in (PROVIDER_KEY, AGENT_KEY)) for record in records}
    check("the provider sees its own key, and never the agent's", keys, {(True, False)})
    check.note(f"{len(records)} requests, {sum(record['body_len'] for record in calls)} bytes, {outcome.seconds:.1f} s")
    if check.report.failed > failed_before:
        print(outcome.last_lines(), flush=True)


def way(record: dict) -> tuple[str, str]:
    """Path, without query, and model of a call."""
    target = record["head"].split(" ", 2)[1]
    return target.partition("?")[0], record["model"]


def whole(record: dict) -> bool:
    return record["complete"] and record["executed"] and record["answered"]


if __name__ == "__main__":
    sys.exit(main())
