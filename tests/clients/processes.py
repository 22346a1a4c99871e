"""The programs under test: started on ports of their own, stopped by their process id."""

import re
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

# From start to listening; it takes milliseconds on an idle machine.
START_SECONDS_MAX = 30
# From SIGTERM to the end; every exchange is over by then.
STOP_SECONDS_MAX = 20
LOOK_SECONDS = 0.05
LISTENING = re.compile(r"listening on (127\.0\.0\.1:\d+)")

CONFIGURATION = """\
server:
  listen: ["127.0.0.1:0"]
  driver: {driver}
timeouts: {{ drain: 5s, linger: 2s }}
providers:
  - {{ name: openai, dialect: openai, base_url: "{provider}", auth: passthrough }}
  - {{ name: anthropic, dialect: anthropic, base_url: "{provider}", auth: passthrough }}
"""


class Program:
    """A running child with its output in a folder of its own; ended on leaving the context."""

    def __init__(self, command: list[str], folder: tempfile.TemporaryDirectory) -> None:
        self._folder = folder
        self._log = Path(folder.name) / "log"
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._folder:
            ended_before = self._child.poll()
            if ended_before is None:
                self._child.send_signal(signal.SIGTERM)
            try:
                self._child.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
                raise RuntimeError(f"did not end within {STOP_SECONDS_MAX} s of SIGTERM: {self.log()}") from None
            if ended_before is not None:
                raise RuntimeError(f"ended by itself with status {ended_before}: {self.log()}")

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def await_(self, what: str, ready) -> str:
        """Polls `ready` until it gives something; a child that ends or takes too long is an error."""
        give_up = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < give_up and self._child.poll() is None:
            if found := ready():
                return found
            time.sleep(LOOK_SECONDS)
        if self._child.poll() is None:
            self._child.kill()
            self._child.wait()
        raise RuntimeError(f"{what} did not start: {self.log()}")


class Gateway(Program):
    """`lanegate serve` with a configuration file; by default it passes the clients' credentials on."""

    def __init__(self, binary: Path, driver: str, provider: str, configuration: str = CONFIGURATION) -> None:
        folder = tempfile.TemporaryDirectory(prefix="lanegate-clients-")
        config = Path(folder.name) / "lanegate.yaml"
        config.write_text(configuration.format(driver=driver, provider=provider))
        super().__init__([str(binary), "serve", "--config", str(config)], folder)
        self.url = self.await_("the gateway", self._listening)

    def _listening(self) -> str | None:
        found = LISTENING.search(self.log())
        return f"http://{found[1]}" if found else None


class Mock(Program):
    """`lanegate mock`. It prints no port that it was given by the system, so it is told a free one."""

    def __init__(self, binary: Path, script: str = "") -> None:
        address = f"127.0.0.1:{free_port()}"
        folder = tempfile.TemporaryDirectory(prefix="lanegate-clients-")
        super().__init__([str(binary), "mock", "--listen", address, "--script", script], folder)
        self.url = self.await_("the mock provider", lambda: answering(f"http://{address}"))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def answering(url: str) -> str | None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/health", timeout=1):
            return url
    except (urllib.error.URLError, OSError):
        return None
