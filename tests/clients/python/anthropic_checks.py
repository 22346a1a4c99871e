"""The official `anthropic` package against the URL given as the first argument."""

import asyncio
import json
import sys
import time

import anthropic

import checks
from checks import AT_ONCE, KEPT_ALIVE, MODELS, TEXT, WORDS, equal, holds

BASE_URL = sys.argv[1]
KEY = "sk-ant-clients-check"
MAX_TOKENS = 256

client = anthropic.Anthropic(base_url=BASE_URL, api_key=KEY, max_retries=0, timeout=30)

TOOL = {
    "name": "get_time",
    "input_schema": {
        "type": "object",
        "properties": {"zone": {"type": "string"}},
        "required": ["zone"],
    },
}
ARGUMENTS = {"zone": "lanegate"}
BEFORE_DELTAS = ["message_start", "content_block_start", "ping"]
AFTER_DELTAS = ["content_block_stop", "message_delta", "message_stop"]


def says(text: str) -> list[dict]:
    return [{"role": "user", "content": text}]


def request(text: str, model: str = "mock-model", **more: object) -> dict:
    return {"model": model, "max_tokens": MAX_TOKENS, "messages": says(text), **more}


def messages_json() -> None:
    answer = client.messages.create(**request("hi"))
    equal("text", answer.content[0].text, TEXT)
    equal("stop reason", answer.stop_reason, "end_turn")
    equal("tokens", (answer.usage.input_tokens, answer.usage.output_tokens), (12, len(WORDS)))


def messages_stream() -> None:
    events = list(client.messages.create(**request("hi"), stream=True))
    # The SDK keeps pings to itself.
    expected = ["message_start", "content_block_start"]
    expected += ["content_block_delta"] * len(WORDS) + AFTER_DELTAS
    equal("events", [event.type for event in events if event.type != "ping"], expected)
    deltas = [event.delta.text for event in events if event.type == "content_block_delta"]
    equal("deltas", deltas, WORDS)
    equal("tokens", events[-2].usage.output_tokens, len(WORDS))


def messages_stream_of_bytes() -> None:
    with client.messages.with_streaming_response.create(**request("hi"), stream=True) as raw:
        lines = list(raw.iter_lines())
    names = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    expected = [*BEFORE_DELTAS, *["content_block_delta"] * len(WORDS), *AFTER_DELTAS]
    equal("event names", names, expected)


def messages_stream_helper() -> None:
    with client.messages.stream(**request("hi")) as stream:
        equal("text parts", list(stream.text_stream), WORDS)
        equal("final text", stream.get_final_message().content[0].text, TEXT)


def tool_round_trip() -> None:
    asked = request("what time is it?", "mock-tool", tools=[TOOL])
    answer = client.messages.create(**asked)
    equal("stop reason", answer.stop_reason, "tool_use")
    call = answer.content[0]
    equal("tool and input", (call.name, call.input), ("get_time", ARGUMENTS))
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "noon"}
    asked["messages"] += [
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": [result]},
    ]
    answer = client.messages.create(**asked)
    equal("text after the result", answer.content[0].text, TEXT)


def tool_stream() -> None:
    with client.messages.stream(**request("time?", "mock-tool", tools=[TOOL])) as stream:
        call = stream.get_final_message().content[0]
    equal("tool and input", (call.name, call.input), ("get_time", ARGUMENTS))


def count_tokens() -> None:
    count = client.messages.count_tokens(model="mock-model", messages=says("hi"))
    equal("tokens", count.input_tokens, 12)


def models() -> None:
    equal("models", [model.id for model in client.models.list()], MODELS)


def errors() -> None:
    for status, kind, name in [
        (400, anthropic.BadRequestError, "invalid_request_error"),
        (401, anthropic.AuthenticationError, "authentication_error"),
        (404, anthropic.NotFoundError, "not_found_error"),
        (413, anthropic.APIStatusError, "request_too_large"),
        (429, anthropic.RateLimitError, "rate_limit_error"),
        (500, anthropic.InternalServerError, "api_error"),
        (529, anthropic.InternalServerError, "overloaded_error"),
    ]:
        try:
            client.messages.create(**request("hi", f"mock-error-{status}"))
        except anthropic.APIStatusError as error:
            holds(f"{kind.__name__} for {status}", error, isinstance(error, kind))
            equal("status", error.status_code, status)
            equal("type", error.body["error"]["type"], name)
            holds("the provider's request id", error.request_id, str(error.request_id).startswith("req_mock_"))
            wait = "1" if status in (429, 529) else None
            equal(f"retry-after of {status}", error.response.headers.get("retry-after"), wait)
        else:
            raise AssertionError(f"expected {kind.__name__}, got an answer")


