// What the person who installs the plugin decides. An option of opencode's configuration wins over the
// environment variable. Without a gateway the plugin does nothing: ids and keys go to no address that nobody named.

// option: environment variable
const VARIABLES = {
  gateway: "LANEGATE_URL",
  key: "LANEGATE_KEY",
  sendKey: "LANEGATE_SEND_KEY",
  outcomes: "LANEGATE_OUTCOMES",
  onlyReporter: "LANEGATE_ONLY_REPORTER",
}

/**
 * Reads options and environment. Never throws; what it could not use is said in `complaints`, which repeat no value.
 *
 * - `gateway`: origin of the gateway, as in `http://127.0.0.1:8080`; null switches the plugin off
 * - `key`: the client's key at the gateway, or null
 * - `sendKey`: whether model requests carry the key as `X-Lanegate-Key`
 * - `outcomes`: whether test commands are reported
 * - `onlyReporter`: whether reports of other plugins about the same command are held back
 */
export function settingsFrom(options, environment) {
  const complaints = []
  const written = (name) => {
    const option = options?.[name]
    return option === undefined || option === null ? environment[VARIABLES[name]] : option
  }
  const flag = (name, otherwise) => {
    const value = written(name)
    if (value === undefined || value === "") return otherwise
    if ([true, "true", "1"].includes(value)) return true
    if ([false, "false", "0"].includes(value)) return false
    complaints.push(`${name} is neither true nor false`)
    return otherwise
  }
  const settings = {
    gateway: originOf(written("gateway")),
    key: keyFrom(written("key")),
    sendKey: flag("sendKey", false),
    outcomes: flag("outcomes", true),
    onlyReporter: flag("onlyReporter", true),
    complaints,
  }
  if (settings.gateway === null) complaints.push(`gateway is no http or https URL; set ${VARIABLES.gateway}`)
  if (settings.key === undefined) {
    complaints.push("key is no visible ASCII and is not used")
    settings.key = null
  }
  return settings
}

/** Scheme, host and port of an http or https URL, else null. */
export function originOf(url) {
  if (typeof url !== "string" || !URL.canParse(url)) return null
  const { protocol, origin } = new URL(url)
  return protocol === "http:" || protocol === "https:" ? origin : null
}

// undefined: there is one that no header can hold.
function keyFrom(value) {
  if (value === undefined || value === "") return null
  return typeof value === "string" && /^[\x21-\x7e]+$/.test(value) ? value : undefined
}
