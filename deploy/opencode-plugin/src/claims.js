// One report for one command, in a process where several plugins may want to make it.
//
// - Copies of this plugin (installed for the user and for the project, or through both interfaces) share a table
//   of claims: the first to claim a call reports it.
// - A plugin that knows nothing of the table, such as an outcome-only one of before, is held back at `fetch`: while
//   a claimed call runs, and for a while after, a `POST /outcome` to the gateway that is not ours is answered here
//   with 200 and not sent. The gateway would have to guess its conversation. Reports about other commands pass.
//
// Only `fetch` is watched: a report by another program, or through `node:http`, is beyond reach.

import { BoundedMap } from "./bounded.js"
import { originOf } from "./settings.js"

const CLAIMS_MAX = 1000
// How long after a command another plugin may still report it. Its hook runs in the same round of hooks as ours.
const SHADOW_MS = 5000

const PLACE = Symbol.for("lanegate.opencode.claims.1")

/** The table of this process; made by the first copy of the plugin that asks. */
export function claims(scope = globalThis, now = () => performance.now()) {
  scope[PLACE] ??= new Claims(scope, now)
  return scope[PLACE]
}

class Claims {
  // call: { over: when its command ended, Infinity while it runs; reported: whether somebody has claimed it }
  #calls = new BoundedMap(CLAIMS_MAX)
  #gateways = new Set()
  #unwatched
  #scope
  #now

  constructor(scope, now) {
    this.#scope = scope
    this.#now = now
    /** The `fetch` that reaches the network also while others are held back. */
    this.fetch = (...request) => (this.#unwatched ?? scope.fetch)(...request)
  }

  /** A test command starts. Some models number their calls from 0 in every answer, so this may be an old name. */
  started(call) {
    this.#calls.set(call, { over: Infinity, reported: false })
  }

  /** A test command is over that has no report. */
  ended(call) {
    this.#calls.set(call, { over: this.#now(), reported: this.#calls.get(call)?.reported ?? false })
  }

  /** A test command has ended; true for the first who says so, who is to report it. */
  claim(call) {
    const reported = this.#calls.get(call)?.reported ?? false
    this.#calls.set(call, { over: this.#now(), reported: true })
    return !reported
  }

  /** Holds back what others report to this gateway about claimed calls. */
  holdBackOthers(gateway) {
    this.#gateways.add(gateway)
    if (this.#unwatched !== undefined) return
    const original = this.#scope.fetch
    if (typeof original !== "function") return
    this.#unwatched = original.bind(this.#scope)
    // A proxy keeps what else the function has, such as `preconnect` of Bun.
    this.#scope.fetch = new Proxy(original, {
      apply: (target, self, request) => {
        if (this.#holdsBack(request)) return Promise.resolve(Response.json({ status: "superseded" }))
        return Reflect.apply(target, self, request)
      },
    })
  }

  // Must not throw: every request of the process comes through here. No body is looked at.
  #holdsBack([resource, options]) {
    try {
      const isRequest = typeof resource === "object" && resource !== null && "url" in resource
      const method = options?.method ?? (isRequest ? resource.method : "GET")
      if (String(method).toUpperCase() !== "POST") return false
      const url = String(isRequest ? resource.url : resource)
      if (!this.#gateways.has(originOf(url)) || new URL(url).pathname !== "/outcome") return false
      return this.#isShadowed()
    } catch {
      return false
    }
  }

  #isShadowed() {
    const since = this.#now() - SHADOW_MS
    for (const { over } of this.#calls.values()) if (over >= since) return true
    return false
  }
}
