"""curl, for what SDKs do not do: `Expect`, chunked uploads, HTTP/1.0, upgrades, bytes as they are."""

import json
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from journal import Journal
from report import Labelled

BODY_BYTES = 2 << 20
SECONDS_MAX = 30
JSON_TYPE = ["-H", "Content-Type: application/json"]
CHAT = "/v1/chat/completions"
STREAM = '{"model":"mock-model","stream":true,"messages":[{"role":"user","content":"hi"}]}'
ECHO = ["-H", "x-mock: echo=head"]
# Fields that each hop writes for itself.
HOP_FIELDS = {"connection", "keep-alive", "transfer-encoding", "date"}


@dataclass(frozen=True)
class Seen:
    """What one run of curl saw."""

    status: int
    # Of the last answer, as received: no interim ones.
    head: list[str]
    body: bytes
    # curl's own account of the connection (`--verbose`).
    trace: str
    written: str

    def fields(self) -> list[str]:
        return [line for line in self.head[1:] if line.partition(":")[0].lower() not in HOP_FIELDS]


def run(url: str, provider: str | None, journal: Journal, check: Labelled) -> None:
    """All checks against `url`: that of a gateway if the URL of its `provider` is given, else of the provider."""
    with tempfile.TemporaryDirectory(prefix="lanegate-curl-") as folder:
        curl = Curl(Path(folder), url)
        checks = [(one, ()) for one in (expectation, early_refusal, http_1_0, websocket, alive, keep_alive)]
        checks += [(chunked_upload, (journal,)), (upgrade_to_http_2, (provider is not None,))]
        if provider:
            checks += [(same_answers, (Curl(Path(folder), provider),))]
        for one, more in checks:
            try:
                one(curl, *more, check)
            except (CurlFailed, ValueError, LookupError) as error:
                check("curl gets an answer that can be read", f"{type(error).__name__}: {error}", "one")


class CurlFailed(Exception):
    """curl ended with another status than 0."""


