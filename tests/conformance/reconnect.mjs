// node reconnect.mjs URL COUNT: writers and readers that live on while their server is killed and started again.
// Says how much was acknowledged; whoever listens may kill the server whenever it likes.
import assert from "node:assert/strict"
import { DurableStream, DurableStreamError, FetchError, IdempotentProducer, stream } from "@durable-streams/client"
import { inTime, say } from "./conversation.mjs"

const [base, count] = process.argv.slice(2)
const items = Array.from({ length: Number(count) }, (_, number) => ({ number }))
const TOGETHER = 10
const PAUSE_MS = 20
// The client asks again for ever; here it does not wait long before it does.
const backoffOptions = { initialDelay: PAUSE_MS, maxDelay: 5 * PAUSE_MS, multiplier: 1.3, maxRetries: Infinity }
// Starting a server takes its time on a busy machine.
const PATIENCE_MS = 150_000

const sseResilience = { logWarnings: false }

const url = (name) => `${base}/v1/stream/reconnect/${name}`
const pause = () => new Promise((resolve) => setTimeout(resolve, PAUSE_MS))

function open(name) {
  return DurableStream.create({ url: url(name), contentType: "application/json", batching: false, backoffOptions })
}

// The producer leaves it to its user what to do when nobody answers: here, to ask again, which it makes safe.
async function persistent(...request) {
  for (;;) {
    try {
      const response = await fetch(...request)
      if (response.status !== 503) return response
      await response.arrayBuffer()
    } catch {}
    await pause()
  }
}

// Reads on from where it was whenever the connection breaks; ends when the stream is closed.
async function tail(name, live) {
  const got = []
  let offset = "-1"
  let session
  for (;;) {
    try {
      const current = (session = await stream({ url: url(name), offset, live, backoffOptions, sseResilience }))
      current.subscribeJson((batch) => {
        // A session that broke may still have a batch in its hands; the next one gets it again.
        if (current !== session) return
        got.push(...batch.items)
        offset = batch.offset
      })
      await current.closed
      if (current.streamClosed) break
    } catch (error) {
      if (error instanceof FetchError && error.status < 500) throw error
      session = null
    }
    await pause()
  }
  // The session is closed as soon as it has received everything, which is before it has handed everything on.
  const { offset: last } = await DurableStream.head({ url: url(name) })
  while (offset !== last) await pause()
  return got
}

async function produce() {
  const handle = await open("produced")
  const producer = new IdempotentProducer(handle, "producer", { fetch: persistent, maxBatchBytes: 40, lingerMs: 0 })
  for (let at = 0; at < items.length; at += TOGETHER) {
    for (const item of items.slice(at, at + TOGETHER)) producer.append(JSON.stringify(item))
    await producer.flush()
    say({ acknowledged: Math.min(at + TOGETHER, items.length) })
  }
  await producer.close()
}

// Without a producer, the client asks again by itself; a Stream-Seq keeps what was already done from being done twice.
async function append() {
  const handle = await open("appended")
  for (const item of items) {
    try {
      await handle.append(JSON.stringify(item), { seq: String(item.number).padStart(9, "0") })
    } catch (error) {
      const done = (error instanceof FetchError || error instanceof DurableStreamError) && error.status === 409
      if (!done) throw error
    }
  }
  await handle.close()
}

async function everything(name) {
  return (await stream({ url: url(name), live: true, backoffOptions })).json()
}

// Says what is wrong rather than showing thousands of items.
function check(got, what) {
  const times = new Map(items.map(({ number }) => [number, 0]))
  for (const { number } of got) times.set(number, times.get(number) + 1)
  const lost = [...times].filter(([, count]) => count === 0).map(([number]) => number)
  const repeated = [...times].filter(([, count]) => count > 1).map(([number]) => number)
  assert.deepEqual({ lost, repeated }, { lost: [], repeated: [] }, `${what}: lost ${lost}, repeated ${repeated}`)
  assert.ok(got.every(({ number }, at) => number === at), `${what}: out of order`)
}

const names = ["produced", "appended"]
await Promise.all(names.map(open))
const readers = names.flatMap((name) => ["long-poll", "sse"].map((live) => ({ what: `${name}, ${live}`, got: tail(name, live) })))
await inTime(Promise.all([produce(), append()]), "writing", PATIENCE_MS)
await inTime(Promise.all(readers.map(({ got }) => got)), "the end of the streams", PATIENCE_MS)
for (const name of names) check(await everything(name), name)
for (const { what, got } of readers) check(await got, what)
say({ done: true })
process.exit(0)
