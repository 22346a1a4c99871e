"""The official `openai` package against the URL given as the first argument."""

import asyncio
import json
import sys
import time

import openai

import checks
from checks import AT_ONCE, KEPT_ALIVE, MODELS, TEXT, WORDS, equal, holds

BASE_URL = sys.argv[1] + "/v1"
KEY = "sk-clients-check"

client = openai.OpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0, timeout=30)

SCHEMA = {
    "type": "object",
    "properties": {"zone": {"type": "string"}},
    "required": ["zone"],
}
CHAT_TOOL = {"type": "function", "function": {"name": "get_time", "parameters": SCHEMA}}
RESPONSES_TOOL = {"type": "function", "name": "get_time", "parameters": SCHEMA, "strict": False}
ARGUMENTS = {"zone": "lanegate"}


def says(text: str) -> list[dict]:
    return [{"role": "user", "content": text}]


def chat_json() -> None:
    answer = client.chat.completions.create(model="mock-model", messages=says("hi"))
    equal("text", answer.choices[0].message.content, TEXT)
    equal("finish reason", answer.choices[0].finish_reason, "stop")
    equal("tokens", answer.usage.total_tokens, 12 + len(WORDS))


def chat_stream() -> None:
    stream = client.chat.completions.create(
        model="mock-model",
        messages=says("hi"),
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    deltas = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    equal("deltas", deltas, ["", *WORDS, None])
    equal("finish reason", chunks[-2].choices[0].finish_reason, "stop")
    equal("tokens", chunks[-1].usage.completion_tokens, len(WORDS))


def chat_tool_round_trip() -> None:
    asked = says("what time is it?")
    answer = client.chat.completions.create(model="mock-tool", messages=asked, tools=[CHAT_TOOL])
    call = answer.choices[0].message.tool_calls[0]
    equal("tool", call.function.name, "get_time")
    equal("arguments", json.loads(call.function.arguments), ARGUMENTS)
    result = {"role": "tool", "tool_call_id": call.id, "content": "noon"}
    turns = [*asked, answer.choices[0].message, result]
    answer = client.chat.completions.create(model="mock-tool", messages=turns, tools=[CHAT_TOOL])
    equal("text after the result", answer.choices[0].message.content, TEXT)


def chat_tool_stream() -> None:
    stream = client.chat.completions.create(
        model="mock-tool", messages=says("what time is it?"), tools=[CHAT_TOOL], stream=True
    )
    deltas = [chunk.choices[0].delta for chunk in stream]
    parts = [delta.tool_calls[0].function for delta in deltas if delta.tool_calls]
    equal("tool", parts[0].name, "get_time")
    equal("arguments", json.loads("".join(part.arguments for part in parts)), ARGUMENTS)


def responses_json() -> None:
    answer = client.responses.create(model="mock-model", input="hi")
    equal("status", answer.status, "completed")
    equal("text", answer.output_text, TEXT)


def responses_stream() -> None:
    events = list(client.responses.create(model="mock-model", input="hi", stream=True))
    expected = ["response.created", "response.in_progress", "response.output_item.added"]
    expected += ["response.content_part.added"]
    expected += ["response.output_text.delta"] * len(WORDS)
    expected += ["response.output_text.done", "response.content_part.done"]
    expected += ["response.output_item.done", "response.completed"]
    equal("events", [event.type for event in events], expected)
    equal("numbers", [event.sequence_number for event in events], list(range(len(expected))))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    equal("deltas", deltas, WORDS)
    equal("text", events[-1].response.output_text, TEXT)


def responses_tool_round_trip() -> None:
    asked = says("what time is it?")
    answer = client.responses.create(model="mock-tool", input=asked, tools=[RESPONSES_TOOL])
    call = answer.output[0]
    equal("tool", call.name, "get_time")
    equal("arguments", json.loads(call.arguments), ARGUMENTS)
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "noon"}
    turns = [*asked, call, result]
    answer = client.responses.create(model="mock-tool", input=turns, tools=[RESPONSES_TOOL])
    equal("text after the result", answer.output_text, TEXT)


def models() -> None:
    equal("models", [model.id for model in client.models.list()], MODELS)


