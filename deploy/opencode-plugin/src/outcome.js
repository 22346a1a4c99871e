// What became of a test command, and telling the gateway. Of the command and its output nothing is sent: a kind of
// a closed list, an exit code, a duration, and the conversation that ran it.

import { KEY_HEADER, isId } from "./identity.js"
import { testKind } from "./runners.js"

// Of one report. opencode waits for it before it goes on: the gateway gives an outcome to the newest answer of the
// conversation, which has to be the one that asked for the command, not the one after it.
export const REPORT_MS_MAX = 1000
const DURATION_MS_MAX = 24 * 3600 * 1000

// Exit codes with which a runner says that it did not get to run tests: bad usage, nothing collected, a crash.
const OWN_ERRORS = new Map([
  ["pytest", new Set([2, 3, 4, 5])],
  ["unittest", new Set([5])],
])
// Of the shell and of `timeout`: not found, not executable, out of time. From 129 on: ended by a signal.
const SHELL_ERRORS = new Set([124, 125, 126, 127])
const SIGNAL_BASE = 128

/** Tools that run a shell command, by their names in opencode 1.x and 2.x. */
export const SHELL_TOOLS = new Set(["bash", "shell"])

/** The kind of test run that a tool call is, or null. */
export function testKindOf(tool, input) {
  return SHELL_TOOLS.has(tool) ? testKind(input?.command) : null
}

/**
 * `pass`, `fail` or `error` for an exit code. `null` is what opencode has where it ended the command itself, for
 * time or because the user stopped it: `unknown`. Anything else that is no exit code gives null: no report.
 */
export function outcomeOf(kind, exitCode) {
  if (exitCode === null) return "unknown"
  if (!Number.isInteger(exitCode) || exitCode < 0 || exitCode > 255) return null
  if (exitCode === 0) return "pass"
  const broke = SHELL_ERRORS.has(exitCode) || exitCode > SIGNAL_BASE || OWN_ERRORS.get(kind)?.has(exitCode)
  return broke ? "error" : "fail"
}

/** The body of a report, or null if there is none to make. `milliseconds` may be undefined. */
export function reportOf({ conversation, kind, exitCode, milliseconds }) {
  const outcome = outcomeOf(kind, exitCode)
  if (outcome === null || !isId(conversation)) return null
  const report = { conversation_id: conversation, outcome, kind: `test:${kind}` }
  if (exitCode !== null) report.exit_code = exitCode
  if (milliseconds >= 0) report.duration_ms = Math.min(Math.round(milliseconds), DURATION_MS_MAX)
  return report
}

/**
 * Posts a report with the given `fetch`, once. Gives null when the gateway recorded it, else what happened, in
 * words that hold no id. Never rejects.
 */
export async function post(fetch, settings, report) {
  const headers = { "content-type": "application/json" }
  if (settings.key !== null) headers[KEY_HEADER] = settings.key
  try {
    const response = await fetch(`${settings.gateway}/outcome`, {
      method: "POST",
      headers,
      body: JSON.stringify(report),
      // The key is for the gateway and for nobody that it might point to.
      redirect: "error",
      signal: AbortSignal.timeout(REPORT_MS_MAX),
    })
    await response.body?.cancel()
    return response.ok ? null : `the gateway answered a report with ${response.status}`
  } catch (error) {
    return error?.name === "TimeoutError" ? "the gateway did not take a report in time" : "the gateway was not reached"
  }
}
