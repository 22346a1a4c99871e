"""A scripted provider whose agent has helpers, and a recorder that stands before the gateway.

The mock of lanegate scripts one tool call of any agent. Here the calls depend on whose turn it is: the main agent
hands out two tasks at once, one helper runs the tests, the other looks around.
"""

import http.client
import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import urlsplit

FAREWELL = "The foreman says goodbye."
# An agent's name as people write it; no header may hold it.
SCOUT = "Atlas (Plan Executor)"
TESTER_PROMPT = "Run the tests."
SCOUT_PROMPT = "Look around."
TEST_COMMAND = "python3 -m unittest -q"
OTHER_COMMAND = "echo looked-around"
BODY_BYTES_MAX = 8 << 20
FORWARD_SECONDS_MAX = 30


@dataclass(frozen=True)
class Request:
    """What arrived, and the status that it was answered with."""

    method: str
    path: str
    # Names in lower case, in order.
    fields: tuple[tuple[str, str], ...]
    body: bytes
    status: int

    def field(self, name: str) -> str | None:
        return next((value for key, value in self.fields if key == name), None)


class Server:
    """An HTTP server on a port of loopback that keeps what it receives; ended on leaving the context."""

    def __init__(self) -> None:
        self._received: list[Request] = []
        self._lock = threading.Lock()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                body = self.rfile.read(min(int(self.headers.get("content-length", 0)), BODY_BYTES_MAX))
                fields = tuple((name.lower(), value) for name, value in self.headers.items())
                status, kind, content = owner.answer(self.command, self.path, fields, body)
                with owner._lock:
                    owner._received.append(Request(self.command, self.path, fields, body, status))
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_DELETE = handle_one  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def taken(self) -> list[Request]:
        """What has arrived since the last call."""
        with self._lock:
            received, self._received = self._received, []
        return received

    def answer(self, method: str, path: str, fields: tuple, body: bytes) -> tuple[int, str, bytes]:
        raise NotImplementedError


class Recorder(Server):
    """Passes every request on and its answer back, whole."""

    def __init__(self) -> None:
        super().__init__()
        self.target = ""

    def answer(self, method: str, path: str, fields: tuple, body: bytes) -> tuple[int, str, bytes]:
        target = http.client.HTTPConnection(urlsplit(self.target).netloc, timeout=FORWARD_SECONDS_MAX)
        try:
            target.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in fields:
                if name != "connection":
                    target.putheader(name, value)
            target.endheaders(body)
            answer = target.getresponse()
            return answer.status, answer.getheader("content-type", "application/json"), answer.read()
        finally:
            target.close()


class Foreman(Server):
    """The provider: what it says follows from the conversation alone."""

    def answer(self, method: str, path: str, fields: tuple, body: bytes) -> tuple[int, str, bytes]:
        if method != "POST" or not path.endswith("/chat/completions"):
            return 404, "application/json", b"{}"
        return 200, "text/event-stream", events(said(json.loads(body)))


def said(request: dict) -> dict:
    """The assistant's message: text, or calls of tools."""
    tools = {tool["function"]["name"] for tool in request.get("tools", [])}
    messages = request["messages"]
    if "bash" not in tools:
        return {"content": "A title"}
    if messages[-1]["role"] == "tool":
        return {"content": FAREWELL}
    prompt = text(messages[-1])
    if TESTER_PROMPT in prompt:
        return calls(("bash", {"command": TEST_COMMAND, "description": "Runs the tests"}))
    if SCOUT_PROMPT in prompt:
        return calls(("bash", {"command": OTHER_COMMAND, "description": "Looks around"}))
    tester = {"description": "Run tests", "prompt": TESTER_PROMPT, "subagent_type": "general"}
    scout = {"description": "Look", "prompt": SCOUT_PROMPT, "subagent_type": SCOUT}
    return calls(("task", tester), ("task", scout))


def text(message: dict) -> str:
    content = message["content"]
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)


def calls(*wanted: tuple[str, dict]) -> dict:
    return {
        "tool_calls": [
            {
                "index": index,
                "id": f"call_{index}_{name}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for index, (name, arguments) in enumerate(wanted)
        ]
    }


def events(message: dict) -> bytes:
    """The message as a stream of chunks."""
    reason = "tool_calls" if "tool_calls" in message else "stop"
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    deltas = [({"role": "assistant", **message}, None), ({}, reason)]
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": end}]} for delta, end in deltas]
    chunks.append({"choices": [], "usage": usage})
    common = {"id": "chatcmpl-foreman", "object": "chat.completion.chunk", "created": 1, "model": "foreman"}
    lines = [f"data: {json.dumps(common | chunk)}\n\n" for chunk in chunks]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()
