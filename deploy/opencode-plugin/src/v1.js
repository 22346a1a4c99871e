// The plugin interface of opencode 1.x: a function that returns hooks by name. A hook gets what it may read and what
// it may change as two objects; opencode awaits it, and what it returns is ignored.
//
// Seen with 1.18.33: `agent` is a name (earlier releases passed the whole agent), `provider.options.baseURL` is where
// requests go, else `model.api.url`; `tool.execute.after` is not called for a call that failed or was refused.

import { Link } from "./link.js"
import { settingsFrom } from "./settings.js"

const SERVICE = "lanegate"
// Agents of opencode's own that are asked beside the conversation, in its session.
const BESIDE = new Set(["title", "summary"])

/** The hooks for one project folder. */
export async function server(context, options) {
  const link = new Link({
    settings: settingsFrom(options, process.env),
    lookup: async (id) => (await context.client.session.get({ path: { id } }))?.data,
    say: (message) => context.client.app.log({ body: { service: SERVICE, level: "warn", message } }),
  })
  return {
    event: async (input) => {
      const { type, properties } = input?.event ?? {}
      if (type === "session.created") link.sessionMade(properties?.info)
    },
    "chat.headers": async (input, output) => {
      const agent = input?.agent
      await link.request({
        baseUrl: input?.provider?.options?.baseURL ?? input?.provider?.info?.options?.baseURL ?? input?.model?.api?.url,
        headers: output?.headers,
        sessionID: input?.sessionID,
        agent,
        main: !BESIDE.has(agent?.name ?? agent),
      })
    },
    "tool.execute.before": async (input, output) => {
      const { tool, sessionID, callID } = input ?? {}
      link.toolStarted({ tool, sessionID, callID, input: output?.args })
    },
    "tool.execute.after": async (input, output) => {
      const { tool, sessionID, callID, args } = input ?? {}
      await link.toolEnded({ tool, sessionID, callID, input: args, exitCode: output?.metadata?.exit })
    },
  }
}
