"""A key and a wrong one through the official packages: the URL of a gateway that knows its clients, and a key of one.

The OpenAI package presents a key as `Authorization: Bearer`, that of Anthropic as `x-api-key`.
"""

import sys

import anthropic
import openai

import checks
from checks import TEXT, WORDS, equal

GATEWAY, KEY = sys.argv[1:3]
WRONG = "key-of-nobody-0123456789-0123456789"
MODEL = "mock-model"
MESSAGES = [{"role": "user", "content": "hi"}]


def chat(key: str) -> object:
    client = openai.OpenAI(base_url=f"{GATEWAY}/v1", api_key=key, max_retries=0, timeout=30)
    return client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)


def message(key: str) -> str:
    client = anthropic.Anthropic(base_url=GATEWAY, api_key=key, max_retries=0, timeout=30)
    with client.messages.stream(model=MODEL, max_tokens=16, messages=MESSAGES) as stream:
        return stream.get_final_text()


def chat_stream_with_a_key() -> None:
    deltas = [chunk.choices[0].delta.content for chunk in chat(KEY) if chunk.choices]
    equal("deltas", deltas, ["", *WORDS, None])


def chat_with_a_wrong_key_is_an_authentication_error() -> None:
    try:
        chat(WRONG)
    except openai.AuthenticationError as error:
        told = (error.status_code, error.type, error.code)
        equal("error", told, (401, "invalid_request_error", "unauthorized"))
    else:
        raise AssertionError("no error")


def message_stream_with_a_key() -> None:
    equal("text", message(KEY), TEXT)


def message_with_a_wrong_key_is_an_authentication_error() -> None:
    try:
        message(WRONG)
    except anthropic.AuthenticationError as error:
        told = (error.status_code, error.body["type"], error.body["error"]["type"])
        equal("error", told, (401, "error", "authentication_error"))
    else:
        raise AssertionError("no error")


checks.run_by_name(
    chat_stream_with_a_key,
    chat_with_a_wrong_key_is_an_authentication_error,
    message_stream_with_a_key,
    message_with_a_wrong_key_is_an_authentication_error,
)
