#!/usr/bin/env python3
"""CPU, latency and memory of lanegate beside HAProxy and nginx, in one interleaved run on this machine.

    cargo build --release --locked
    benches/compare/run.py target/release/lanegate > report.md

Needs `haproxy`, `nginx` and, to pin, `taskset`. Starts the mock and the three proxies on loopback, runs
`lanegate bench` over them in rounds (A B C A B C ...), writes a table in Markdown for each load, and ends
what it started. The mock is asked directly too: that column is what mock and load generator can do, the
headroom of the run. Fails if any answer was wrong.

With two cores or more the proxies share the first one, of which only one works at a time, and mock and
load generator have the second. The defaults take about six minutes; figures are worth something only on
a machine that does nothing else.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
# As in the configuration files beside this script. HAProxy is first: ratios are to it.
MOCK_PORT = 19001
PORTS = {"haproxy": 19002, "nginx": 19003, "lanegate": 19004}
START_SECONDS_MAX = 10
STOP_SECONDS_MAX = 10
# Beyond the rounds themselves: warming, streams that end, a slow machine.
BENCH_SECONDS_SPARE = 600

# Title, what the load generator is told, and what a unit of work is.
LOADS = [
    ("1 KiB up, JSON down", "--body-bytes 1KiB --connections 16", "request"),
    ("64 KiB up, JSON down", "--body-bytes 64KiB --connections 16", "request"),
    ("1 MiB up, JSON down", "--body-bytes 1MiB --connections 4", "request"),
    (
        "2 KiB up, stream of 100 events, 5 ms between them",
        "--body-bytes 2KiB --connections 64 --stream --events 100 --event-bytes 32 --pause 5ms",
        "event",
    ),
]
FIGURES = [
    "cpu_per_{unit}_us",
    "cpu_cores",
    "requests_per_second",
    "latency_p50_us",
    "latency_p99_us",
    "first_byte_p50_us",
    "first_byte_p99_us",
    "gap_p50_us",
    "gap_p99_us",
    "gap_p999_us",
    "rss_peak_kib",
    "own_cpu_per_{unit}_us",
    "own_busy_share",
]


class Processes:
    """What this run started; ended in reverse order."""

    def __init__(self) -> None:
        self.started: list[tuple[str, subprocess.Popen]] = []

    def start(self, name: str, command: list, port: int, cwd: str) -> int:
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                raise SystemExit(f"port {port} for {name} is taken")
        process = subprocess.Popen(
            command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        self.started.append((name, process))
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if process.poll() is not None:
                break
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return process.pid
            time.sleep(0.05)
        raise SystemExit(f"{name} does not listen on port {port} (status {process.poll()})")

    def stop(self) -> None:
        for _, process in reversed(self.started):
            process.terminate()
        for name, process in reversed(self.started):
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                print(f"{name} did not end in time; killed", file=sys.stderr)
                process.kill()
                process.wait()


def children(pid: int) -> list[int]:
    text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def pins() -> tuple[list[str], list[str], str]:
    """What to put before the commands of the proxies, and of mock and load generator."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2 or not shutil.which("taskset"):
        return [], [], "nothing is pinned"
    proxy, other = ["taskset", "-c", str(cores[0])], ["taskset", "-c", str(cores[1])]
    return proxy, other, f"proxies on core {cores[0]}, mock and load generator on core {cores[1]}"


def start_all(
    lanegate: pathlib.Path, processes: Processes, folder: str, on_proxies: list, on_others: list
) -> dict[str, int]:
    """Starts the mock and the proxies; the process that does the work of each, by name."""
    mock = [*on_others, lanegate, "mock", "--listen", f"127.0.0.1:{MOCK_PORT}"]
    commands = {
        "haproxy": ["haproxy", "-db", "-f", HERE / "haproxy.cfg"],
        "nginx": ["nginx", "-p", folder, "-e", "stderr", "-c", HERE / "nginx.conf"],
        "lanegate": [lanegate, "serve", "--config", HERE / "lanegate.yaml"],
    }
    pids = {"mock": processes.start("mock", mock, MOCK_PORT, folder)}
    for name, command in commands.items():
        pid = processes.start(name, [*on_proxies, *command], PORTS[name], folder)
        # nginx works in a child; `taskset` becomes what it starts.
        pids[name] = (children(pid) or [pid])[0]
    return pids


