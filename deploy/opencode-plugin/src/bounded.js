// Maps that forget their oldest entry instead of growing, and waits that end.

/** A map of at most `entriesMax` entries; the one that was set first goes first. */
export class BoundedMap extends Map {
  #entriesMax

  constructor(entriesMax) {
    super()
    this.#entriesMax = entriesMax
  }

  set(key, value) {
    super.set(key, value)
    if (this.size > this.#entriesMax) this.delete(this.keys().next().value)
    return this
  }
}

/** What `promise` becomes, or `otherwise` if it fails or takes longer than `milliseconds`. Never rejects. */
export async function within(milliseconds, promise, otherwise) {
  let timer
  const late = new Promise((resolve) => {
    timer = setTimeout(resolve, milliseconds, otherwise)
  })
  try {
    return await Promise.race([promise, late])
  } catch {
    return otherwise
  } finally {
    clearTimeout(timer)
  }
}
