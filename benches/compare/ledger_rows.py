#!/usr/bin/env python3
"""Questions and retention of a ledger with five million decisions, in SQLite and in PostgreSQL.

    cargo build --release --locked
    benches/compare/ledger_rows.py target/release/lanegate > report.md

Needs the Debian package `postgresql` for a server of its own, some 4 GB of disk and a quarter of an hour. A gateway makes the tables, SQL
fills them, costs included, and gateways answer `GET /admin/conversations` out of them, so that every statement is the gateway's own; the
sums of tokens are added up a second time by SQL of this script, where the answer has all decisions of its conversations. Then one
with a retention deletes, and the same small question is asked all the while: it waits for the step that it
finds under way, so its longest answer says what a step costs who waits for the store. Fails if anything is beyond its bound.
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import sqlite3
import statistics
import subprocess
import tempfile
import time

import run

ADMIN_PORT, LISTEN_PORT, DATABASE_PORT = 19021, 19022, 19023
DAY_MS = 86_400_000
DAYS, RETENTION_DAYS = 40, 30
# As in src/limits.rs.
NODES_MAX, GROUPS_MAX, ROWS_MAX, STEP_ROWS, WAIT_SECONDS = 256, 100, 100_000, 1024, 2
STEP_PAUSE_SECONDS = 0.05
ROUNDS = 30
RETENTION_SECONDS = 20
# One fifth belongs to one fingerprint, a tenth to 50,000 children of one parent, a twentieth to one child of another;
# the others are conversations of some 65 decisions.
#
# Costs as those of coding agents: most of the input is read from a cache, some of it written to one, which only the dialect messages says
# (elsewhere NULL). One answer in thirteen read nothing from a cache, which is 0; one in eleven gave no usage, and refused requests have
# none, which is NULL; one in 37 broke off before it said its output.
FILL = """
INSERT INTO route_decisions (observed_at, request_id, principal, session_key, agent, parent_key, dialect, face, route,
  provider, model, lane, status, request_bytes, response_bytes, first_byte_us, duration_us, end_reason, usage, stop_reason,
  input_tokens, output_tokens, cached_tokens, cache_write_tokens)
SELECT observed_at, request_id, '', session_key, agent, parent_key, dialect, dialect, 'passthrough', 'mock', 'mock-model', 'wire',
  status, 4096, 16384, 150000 + i % 1000, 4000000, CASE WHEN usage = 'partial' THEN 'upstream_cut' ELSE 'complete' END,
  usage, CASE WHEN usage = 'complete' THEN CASE WHEN i % 3 = 0 THEN 'stop' ELSE 'tool_calls' END END,
  CASE WHEN usage <> 'absent' THEN 200 + i * 7919 % 4000 END,
  CASE WHEN usage = 'complete' THEN 20 + i * 15485863 % 3000 END,
  CASE WHEN usage <> 'absent' THEN CASE WHEN i % 13 = 6 THEN 0 ELSE 2000 + i * 104729 % 90000 END END,
  CASE WHEN usage <> 'absent' AND dialect = 'messages' THEN i * 1299709 % 6000 END
FROM (SELECT i, {first} + i * {step_us} / 1000 AS observed_at, 'req_' || {padded} AS request_id,
  CASE WHEN i % 5 = 0 THEN '0123456789abcdef' WHEN i % 10 = 1 THEN 'c:child-' || (i / 10 % 50000)
    WHEN i % 20 = 2 THEN 'c:busy' ELSE 'c:ses-' || (i / 100) END AS session_key,
  'agent-' || (i % 7) AS agent, CASE WHEN i % 10 = 1 THEN 'c:wide' WHEN i % 20 = 2 THEN 'c:deep' END AS parent_key,
  CASE WHEN i / 100 % 4 = 1 THEN 'messages' ELSE 'chat' END AS dialect,
  CASE WHEN i % 50 = 3 THEN 429 ELSE 200 END AS status,
  CASE WHEN i % 50 = 3 THEN NULL WHEN i % 11 = 4 THEN 'absent' WHEN i % 37 = 5 THEN 'partial' ELSE 'complete' END AS usage
  FROM {series}) AS made
