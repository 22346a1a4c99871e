// The official `@anthropic-ai/sdk` package against the URL given as the first argument.

import {
  AT_ONCE, KEPT_ALIVE, MODELS, TEXT, WORDS,
  baseUrl, bigText, collected, connectionsDuring, echoedMessages, equal, failure, holds, run, sdk,
} from "./checks.mjs";

const { default: Anthropic } = sdk("@anthropic-ai/sdk");

const client = new Anthropic({
  baseURL: baseUrl,
  apiKey: "sk-ant-clients-check",
  maxRetries: 0,
  timeout: 30_000,
});

const tool = {
  name: "get_time",
  input_schema: { type: "object", properties: { zone: { type: "string" } }, required: ["zone"] },
};
const callInput = { zone: "lanegate" };
const afterDeltas = ["content_block_stop", "message_delta", "message_stop"];

const says = (content) => [{ role: "user", content }];
const request = (text, model = "mock-model", more = {}) => ({
  model,
  max_tokens: 256,
  messages: says(text),
  ...more,
});

async function messagesJson() {
  const answer = await client.messages.create(request("hi"));
  equal("text", answer.content[0].text, TEXT);
  equal("stop reason", answer.stop_reason, "end_turn");
  equal("tokens", [answer.usage.input_tokens, answer.usage.output_tokens], [12, WORDS.length]);
}

async function messagesStream() {
  const events = await collected(await client.messages.create({ ...request("hi"), stream: true }));
  const expected = [
    "message_start",
    "content_block_start",
    ...WORDS.map(() => "content_block_delta"),
    ...afterDeltas,
  ];
  // The SDK keeps pings to itself.
  const types = events.map((event) => event.type).filter((type) => type !== "ping");
  equal("events", types, expected);
  const deltas = events.filter((event) => event.type === "content_block_delta");
  equal("deltas", deltas.map((event) => event.delta.text), WORDS);
  equal("tokens", events.at(-2).usage.output_tokens, WORDS.length);
}

async function messagesStreamHelper() {
  const parts = [];
  const stream = client.messages.stream(request("hi")).on("text", (part) => parts.push(part));
  const final = await stream.finalMessage();
  equal("text parts", parts, WORDS);
  equal("final text", final.content[0].text, TEXT);
}

async function toolRoundTrip() {
  const asked = request("what time is it?", "mock-tool", { tools: [tool] });
  let answer = await client.messages.create(asked);
  equal("stop reason", answer.stop_reason, "tool_use");
  const [call] = answer.content;
  equal("tool and input", [call.name, call.input], ["get_time", callInput]);
  asked.messages.push(
    { role: "assistant", content: answer.content },
    { role: "user", content: [{ type: "tool_result", tool_use_id: call.id, content: "noon" }] },
  );
  answer = await client.messages.create(asked);
  equal("text after the result", answer.content[0].text, TEXT);
}

async function toolStream() {
  const final = await client.messages.stream(request("time?", "mock-tool", { tools: [tool] })).finalMessage();
  const [call] = final.content;
  equal("tool and input", [call.name, call.input], ["get_time", callInput]);
}

async function countTokens() {
  const count = await client.messages.countTokens({ model: "mock-model", messages: says("hi") });
  equal("tokens", count.input_tokens, 12);
}

async function models() {
  const list = await collected(client.models.list());
  equal("models", list.map((model) => model.id), MODELS);
}

async function errors() {
  for (const [status, kind, type] of [
    [400, Anthropic.BadRequestError, "invalid_request_error"],
    [401, Anthropic.AuthenticationError, "authentication_error"],
    [404, Anthropic.NotFoundError, "not_found_error"],
    [413, Anthropic.APIError, "request_too_large"],
    [429, Anthropic.RateLimitError, "rate_limit_error"],
    [500, Anthropic.InternalServerError, "api_error"],
    [529, Anthropic.InternalServerError, "overloaded_error"],
  ]) {
    const error = await failure(client.messages.create(request("hi", `mock-error-${status}`)));
    holds(`${kind.name} for ${status}`, error, error instanceof kind);
    equal("status", error.status, status);
    equal("type", error.error.error.type, type);
    holds("the provider's request id", error.requestID, error.requestID?.startsWith("req_mock_"));
    const wait = [429, 529].includes(status) ? "1" : null;
    equal(`retry-after of ${status}`, error.headers.get("retry-after"), wait);
  }
}

async function retryAfter() {
  const begun = performance.now();
  const error = await failure(client.messages.create(request("again", "mock-error-529"), { maxRetries: 1 }));
  equal("status", error.status, 529);
  const waited = performance.now() - begun;
  holds("a wait of the second that the provider asked for", waited, waited >= 900);
}

async function streamIsNotHeldBack() {
  const stream = await client.messages.create(
    { ...request("slowly"), stream: true },
    { headers: { "x-mock": "events=5; pause=200ms" } },
  );
  const arrivals = [];
  for await (const _ of stream) arrivals.push(performance.now());
  const spread = arrivals.at(-1) - arrivals[0];
  holds("events spread over more than 800 ms", spread, spread > 800);
}

async function cutStreamIsAnError() {
  const stream = await client.messages.create({ ...request("hi", "mock-cut"), stream: true });
  const received = [];
  const error = await failure((async () => {
    for await (const event of stream) received.push(event);
  })());
  holds("a transport error", error, /terminated|socket|ECONNRESET/.test(`${error} ${error.cause}`));
  holds("the events before the cut", received, received.length >= 1);
}

async function leftStreamFreesTheClient() {
  const stream = await client.messages.create(
    { ...request("never mind"), stream: true },
    { headers: { "x-mock": "events=200; pause=20ms" } },
  );
  for await (const _ of stream) break;
  await messagesJson();
}

async function bigBody() {
  const asked = request(bigText(), "mock-echo");
  const response = await client.messages.create(asked).asResponse();
  equal("echoed messages", await echoedMessages(response), asked.messages);
}

async function keepAlive() {
  const made = await connectionsDuring(async () => {
    for (let number = 0; number < KEPT_ALIVE; number++) {
      await client.messages.create(request(`turn ${number}`));
    }
  });
  // One is open already, unless the check before had it closed.
  holds("at most one new connection", made, made <= 1);
}

async function atOnce() {
  await Promise.all(Array.from({ length: AT_ONCE }, async (_, number) => {
    const asked = request(`caller ${number}`, "mock-echo");
    const response = await client.messages.create(asked).asResponse();
    equal("own messages back", await echoedMessages(response), asked.messages);
  }));
}

await run({
  "messages, JSON": messagesJson,
  "messages, stream": messagesStream,
  "messages, stream helper": messagesStreamHelper,
  "messages, tool round trip": toolRoundTrip,
  "messages, streamed tool call": toolStream,
  "count_tokens": countTokens,
  "models": models,
  "errors keep class, type and retry-after": errors,
  "retry waits as asked": retryAfter,
  "stream arrives as it is made": streamIsNotHeldBack,
  "cut stream is an error": cutStreamIsAnError,
  "client goes on after leaving a stream": leftStreamFreesTheClient,
  "2 MiB body": bigBody,
  "keep-alive": keepAlive,
  "eight at once": atOnce,
});
