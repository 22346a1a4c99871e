#!/usr/bin/env python3
"""Does what the README tells a newcomer: its first command, then its curl, and looks for a streamed answer."""

import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The build may have to be made.
START_SECONDS_MAX = 900
STOP_SECONDS_MAX = 20
CURL_SECONDS_MAX = 30
LOOK_SECONDS = 0.2
# The README paces the answer; its first and last event are at least this far apart.
STREAMED_SECONDS_MIN = 0.5


def main() -> None:
    serve, ask = commands((ROOT / "README.md").read_text())
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
    judge(lines)
    if status != 0:
        sys.exit(f"expected the gateway to end with 0 on SIGTERM, got {status}")
    print(f"readme: {len(lines)} lines streamed; the gateway ended with 0")


def commands(readme: str) -> tuple[str, str]:
    """The first two shell blocks."""
    blocks = re.findall(r"^```sh\n(.*?)\n```$", readme, re.MULTILINE | re.DOTALL)
    if len(blocks) < 2 or not blocks[0].startswith("cargo run") or not blocks[1].startswith("curl"):
        sys.exit(f"expected README.md to begin with a `cargo run` and a `curl`, got {blocks[:2]}")
    return blocks[0], blocks[1]


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


if __name__ == "__main__":
    main()
