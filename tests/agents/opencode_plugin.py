#!/usr/bin/env python3
"""opencode with its plugin of deploy/opencode-plugin, through a real gateway: who speaks, and how its tests went.

    tests/agents/opencode_plugin.py [PATH OF A RELEASE BINARY] [--outcomes]

    opencode -> recorder -> gateway -> scripted provider

The recorder is what opencode and the plugin take for the gateway, so that the identity fields are seen before the
gateway takes them off. One run has a main agent and two helpers at once; one helper runs a test command that
fails. With `--outcomes` the gateway has to record its report. README.md in this folder says what has to hold.
Prints a line for each check, and ends with 1 if one failed.
"""

import json
import os
import re
import socket
import sqlite3
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from agents import Agent, Place, opencode
from foreman import FAREWELL, SCOUT, Foreman, Recorder, Request
from run import installed
from turn import Outcome, take

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "clients"))

from processes import Gateway, free_port  # noqa: E402
from report import Labelled, Report  # noqa: E402

PLUGIN = HERE.parent.parent / "deploy" / "opencode-plugin"
OLDER_PLUGIN = HERE / "older_outcome_plugin.js"
CLIENT_KEY = "key-of-the-plugin"
PROVIDER_KEY = "sk-of-the-provider"
CONFIGURATION = """\
server:
  listen: ["127.0.0.1:0"]
  driver: {driver}
timeouts: {{ drain: 5s, linger: 2s }}
store: {{ url: "sqlite:LEDGER", flush_interval: 50ms }}
admin: {{ listen: "127.0.0.1:ADMIN" }}
clients:
  - {{ name: opencode, key_env: LANEGATE_AGENTS_CLIENT_KEY }}
providers:
  - name: foreman
    dialect: openai
    base_url: "{provider}"
    secret_env: LANEGATE_AGENTS_PROVIDER_KEY
    default: true
"""
# A test that fails, as the workspace of the helper has it.
FAILING_TEST = "import unittest\n\nclass Case(unittest.TestCase):\n    def test(self):\n        self.fail()\n"
# What the older plugin is answered, a line each, in the workspace.
ANSWERS = "answers.txt"
ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
IDENTITY = ("x-router-conversation", "x-router-agent", "x-router-parent")
# Agents that opencode asks beside the conversation.
BESIDE = {"title", "summary"}
# From the end of a run to its last row.
ROWS_SECONDS_MAX = 10
OUTCOMES = "SELECT COUNT(*) FROM (SELECT client_outcome FROM energy_observations UNION ALL \
SELECT client_outcome FROM local_energy_observations) WHERE client_outcome IS NOT NULL"


class Ledger:
    """The gateway's ledger, and what its admin listener counts."""

    def __init__(self, file: Path, gateway: Gateway, admin: str) -> None:
        self._file, self._gateway, self._admin = file, gateway, admin
        self._decisions = self._outcomes = 0

    def rows(self, question: str, *values: object) -> list[tuple]:
        with closing(sqlite3.connect(f"file:{self._file}?mode=ro", uri=True)) as ledger:
            return ledger.execute(question, values).fetchall()

    def decided(self, calls: int) -> list[tuple]:
        """What the run left: `(session_key, agent, parent_key, count)`, once there is a row for each call."""
        give_up = time.monotonic() + ROWS_SECONDS_MAX
        while True:
            question = "SELECT session_key, agent, parent_key, COUNT(*) FROM route_decisions WHERE id > ? GROUP BY 1, 2, 3"
            rows = self.rows(question, self._decisions)
            if sum(row[3] for row in rows) >= calls or time.monotonic() > give_up:
                [(self._decisions,)] = self.rows("SELECT COALESCE(MAX(id), 0) FROM route_decisions")
                return rows
            time.sleep(0.05)

    def outcomes(self) -> int:
        """How many answers have an outcome that had none before the run."""
        [(outcomes,)] = self.rows(OUTCOMES)
        new, self._outcomes = outcomes - self._outcomes, outcomes
        return new

    def metric(self, series: str) -> float:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{self._admin}/metrics", timeout=5) as page:
            lines = page.read().decode().splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{series} "))

    def conflicts(self) -> int:
        lines = (line for line in self._gateway.log().splitlines() if line.startswith("{"))
        return sum(json.loads(line).get("status") == 409 for line in lines)


@dataclass(frozen=True)
class Setup:
    """Which plugins a run has."""

    name: str
    # How ours is installed: `configured` by path with options, `linked` from the plugin folder with the environment.
    ours: str | None
    older: bool


@dataclass(frozen=True)
class Turn:
    """What a run left behind."""

    setup: Setup
    outcome: Outcome
    # At the recorder.
    calls: list[Request]
    reports: list[Request]
    # At the provider.
    provided: list[Request]

    def by_ours(self) -> list[Request]:
        return [report for report in self.reports if report.field("x-lanegate-key")]

    def by_older(self) -> list[Request]:
        return [report for report in self.reports if not report.field("x-lanegate-key")]


