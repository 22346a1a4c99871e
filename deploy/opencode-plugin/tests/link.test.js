import assert from "node:assert/strict"
import { test } from "node:test"

import { claims } from "../src/claims.js"
import { Link } from "../src/link.js"
import { settingsFrom } from "../src/settings.js"
import { gatewayFor, scopeOf } from "./gateway.js"

function linkTo(gateway, { options = {}, scope = scopeOf(), lookup = async () => ({}), now } = {}) {
  const said = []
  const settings = settingsFrom({ gateway: gateway.url, ...options }, {})
  const link = new Link({ settings, lookup, say: (message) => said.push(message), claims: claims(scope, now), now })
  return { link, said, scope }
}

const call = (callID, command, exitCode, tool = "bash") => ({
  tool, sessionID: "ses_1", callID, input: { command }, exitCode,
})

async function run(link, ...given) {
  link.toolStarted(call(...given))
  await link.toolEnded(call(...given))
}

test("a request to the gateway carries conversation, agent and parent", async (t) => {
  const gateway = await gatewayFor(t)
  const { link } = linkTo(gateway, { lookup: async () => ({ parentID: "ses_0" }) })
  const headers = { kept: "1" }
  await link.request({ baseUrl: `${gateway.url}/v1`, headers, sessionID: "ses_1", agent: "Plan B", main: true })
  assert.deepEqual(headers, {
    kept: "1",
    "X-Router-Conversation": "ses_1",
    "X-Router-Agent": "plan-b",
    "X-Router-Parent": "ses_0",
  })
})

test("the key is in a model request only if that is asked for", async (t) => {
  const gateway = await gatewayFor(t)
  for (const sendKey of [false, true]) {
    const { link } = linkTo(gateway, { options: { key: "k", sendKey } })
    const headers = {}
    await link.request({ baseUrl: gateway.url, headers, sessionID: "ses_1", agent: "a", main: true })
    assert.equal(headers["X-Lanegate-Key"], sendKey ? "k" : undefined)
  }
})

test("a request to anybody else is left alone, and its session is not looked up", async (t) => {
  const gateway = await gatewayFor(t)
  let asked = 0
  const { link } = linkTo(gateway, { options: { key: "k", sendKey: true }, lookup: async () => { asked += 1 } })
  const headers = {}
  await link.request({ baseUrl: "https://api.example.org/v1", headers, sessionID: "ses_1", agent: "a", main: true })
  assert.deepEqual([headers, asked], [{}, 0])
})

test("a request is sent whatever the plugin is given", async (t) => {
  const gateway = await gatewayFor(t)
  const { link } = linkTo(gateway, { lookup: () => { throw new Error("no") } })
  const frozen = Object.freeze({})
  for (const headers of [undefined, null, frozen]) {
    await link.request({ baseUrl: gateway.url, headers, sessionID: "ses_1", agent: "a", main: true })
  }
  link.toolStarted({})
  await link.toolEnded({})
  await link.request({})
})

test("one test command is one report, without its text", async (t) => {
  const gateway = await gatewayFor(t)
  let time = 1000
  const { link, said } = linkTo(gateway, { options: { key: "k" }, now: () => time })
  link.toolStarted(call("c1", "cargo test secret_name", 101))
  time += 1234.4
  await link.toolEnded(call("c1", "cargo test secret_name", 101))
  assert.equal(gateway.requests.length, 1)
  const [{ method, url, headers, body }] = gateway.requests
  assert.deepEqual([method, url, headers["x-lanegate-key"]], ["POST", "/outcome", "k"])
  assert.deepEqual(JSON.parse(body), {
    conversation_id: "ses_1", outcome: "fail", kind: "test:cargo", exit_code: 101, duration_ms: 1234,
  })
  assert.deepEqual(said, [])
})

test("the exit code decides the outcome", async (t) => {
  const gateway = await gatewayFor(t)
  const { link } = linkTo(gateway)
  const cases = [
    ["cargo test", 0, "pass"], ["cargo test", 101, "fail"], ["go test", 1, "fail"], ["pytest", 1, "fail"],
    ["pytest", 5, "error"], ["go test", 2, "fail"], ["npm test", 127, "error"], ["timeout 5 npm test", 124, "error"],
    ["npm test", 137, "error"], ["npm test", null, "unknown"],
  ]
  for (const [at, [command, exitCode]] of cases.entries()) await run(link, `c${at}`, command, exitCode)
  const outcomes = gateway.requests.map(({ body }) => JSON.parse(body).outcome)
  assert.deepEqual(outcomes, cases.map(([, , outcome]) => outcome))
  assert.equal("exit_code" in JSON.parse(gateway.requests.at(-1).body), false)
})

test("no report without a test command, a shell, an exit code or an id", async (t) => {
  const gateway = await gatewayFor(t)
  const { link } = linkTo(gateway)
  await run(link, "c1", "cargo build", 0)
  await run(link, "c2", "cargo test", 0, "read")
  for (const [at, code] of [undefined, "0", 1.5, -1, 256, {}].entries()) await run(link, `d${at}`, "cargo test", code)
  await link.toolEnded({ ...call("c3", "cargo test", 0), sessionID: "no id" })
  const { link: silent } = linkTo(gateway, { options: { outcomes: false } })
  await run(silent, "c4", "cargo test", 0)
  assert.deepEqual(gateway.requests, [])
})

test("two copies of the plugin in one process make one report", async (t) => {
  const gateway = await gatewayFor(t)
  const { link, scope } = linkTo(gateway)
  const { link: copy } = linkTo(gateway, { scope })
  for (const each of [link, copy]) each.toolStarted(call("c1", "cargo test", 0))
  await Promise.all([link, copy].map((each) => each.toolEnded(call("c1", "cargo test", 0))))
  await copy.toolEnded(call("c1", "cargo test", 0))
  assert.equal(gateway.requests.length, 1)
})

