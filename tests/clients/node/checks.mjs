// Named checks, run one after the other, one line of output each.

import assert from "node:assert/strict";
import diagnostics from "node:diagnostics_channel";
import { createRequire } from "node:module";
import path from "node:path";
import { inspect } from "node:util";

// What the mock provider says when it is told nothing (docs/mock.md).
export const WORDS = ["The ", "lanegate ", "mock ", "says ", "hello."];
export const TEXT = WORDS.join("");
export const MODELS = ["mock-model", "mock-tool", "mock-slow"];
/** More than any socket buffer holds by default. */
const BIG_BODY_BYTES = 2 << 20;
/** Requests that share one connection. */
export const KEPT_ALIVE = 5;
/** Requests under way at the same time. */
export const AT_ONCE = 8;

export const baseUrl = process.argv[2];

/** Loads an SDK from the folder where run.py installed it, outside the checkout. */
export const sdk = createRequire(path.join(process.env.LANEGATE_CLIENTS_NODE, "package.json"));

export function equal(what, got, expected) {
  try {
    assert.deepStrictEqual(got, expected);
  } catch {
    throw new Error(`${what}: expected ${shown(expected)}, got ${shown(got)}`);
  }
}

export function holds(what, got, condition) {
  if (!condition) throw new Error(`expected ${what}, got ${shown(got)}`);
}

function shown(value) {
  return inspect(value, { breakLength: Infinity, maxStringLength: 400, maxArrayLength: 60 });
}

/** Awaits a failure and returns it. */
export async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("expected an error, got an answer");
}

export async function collected(stream) {
  const items = [];
  for await (const item of stream) items.push(item);
  return items;
}

/** Text of `BIG_BODY_BYTES`, every line different, so that a lost or doubled block shows. */
export function bigText() {
  const lines = [];
  for (let number = 0; number < BIG_BODY_BYTES / 16; number++) {
    lines.push(`${String(number).padStart(15, "0")}\n`);
  }
  return lines.join("");
}

/** Connections that Node's fetch makes while `work` runs. */
export async function connectionsDuring(work) {
  let count = 0;
  const connected = () => count++;
  diagnostics.subscribe("undici:client:connected", connected);
  try {
    await work();
  } finally {
    diagnostics.unsubscribe("undici:client:connected", connected);
  }
  return count;
}

/** Messages that `mock-echo` says it received. */
export async function echoedMessages(response) {
  const echo = JSON.parse(await response.text());
  return JSON.parse(echo.body).messages;
}

/** Runs all; the process exits with 1 if one failed. */
export async function run(checks) {
  for (const [name, check] of Object.entries(checks)) {
    try {
      await check();
      console.log(`ok   ${name}`);
    } catch (error) {
      process.exitCode = 1;
      console.log(`FAIL ${name}: ${error.constructor.name}: ${error.message}`);
      console.error(error);
    }
  }
}