"""
# What an answer cost, as SQL and `GET /admin/conversations` name it.
TOKENS = ["input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens"]
QUESTIONS = [
    ("a conversation that is not there", "conversation=nobody"),
    ("a conversation of 65", "conversation=ses-{middle}"),
    ("a fingerprint of a million", "session_key=0123456789abcdef"),
    ("a parent of 50,000 children", "conversation=wide"),
    ("a parent whose child has 250,000", "conversation=deep"),
    ("the newest conversations", ""),
]


def fill(rows: int, padded: str, series: str) -> str:
    first = int(time.time() * 1000) - DAYS * DAY_MS
    return FILL.format(first=first, step_us=DAYS * DAY_MS * 1000 // rows, padded=padded, series=series)


class Sqlite:
    name = "SQLite"

    def __init__(self, folder: str) -> None:
        self.path = pathlib.Path(folder) / "ledger.db"
        self.url = f"sqlite:{self.path}"
        self.reader: sqlite3.Connection | None = None

    def fill(self, rows: int) -> None:
        series = (
            f"(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) SELECT i FROM n)"
        )
        with contextlib.closing(sqlite3.connect(self.path)) as database, database:
            database.execute(fill(rows, "printf('%032x', i)", series))
        self.reader = sqlite3.connect(self.path)

    def number(self, question: str) -> int:
        return self.reader.execute(question).fetchone()[0]

    def bytes(self) -> int:
        return self.path.stat().st_size


class Postgres:
    name = "PostgreSQL"

    def __init__(self, folder: str) -> None:
        found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))
        if not found:
            raise SystemExit("no server of PostgreSQL is installed")
        self.programs = found[-1]
        data = pathlib.Path(folder) / "data"
        data.mkdir()
        self.as_owner = []
        if os.geteuid() == 0:
            # It refuses to be root.
            shutil.chown(data, "postgres", "postgres")
            os.chmod(folder, 0o711)
            self.as_owner = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        command = [*self.as_owner, self.programs / "initdb", "-D", data, "-U", "lane", "-A", "trust"]
        subprocess.run([*command, "--locale=C", "--encoding=UTF8"], check=True, stdout=subprocess.DEVNULL)
        server = [self.programs / "postgres", "-D", data, "-h", "127.0.0.1", "-p", str(DATABASE_PORT), "-k", ""]
        self.command = [*self.as_owner, *server]
        self.url = f"postgres://lane@127.0.0.1:{DATABASE_PORT}/postgres?sslmode=disable"

    def fill(self, rows: int) -> None:
        self.query(fill(rows, "lpad(to_hex(i), 32, '0')", f"generate_series(1, {rows}::BIGINT) AS i"))
        # What autovacuum does within minutes.
        self.query("VACUUM ANALYZE")

    def query(self, question: str) -> str:
        psql = [self.programs / "psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", question, self.url]
        return subprocess.run(psql, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    def number(self, question: str) -> int:
        return int(self.query(question))

    def bytes(self) -> int:
        return self.number("SELECT pg_total_relation_size('route_decisions')")


@contextlib.contextmanager
def gateway(lanegate: pathlib.Path, folder: str, url: str, retention: str):
    path = pathlib.Path(folder) / "lanegate.yaml"
    path.write_text(
        f"""server: {{ listen: ["127.0.0.1:{LISTEN_PORT}"], workers: 1 }}
log: {{ access: none }}
admin: {{ listen: "127.0.0.1:{ADMIN_PORT}" }}
store: {{ url: "{url}", retention: {retention}, max_bytes: 1024GiB, flush_interval: 10ms }}
providers:
  - {{ name: mock, dialect: openai, base_url: "http://127.0.0.1:{LISTEN_PORT}", auth: passthrough, default: true }}
"""
    )
    processes = run.Processes()
    try:
        processes.start("lanegate", [lanegate, "serve", "--config", path], ADMIN_PORT, folder)
        yield
    finally:
        processes.stop()


def ask(parameters: str) -> tuple[float, dict]:
    """The milliseconds of an answer, and the answer."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", ADMIN_PORT, timeout=10)) as connection:
        begun = time.perf_counter()
        connection.request("GET", "/admin/conversations" + (f"?{parameters}" if parameters else ""))
        answer = connection.getresponse()
        body = answer.read()
        took = time.perf_counter() - begun
    if answer.status != 200:
        raise SystemExit(f"{parameters}: {answer.status} {body!r} after {took:.3f} s")
    return took * 1000, json.loads(body)


def checked(store, answer: dict) -> str:
    nodes, total = answer["conversations"], answer["total"]
    requests = total["requests"]
    groups = max((len(node["groups"]) for node in nodes), default=0)
    if len(nodes) > NODES_MAX or groups > GROUPS_MAX or requests > ROWS_MAX:
        raise SystemExit(f"beyond its bound: {len(nodes)} conversations, {groups} groups, {requests} decisions")
    added = costs(store, answer)
    more = " and more" if answer["truncated"] else ""
    share = "-" if answer["cache_share"] is None else answer["cache_share"]
    return f"{len(nodes)} | {requests:,}{more} | {added:,} | {share}"