def main() -> int:
    arguments = [argument for argument in sys.argv[1:] if argument != "--outcomes"]
    binary = Path(arguments[0] if arguments else "target/release/lanegate").resolve()
    if not os.access(binary, os.X_OK):
        print(f"{binary} is no program; build it with `cargo build --release --locked`", file=sys.stderr)
        return 2
    os.environ |= {"LANEGATE_AGENTS_CLIENT_KEY": CLIENT_KEY, "LANEGATE_AGENTS_PROVIDER_KEY": PROVIDER_KEY}
    packages = installed()
    report = Report()
    alone, beside, without = (
        Setup("plugin alone", ours="configured", older=False),
        Setup("plugin and an older one", ours="linked", older=True),
        Setup("older plugin alone", ours=None, older=True),
    )
    for driver, setups in (("epoll", [alone, beside]), ("io_uring", [alone, without])):
        with way(binary, driver) as (recorder, provider, ledger, nowhere):
            for setup in setups:
                turn = run(setup, packages, recorder, provider, nowhere)
                check = report.labelled(driver, setup.name)
                judge(turn, "--outcomes" in sys.argv, check)
                judge_ledger(turn, ledger, check)
    print(f"{report.passed} passed, {report.failed} failed")
    return 1 if report.failed or not report.passed else 0


@contextmanager
def way(binary: Path, driver: str) -> Iterator[tuple[Recorder, Foreman, Ledger, str]]:
    """Everything that a run goes through; the last is the address of nobody, for what opencode asks elsewhere."""
    with (
        socket.socket() as closed,
        Foreman() as provider,
        Recorder() as recorder,
        tempfile.TemporaryDirectory(prefix="lanegate-ledger-") as folder,
    ):
        closed.bind(("127.0.0.1", 0))
        file, port = Path(folder) / "ledger.db", free_port()
        configuration = CONFIGURATION.replace("LEDGER", str(file)).replace("ADMIN", str(port))
        with Gateway(binary, driver, provider.url, configuration) as gateway:
            recorder.target = gateway.url
            ledger = Ledger(file, gateway, f"http://127.0.0.1:{port}")
            yield recorder, provider, ledger, f"http://127.0.0.1:{closed.getsockname()[1]}"


def run(setup: Setup, packages: Path, recorder: Recorder, provider: Foreman, nowhere: str) -> Turn:
    outcome = take(agent(setup), packages, recorder.url, nowhere, written=ANSWERS)
    received = recorder.taken()
    reports = [request for request in received if request.path == "/outcome"]
    calls = [request for request in received if request.path.endswith("/chat/completions")]
    return Turn(setup, outcome, calls, reports, provider.taken())


def agent(setup: Setup) -> Agent:
    """opencode as `agents.py` has it, with the plugins, a helper of a difficult name, and a test that fails."""
    plain = opencode()

    def prepare(place: Place) -> None:
        plain.prepare(place)
        file = place.home / "opencode.json"
        settings = json.loads(file.read_text())
        settings["agent"] = {SCOUT: {"mode": "subagent", "description": "Looks around", "prompt": "Look around."}}
        # With ours, the gateway knows its client by the plugin's key alone.
        settings["provider"]["gateway"]["options"]["apiKey"] = "sk-of-nobody" if setup.ours else CLIENT_KEY
        if setup.ours == "configured":
            options = {"gateway": place.gateway, "key": CLIENT_KEY, "sendKey": True}
            settings["plugin"] = [[str(PLUGIN), options]]
        file.write_text(json.dumps(settings))
        folder = place.home / ".config" / "opencode" / "plugins"
        folder.mkdir(parents=True)
        if setup.ours == "linked":
            (folder / "lanegate.js").write_text(f'export {{ default }} from "{PLUGIN}/src/index.js"\n')
        if setup.older:
            (folder / "router-outcome.js").write_bytes(OLDER_PLUGIN.read_bytes())
        (place.workspace / "test_work.py").write_text(FAILING_TEST)

    def variables(place: Place) -> dict[str, str]:
        # Where there are plugins, opencode waits for a package that it fetches for them: 72 s if it may try again.
        no_retries = {"npm_config_fetch_retries": "0"}
        variables = plain.variables(place) | no_retries
        if setup.older:
            answers = str(place.workspace / ANSWERS)
            variables |= {"OLDER_PLUGIN_URL": place.gateway, "OLDER_PLUGIN_KEY": CLIENT_KEY, "OLDER_PLUGIN_ANSWERS": answers}
        if setup.ours == "linked":
            variables |= {"LANEGATE_URL": place.gateway, "LANEGATE_KEY": CLIENT_KEY, "LANEGATE_SEND_KEY": "1"}
        return variables

    return replace(plain, prepare=prepare, variables=variables)


