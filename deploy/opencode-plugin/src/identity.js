// The three identity fields of a request, as the gateway's contract has them: opaque labels of a closed character
// set, each optional. A value that the gateway would drop is not sent at all.

import { originOf } from "./settings.js"

export const CONVERSATION_HEADER = "X-Router-Conversation"
export const AGENT_HEADER = "X-Router-Agent"
export const PARENT_HEADER = "X-Router-Parent"
export const KEY_HEADER = "X-Lanegate-Key"

const ID_CHARS_MAX = 128
const AGENT_CHARS_MAX = 64
// Of an agent's name as people write it; what stands behind is not looked at.
const NAME_CHARS_MAX = 1024

const ID = new RegExp(`^[A-Za-z0-9._:-]{1,${ID_CHARS_MAX}}$`)

/** Whether the gateway takes the value as an id of a conversation. */
export function isId(value) {
  // `$` also matches before a final line feed in some languages, not in this one.
  return typeof value === "string" && ID.test(value)
}

/**
 * The label of an agent, or null. Names are written for people ("Atlas (Plan Executor)") and some hold zero-width
 * characters to sort a menu; neither may stand in a header. `agent` is a name, or an object that has one.
 */
export function agentLabel(agent) {
  const name = typeof agent === "object" && agent !== null ? agent.name : agent
  if (typeof name !== "string") return null
  const label = name
    .slice(0, NAME_CHARS_MAX)
    .normalize("NFKD")
    // Combining marks, and format characters such as the zero-width ones.
    .replace(/[\p{M}\p{Cf}]+/gu, "")
    // A hyphen joins the run that it stands in: "Sisyphus - Ultraworker" gets one.
    .replace(/[^A-Za-z0-9._:]+/g, "-")
    .replace(/^-|-$/g, "")
    .toLowerCase()
    .slice(0, AGENT_CHARS_MAX)
    .replace(/-$/, "")
  return label === "" ? null : label
}

/** Whether requests to this base URL go to the gateway: same scheme, host and port. */
export function isGateway(settings, baseUrl) {
  return settings.gateway !== null && originOf(baseUrl) === settings.gateway
}

/** Writes the fields of one request into `headers`; leaves out what it does not know. */
export function stamp(headers, { conversation, agent, parent, key }) {
  if (isId(conversation)) headers[CONVERSATION_HEADER] = conversation
  const label = agentLabel(agent)
  if (label !== null) headers[AGENT_HEADER] = label
  if (isId(parent)) headers[PARENT_HEADER] = parent
  if (key) headers[KEY_HEADER] = key
}
