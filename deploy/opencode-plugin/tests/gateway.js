// A gateway for the tests: takes reports and keeps what it was sent.

import { createServer } from "node:http"

/** Starts one; `answer(request)` may give a status, or "silence". Closed with the test `t`. */
export async function gatewayFor(t, answer = () => 200) {
  const requests = []
  const server = createServer(async (request, response) => {
    let body = ""
    for await (const piece of request) body += piece
    requests.push({ method: request.method, url: request.url, headers: request.headers, body })
    const status = answer(request)
    if (status === "silence") return
    response.writeHead(status, { "content-type": "application/json", location: "http://127.0.0.1:1/" })
    response.end("{}")
  })
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve))
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  return { url: `http://127.0.0.1:${server.address().port}`, requests }
}

/** A place for the claims of one test, as if it were a process of its own. */
export function scopeOf() {
  return { fetch: globalThis.fetch }
}