def judge(turn: Turn, recorded: bool, check: Labelled) -> None:
    """The checks of one run."""
    failed_before = check.report.failed
    check("ends well and prints the last words", (turn.outcome.ending, FAREWELL in turn.outcome.output), (0, True))
    check("the gateway takes every call", {call.status for call in turn.calls}, {200})
    names = {name for request in turn.provided for name, _ in request.fields}
    check("the provider sees no identity and no key of the gateway", names & {*IDENTITY, "x-lanegate-key"}, set())
    if turn.setup.ours:
        judge_identity(turn, check)
        judge_report(turn, check)
        if recorded:
            check("the gateway records it", [report.status for report in turn.by_ours()], [200])
    judge_older(turn, check)
    reports = f"{len(turn.by_ours())} reports by ours, {len(turn.by_older())} by the older one"
    check.note(f"{len(turn.calls)} calls, {reports}, {turn.outcome.seconds:.1f} s")
    if check.report.failed > failed_before:
        print(turn.outcome.last_lines(), flush=True)


def judge_older(turn: Turn, check: Labelled) -> None:
    """Alone it reports, and the gateway cannot know which conversation is meant; beside ours it is held back."""
    answered = (turn.outcome.written or "").splitlines()
    if not turn.setup.older:
        expected: list[str] = []
    elif turn.setup.ours:
        expected = ["200 superseded"]
    else:
        expected = ["409 ambiguous_report"]
        bodies = [(json.loads(report.body), report.status) for report in turn.by_older()]
        check("the older one reports once, and of no conversation", bodies, [({"outcome": "fail"}, 409)])
    check("the older one is answered as often as it reports", answered, expected)
    if turn.setup.ours:
        check("no report of the older one is sent", len(turn.by_older()), 0)


def judge_identity(turn: Turn, check: Labelled) -> None:
    labels = [[call.field(name) for name in IDENTITY] for call in turn.calls]
    check("every call has a valid conversation", all(label[0] and ID.fullmatch(label[0]) for label in labels), True)
    steps = {tuple(label) for label in labels if label[1] not in BESIDE}
    mains = {conversation for conversation, _, parent in steps if parent is None}
    check("one conversation has no parent", len(mains), 1)
    main = next(iter(mains), None)
    helpers = {conversation: (name, parent) for conversation, name, parent in steps if conversation != main}
    expected = sorted([("general", main), ("atlas-plan-executor", main)])
    check("each helper has a conversation of its own, a label and its parent", sorted(helpers.values()), expected)
    beside = {(conversation, parent) for conversation, name, parent in labels if name in BESIDE}
    check("the title is asked for in the main conversation", beside, {(main, None)})
    # As opencode says it by itself, so that the plugin's view is held against another.
    own = {(call.field("x-session-id"), call.field("x-parent-session-id")) for call in turn.calls}
    check("opencode's own fields say the same", {(label[0], label[2]) for label in labels}, own)
    check("every call has the plugin's key", {call.field("x-lanegate-key") for call in turn.calls}, {CLIENT_KEY})


def judge_report(turn: Turn, check: Labelled) -> None:
    check("one test command is one report", len(turn.by_ours()), 1)
    for report in turn.by_ours():
        body = json.loads(report.body)
        duration = body.pop("duration_ms", None)
        tester = {
            call.field("x-router-conversation")
            for call in turn.calls
            if call.field("x-router-agent") == "general"
        }
        expected = {"outcome": "fail", "kind": "test:unittest", "exit_code": 1}
        check("it is of the helper that ran the tests", {body.pop("conversation_id", None)}, tester)
        check("it says how they went, and nothing else", body, expected)
        check("it says how long they took", isinstance(duration, int) and duration > 0, True)
        check("it has the plugin's key", report.field("x-lanegate-key"), CLIENT_KEY)


def judge_ledger(turn: Turn, ledger: Ledger, check: Labelled) -> None:
    """What the gateway wrote down, against what it was sent."""
    rows = ledger.decided(len(turn.calls))
    check("the ledger has a row for every call", sum(row[3] for row in rows), len(turn.calls))
    # The older one alone has one, so that none beside ours means something.
    check("the log has no 409, or that of the older one alone", ledger.conflicts(), 0 if turn.setup.ours else 1)
    if not turn.setup.ours:
        check("a report of no conversation is no outcome", ledger.outcomes(), 0)
        keys = {row[0] for row in rows}
        check("without the plugin no conversation has a name", {key.startswith("c:") for key in keys}, {False})
        return
    said = {tuple(call.field(name) for name in IDENTITY) for call in turn.calls}
    key = "c:{}".format
    expected = {(key(session), agent, parent and key(parent)) for session, agent, parent in said}
    check("its rows say who spoke to whom", {row[:3] for row in rows}, expected)
    check("several conversations are named", len({row[0] for row in rows}) >= 3, True)
    check("one test command is one outcome", ledger.outcomes(), 1)
    share = ledger.metric('lanegate_conversations_distinct{kind="client"}')
    check("the named conversations are counted", share >= 3, True)


if __name__ == "__main__":
    sys.exit(main())
