"""Switches and sessions through the official packages: the URLs of a gateway and of its provider are given.

The gateway has two cores, and tells the provider the session of requests for `mock-model`. Each client here is a
new connection, which the kernel gives to either core.
"""

import base64
import json
import sys
from pathlib import Path

import anthropic
import openai

import checks
from checks import TEXT, WORDS, big_text, equal, holds

sys.path.append(str(Path(__file__).resolve().parent.parent))

from journal import Journal  # noqa: E402 it is beside run.py

GATEWAY, PROVIDER = sys.argv[1:3]
MODEL = "mock-model"
SESSION = {"session_id": "session-of-the-checks"}
# New connections after a session was made; that all of them meet one of two cores is unlikely (2^-11).
CONNECTIONS = 12
journal = Journal(PROVIDER)


def chat(text: str, **more: object) -> object:
    client = openai.OpenAI(base_url=f"{GATEWAY}/v1", api_key="sk-clients-check", max_retries=0, timeout=30)
    messages = [{"role": "user", "content": text}]
    return client.chat.completions.create(model=MODEL, **{"messages": messages, **more})


def message(text: str, **more: object) -> object:
    client = anthropic.Anthropic(base_url=GATEWAY, api_key="sk-ant-clients-check", max_retries=0, timeout=30)
    messages = [{"role": "user", "content": text}]
    return client.messages.create(model=MODEL, max_tokens=16, **{"messages": messages, **more})


def told(record: dict) -> list[str]:
    """The fields of a request in which a provider may find a session."""
    lines = record["head"].split("\r\n")
    names = ("session_id:", "x-opencode-session:", "x-session-id:", "conversation_id:")
    return [line for line in lines if line.lower().startswith(names)]


def body(record: dict) -> dict:
    return json.loads(base64.b64decode(record["body_base64"]))


def who_is_answered_in_the_shape_of_each_api() -> None:
    journal.clear()
    answer = chat("--who?", extra_headers=SESSION)
    expected = "Imposter: mock-model \u2192 mock-model (auth: none, session: session-of-the-checks)"
    equal("text", answer.choices[0].message.content, expected)
    equal("finish reason", answer.choices[0].finish_reason, "stop")
    equal("model", answer.model, MODEL)
    equal("tokens", answer.usage.total_tokens, 0)
    holds("an id of its own", answer.id, answer.id.startswith("chatcmpl-who-"))
    answer = message("  --who?\n")
    expected = "Imposter: mock-model \u2192 mock-model (auth: none, session: derived-"
    holds(expected, answer.content[0].text, answer.content[0].text.startswith(expected))
    equal("stop reason", answer.stop_reason, "end_turn")
    holds("an id of its own", answer.id, answer.id.startswith("msg_who_"))
    equal("requests that reached the provider", journal.records(), [])


def a_request_for_a_stream_reaches_the_model() -> None:
    chunks = list(chat("--who?", stream=True))
    deltas = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    equal("deltas", deltas, ["", *WORDS, None])


def a_new_session_is_known_on_every_core() -> None:
    journal.clear()
    text = chat("--newsession", extra_headers=SESSION).choices[0].message.content
    before, _, synthetic = text.partition(" \u2192 ")
    equal("the session", before, "Session: session-of-the-checks")
    holds("32 digits", synthetic, len(synthetic) == 32)
    equal("once more", chat("--newsession", extra_headers=SESSION).choices[0].message.content, text)
    equal("requests that reached the provider", journal.records(), [])
    for _ in range(CONNECTIONS):
        list(chat("hi", stream=True, extra_headers=SESSION))
    records = journal.records()
    equal("requests", len(records), CONNECTIONS)
    for record in records:
        equal("fields", told(record), [f"x-opencode-session: {synthetic}"])
        equal("session_id of the body", body(record)["session_id"], synthetic)
    journal.clear()
    with anthropic.Anthropic(base_url=GATEWAY, api_key="k", max_retries=0, timeout=30).messages.stream(
        model=MODEL, max_tokens=16, messages=[{"role": "user", "content": "hi"}], extra_headers=SESSION
    ) as stream:
        equal("text", stream.get_final_text(), TEXT)
    [record] = journal.records()
    equal("fields", told(record), [f"x-opencode-session: {synthetic}"])
    holds("a body as it was", body(record), "session_id" not in body(record))


def a_switch_behind_two_mebibytes_is_answered_and_never_run() -> None:
    journal.clear()
    long = [
        {"role": "user", "content": big_text()},
        {"role": "assistant", "content": "I see."},
        {"role": "user", "content": "--who?"},
    ]
    answer = chat("", messages=long, extra_headers=SESSION)
    holds("an answer of the gateway", answer.id, answer.id.startswith("chatcmpl-who-"))
    answer = message("", messages=long, extra_headers=SESSION)
    holds("an answer of the gateway", answer.id, answer.id.startswith("msg_who_"))
    for record in journal.records():
        equal("complete", (record["complete"], record["executed"]), (False, False))
    # The same with another end is run.
    equal("text", chat("", messages=long[:1], extra_headers=SESSION).choices[0].message.content, TEXT)


checks.run_by_name(
    who_is_answered_in_the_shape_of_each_api,
    a_request_for_a_stream_reaches_the_model,
    a_new_session_is_known_on_every_core,
    a_switch_behind_two_mebibytes_is_answered_and_never_run,
)