def costs(store, answer: dict) -> int:
    """All tokens of an answer, once they are those of its groups and of the ledger."""
    nodes, total = answer["conversations"], answer["total"]
    for column in TOKENS:
        by_group = sum(group[column] for node in nodes for group in node["groups"])
        if by_group != total[column]:
            raise SystemExit(f"{column}: {total[column]} in all, {by_group} in groups")
    # Beyond the bound only the newest decisions are in it. Keys are those of FILL and need no escape.
    if nodes and total["requests"] < ROWS_MAX:
        of = "FROM route_decisions WHERE session_key IN (%s)" % ", ".join(f"'{node['session_key']}'" for node in nodes)
        stored = {column: store.number(f"SELECT COALESCE(SUM({column}), 0) {of}") for column in TOKENS}
        stored["metered"] = store.number(f"SELECT COUNT(*) {of} AND usage <> 'absent'")
        if stored != (found := {name: total[name] for name in stored}):
            raise SystemExit(f"the ledger has {stored}, the answer {found}")
    given = sum(total[column] for column in TOKENS if column != "output_tokens")
    share = total["cached_tokens"] * 1000 // given / 1000 if given else None
    if share != answer["cache_share"] or total["requests"] and not 0 < total["metered"] < total["requests"]:
        raise SystemExit(f"expected a share of {share}, got {answer['cache_share']} of {total}")
    return sum(total[column] for column in TOKENS)


def questions(store, rows: int) -> None:
    print("| question | conversations | decisions added up | tokens | cache share | median, ms | longest, ms |\n" + "|---" * 7 + "|")
    for title, parameters in QUESTIONS:
        # Each hundred decisions have one conversation besides; this one is neither the newest nor the oldest.
        parameters = parameters.format(middle=rows // 125)
        first, answer = ask(parameters)
        times = [ask(parameters)[0] for _ in range(ROUNDS)]
        if max(first, *times) > WAIT_SECONDS * 1000:
            raise SystemExit(f"{title}: {max(first, *times):.0f} ms")
        print(f"| {title} | {checked(store, answer)} | {statistics.median(times):.1f} | {max(first, *times):.1f} |", flush=True)


def oldest_ms() -> int:
    """What is older goes; a second of it may still be there."""
    return int((time.time() - 1) * 1000) - RETENTION_DAYS * DAY_MS


def retention(store) -> None:
    """Rows were stored in the order of their times, so the first number says how many are gone."""
    times, gone, begun = [], 0, time.monotonic()
    while (elapsed := time.monotonic() - begun) < RETENTION_SECONDS:
        times.append(ask("conversation=nobody")[0])
        before, gone = gone, store.number("SELECT MIN(id) FROM route_decisions") - 1
        if gone % STEP_ROWS and store.number("SELECT MIN(observed_at) FROM route_decisions") > oldest_ms():
            # All that is too old is gone, which takes longer than this with millions.
            break
        if gone % STEP_ROWS or gone < before or gone > STEP_ROWS * (elapsed / STEP_PAUSE_SECONDS + 20):
            raise SystemExit(f"{gone} rows are gone after {elapsed:.3f} s")
    if not gone:
        raise SystemExit("no row is gone")
    print(
        f"\nRetention: {gone:,} rows in {elapsed:.1f} s, {STEP_ROWS} a step, {elapsed * 1000 * STEP_ROWS / gone:.0f} ms "
        f"from one step to the next, the pause of {STEP_PAUSE_SECONDS * 1000:.0f} ms included. The first question above, "
        f"{len(times)} times meanwhile: median {statistics.median(times):.1f} ms, longest {max(times):.1f} ms.\n",
        flush=True,
    )


def measure(lanegate: pathlib.Path, folder: str, store, rows: int) -> None:
    with gateway(lanegate, folder, store.url, "3650d"):
        ask("conversation=nobody")
    begun = time.monotonic()
    store.fill(rows)
    took = time.monotonic() - begun
    print(
        f"\n### {store.name}\n\nFilled in {took:.0f} s; {store.bytes() / rows:.0f} bytes a row with its indexes.\n",
        flush=True,
    )
    with gateway(lanegate, folder, store.url, "3650d"):
        questions(store, rows)
    with gateway(lanegate, folder, store.url, f"{RETENTION_DAYS}d"):
        retention(store)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lanegate", type=pathlib.Path, help="the binary, built for release")
    parser.add_argument("--rows", type=int, default=5_000_000)
    options = parser.parse_args()
    lanegate = options.lanegate.resolve(strict=True)
    print(f"## {options.rows:,} decisions\n\n- {run.processor()}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        measure(lanegate, folder, Sqlite(folder), options.rows)
    with tempfile.TemporaryDirectory() as folder:
        store = Postgres(folder)
        server = run.Processes()
        try:
            server.start("postgres", store.command, DATABASE_PORT, folder)
            measure(lanegate, folder, store, options.rows)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
