// Switches through the official packages of Node, against the URL given as the first argument.

import { baseUrl, equal, holds, run, sdk } from "./checks.mjs";

const { default: OpenAI } = sdk("openai");
const { default: Anthropic } = sdk("@anthropic-ai/sdk");

const session = { headers: { session_id: "session-of-node" } };
const messages = [{ role: "user", content: "--who?" }];

async function chat() {
  const client = new OpenAI({ baseURL: `${baseUrl}/v1`, apiKey: "sk-clients-check", maxRetries: 0 });
  const answer = await client.chat.completions.create({ model: "mock-model", messages }, session);
  const expected = "Imposter: mock-model \u2192 mock-model (auth: none, session: session-of-node)";
  equal("text", answer.choices[0].message.content, expected);
  holds("an id of its own", answer.id, answer.id.startsWith("chatcmpl-who-"));
}

async function message() {
  const client = new Anthropic({ baseURL: baseUrl, apiKey: "sk-ant-clients-check", maxRetries: 0 });
  const asked = { model: "mock-model", max_tokens: 16, messages: [{ role: "user", content: "--newsession" }] };
  const answer = await client.messages.create(asked, session);
  const { text } = answer.content[0];
  holds("both ids", text, /^Session: session-of-node \u2192 [0-9a-f]{32}$/.test(text));
  holds("an id of its own", answer.id, answer.id.startsWith("msg_newsession_"));
}

await run({ "who through chat completions": chat, "a new session through messages": message });
