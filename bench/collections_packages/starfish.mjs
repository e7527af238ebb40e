// node starfish.mjs PORT DIRECTORY CONFIGURATION: the published server, with its files in a directory.
import { readFileSync } from "node:fs"
import { serve } from "@hono/node-server"
import { Hono } from "hono"
import {
  createCapCertRoleResolver,
  createInMemoryNonceCache,
  createInMemoryRevocationStore,
  createSyncRouter,
  parseConfigJson,
} from "@drakkar.software/starfish-server"
import { FilesystemObjectStore } from "@drakkar.software/starfish-server/node"

const [port, baseDir, configuration] = process.argv.slice(2)
const roleResolver = createCapCertRoleResolver({
  nonceCache: createInMemoryNonceCache(),
  revocationStore: createInMemoryRevocationStore(),
})
const config = parseConfigJson(readFileSync(configuration, "utf-8"))
const app = new Hono()
app.route("/", createSyncRouter({ store: new FilesystemObjectStore({ baseDir }), config, roleResolver }))
serve({ fetch: app.fetch, hostname: "127.0.0.1", port: Number(port) })
