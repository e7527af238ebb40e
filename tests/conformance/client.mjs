// node client.mjs URL SCENARIO: one of the things that people do with the published client.
import assert from "node:assert/strict"
import { randomBytes } from "node:crypto"
import { DurableStream, IdempotentProducer, StaleEpochError, stream } from "@durable-streams/client"
import { inTime } from "./conversation.mjs"

const [base, scenario] = process.argv.slice(2)
const JSON_TYPE = "application/json"
// Nothing is wrong with the server here: what it refuses is told, not tried again for ever.
const backoffOptions = { initialDelay: 100, maxDelay: 1000, multiplier: 2, maxRetries: 2 }
const url = (name) => `${base}/v1/stream/client/${scenario}/${name}`
const numbered = (count, from = 0) => Array.from({ length: count }, (_, at) => ({ number: from + at, text: "ünï" }))

async function create(name, contentType, more = {}) {
  return DurableStream.create({ url: url(name), contentType, backoffOptions, ...more })
}

function read(name, options) {
  return stream({ url: url(name), backoffOptions, ...options })
}

// Answer after answer until there is no more. (Without live the client reads one answer and no other.)
async function everything(name, offset = "-1") {
  return (await read(name, { offset, live: true })).json()
}

// All items of a live session, until the stream is closed. Calls `after[n]` once n items have come.
async function tailed(name, live, after = {}) {
  const items = []
  for await (const item of (await read(name, { live })).jsonStream()) {
    items.push(item)
    await after[items.length]?.()
  }
  return items
}

function tailing(live) {
  return async () => {
    const writer = await create("tail", JSON_TYPE)
    const items = numbered(40)
    for (const item of items.slice(0, 10)) await writer.append(JSON.stringify(item))
    const got = await tailed("tail", live, {
      10: async () => {
        for (const item of items.slice(10, 30)) await writer.append(JSON.stringify(item))
      },
      30: async () => {
        await Promise.all(items.slice(30).map((item) => writer.append(JSON.stringify(item))))
        await writer.close()
      },
    })
    assert.deepEqual(got, items)
  }
}

