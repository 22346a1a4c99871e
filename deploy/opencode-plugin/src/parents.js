// Which session started which. Learnt when a session is made, where the interface tells of that; else opencode is
// asked once for each session. Either is kept, since a session never changes its parent. A request waits for the
// answer only so long, and goes without a parent if there is none.

import { BoundedMap, within } from "./bounded.js"

const SESSIONS_MAX = 1000
const LOOKUP_MS_MAX = 300
// A lookup that failed is tried again with the next request of its session, this often in all.
const LOOKUPS_MAX = 3

export class Parents {
  #known = new BoundedMap(SESSIONS_MAX)
  #lookup

  /** `lookup(sessionID)` gives a promise of opencode's record of a session. */
  constructor(lookup) {
    this.#lookup = lookup
  }

  /** Takes over opencode's record of a session, as `lookup` would give it. */
  learn(session) {
    if (typeof session?.id !== "string") return
    this.#known.set(session.id, { asked: 0, answer: Promise.resolve(session.parentID ?? undefined) })
  }

  /** Id of the session's parent; undefined if it has none or if that could not be learned in time. */
  async of(sessionID) {
    const entry = this.#known.get(sessionID) ?? { asked: 0, answer: null }
    if (entry.answer === null) {
      if (entry.asked >= LOOKUPS_MAX) return undefined
      entry.asked += 1
      // Kept beyond the wait: an answer that came too late for this request serves the next.
      entry.answer = this.#ask(sessionID).catch(() => {
        entry.answer = null
        return undefined
      })
      this.#known.set(sessionID, entry)
    }
    return within(LOOKUP_MS_MAX, entry.answer, undefined)
  }

  async #ask(sessionID) {
    const session = await this.#lookup(sessionID)
    if (session === undefined || session === null) throw new Error("no record of the session")
    return session.parentID ?? undefined
  }
}
