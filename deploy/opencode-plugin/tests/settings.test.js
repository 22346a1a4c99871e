import assert from "node:assert/strict"
import { test } from "node:test"

import { settingsFrom } from "../src/settings.js"

test("an option wins over the environment", () => {
  const environment = { LANEGATE_URL: "http://10.0.0.1:1", LANEGATE_KEY: "of-environment", LANEGATE_OUTCOMES: "0" }
  const { gateway, key, outcomes } = settingsFrom({ gateway: "https://gate.example/v1", key: "of-option" }, environment)
  assert.deepEqual({ gateway, key, outcomes }, { gateway: "https://gate.example", key: "of-option", outcomes: false })
})

test("the defaults report outcomes and keep the key out of model requests", () => {
  assert.deepEqual(settingsFrom({}, { LANEGATE_URL: "http://127.0.0.1:8080" }), {
    gateway: "http://127.0.0.1:8080",
    key: null,
    sendKey: false,
    outcomes: true,
    onlyReporter: true,
    complaints: [],
  })
})

test("what cannot be used is complained about without being repeated", () => {
  const settings = settingsFrom({ gateway: "secret-place", key: "se\ncret", sendKey: "secret" }, {})
  assert.equal(settings.gateway, null)
  assert.equal(settings.key, null)
  assert.equal(settings.sendKey, false)
  assert.equal(settings.complaints.length, 3)
  assert.doesNotMatch(settings.complaints.join(), /secret/)
})

test("a gateway is an http or https URL", () => {
  for (const gateway of ["ftp://127.0.0.1", "file:///x", "127.0.0.1:8080", 8080, {}]) {
    assert.equal(settingsFrom({ gateway }, {}).gateway, null, String(gateway))
  }
})
