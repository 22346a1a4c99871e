import assert from "node:assert/strict"
import { test } from "node:test"

import { agentLabel, isGateway, isId, stamp } from "../src/identity.js"
import { settingsFrom } from "../src/settings.js"

test("agent names become labels that the gateway takes", () => {
  const labels = [
    ["Atlas (Plan Executor)", "atlas-plan-executor"],
    ["Sisyphus - Ultraworker", "sisyphus-ultraworker"],
    ["\u200bé", "e"],
    ["build", "build"],
    ["a.b_c:d-E9", "a.b_c:d-e9"],
    ["\u200b\u200c\u200d\ufeffPrometheus", "prometheus"],
    ["ﬁne", "fine"],
    ["--x--", "x"],
    ["a\r\nX-Evil: 1", "a-x-evil:-1"],
    ["x".repeat(65), "x".repeat(64)],
    [`${"x".repeat(63)} y`, "x".repeat(63)],
    ["日本語", null],
    ["  ", null],
    ["", null],
    [undefined, null],
    [null, null],
    [7, null],
  ]
  for (const [name, label] of labels) assert.equal(agentLabel(name), label, JSON.stringify(name))
})

test("an agent may be given as an object with a name", () => {
  assert.equal(agentLabel({ name: "Plan", mode: "primary" }), "plan")
  assert.equal(agentLabel({}), null)
})

test("an id has 1 to 128 characters of the closed set", () => {
  for (const id of ["ses_abc", "a.b_c:d-E9", "a".repeat(128)]) assert.equal(isId(id), true, id)
  for (const id of ["", "a b", "a,b", "a/b", "a@b", "é", "a\t", "a\n", "a".repeat(129), undefined, 5]) {
    assert.equal(isId(id), false, JSON.stringify(id))
  }
})

test("only an equal origin is the gateway", () => {
  const settings = settingsFrom({ gateway: "http://127.0.0.1:8080/v1" }, {})
  assert.equal(isGateway(settings, "http://127.0.0.1:8080/anything/v1"), true)
  const others = [
    "https://127.0.0.1:8080/v1", "http://127.0.0.1:8081/v1", "http://127.0.0.1/v1", "http://localhost:8080/v1",
    "http://127.0.0.1:8080.example.org/v1", "http://127.0.0.1:8080@example.org/v1", "", undefined, null, "/v1",
  ]
  for (const url of others) assert.equal(isGateway(settings, url), false, String(url))
  assert.equal(isGateway(settingsFrom({}, {}), "http://127.0.0.1:8080"), false)
  assert.equal(isGateway(settingsFrom({}, {}), undefined), false)
})

test("what is unknown or invalid gives no header", () => {
  const headers = { existing: "1" }
  stamp(headers, { conversation: "a b", agent: "()", parent: undefined, key: null })
  assert.deepEqual(headers, { existing: "1" })
})