def retry_after() -> None:
    begun = time.monotonic()
    try:
        client.with_options(max_retries=1).messages.create(**request("again", "mock-error-529"))
    except anthropic.InternalServerError:
        waited = time.monotonic() - begun
        holds("a wait of the second that the provider asked for", waited, waited >= 0.9)
    else:
        raise AssertionError("expected an overloaded error, got an answer")


def stream_is_not_held_back() -> None:
    slowly = {"x-mock": "events=5; pause=200ms"}
    stream = client.messages.create(**request("slowly"), stream=True, extra_headers=slowly)
    arrivals = [time.monotonic() for _ in stream]
    spread = arrivals[-1] - arrivals[0]
    holds("events spread over more than 0.8 s", spread, spread > 0.8)


def cut_stream_is_an_error() -> None:
    received = []
    try:
        received.extend(client.messages.create(**request("hi", "mock-cut"), stream=True))
    except Exception as error:  # noqa: BLE001 the class belongs to the HTTP library below
        holds("a transport error", error, "RemoteProtocolError" in repr([error, error.__cause__]))
        holds("the events before the cut", received, len(received) >= 1)
    else:
        raise AssertionError(f"expected a transport error, got an end after {len(received)} events")


def left_stream_frees_the_client() -> None:
    endless = {"x-mock": "events=200; pause=20ms"}
    stream = client.messages.create(**request("never mind"), stream=True, extra_headers=endless)
    next(iter(stream))
    stream.close()
    messages_json()


def big_body() -> None:
    text = checks.big_text()
    raw = client.messages.with_raw_response.create(**request(text, "mock-echo"))
    received = json.loads(json.loads(raw.text())["body"])
    equal("echoed messages", received["messages"], says(text))


def keep_alive() -> None:
    ports = set()
    for number in range(KEPT_ALIVE):
        raw = client.messages.with_raw_response.create(**request(f"turn {number}"))
        ports.add(raw.http_response.extensions["network_stream"].get_extra_info("client_addr"))
    equal("connections used", len(ports), 1)


async def async_client() -> None:
    async with anthropic.AsyncAnthropic(base_url=BASE_URL, api_key=KEY, max_retries=0, timeout=30) as client:
        answer = await client.messages.create(**request("hi"))
        equal("text", answer.content[0].text, TEXT)
        async with client.messages.stream(**request("hi")) as stream:
            equal("text parts", [part async for part in stream.text_stream], WORDS)
        answer = await client.messages.create(**request("time?", "mock-tool", tools=[TOOL]))
        equal("tool and input", (answer.content[0].name, answer.content[0].input), ("get_time", ARGUMENTS))
        try:
            await client.messages.create(**request("hi", "mock-error-429"))
        except anthropic.RateLimitError as error:
            equal("retry-after", error.response.headers.get("retry-after"), "1")
        else:
            raise AssertionError("expected RateLimitError, got an answer")


async def async_at_once() -> None:
    async with anthropic.AsyncAnthropic(base_url=BASE_URL, api_key=KEY, max_retries=0, timeout=30) as client:

        async def one(number: int) -> None:
            text = f"caller {number}"
            raw = await client.messages.with_raw_response.create(**request(text, "mock-echo"))
            received = json.loads(json.loads(await raw.text())["body"])
            equal("own messages back", received["messages"], says(text))

        await asyncio.gather(*(one(number) for number in range(AT_ONCE)))


checks.run(
    {
        "messages, JSON": messages_json,
        "messages, stream": messages_stream,
        "messages, event names of the stream": messages_stream_of_bytes,
        "messages, stream helper": messages_stream_helper,
        "messages, tool round trip": tool_round_trip,
        "messages, streamed tool call": tool_stream,
        "count_tokens": count_tokens,
        "models": models,
        "errors keep class, type and retry-after": errors,
        "retry waits as asked": retry_after,
        "stream arrives as it is made": stream_is_not_held_back,
        "cut stream is an error": cut_stream_is_an_error,
        "client goes on after leaving a stream": left_stream_frees_the_client,
        "2 MiB body": big_body,
        "keep-alive": keep_alive,
        "async: JSON, stream, tool, error": lambda: asyncio.run(async_client()),
        "async: eight at once": lambda: asyncio.run(async_at_once()),
    }
)