test("equal ids of calls in two sessions, or later in one, are different calls", async (t) => {
  const gateway = await gatewayFor(t)
  const { link } = linkTo(gateway)
  const other = { ...call("c1", "ls", 0), sessionID: "ses_2" }
  link.toolStarted(call("c1", "cargo test", 0))
  link.toolStarted(other)
  await link.toolEnded(other)
  await link.toolEnded(call("c1", "cargo test", 0))
  await run(link, "c1", "cargo test", 0)
  const reports = gateway.requests.map(({ body }) => JSON.parse(body))
  assert.deepEqual(reports.map(({ duration_ms }) => typeof duration_ms), ["number", "number"])
})

test("the report of another plugin about the same command is held back, before and after", async (t) => {
  const gateway = await gatewayFor(t)
  let time = 0
  const { link, scope } = linkTo(gateway, { now: () => time })
  const other = (url = `${gateway.url}/outcome`) => scope.fetch(url, { method: "post", body: "{}" })
  link.toolStarted(call("c1", "cargo test", 0))
  assert.equal((await other()).status, 200)
  await link.toolEnded(call("c1", "cargo test", 0))
  assert.equal((await scope.fetch(new Request(`${gateway.url}/outcome`, { method: "POST" }))).status, 200)
  assert.equal(gateway.requests.length, 1)
  await other(`${gateway.url}/elsewhere`)
  await scope.fetch(`${gateway.url}/outcome`)
  assert.equal(gateway.requests.length, 3)
  time += 5001
  await other()
  assert.equal(gateway.requests.length, 4)
})

test("a report of another plugin about another command passes", async (t) => {
  const gateway = await gatewayFor(t)
  const { link, scope } = linkTo(gateway)
  link.toolStarted(call("c1", "./run-my-checks", 0))
  await scope.fetch(`${gateway.url}/outcome`, { method: "POST", body: "{}" })
  assert.equal(gateway.requests.length, 1)
})

test("a test command that was refused holds nothing back once the agent goes on", async (t) => {
  const gateway = await gatewayFor(t)
  let time = 0
  const { link, scope } = linkTo(gateway, { now: () => time })
  link.toolStarted(call("c1", "cargo test", 0))
  await link.request({ baseUrl: gateway.url, headers: {}, sessionID: "ses_1", agent: "a", main: true })
  time += 5001
  await scope.fetch(`${gateway.url}/outcome`, { method: "POST", body: "{}" })
  assert.equal(gateway.requests.length, 1)
})

test("fetch is left as it is where others may report", async (t) => {
  const gateway = await gatewayFor(t)
  for (const options of [{ onlyReporter: false }, { outcomes: false }, { gateway: "none" }]) {
    const { scope } = linkTo(gateway, { options })
    assert.equal(scope.fetch, globalThis.fetch)
  }
})

test("a gateway that refuses is told of once and asked again", async (t) => {
  const gateway = await gatewayFor(t, () => 404)
  const { link, said } = linkTo(gateway)
  await run(link, "c1", "cargo test", 0)
  await run(link, "c2", "cargo test", 0)
  assert.equal(gateway.requests.length, 2)
  assert.deepEqual(said, ["the gateway answered a report with 404"])
})

test("a gateway that says nothing delays a test command by a second at most", async (t) => {
  const gateway = await gatewayFor(t, () => "silence")
  const { link, said } = linkTo(gateway)
  const begun = performance.now()
  await run(link, "c1", "cargo test", 0)
  assert.ok(performance.now() - begun < 2500)
  assert.deepEqual(said, ["the gateway did not take a report in time"])
})

test("a redirection is not followed", async (t) => {
  const gateway = await gatewayFor(t, () => 307)
  const { link, said } = linkTo(gateway, { options: { key: "k" } })
  await run(link, "c1", "cargo test", 0)
  assert.equal(gateway.requests.length, 1)
  assert.deepEqual(said, ["the gateway was not reached"])
})

test("an opencode that tells no end of a tool call is told of once", async (t) => {
  const gateway = await gatewayFor(t)
  const { link, said } = linkTo(gateway)
  const step = (sessionID, main) => link.request({ baseUrl: gateway.url, headers: {}, sessionID, agent: "a", main })
  link.toolStarted(call("c1", "ls", 0))
  await step("ses_2", true)
  await step("ses_1", false)
  assert.equal(said.length, 0)
  await step("ses_1", true)
  link.toolStarted(call("c2", "ls", 0))
  await step("ses_1", true)
  assert.equal(said.length, 1)
  assert.match(said[0], /no end/)
})

test("a failed call after one that ended is nothing to tell", async (t) => {
  const gateway = await gatewayFor(t)
  const { link, said } = linkTo(gateway)
  await run(link, "c1", "ls", 0)
  link.toolStarted(call("c2", "ls", 0))
  await link.request({ baseUrl: gateway.url, headers: {}, sessionID: "ses_1", agent: "a", main: true })
  assert.deepEqual(said, [])
})

test("a log that cannot be written to stops nothing", async () => {
  for (const say of [() => { throw new Error("no") }, () => Promise.reject(new Error("no"))]) {
    const settings = settingsFrom({}, {})
    const link = new Link({ settings, lookup: async () => ({}), say, claims: claims(scopeOf()) })
    await link.request({ baseUrl: "http://127.0.0.1:1", headers: {}, sessionID: "ses_1", agent: "a", main: true })
  }
})
