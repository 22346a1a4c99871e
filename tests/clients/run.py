#!/usr/bin/env python3
"""Real clients against a real gateway: the official SDKs of Python and Node, and curl.

    tests/clients/run.py [PATH OF A RELEASE BINARY]

Every client runs three times against the same scripted provider (docs/mock.md): straight to it, then
through the gateway on each driver. Straight first, since a check that fails there says nothing about the
gateway, and since it leaves what the provider received as the measure: through the gateway the same heads,
byte for byte, and the same bodies have to arrive, save the `Connection` field, which is for one hop only.

Builds nothing. Installs the pinned SDKs once, outside the checkout. Prints a line for each check, and
exits with 1 if one failed. Costs about a minute and one gateway at a time.
"""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import curl_checks
from journal import Journal
from processes import Gateway, Mock
from sdks import Sdks

HERE = Path(__file__).resolve().parent
DRIVERS = ("epoll", "io_uring")
# Limit of one client's run; they take under 15 s on an idle machine.
CLIENT_SECONDS_MAX = 240


@dataclass(frozen=True)
class Client:
    """A program that calls a URL and prints a line for each of its checks."""

    name: str
    command: list[str]
    # Fields that every request of it carries: the comparison of heads has to have something to compare.
    fields: tuple[str, ...]


def main() -> int:
    binary = Path(sys.argv[1] if len(sys.argv) > 1 else "target/release/lanegate").resolve()
    if not os.access(binary, os.X_OK):
        print(f"{binary} is no program; build it with `cargo build --release --locked`", file=sys.stderr)
        return 2
    sdks = Sdks.installed(HERE)
    report = Report()
    with Mock(binary) as mock:
        journal = Journal(mock.url)
        direct = {client.name: observe(client, mock.url, journal, report, "direct") for client in clients(sdks)}
        curl_checks.run(mock.url, None, journal, report.labelled("direct", "curl"))
        for driver in DRIVERS:
            with Gateway(binary, driver, mock.url) as gateway:
                for client in clients(sdks):
                    observe(client, gateway.url, journal, report, driver, direct[client.name])
                curl_checks.run(gateway.url, mock.url, journal, report.labelled(driver, "curl"))
    print(f"clients: {report.passed} passed, {report.failed} failed")
    return 1 if report.failed or not report.passed else 0


def clients(sdks: Sdks) -> list[Client]:
    def of_python(name: str) -> list[str]:
        return [str(sdks.python), str(HERE / "python" / f"{name}_checks.py")]

    def of_node(name: str) -> list[str]:
        return ["node", str(HERE / "node" / f"{name}_checks.mjs")]

    openai = ("user-agent", "authorization", "x-stainless-lang", "x-stainless-package-version")
    anthropic = ("user-agent", "anthropic-version", "x-stainless-lang", "x-stainless-package-version")
    return [
        Client("openai-python", of_python("openai"), openai),
        Client("anthropic-python", of_python("anthropic"), anthropic),
        Client("openai-node", of_node("openai"), openai),
        Client("anthropic-node", of_node("anthropic"), anthropic),
    ]


def observe(
    client: Client,
    url: str,
    journal: Journal,
    report: "Report",
    way: str,
    expected: list[dict] | None = None,
) -> list[dict]:
    """Runs a client; returns what the provider received, compared with `expected` if that is given."""
    check = report.labelled(way, client.name)
    journal.clear()
    begun = time.monotonic()
    done = subprocess.run(
        [*client.command, url],
        env=client_environment(),
        capture_output=True,
        text=True,
        timeout=CLIENT_SECONDS_MAX,
        check=False,
    )
    for line in done.stdout.splitlines():
        check.line(line)
    if done.returncode != 0 or not done.stdout:
        print(done.stderr, file=sys.stderr)
        check("client ends well", done.returncode, 0)
    received = journal.settled(expected)
    lacking = {name for record in received for name in client.fields if name not in record["names"]}
    check("every request carries the SDK's own fields", sorted(lacking), [])
    if expected is not None:
        check.same_requests(received, expected)
    print(f"     [{way}] {client.name}: {len(received)} requests, {time.monotonic() - begun:.1f} s", flush=True)
    return received


def client_environment() -> dict[str, str]:
    """This environment without what would send an SDK elsewhere, or its caches into the checkout."""
    steering = ("openai_", "anthropic_", "http_proxy", "https_proxy", "all_proxy", "node_options")
    kept = {name: value for name, value in os.environ.items() if not name.lower().startswith(steering)}
    return kept | {
        "PYTHONDONTWRITEBYTECODE": "1",
        "NO_PROXY": "127.0.0.1",
        "LANEGATE_CLIENTS_NODE": str(Sdks.installed(HERE).node),
    }


class Report:
    """Counts and prints results."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed = 0

    def labelled(self, way: str, client: str) -> "Labelled":
        return Labelled(self, f"[{way}] {client}")

    def add(self, passed: bool, text: str) -> None:
        if passed:
            self.passed += 1
        else:
            self.failed += 1
        print(f"{'ok  ' if passed else 'FAIL'} {text}", flush=True)


class Labelled:
    """A report whose lines begin with the way taken and the client."""

    def __init__(self, report: Report, label: str) -> None:
        self.report = report
        self.label = label

    def __call__(self, name: str, got: object, expected: object) -> None:
        passed = got == expected
        told = "" if passed else f": expected {expected!r:.600}, got {got!r:.600}"
        self.report.add(passed, f"{self.label}: {name}{told}")

    def line(self, line: str) -> None:
        """Takes over a line that a client printed."""
        verdict, _, text = line.partition(" ")
        self.report.add(verdict == "ok", f"{self.label}: {text.strip()}")

    def same_requests(self, received: list[dict], expected: list[dict]) -> None:
        """Both lists are sorted; the first difference is shown."""
        name = "the provider receives what it receives without the gateway"
        for one, other in zip(received, expected):
            if one != other:
                return self(name, one, other)
        self(name, len(received), len(expected))


if __name__ == "__main__":
    sys.exit(main())
