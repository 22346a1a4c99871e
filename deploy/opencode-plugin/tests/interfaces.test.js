import assert from "node:assert/strict"
import { test } from "node:test"

import * as module from "../src/index.js"
import { gatewayFor } from "./gateway.js"

const plugin = module.default

test("the module has one export, with an entry for each interface", () => {
  assert.deepEqual(Object.keys(module), ["default"])
  assert.equal(plugin.id, "lanegate")
})

test("1.x: hooks stamp a request and report a test command", async (t) => {
  const gateway = await gatewayFor(t)
  const asked = []
  const client = {
    session: { get: async ({ path }) => { asked.push(path.id); return { data: { id: path.id, parentID: "ses_0" } } } },
    app: { log: async () => undefined },
  }
  const hooks = await plugin.server({ client }, { gateway: gateway.url })
  const output = { headers: {} }
  const provider = { options: { baseURL: `${gateway.url}/v1` } }
  await hooks["chat.headers"]({ sessionID: "ses_1", agent: { name: "Plan" }, model: {}, provider }, output)
  assert.deepEqual(output.headers, {
    "X-Router-Conversation": "ses_1", "X-Router-Agent": "plan", "X-Router-Parent": "ses_0",
  })
  const other = { headers: {} }
  const model = { api: { url: "https://api.example.org" } }
  await hooks["chat.headers"]({ sessionID: "ses_1", agent: "plan", model, provider: { options: {} } }, other)
  assert.deepEqual([other.headers, asked], [{}, ["ses_1"]])
  const made = { type: "session.created", properties: { info: { id: "ses_2", parentID: "ses_1" } } }
  await hooks.event({ event: made })
  const child = { headers: {} }
  await hooks["chat.headers"]({ sessionID: "ses_2", agent: "plan", provider }, child)
  assert.deepEqual([child.headers["X-Router-Parent"], asked], ["ses_1", ["ses_1"]])

  const input = { tool: "bash", sessionID: "ses_1", callID: "v1-call" }
  const args = { command: "pytest", description: "Runs tests" }
  await hooks["tool.execute.before"](input, { args })
  const result = { title: "pytest", output: "1 failed", metadata: { output: "1 failed", exit: 1, truncated: false } }
  await hooks["tool.execute.after"]({ ...input, args }, result)
  const { duration_ms, ...report } = JSON.parse(gateway.requests[0].body)
  assert.deepEqual(report, { conversation_id: "ses_1", outcome: "fail", kind: "test:pytest", exit_code: 1 })
  assert.ok(duration_ms >= 0)
  assert.equal(gateway.requests.length, 1)
})

test("2.x: setup registers hooks that do the same, and takes them away", async (t) => {
  const gateway = await gatewayFor(t)
  const hooks = new Map()
  const hook = async (name, callback) => {
    hooks.set(name, callback)
    return { dispose: async () => hooks.delete(name) }
  }
  const context = {
    options: { gateway: gateway.url },
    session: { hook, get: async ({ sessionID }) => ({ id: sessionID, parentID: "ses_0" }) },
    tool: { hook },
  }
  const dispose = await plugin.setup(context)
  const request = {
    sessionID: "ses_1", agent: "plan", kind: "primary", baseURL: `${gateway.url}/v1`, headers: { kept: "1" },
    model: { providerID: "gateway", id: "m" },
  }
  await hooks.get("model.request")(request)
  assert.deepEqual(request.headers, {
    kept: "1", "X-Router-Conversation": "ses_1", "X-Router-Agent": "plan", "X-Router-Parent": "ses_0",
  })
  const call = (id) => ({ tool: "shell", sessionID: "ses_1", agent: "plan", id, input: { command: "go test ./..." } })
  const ends = [
    { status: "completed", result: { metadata: { exit: 0, truncated: false } } },
    { status: "completed", result: { metadata: { timeout: true, truncated: false } } },
    { status: "error", error: { message: "refused" } },
  ]
  for (const [at, end] of ends.entries()) {
    await hooks.get("execute.before")(call(`v2-call-${at}`))
    await hooks.get("execute.after")({ ...call(`v2-call-${at}`), ...end })
  }
  assert.deepEqual(gateway.requests.map(({ body }) => JSON.parse(body).outcome), ["pass", "unknown"])
  await dispose()
  assert.equal(hooks.size, 0)
})

test("without a gateway both interfaces do nothing and say why", async () => {
  const said = []
  const client = { app: { log: async ({ body }) => said.push(body.message) } }
  const hooks = await plugin.server({ client }, {})
  const output = { headers: {} }
  const provider = { options: { baseURL: "http://127.0.0.1:8080/v1" } }
  await hooks["chat.headers"]({ sessionID: "ses_1", agent: "plan", provider }, output)
  assert.deepEqual(output.headers, {})
  assert.match(said[0], /LANEGATE_URL/)
})

test("hooks survive events without any of their fields", async () => {
  const hooks = await plugin.server({}, { gateway: "http://127.0.0.1:1" })
  for (const hook of Object.values(hooks)) {
    await hook()
    await hook({}, {})
    await hook(null, null)
  }
})