def errors() -> None:
    for status, kind in [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (404, openai.NotFoundError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
        (503, openai.InternalServerError),
    ]:
        try:
            client.chat.completions.create(model=f"mock-error-{status}", messages=says("hi"))
        except openai.APIStatusError as error:
            equal(f"class for {status}", type(error), kind)
            equal("status", error.status_code, status)
            equal("message", error.body["message"], "scripted error")
            holds("the provider's request id", error.request_id, str(error.request_id).startswith("req_mock_"))
            wait = "1" if status in (429, 503) else None
            equal(f"retry-after of {status}", error.response.headers.get("retry-after"), wait)
        else:
            raise AssertionError(f"expected {kind.__name__}, got an answer")


def retry_after() -> None:
    patient = client.with_options(max_retries=1)
    begun = time.monotonic()
    try:
        patient.chat.completions.create(model="mock-error-429", messages=says("again"))
    except openai.RateLimitError:
        waited = time.monotonic() - begun
        holds("a wait of the second that the provider asked for", waited, waited >= 0.9)
    else:
        raise AssertionError("expected RateLimitError, got an answer")


def stream_is_not_held_back() -> None:
    stream = client.chat.completions.create(
        model="mock-model",
        messages=says("slowly"),
        stream=True,
        extra_headers={"x-mock": "events=5; pause=200ms"},
    )
    arrivals = [time.monotonic() for _ in stream]
    spread = arrivals[-1] - arrivals[0]
    holds("events spread over more than 0.8 s", spread, spread > 0.8)


def cut_stream_is_an_error() -> None:
    stream = client.chat.completions.create(model="mock-cut", messages=says("hi"), stream=True)
    received = []
    try:
        received.extend(stream)
    except Exception as error:  # noqa: BLE001 the class belongs to the HTTP library below
        holds("a transport error", error, "RemoteProtocolError" in repr([error, error.__cause__]))
        holds("the events before the cut", received, len(received) >= 1)
    else:
        raise AssertionError(f"expected a transport error, got an end after {len(received)} events")


def left_stream_frees_the_client() -> None:
    stream = client.chat.completions.create(
        model="mock-model",
        messages=says("never mind"),
        stream=True,
        extra_headers={"x-mock": "events=200; pause=20ms"},
    )
    next(iter(stream))
    stream.close()
    chat_json()


def big_body() -> None:
    text = checks.big_text()
    raw = client.chat.completions.with_raw_response.create(model="mock-echo", messages=says(text))
    received = json.loads(json.loads(raw.text)["body"])
    equal("echoed messages", received["messages"], says(text))


def keep_alive() -> None:
    ports = set()
    for number in range(KEPT_ALIVE):
        raw = client.chat.completions.with_raw_response.create(
            model="mock-model", messages=says(f"turn {number}")
        )
        ports.add(raw.http_response.extensions["network_stream"].get_extra_info("client_addr"))
    equal("connections used", len(ports), 1)


async def async_client() -> None:
    async with openai.AsyncOpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0, timeout=30) as client:
        answer = await client.chat.completions.create(model="mock-model", messages=says("hi"))
        equal("text", answer.choices[0].message.content, TEXT)
        stream = await client.responses.create(model="mock-model", input="hi", stream=True)
        deltas = [event.delta async for event in stream if event.type == "response.output_text.delta"]
        equal("deltas", deltas, WORDS)
        answer = await client.chat.completions.create(
            model="mock-tool", messages=says("time?"), tools=[CHAT_TOOL]
        )
        equal("tool", answer.choices[0].message.tool_calls[0].function.name, "get_time")
        try:
            await client.responses.create(model="mock-error-429", input="hi")
        except openai.RateLimitError as error:
            equal("retry-after", error.response.headers.get("retry-after"), "1")
        else:
            raise AssertionError("expected RateLimitError, got an answer")


async def async_at_once() -> None:
    async with openai.AsyncOpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0, timeout=30) as client:

        async def one(number: int) -> None:
            text = f"caller {number}"
            raw = await client.chat.completions.with_raw_response.create(
                model="mock-echo", messages=says(text)
            )
            received = json.loads(json.loads(raw.text)["body"])
            equal("own messages back", received["messages"], says(text))

        await asyncio.gather(*(one(number) for number in range(AT_ONCE)))


checks.run(
    {
        "chat, JSON": chat_json,
        "chat, stream": chat_stream,
        "chat, tool round trip": chat_tool_round_trip,
        "chat, streamed tool call": chat_tool_stream,
        "responses, JSON": responses_json,
        "responses, stream": responses_stream,
        "responses, tool round trip": responses_tool_round_trip,
        "models": models,
        "errors keep class, message and retry-after": errors,
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
