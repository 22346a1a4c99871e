// The official `openai` package against the URL given as the first argument.

import {
  AT_ONCE, KEPT_ALIVE, MODELS, TEXT, WORDS,
  baseUrl, bigText, collected, connectionsDuring, echoedMessages, equal, failure, holds, run, sdk,
} from "./checks.mjs";

const { default: OpenAI } = sdk("openai");

const client = new OpenAI({
  baseURL: `${baseUrl}/v1`,
  apiKey: "sk-clients-check",
  maxRetries: 0,
  timeout: 30_000,
});

const parameters = { type: "object", properties: { zone: { type: "string" } }, required: ["zone"] };
const chatTool = { type: "function", function: { name: "get_time", parameters } };
const responsesTool = { type: "function", name: "get_time", parameters, strict: false };
const callArguments = { zone: "lanegate" };

const says = (content) => [{ role: "user", content }];
const chat = (body, options) => client.chat.completions.create(body, options);

async function chatJson() {
  const answer = await chat({ model: "mock-model", messages: says("hi") });
  equal("text", answer.choices[0].message.content, TEXT);
  equal("finish reason", answer.choices[0].finish_reason, "stop");
  equal("tokens", answer.usage.total_tokens, 12 + WORDS.length);
}

async function chatStream() {
  const chunks = await collected(await chat({
    model: "mock-model",
    messages: says("hi"),
    stream: true,
    stream_options: { include_usage: true },
  }));
  const deltas = chunks.filter((chunk) => chunk.choices.length).map((chunk) => chunk.choices[0].delta.content);
  equal("deltas", deltas, ["", ...WORDS, undefined]);
  equal("finish reason", chunks.at(-2).choices[0].finish_reason, "stop");
  equal("tokens", chunks.at(-1).usage.completion_tokens, WORDS.length);
}

async function chatToolRoundTrip() {
  const messages = says("what time is it?");
  let answer = await chat({ model: "mock-tool", messages, tools: [chatTool] });
  const [call] = answer.choices[0].message.tool_calls;
  equal("tool", call.function.name, "get_time");
  equal("arguments", JSON.parse(call.function.arguments), callArguments);
  messages.push(answer.choices[0].message, { role: "tool", tool_call_id: call.id, content: "noon" });
  answer = await chat({ model: "mock-tool", messages, tools: [chatTool] });
  equal("text after the result", answer.choices[0].message.content, TEXT);
}

async function chatToolStream() {
  const chunks = await collected(
    await chat({ model: "mock-tool", messages: says("time?"), tools: [chatTool], stream: true }),
  );
  const parts = chunks.flatMap((chunk) => chunk.choices[0].delta.tool_calls ?? []);
  equal("tool", parts[0].function.name, "get_time");
  equal("arguments", JSON.parse(parts.map((part) => part.function.arguments).join("")), callArguments);
}

async function responsesJson() {
  const answer = await client.responses.create({ model: "mock-model", input: "hi" });
  equal("status", answer.status, "completed");
  equal("text", answer.output_text, TEXT);
}

async function responsesStream() {
  const events = await collected(
    await client.responses.create({ model: "mock-model", input: "hi", stream: true }),
  );
  const expected = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    ...WORDS.map(() => "response.output_text.delta"),
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
  ];
  equal("events", events.map((event) => event.type), expected);
  equal("numbers", events.map((event) => event.sequence_number), [...expected.keys()]);
  const deltas = events.filter((event) => event.type === "response.output_text.delta");
  equal("deltas", deltas.map((event) => event.delta), WORDS);
}

async function responsesToolRoundTrip() {
  const input = says("what time is it?");
  let answer = await client.responses.create({ model: "mock-tool", input, tools: [responsesTool] });
  const [call] = answer.output;
  equal("tool", call.name, "get_time");
  equal("arguments", JSON.parse(call.arguments), callArguments);
  input.push(call, { type: "function_call_output", call_id: call.call_id, output: "noon" });
  answer = await client.responses.create({ model: "mock-tool", input, tools: [responsesTool] });
  equal("text after the result", answer.output_text, TEXT);
}

