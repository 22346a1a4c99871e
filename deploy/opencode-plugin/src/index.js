// The entry of both plugin interfaces: opencode 1.x calls `server` and takes the hooks it returns, opencode 2.x
// calls `setup`, which registers them. 1.x insists on an `id` where the plugin is named by its path.
//
// The module exports nothing else: a loader of 1.x before `server` existed would call every export as a plugin.

import { server } from "./v1.js"
import { setup } from "./v2.js"

export default { id: "lanegate", server, setup }
