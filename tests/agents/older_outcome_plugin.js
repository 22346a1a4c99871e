// Stands in for an outcome-only plugin of before: it reports how tests went, with the key of its gateway, and knows
// no conversation. In the form of early 1.x, where every export is a plugin. It leaves a line for every answer that
// it got.

import { appendFileSync } from "node:fs"

const { OLDER_PLUGIN_URL: url, OLDER_PLUGIN_KEY: key, OLDER_PLUGIN_ANSWERS: answers } = process.env

export const RouterOutcome = async () => ({
  "tool.execute.after": async (input, output) => {
    if (input.tool !== "bash" || !/unittest/.test(input.args?.command)) return
    const answer = await fetch(`${url}/outcome`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${key}` },
      body: JSON.stringify({ outcome: output.metadata.exit === 0 ? "pass" : "fail" }),
    }).catch(() => undefined)
    const told = await answer?.json().catch(() => undefined)
    appendFileSync(answers, `${answer?.status} ${told?.status ?? told?.error?.code}\n`)
  },
})
