"""A program that calls a URL and prints a line for each of its checks, run as a child."""

import os
import subprocess
import sys

from report import Labelled

# What would send an SDK elsewhere.
STEERING = ("openai_", "anthropic_", "http_proxy", "https_proxy", "all_proxy", "node_options")


def environment(variables: dict[str, str]) -> dict[str, str]:
    """This environment without what would send an SDK elsewhere, and with the child's own variables."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().startswith(STEERING)}
    return kept | {"NO_PROXY": "127.0.0.1"} | variables


def run_checks(name: str, command: list[str], variables: dict[str, str], seconds_max: int, check: Labelled) -> None:
    """Passes the lines of a child on, and checks that it ends well and said something."""
    done = subprocess.run(
        command,
        env=environment(variables),
        capture_output=True,
        text=True,
        timeout=seconds_max,
        check=False,
    )
    for line in done.stdout.splitlines():
        check.line(line)
    if done.returncode != 0 or not done.stdout:
        print(done.stderr, file=sys.stderr)
        check(f"{name} ends well", done.returncode, 0)