const scenarios = {
  async appending() {
    const writer = await create("plain", JSON_TYPE)
    const items = numbered(150)
    for (const item of items.slice(0, 20)) await writer.append(JSON.stringify(item))
    const { offset: middle } = await writer.head()
    await Promise.all(items.slice(20).map((item) => writer.append(JSON.stringify(item))))
    assert.deepEqual(await everything("plain"), items)
    assert.deepEqual(await everything("plain", middle), items.slice(20))
    assert.deepEqual(await everything("plain", "now"), [])
    await assert.rejects(writer.append("{not json"))
    assert.equal((await everything("plain")).length, items.length)
    assert.deepEqual(await (await read("plain", { live: false })).json(), items)
    await writer.delete()
    assert.deepEqual(await writer.head(), { exists: false })
  },

  async "catching-up"() {
    const items = numbered(60_000)
    const post = (name, some) =>
      fetch(url(name), { method: "POST", headers: { "content-type": JSON_TYPE }, body: JSON.stringify(some) })
    await create("all", JSON_TYPE)
    assert.equal((await post("all", items.slice(0, 3500))).status, 204)
    const session = await read("all", { live: false })
    assert.deepEqual(await session.json(), items.slice(0, 3500))
    assert.equal(session.upToDate, true)
    // More records than one answer has: the client goes on, if it is told to.
    for (let at = 3500; at < items.length; at += 20_000) await post("all", items.slice(at, at + 20_000))
    const first = await read("all", { live: false })
    const some = await first.json()
    assert.equal(first.upToDate, false)
    const rest = await (await read("all", { offset: first.offset, live: false })).json()
    assert.deepEqual([...some, ...rest], items)
    assert.deepEqual(await everything("all"), items)
  },

  async bytes() {
    const pieces = Array.from({ length: 20 }, (_, at) => new Uint8Array(randomBytes(10_000 + at)))
    const writer = await create("bytes", "application/octet-stream", { batching: false })
    for (const piece of pieces) await writer.append(piece)
    const whole = await (await read("bytes", { live: true })).body()
    assert.ok(Buffer.concat(pieces).equals(Buffer.from(whole)))
    const live = []
    const session = await read("bytes", { live: "sse" })
    const arrived = new Promise((resolve) => {
      session.subscribeBytes((chunk) => {
        live.push(chunk.data)
        if (Buffer.concat(live).length >= whole.length + pieces[0].length) resolve()
      })
    })
    await writer.append(pieces[0])
    await inTime(arrived, "the live bytes")
    assert.ok(Buffer.concat([...pieces, pieces[0]]).equals(Buffer.concat(live)))
  },

  async text() {
    const writer = await create("text", "text/plain", { batching: false })
    const lines = ["one\n", "two\r\nthree", "\n\nevent: control\ndata: {}\n\n", "ünï ☂\n"]
    for (const line of lines) await writer.append(line)
    assert.equal(await (await read("text", { live: false })).text(), lines.join(""))
  },

  async producing() {
    const handle = await create("produced", JSON_TYPE)
    const items = numbered(2000)
    const errors = []
    const producer = new IdempotentProducer(handle, "one", {
      maxBatchBytes: 2000,
      lingerMs: 0,
      onError: (error) => errors.push(error),
    })
    for (const item of items) producer.append(JSON.stringify(item))
    await producer.flush()
    assert.ok(producer.nextSeq > 10, "the batches were meant to be many")
    await producer.detach()

    for (const [name, options] of Object.entries({ second: { epoch: 1 }, third: { autoClaim: true } })) {
      const successor = new IdempotentProducer(handle, "one", { ...options, onError: (error) => errors.push(error) })
      successor.append(JSON.stringify({ name }))
      await successor.flush()
      await successor.detach()
    }
    assert.deepEqual(errors, [])

    const fenced = []
    const late = new IdempotentProducer(handle, "one", { epoch: 1, onError: (error) => fenced.push(error) })
    late.append(JSON.stringify({ never: true }))
    await late.flush().catch(() => {})
    assert.ok(fenced[0] instanceof StaleEpochError, `fenced with ${fenced[0]}`)
    assert.deepEqual(await everything("produced"), [...items, { name: "second" }, { name: "third" }])
  },

  "tailing-long-poll": tailing("long-poll"),
  "tailing-sse": tailing("sse"),
  "tailing-auto": tailing(true),

  async forking() {
    const source = await create("source", JSON_TYPE)
    const items = numbered(30)
    for (const item of items.slice(0, 10)) await source.append(JSON.stringify(item))
    const { offset } = await source.head()
    for (const item of items.slice(10, 20)) await source.append(JSON.stringify(item))
    const headers = { "Stream-Forked-From": new URL(url("source")).pathname, "Stream-Fork-Offset": offset }
    await create("fork", JSON_TYPE, { headers })
    const fork = new DurableStream({ url: url("fork"), contentType: JSON_TYPE })
    assert.deepEqual(await everything("fork"), items.slice(0, 10))
    for (const item of items.slice(20)) await fork.append(JSON.stringify(item))
    await source.append(JSON.stringify({ only: "source" }))
    const live = tailed("fork", "sse")
    await fork.close()
    const both = [...items.slice(0, 10), ...items.slice(20)]
    assert.deepEqual(await live, both)
    assert.deepEqual(await everything("fork"), both)
    assert.deepEqual(await everything("fork", offset), items.slice(20))
    assert.deepEqual(await everything("source"), [...items.slice(0, 20), { only: "source" }])
    await source.delete()
    assert.deepEqual(await everything("fork"), both)
  },

  async closing() {
    const writer = await create("closed", JSON_TYPE)
    await writer.append(JSON.stringify({ number: 1 }))
    const { finalOffset } = await writer.close({ body: JSON.stringify({ number: 2 }) })
    const head = await writer.head()
    assert.equal(head.streamClosed, true)
    assert.equal(head.offset, finalOffset)
    assert.equal((await writer.close()).finalOffset, finalOffset)
    await assert.rejects(writer.append(JSON.stringify({ number: 3 })), { status: 409 })
    for (const live of ["long-poll", "sse"]) assert.deepEqual(await tailed("closed", live), [{ number: 1 }, { number: 2 }])

    const handle = await create("produced", JSON_TYPE)
    const producer = new IdempotentProducer(handle, "closer")
    producer.append(JSON.stringify({ number: 1 }))
    const result = await producer.close(JSON.stringify({ number: 2 }))
    assert.deepEqual(await producer.close(), result)
    assert.deepEqual(await everything("produced"), [{ number: 1 }, { number: 2 }])
  },
}

await inTime(scenarios[scenario](), scenario, 50_000)
process.exit(0)