async function models() {
  const list = await collected(client.models.list());
  equal("models", list.map((model) => model.id), MODELS);
}

async function errors() {
  for (const [status, kind] of [
    [400, OpenAI.BadRequestError],
    [401, OpenAI.AuthenticationError],
    [404, OpenAI.NotFoundError],
    [429, OpenAI.RateLimitError],
    [500, OpenAI.InternalServerError],
    [503, OpenAI.InternalServerError],
  ]) {
    const error = await failure(chat({ model: `mock-error-${status}`, messages: says("hi") }));
    equal(`class for ${status}`, error.constructor.name, kind.name);
    equal("status", error.status, status);
    equal("message", error.error.message, "scripted error");
    holds("the provider's request id", error.requestID, error.requestID?.startsWith("req_mock_"));
    const wait = [429, 503].includes(status) ? "1" : null;
    equal(`retry-after of ${status}`, error.headers.get("retry-after"), wait);
  }
}

async function retryAfter() {
  const begun = performance.now();
  const error = await failure(chat({ model: "mock-error-429", messages: says("again") }, { maxRetries: 1 }));
  equal("class", error.constructor.name, OpenAI.RateLimitError.name);
  const waited = performance.now() - begun;
  holds("a wait of the second that the provider asked for", waited, waited >= 900);
}

async function streamIsNotHeldBack() {
  const stream = await chat(
    { model: "mock-model", messages: says("slowly"), stream: true },
    { headers: { "x-mock": "events=5; pause=200ms" } },
  );
  const arrivals = [];
  for await (const _ of stream) arrivals.push(performance.now());
  const spread = arrivals.at(-1) - arrivals[0];
  holds("events spread over more than 800 ms", spread, spread > 800);
}

async function cutStreamIsAnError() {
  const stream = await chat({ model: "mock-cut", messages: says("hi"), stream: true });
  const received = [];
  const error = await failure((async () => {
    for await (const chunk of stream) received.push(chunk);
  })());
  holds("a transport error", error, /terminated|socket|ECONNRESET/.test(`${error} ${error.cause}`));
  holds("the events before the cut", received, received.length >= 1);
}

async function leftStreamFreesTheClient() {
  const stream = await chat(
    { model: "mock-model", messages: says("never mind"), stream: true },
    { headers: { "x-mock": "events=200; pause=20ms" } },
  );
  for await (const _ of stream) break;
  await chatJson();
}

async function bigBody() {
  const messages = says(bigText());
  const response = await chat({ model: "mock-echo", messages }).asResponse();
  equal("echoed messages", await echoedMessages(response), messages);
}

async function keepAlive() {
  const made = await connectionsDuring(async () => {
    for (let number = 0; number < KEPT_ALIVE; number++) {
      await chat({ model: "mock-model", messages: says(`turn ${number}`) });
    }
  });
  // One is open already, unless the check before had it closed.
  holds("at most one new connection", made, made <= 1);
}

async function atOnce() {
  await Promise.all(Array.from({ length: AT_ONCE }, async (_, number) => {
    const messages = says(`caller ${number}`);
    const response = await chat({ model: "mock-echo", messages }).asResponse();
    equal("own messages back", await echoedMessages(response), messages);
  }));
}

await run({
  "chat, JSON": chatJson,
  "chat, stream": chatStream,
  "chat, tool round trip": chatToolRoundTrip,
  "chat, streamed tool call": chatToolStream,
  "responses, JSON": responsesJson,
  "responses, stream": responsesStream,
  "responses, tool round trip": responsesToolRoundTrip,
  "models": models,
  "errors keep class, message and retry-after": errors,
  "retry waits as asked": retryAfter,
  "stream arrives as it is made": streamIsNotHeldBack,
  "cut stream is an error": cutStreamIsAnError,
  "client goes on after leaving a stream": leftStreamFreesTheClient,
  "2 MiB body": bigBody,
  "keep-alive": keepAlive,
  "eight at once": atOnce,
});
