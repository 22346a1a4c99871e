"""One run of one agent: in a home and a workspace of its own, ended in time with all that it started."""

import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from agents import Agent, Place

# Limit of one turn; the slowest takes 8 s on an idle machine, and 43 s where five others compile.
TURN_SECONDS_MAX = 240
LOOK_SECONDS = 0.05
# Of what a failed agent printed.
LINES_SHOWN = 30


@dataclass(frozen=True)
class Outcome:
    """What an agent leaves behind."""

    # Exit status, negative for a signal; or what else became of it.
    ending: int | str
    output: str
    errors: str
    # Content of the file that its tool writes into the workspace.
    written: str | None
    seconds: float

    def last_lines(self) -> str:
        lines = ["standard output:", *self.output.splitlines()[-LINES_SHOWN:]]
        lines += ["standard error:", *self.errors.splitlines()[-LINES_SHOWN:]]
        return "\n".join(f"       {line}" for line in lines)


def take(agent: Agent, packages: Path, gateway: str, nowhere: str, written: str) -> Outcome:
    """Has the agent do one turn; `nowhere` is a proxy for all but loopback, `written` the file to look for."""
    with tempfile.TemporaryDirectory(prefix="lanegate-agents-", ignore_cleanup_errors=True) as folder:
        place = Place(packages=packages, gateway=gateway, home=Path(folder, "home"), workspace=Path(folder, "work"))
        place.home.mkdir()
        place.workspace.mkdir()
        agent.prepare(place)
        variables = environment(place.home, nowhere) | agent.variables(place)
        files = [Path(folder, name) for name in ("output", "errors")]
        begun = time.monotonic()
        ending = run(agent.command(place), place.workspace, variables, files)
        seconds = time.monotonic() - begun
        output, errors = (file.read_text(errors="replace") for file in files)
        file = place.workspace / written
        return Outcome(ending, output, errors, file.read_text() if file.is_file() else None, seconds)


def run(command: list[str], workspace: Path, variables: dict[str, str], files: list[Path]) -> int | str:
    """The ending of a program that prints to the two files."""
    with files[0].open("wb") as output, files[1].open("wb") as errors:
        try:
            child = subprocess.Popen(
                command,
                cwd=workspace,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                # A process group of its own, whose number is the child's.
                start_new_session=True,
            )
        except OSError as error:
            return f"not started: {error}"
        return ended(child)


def ended(child: subprocess.Popen) -> int | str:
    """Waits for the child's end, at most the limit, then ends what is left of its group."""
    give_up = time.monotonic() + TURN_SECONDS_MAX
    while True:
        # Looks without reaping, so that the number still names this group when it gets the signal.
        over = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if over or time.monotonic() > give_up:
            os.killpg(child.pid, signal.SIGKILL)
            status = child.wait()
            return status if over else "stopped"
        time.sleep(LOOK_SECONDS)


def environment(home: Path, nowhere: str) -> dict[str, str]:
    """Nothing of the caller but the path of programs: keys, proxies and settings would steer an agent."""
    proxies = {name: nowhere for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")}
    proxies |= {"NO_PROXY": "127.0.0.1,localhost"}
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TMPDIR": str(home),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "SHELL": "/bin/bash",
        "CI": "1",
        "NO_COLOR": "1",
        "DO_NOT_TRACK": "1",
        **proxies,
        **{name.lower(): value for name, value in proxies.items()},
    }
