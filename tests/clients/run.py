#!/usr/bin/env python3
"""Real clients against a real gateway: the official SDKs of Python and Node, and curl.

    tests/clients/run.py [PATH OF A RELEASE BINARY]

Every client runs three times against the same scripted provider (docs/mock.md): straight to it, then
through the gateway on each driver. Straight first, since a check that fails there says nothing about the
gateway, and since it leaves what the provider received as the measure: through the gateway the same heads,
byte for byte, and the same bodies have to arrive, save the `Connection` field, which is for one hop only.
Then the SDKs type switches into a gateway of their own, and present keys to one that knows its clients by them.

Builds nothing. Installs the pinned SDKs once, outside the checkout. Prints a line for each check, and
exits with 1 if one failed. Costs about two minutes, and 30 s more for the installation.
"""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import curl_checks
import keys
import switches
from child import run_checks
from journal import Journal
from processes import Gateway, Mock
from report import Labelled, Report
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
    variables: dict[str, str]


def main() -> int:
    binary = Path(sys.argv[1] if len(sys.argv) > 1 else "target/release/lanegate").resolve()
    if not os.access(binary, os.X_OK):
        print(f"{binary} is no program; build it with `cargo build --release --locked`", file=sys.stderr)
        return 2
    sdks = Sdks.installed(HERE)
    report = Report()
    with Mock(binary) as mock:
        journal = Journal(mock.url)
        direct = {
            client.name: observe(client, mock.url, journal, report.labelled("direct", client.name))
            for client in clients(sdks)
        }
        curl_checks.run(mock.url, None, journal, report.labelled("direct", "curl"))
        for driver in DRIVERS:
            with Gateway(binary, driver, mock.url) as gateway:
                for client in clients(sdks):
                    check = report.labelled(driver, client.name)
                    observe(client, gateway.url, journal, check, direct[client.name])
                curl_checks.run(gateway.url, mock.url, journal, report.labelled(driver, "curl"))
            switches.run(binary, driver, mock.url, sdks, report.labelled(driver, "switches"))
            keys.run(binary, driver, mock.url, sdks, report.labelled(driver, "keys"))
    print(f"clients: {report.passed} passed, {report.failed} failed")
    return 1 if report.failed or not report.passed else 0


def clients(sdks: Sdks) -> list[Client]:
    def of_python(sdk: str, fields: tuple[str, ...]) -> Client:
        command = [str(sdks.python), str(HERE / "python" / f"{sdk}_checks.py")]
        # No compiled files in the checkout.
        return Client(f"{sdk}-python", command, fields, {"PYTHONDONTWRITEBYTECODE": "1"})

    def of_node(sdk: str, fields: tuple[str, ...]) -> Client:
        command = ["node", str(HERE / "node" / f"{sdk}_checks.mjs")]
        return Client(f"{sdk}-node", command, fields, {"LANEGATE_CLIENTS_NODE": str(sdks.node)})

    openai = ("user-agent", "authorization", "x-stainless-lang", "x-stainless-package-version")
    anthropic = ("user-agent", "anthropic-version", "x-stainless-lang", "x-stainless-package-version")
    return [
        of_python("openai", openai),
        of_python("anthropic", anthropic),
        of_node("openai", openai),
        of_node("anthropic", anthropic),
    ]


def observe(
    client: Client, url: str, journal: Journal, check: Labelled, expected: list[dict] | None = None
) -> list[dict]:
    """Runs a client; returns what the provider received, compared with `expected` if that is given."""
    journal.clear()
    begun = time.monotonic()
    run_checks("client", [*client.command, url], client.variables, CLIENT_SECONDS_MAX, check)
    received = journal.settled(expected)
    lacking = {name for record in received for name in client.fields if name not in record["names"]}
    check("every request carries the SDK's own fields", sorted(lacking), [])
    if expected is not None:
        check.same_requests(received, expected)
    check.note(f"{len(received)} requests, {time.monotonic() - begun:.1f} s")
    return received


if __name__ == "__main__":
    sys.exit(main())
