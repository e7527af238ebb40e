// node reference.mjs PORT DIRECTORY: the reference server, with its files in a directory and its defaults otherwise.
import { DurableStreamTestServer } from "@durable-streams/server"

const [port, dataDir] = process.argv.slice(2)
await new DurableStreamTestServer({ host: "127.0.0.1", port: Number(port), dataDir }).start()