class Curl:
    """Runs curl and collects what it saw."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url = url
        self._folder = folder
        self.big = folder / "big.json"
        self.big.write_text(json.dumps({"model": "m", "pad": "".join(f"{n:07d} " for n in range(BODY_BYTES // 8))}))

    def __call__(self, path: str, *options: str, stdin: bytes = b"") -> Seen:
        head, body = self._folder / "head", self._folder / "body"
        for file in (head, body):
            file.write_bytes(b"")
        written = "%{http_code} %{num_connects} %{http_version}"
        command = ["curl", "--silent", "--show-error", "--verbose", "--noproxy", "*", "--max-time", str(SECONDS_MAX)]
        command += ["--dump-header", str(head), "--output", str(body), "--write-out", written]
        done = subprocess.run(
            [*command, *options, self.url + path],
            input=stdin,
            capture_output=True,
            timeout=2 * SECONDS_MAX,
            check=False,
        )
        trace = done.stderr.decode(errors="replace")
        if done.returncode != 0:
            raise CurlFailed(f"curl ended with {done.returncode}: {trace[-2000:]}")
        told = done.stdout.decode()
        heads = head.read_bytes().decode("latin-1").rstrip("\r\n").split("\r\n\r\n")
        return Seen(int(told.split()[0]), heads[-1].split("\r\n"), body.read_bytes(), trace, told)


def expectation(curl: Curl, check: Labelled) -> None:
    options = [*JSON_TYPE, *ECHO, "-H", "Expect: 100-continue", "--expect100-timeout", "20"]
    seen = curl(CHAT, *options, "--data-binary", f"@{curl.big}")
    check("Expect: 100-continue is answered before the body is sent", "< HTTP/1.1 100" in seen.trace, True)
    check("Expect: 2 MiB body arrives", echoed(seen) == curl.big.read_text(), True)


def early_refusal(curl: Curl, check: Labelled) -> None:
    options = [*JSON_TYPE, "-H", "x-mock: early=0; status=401", "-H", "Expect: 100-continue"]
    seen = curl(CHAT, *options, "--data-binary", f"@{curl.big}")
    check("a refusal while the body waits reaches curl", seen.status, 401)
    check("with the provider's body", json.loads(seen.body)["error"]["code"], "invalid_api_key")


def chunked_upload(curl: Curl, journal: Journal, check: Labelled) -> None:
    journal.clear()
    body = curl.big.read_bytes()
    options = [*JSON_TYPE, *ECHO, "-H", "Transfer-Encoding: chunked", "-X", "POST", "-T", "-"]
    seen = curl(CHAT, *options, stdin=body)
    check("chunked upload arrives", echoed(seen) == body.decode(), True)
    (record,) = journal.records()
    check("chunked upload stays chunked", (record["chunked"], record["body_len"]), (True, len(body)))


def http_1_0(curl: Curl, check: Labelled) -> None:
    seen = curl(CHAT, "--http1.0", *JSON_TYPE, "--data", STREAM)
    check("HTTP/1.0 gets the stream", (seen.status, text_of(seen.body)), (200, "The lanegate mock says hello."))
    chunked = [line for line in seen.head if line.lower().startswith("transfer-encoding")]
    check("HTTP/1.0 gets no chunks", chunked, [])


def upgrade_to_http_2(curl: Curl, through_gateway: bool, check: Labelled) -> None:
    seen = curl(CHAT, "--http2", *JSON_TYPE, *ECHO, "--data", STREAM)
    check("an offer of HTTP/2 is passed over", (seen.status, seen.written.split()[2]), (200, "1.1"))
    if through_gateway:
        fields = [line.lower() for line in json.loads(seen.body)["head"].split("\r\n")]
        offered = [line for line in fields if line.startswith(("upgrade:", "http2-settings:", "connection:"))]
        check("the offer goes no further", offered, [])


def websocket(curl: Curl, check: Labelled) -> None:
    options = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: eA=="]
    seen = curl("/v1/responses", *(part for option in options for part in ("-H", option)))
    check("a WebSocket is refused at once", seen.status, 426)


def alive(curl: Curl, check: Labelled) -> None:
    seen = curl("/", "--head")
    check("HEAD / is answered", seen.status, 200)


def keep_alive(curl: Curl, check: Labelled) -> None:
    again = ["--data", STREAM, "--output", "/dev/null", curl.url + CHAT]
    seen = curl(CHAT, *JSON_TYPE, *again)
    connects = re.findall(r"200 (\d) 1\.1", seen.written)
    check("two streams use one connection", connects, ["1", "0"])


def same_answers(curl: Curl, provider: Curl, check: Labelled) -> None:
    """Status, end-to-end fields with their case and order, and every byte of the body."""
    for name, path, options in [
        ("a chat stream", CHAT, ["--data", STREAM]),
        ("a responses stream", "/v1/responses", ["--data", '{"model":"m","stream":true,"input":"hi"}']),
        ("a messages stream", "/v1/messages", ["--data", STREAM]),
        ("a JSON answer", "/v1/messages", ["--data", '{"model":"m","messages":[]}']),
        ("an error", CHAT, ["--data", '{"model":"mock-error-429"}']),
        ("a list of models", "/v1/models", []),
        ("fields of any kind", CHAT, ["--data", "{}", "-H", "x-mock: header=X-Odd_Name: a%3B b"]),
    ]:
        ours, theirs = curl(path, *options), provider(path, *options)
        check(f"{name}: same status and bytes", (ours.status, ours.body), (theirs.status, theirs.body))
        added = [line for line in ours.fields() if not line.lower().startswith("x-lanegate-")]
        check(f"{name}: same fields", masked(added), masked(theirs.fields()))


def masked(fields: list[str]) -> list[str]:
    """Request ids of the mock count connections, so they differ."""
    return [re.sub(r"req_mock_\d+_\d+", "req_mock_N", line) for line in fields]


def echoed(seen: Seen) -> str:
    return json.loads(seen.body)["body"]


def text_of(stream: bytes) -> str:
    events = [line.removeprefix("data: ") for line in stream.decode().splitlines() if line.startswith("data: {")]
    return "".join(json.loads(event)["choices"][0]["delta"].get("content", "") for event in events)
