// What both plugin interfaces share: stamp a request, follow the tool calls, report the test commands. Nothing in
// here throws or rejects, since a plugin of opencode that does ends the turn it was asked in.

import { BoundedMap } from "./bounded.js"
import { claims as claimsOfProcess } from "./claims.js"
import { isGateway, stamp } from "./identity.js"
import { post, reportOf, testKindOf } from "./outcome.js"
import { Parents } from "./parents.js"

// Tool calls that have started and not ended, over all sessions; a call that fails ends without a word.
const CALLS_MAX = 1000
// Each thing is said once, and never more than this in all.
const MESSAGES_MAX = 16

export class Link {
  #settings
  #parents
  #claims
  #say
  #now
  #said = new Set()
  // call: { sessionID, kind, at }
  #running = new BoundedMap(CALLS_MAX)
  #sawEnd = false

  /** `lookup(sessionID)` gives opencode's record of a session, `say(message)` writes to its log. */
  constructor({ settings, lookup, say, claims = claimsOfProcess(), now = () => performance.now() }) {
    this.#settings = settings
    this.#parents = new Parents(lookup)
    this.#claims = claims
    this.#say = say
    this.#now = now
    for (const complaint of settings.complaints) this.#once(complaint)
    if (this.#reports() && settings.onlyReporter) claims.holdBackOthers(settings.gateway)
  }

  /** A session was made; `session` is opencode's record of it. */
  sessionMade(session) {
    this.#parents.learn(session)
  }

  /** A model request is about to be sent; `main` if it is a step of the agent and no title or summary. */
  async request({ baseUrl, headers, sessionID, agent, main }) {
    try {
      if (main) this.#lookForLostEnds(sessionID)
      if (!isGateway(this.#settings, baseUrl)) return
      const key = this.#settings.sendKey ? this.#settings.key : null
      // First without the parent: an interface that does not wait gets at least these.
      stamp(headers, { conversation: sessionID, agent, key })
      stamp(headers, { parent: await this.#parents.of(sessionID) })
    } catch {
      this.#once("a request could not be labelled")
    }
  }

  /** A tool call starts. */
  toolStarted({ tool, sessionID, callID, input }) {
    try {
      const kind = this.#reports() ? testKindOf(tool, input) : null
      const call = nameOf(sessionID, callID)
      if (kind !== null) this.#claims.started(call)
      this.#running.set(call, { sessionID, kind, at: this.#now() })
    } catch {
      this.#once("a tool call could not be followed")
    }
  }

  /** A tool call has ended; resolves when its report, if there is one, was taken or given up. */
  async toolEnded({ tool, sessionID, callID, input, exitCode }) {
    try {
      this.#sawEnd = true
      const call = nameOf(sessionID, callID)
      const start = this.#running.get(call)
      this.#running.delete(call)
      // As it was started, before another hook could rewrite the command.
      const kind = start?.kind ?? testKindOf(tool, input)
      if (!this.#reports() || kind === null) return
      const milliseconds = start === undefined ? undefined : this.#now() - start.at
      const report = reportOf({ conversation: sessionID, kind, exitCode, milliseconds })
      if (report === null) return this.#claims.ended(call)
      if (!this.#claims.claim(call)) return
      const trouble = await post(this.#claims.fetch, this.#settings, report)
      if (trouble !== null) this.#once(trouble)
    } catch {
      this.#once("an outcome could not be reported")
    }
  }

  #reports() {
    return this.#settings.outcomes && this.#settings.gateway !== null
  }

  // An agent asks its model again only when all its tool calls are over. If calls are over and no end was ever
  // told, this opencode declares the event and does not fire it. A refused or failed call has no end either, so
  // this is said of a process only where no call at all has had one.
  #lookForLostEnds(sessionID) {
    for (const [call, start] of this.#running) {
      if (start.sessionID !== sessionID) continue
      this.#running.delete(call)
      if (start.kind !== null) this.#claims.ended(call)
      if (!this.#sawEnd && this.#reports()) {
        this.#once("a tool call started and opencode told no end of it; if this stays so, no outcome is reported")
      }
    }
  }

  #once(message) {
    if (this.#said.has(message) || this.#said.size >= MESSAGES_MAX) return
    this.#said.add(message)
    try {
      // A log that cannot be written to is nothing to stop for.
      Promise.resolve(this.#say(message)).catch(() => undefined)
    } catch {
      // As above.
    }
  }
}

// Models choose the ids of their calls, and two sessions may have the same.
function nameOf(sessionID, callID) {
  return `${sessionID} ${callID}`
}