def measure(
    lanegate: pathlib.Path, on_others: list, pids: dict, load: str, options: argparse.Namespace
) -> dict:
    """One paired run over all targets; the report of the load generator."""
    command = [*on_others, lanegate, "bench", "--json", *load.split()]
    command += ["--rounds", str(options.rounds), "--duration", f"{options.milliseconds}ms"]
    for name, port in [*PORTS.items(), ("mock", MOCK_PORT)]:
        command += ["--target", f"{name}=http://127.0.0.1:{port},pid={pids[name]}"]
    rounds_seconds = options.rounds * (len(PORTS) + 1) * options.milliseconds / 1000
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        text=True,
        timeout=rounds_seconds * 2 + BENCH_SECONDS_SPARE,
    )
    if done.returncode != 0:
        raise SystemExit(f"lanegate bench ended with {done.returncode}: {done.stdout}")
    return json.loads(done.stdout)


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def spread(value: dict) -> str:
    return f"{number(value['median'])} ({number(value['min'])}-{number(value['max'])})"


def cell(target: dict, figure: str, is_first: bool) -> str:
    value = target["metrics"].get(figure)
    if value is None:
        return "-"
    if is_first or value["ratio"] is None:
        return spread(value)
    return f"{spread(value)}; x{spread(value['ratio'])}"


def table(title: str, unit: str, report: dict) -> str:
    targets = report["targets"]
    lines = [f"### {title}", ""]
    lines.append("| figure | " + " | ".join(target["name"] for target in targets) + " |")
    lines.append("|---" * (len(targets) + 1) + "|")
    counts = (str(target["requests"]) for target in targets)
    lines.append("| requests | " + " | ".join(counts) + " |")
    for figure in (figure.format(unit=unit) for figure in FIGURES):
        if any(figure in target["metrics"] for target in targets):
            cells = (cell(target, figure, at == 0) for at, target in enumerate(targets))
            lines.append(f"| {figure} | " + " | ".join(cells) + " |")
    sources = (f"{target['name']} {target['cpu_source']}" for target in targets)
    lines += ["", f"Source of the CPU: {', '.join(sources)}.", ""]
    return "\n".join(lines)


def version(command: list) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return (done.stdout + done.stderr).strip().splitlines()[0].removesuffix(" - https://haproxy.org/")


def processor() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def heading(lanegate: pathlib.Path, pinned: str, options: argparse.Namespace) -> str:
    return "\n".join(
        [
            f"## Beside HAProxy and nginx, {datetime.date.today()}",
            "",
            f"- {processor()}, {os.cpu_count()} cores, Linux {platform.release()}; {pinned}",
            f"- {version([lanegate, '--version'])}; {version(['haproxy', '-v'])}; "
            f"{version(['nginx', '-v'])}",
            f"- {options.rounds} rounds of {options.milliseconds} ms for each target, in turns; median "
            "and range over the rounds; `x` is the ratio to HAProxy of the same round",
            f"- load average at the start: {os.getloadavg()[0]:.2f}",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lanegate", type=pathlib.Path, help="the binary, built for release")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--milliseconds", type=int, default=2000, help="of one target in one round")
    parser.add_argument("--raw", type=pathlib.Path, help="file for the reports as JSON lines")
    options = parser.parse_args()
    lanegate = options.lanegate.resolve(strict=True)
    for program in ["haproxy", "nginx"]:
        if not shutil.which(program):
            raise SystemExit(f"expected {program} to be installed")
    on_proxies, on_others, pinned = pins()
    processes = Processes()
    with tempfile.TemporaryDirectory() as folder:
        # nginx started by root works as another user.
        os.chmod(folder, 0o755)
        try:
            pids = start_all(lanegate, processes, folder, on_proxies, on_others)
            print(heading(lanegate, pinned, options), flush=True)
            for title, load, unit in LOADS:
                report = measure(lanegate, on_others, pids, load, options)
                if options.raw:
                    with options.raw.open("a") as raw:
                        raw.write(json.dumps({"title": title} | report) + "\n")
                print(table(title, unit, report), flush=True)
        finally:
            processes.stop()


if __name__ == "__main__":
    main()
