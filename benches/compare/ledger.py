#!/usr/bin/env python3
"""CPU of lanegate with its ledger against lanegate without, in one interleaved run on this machine.

    cargo build --release --locked
    benches/compare/ledger.py target/release/lanegate > report.md

Starts the mock and four gateways on loopback that differ in `store` alone: none, none once more, memory and a
file. The second one without is the noise of the run: what its ratio spreads by is nothing. Requests name no
conversation, so that every one costs a fingerprint. Rounds take turns (A B C D A B C D ...); under the table
stands the interval of the ratios of CPU per request. Fails if any answer was wrong.
"""

import argparse
import pathlib
import statistics
import tempfile

import run

PORTS = {"none": 19011, "none-again": 19012, "memory": 19013, "sqlite": 19014}
LOADS = [load for load in run.LOADS if "up, JSON down" in load[0]]
# The two medians between which the true ratio lies in 96 of 100 runs of nine rounds (sign test).
INTERVAL = (1, 7)


def configuration(name: str, port: int, folder: str) -> pathlib.Path:
    url = {"memory": "memory:", "sqlite": f"sqlite:{folder}/ledger.db"}.get(name, "none")
    path = pathlib.Path(folder) / f"{name}.yaml"
    path.write_text(
        f"""server: {{ listen: ["127.0.0.1:{port}"], workers: 1 }}
log: {{ access: none }}
store: {{ url: "{url}" }}
providers:
  - name: mock
    dialect: openai
    base_url: http://127.0.0.1:{run.MOCK_PORT}
    auth: passthrough
    default: true
"""
    )
    return path


def ratios(report: dict) -> str:
    first, *others = report["targets"]
    cpu = "cpu_per_request_us"
    lines = []
    for target in others:
        pairs = zip(target["metrics"][cpu]["rounds"], first["metrics"][cpu]["rounds"])
        rounds = sorted(mine / base for mine, base in pairs if mine and base)
        low, high = INTERVAL if len(rounds) == 9 else (0, -1)
        lines.append(
            f"- {target['name']}: {statistics.median(rounds):.3f} times the CPU of none, "
            f"{rounds[low]:.3f} to {rounds[high]:.3f} ({len(rounds)} rounds)"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lanegate", type=pathlib.Path, help="the binary, built for release")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--milliseconds", type=int, default=2000, help="of one target in one round")
    options = parser.parse_args()
    lanegate = options.lanegate.resolve(strict=True)
    on_proxies, on_others, pinned = run.pins()
    processes = run.Processes()
    run.PORTS = PORTS
    with tempfile.TemporaryDirectory() as folder:
        try:
            mock = [*on_others, lanegate, "mock", "--listen", f"127.0.0.1:{run.MOCK_PORT}"]
            pids = {"mock": processes.start("mock", mock, run.MOCK_PORT, folder)}
            for name, port in PORTS.items():
                path = configuration(name, port, folder)
                command = [*on_proxies, lanegate, "serve", "--config", path]
                pids[name] = processes.start(name, command, port, folder)
            print(f"## The ledger on and off\n\n- {run.processor()}; {pinned}\n", flush=True)
            for title, load, unit in LOADS:
                report = run.measure(lanegate, on_others, pids, load, options)
                print(run.table(title, unit, report), flush=True)
                print(ratios(report), flush=True)
        finally:
            processes.stop()


if __name__ == "__main__":
    main()
