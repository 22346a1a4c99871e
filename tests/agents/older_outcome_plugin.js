// Stands in for an outcome-only plugin of before: it reports how tests went, and knows no conversation. In the
// form of early 1.x, where every export is a plugin.

export const RouterOutcome = async () => ({
  "tool.execute.after": async (input, output) => {
    if (input.tool !== "bash" || !/unittest/.test(input.args?.command)) return
    await fetch(`${process.env.OLDER_PLUGIN_URL}/outcome`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ source: "opencode", outcome: output.metadata.exit === 0 ? "pass" : "fail" }),
    }).catch(() => undefined)
  },
})
