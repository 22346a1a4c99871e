import assert from "node:assert/strict"
import { test } from "node:test"

import { Parents } from "../src/parents.js"

test("each session is looked up once, also by requests at the same time", async () => {
  const asked = []
  const parents = new Parents(async (id) => {
    asked.push(id)
    return { id, parentID: id === "child" ? "root" : undefined }
  })
  assert.deepEqual(await Promise.all([parents.of("child"), parents.of("child")]), ["root", "root"])
  assert.equal(await parents.of("root"), undefined)
  assert.equal(await parents.of("root"), undefined)
  assert.deepEqual(asked, ["child", "root"])
})

test("a session whose making was told of is not looked up", async () => {
  const parents = new Parents(() => assert.fail("asked"))
  parents.learn({ id: "child", parentID: "root" })
  parents.learn({ id: "root" })
  for (const record of [undefined, null, {}, { id: 5 }]) parents.learn(record)
  assert.deepEqual([await parents.of("child"), await parents.of("root")], ["root", undefined])
})

test("a slow answer is not waited for and serves the next request", async () => {
  let answer
  const parents = new Parents(() => new Promise((resolve) => { answer = resolve }))
  const begun = performance.now()
  assert.equal(await parents.of("child"), undefined)
  const waited = performance.now() - begun
  assert.ok(waited > 250 && waited < 1000, `waited ${waited} ms`)
  answer({ parentID: "root" })
  assert.equal(await parents.of("child"), "root")
})

test("a lookup that fails is tried three times and never more", async () => {
  let asked = 0
  const parents = new Parents(() => {
    asked += 1
    throw new Error("no")
  })
  for (let request = 0; request < 5; request += 1) assert.equal(await parents.of("child"), undefined)
  assert.equal(asked, 3)
})

test("an opencode that knows no such session gives no parent", async () => {
  assert.equal(await new Parents(async () => undefined).of("child"), undefined)
})

test("the session that was seen first is forgotten beyond the bound", async () => {
  const asked = []
  const parents = new Parents(async (id) => { asked.push(id); return {} })
  for (let session = 0; session <= 1000; session += 1) await parents.of(`s${session}`)
  await parents.of("s1000")
  await parents.of("s0")
  assert.equal(asked.length, 1002)
})
