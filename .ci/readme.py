#!/usr/bin/env python3
"""Does what the README tells a newcomer, with the commands of the README itself: its first command, then its curl, and looks for a
streamed answer; then the walk with a key: mock and gateway, curl, the official SDK, metrics, access log. What is missing is a failure."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Self

ROOT = Path(__file__).resolve().parent.parent
CLIENTS = ROOT / "tests" / "clients"
sys.path.insert(0, str(CLIENTS))

from sdks import Sdks  # noqa: E402

# The build may have to be made.
START_SECONDS_MAX = 900
STOP_SECONDS_MAX = 20
CURL_SECONDS_MAX = 30
COMMAND_SECONDS_MAX = 60
# From the end of an exchange to its line and its numbers; it takes a tenth of it.
COUNTED_SECONDS_MAX = 5
LOOK_SECONDS = 0.2
# The README paces the answer; its first and last event are at least this far apart.
STREAMED_SECONDS_MIN = 0.5
# What the mock says and takes for it.
TEXT = "The lanegate mock says hello."
USAGE = {"input_tokens": 12, "output_tokens": 5}
CLIENT, ROUTE = "me", "imposter"
# Of programs: the gateway ends by itself, the mock by the signal.
ENDED = {"mock": 128 + signal.SIGTERM, "gateway": 0}
VARIABLE = "LANEGATE_KEY"
# What the programs, or the build before them, say when they will never listen.
FAILURES = (" is in use: ", "cannot listen on ", "error: ")


class Walk(NamedTuple):
    """The blocks of the walk with a key, in the order of the README."""

    start: str
    ask: str
    program: str
    count: str
    counted: str
    end: str


def main() -> None:
    readme = (ROOT / "README.md").read_text()
    serve, ask = commands(readme)
    walk = walk_of(readme)
    lines, status = streamed(serve, ask)
    judge(lines)
    if status != 0:
        sys.exit(f"expected the gateway to end with 0 on SIGTERM, got {status}")
    print(f"readme: {len(lines)} lines streamed; the gateway ended with 0")
    python = Sdks.installed(CLIENTS).python
    with tempfile.TemporaryDirectory(prefix="lanegate-readme-") as folder, Shell(Path(folder)) as shell:
        walked(shell, walk, python)
    print("readme: with a key: curl and the SDK answered, both metered and logged; another key refused")


def commands(readme: str) -> tuple[str, str]:
    """The first two shell blocks."""
    blocks = re.findall(r"^```sh\n(.*?)\n```$", readme, re.MULTILINE | re.DOTALL)
    if len(blocks) < 2 or not blocks[0].startswith("cargo run") or not blocks[1].startswith("curl"):
        sys.exit(f"expected README.md to begin with a `cargo run` and a `curl`, got {blocks[:2]}")
    return blocks[0], blocks[1]


def walk_of(readme: str) -> Walk:
    """All blocks of the section that makes a key."""
    sections = [part for part in re.split(r"^## ", readme, flags=re.MULTILINE) if f"export {VARIABLE}=" in part]
    if len(sections) != 1:
        sys.exit(f"expected one section of README.md with `export {VARIABLE}=`, got {len(sections)}")
    blocks = re.findall(r"^```(\w+)\n(.*?)\n```$", sections[0], re.MULTILINE | re.DOTALL)
    kinds = [kind for kind, _ in blocks]
    if kinds != ["sh", "sh", "python", "sh", "text", "sh"]:
        sys.exit(f"expected blocks to start, ask, ask as a program, count, see the count and end, got {kinds}")
    return Walk(*(text for _, text in blocks))


def streamed(serve: str, ask: str) -> tuple[list[tuple[float, str]], int]:
    """Lines of the answer to the first `curl`, and how the gateway ended."""
    with tempfile.TemporaryFile("w+") as log:
        # `cargo run` becomes the gateway (exec), so that one process id is both.
        gateway = subprocess.Popen(
            ["bash", "-c", f"exec {serve}"], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            await_listening(gateway, log)
            lines = answer(ask)
        finally:
            gateway.send_signal(signal.SIGTERM)
            try:
                status = gateway.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                gateway.kill()
                raise
    return lines, status


def await_listening(gateway: subprocess.Popen, log) -> None:
    give_up = time.monotonic() + START_SECONDS_MAX
    while gateway.poll() is None and time.monotonic() < give_up:
        log.seek(0)
        if "\nlistening on " in (said := log.read()):
            print(said[said.index("\nlistening on ") :].strip())
            return
        time.sleep(LOOK_SECONDS)
    log.seek(0)
    sys.exit(f"the README's first command did not begin to listen: {log.read()}")


def answer(ask: str) -> list[tuple[float, str]]:
    """Lines of the answer with the time at which each came."""
    command = ["timeout", str(CURL_SECONDS_MAX), "bash", "-c", f"exec {ask}"]
    # curl draws a progress meter on standard error when its output is no terminal.
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as curl:
        lines = [(time.monotonic(), line.rstrip("\n")) for line in curl.stdout if line.strip()]
    if curl.returncode != 0:
        sys.exit(f"expected curl to end with 0, got {curl.returncode} after {lines}")
    return lines


def judge(lines: list[tuple[float, str]]) -> None:
    texts = [text for _, text in lines]
    if len(texts) < 3 or not all(text.startswith("data: ") for text in texts) or texts[-1] != "data: [DONE]":
        sys.exit(f"expected an event stream that ends in [DONE], got {texts}")
    spread = lines[-1][0] - lines[0][0]
    if spread < STREAMED_SECONDS_MIN:
        sys.exit(f"expected events over at least {STREAMED_SECONDS_MIN} s, got all within {spread:.2f} s")


class Shell:
    """One shell that is given the blocks of the README one after the other, as a person would."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / "log"
        # A key of whoever runs this is not the one that the README makes.
        self._environment = {name: value for name, value in os.environ.items() if name != VARIABLE}

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._bash = subprocess.Popen(
                ["bash", "-s"],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        """Ends it, and what it started and did not end."""
        self._bash.stdin.close()
        try:
            os.killpg(self._bash.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._bash.wait(STOP_SECONDS_MAX)

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def background(self, block: str) -> None:
        """Commands whose output is the shell's."""
        self._bash.stdin.write(f"{block}\n")
        self._bash.stdin.flush()

    def run(self, block: str) -> tuple[int, str]:
        """Status and standard output of a block."""
        output, status = (self._folder / name for name in ("output", "status"))
        status.unlink(missing_ok=True)
        self.background(f"{{\n{block}\n}} > {output}\necho $? > {status}.partial; mv {status}.partial {status}")
        self.until(f"the end of {block}", COMMAND_SECONDS_MAX, status.exists)
        return int(status.read_text()), output.read_text()

    def until(self, what: str, seconds: float, ready: Callable[[], bool]) -> None:
        give_up = time.monotonic() + seconds
        while not ready():
            failed = any(words in self.log() for words in FAILURES)
            if failed or self._bash.poll() is not None or time.monotonic() > give_up:
                sys.exit(f"expected {what} within {seconds} s; the shell says: {self.log()}")
            time.sleep(LOOK_SECONDS)


def walked(shell: Shell, walk: Walk, python: Path) -> None:
    shell.background(walk.start)
    shell.until("mock and gateway listening", START_SECONDS_MAX, lambda: shell.log().count("listening on ") == 2)
    status, said = shell.run(walk.ask)
    if status != 0 or json.loads(said)["choices"][0]["message"]["content"] != TEXT:
        sys.exit(f"expected curl to be answered {TEXT!r}, got {status}, {said!r}")
    status, said = shell.run(f"{python} - <<'PROGRAM'\n{walk.program}\nPROGRAM")
    if status != 0 or said != TEXT:
        sys.exit(f"expected the SDK to print {TEXT!r}, got {status}, {said!r}: {shell.log()}")
    give_up = time.monotonic() + COUNTED_SECONDS_MAX
    while (counted := shell.run(walk.count)[1].strip()) != walk.counted:
        if time.monotonic() > give_up:
            sys.exit(f"expected the metrics that the README shows, {walk.counted!r}, got {counted!r}")
        time.sleep(LOOK_SECONDS)
    logged(shell)
    status, said = shell.run(f"( {VARIABLE}=of-nobody-at-all-1234\n{walk.ask}\n)")
    if status != 0 or json.loads(said)["error"]["code"] != "unauthorized":
        sys.exit(f"expected another key to be refused, got {status}, {said!r}")
    ended(shell, walk.end)


def logged(shell: Shell) -> None:
    """Looks for the two lines of the access log."""

    def whole() -> list[str]:
        lines = shell.log().splitlines(keepends=True)
        return [line for line in lines if line.startswith('{"time":') and line.endswith("\n")]

    shell.until("two access lines", COUNTED_SECONDS_MAX, lambda: len(whole()) >= 2)
    lines = [json.loads(line) for line in whole()]
    expected = {"client": CLIENT, "route": ROUTE, "provider": "mock", "status": 200, "usage": "complete", **USAGE}
    for line in lines:
        found = {key: line[key] for key in expected}
        if found != expected:
            sys.exit(f"expected an access line with {expected}, got {found}")
    if len(lines) != 2:
        sys.exit(f"expected two access lines, got {len(lines)}: {shell.log()}")


def ended(shell: Shell, end: str) -> None:
    """Both programs, which the shell started in this order, are over."""
    script = "mock=$(jobs -p %1) gateway=$(jobs -p %2)\n" + end + "\nwait $mock; echo $?; wait $gateway; echo $?"
    _, said = shell.run(script)
    statuses = dict(zip(ENDED, map(int, said.split()), strict=True))
    if statuses != ENDED:
        sys.exit(f"expected mock and gateway to end with {ENDED}, got {statuses}: {shell.log()}")


if __name__ == "__main__":
    main()
