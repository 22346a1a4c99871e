// The plugin interface of opencode 2.x: `setup` registers hooks of the session and of the tools, each with one event
// that is changed in place. From its types of September 2026; `chat.headers` is gone, `model.request` has the base
// URL and the headers.

import { Link } from "./link.js"
import { settingsFrom } from "./settings.js"

const PRIMARY = "primary"

/** Registers the hooks; gives what takes them away again. */
export async function setup(context) {
  const link = new Link({
    settings: settingsFrom(context.options, process.env),
    lookup: async (sessionID) => {
      const answer = await context.session.get({ sessionID })
      return answer?.data ?? answer
    },
    // The server is a process of its own here, whose output is its log.
    say: (message) => console.warn(`lanegate: ${message}`),
  })
  const registrations = [
    await context.session.hook("model.request", async (event) => {
      const { baseURL, headers, sessionID, agent, kind } = event ?? {}
      await link.request({ baseUrl: baseURL, headers, sessionID, agent, main: kind === undefined || kind === PRIMARY })
    }),
    await context.tool.hook("execute.before", (event) => {
      const { tool, sessionID, id, input } = event ?? {}
      link.toolStarted({ tool, sessionID, callID: id, input })
    }),
    await context.tool.hook("execute.after", async (event) => {
      const { tool, sessionID, id, input } = event ?? {}
      await link.toolEnded({ tool, sessionID, callID: id, input, exitCode: exitCodeOf(event) })
    }),
  ]
  return async () => {
    for (const registration of registrations) await registration?.dispose?.()
  }
}

// Of a completed call. A command that ran out of time has no code; neither has a call that failed, which is no run.
function exitCodeOf(event) {
  if (event?.status !== "completed") return undefined
  const told = [event.result?.metadata, event.result?.output].find((part) => typeof part === "object" && part !== null)
  if (told?.timeout === true) return null
  return told?.exit
}
