// A key and a wrong one through the official packages of Node: the URL of a gateway that knows its clients, and a
// key of one, are given.

import { TEXT, WORDS, baseUrl, collected, equal, failure, run, sdk } from "./checks.mjs";

const { default: OpenAI } = sdk("openai");
const { default: Anthropic } = sdk("@anthropic-ai/sdk");

const key = process.argv[3];
const wrong = "key-of-nobody-0123456789-0123456789";
const model = "mock-model";
const messages = [{ role: "user", content: "hi" }];

function chat(apiKey) {
  const client = new OpenAI({ baseURL: `${baseUrl}/v1`, apiKey, maxRetries: 0, timeout: 30_000 });
  return client.chat.completions.create({ model, messages, stream: true });
}

function message(apiKey) {
  const client = new Anthropic({ baseURL: baseUrl, apiKey, maxRetries: 0, timeout: 30_000 });
  return client.messages.stream({ model, max_tokens: 16, messages }).finalText();
}

async function chatWithKey() {
  const chunks = (await collected(await chat(key))).filter((chunk) => chunk.choices.length);
  equal("deltas", chunks.map((chunk) => chunk.choices[0].delta.content), ["", ...WORDS, undefined]);
}

async function chatWithWrongKey() {
  const error = await failure(chat(wrong));
  equal("class", error.constructor.name, OpenAI.AuthenticationError.name);
  equal("error", [error.status, error.type, error.code], [401, "invalid_request_error", "unauthorized"]);
}

async function messageWithKey() {
  equal("text", await message(key), TEXT);
}

async function messageWithWrongKey() {
  const error = await failure(message(wrong));
  equal("class", error.constructor.name, Anthropic.AuthenticationError.name);
  equal("error", [error.status, error.error.type, error.error.error.type], [401, "error", "authentication_error"]);
}

await run({
  "chat stream with a key": chatWithKey,
  "chat with a wrong key is an authentication error": chatWithWrongKey,
  "message stream with a key": messageWithKey,
  "message with a wrong key is an authentication error": messageWithWrongKey,
});
