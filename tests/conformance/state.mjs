// node state.mjs URL NAME LIVE: a state stream, materialised by the published packages while it changes.
import assert from "node:assert/strict"
import { DurableStream, stream } from "@durable-streams/client"
import { MaterializedState, createStateSchema, isChangeEvent } from "@durable-streams/state"
import { createStreamDB } from "@durable-streams/state/db"
import { inTime, listen, say } from "./conversation.mjs"

const [base, name, live] = process.argv.slice(2)
const url = `${base}/v1/stream/state/${name}`

// Standard Schema, by hand: whatever has a name is fine.
const named = {
  "~standard": {
    version: 1,
    vendor: "test",
    validate: (value) => (value?.name ? { value } : { issues: [{ message: "a name is missing" }] }),
  },
}
const schema = createStateSchema({
  users: { schema: named, type: "user", primaryKey: "id" },
  rooms: { schema: named, type: "room", primaryKey: "id" },
})

let transactions = 0
async function change(handle, db, make) {
  const txid = `transaction-${++transactions}`
  await handle.append(JSON.stringify(make({ txid })))
  await db?.utils.awaitTxId(txid, 20_000)
}

const rows = (collection) => [...collection.toArray].map(({ id, name }) => ({ id, name })).sort((a, b) => a.id.localeCompare(b.id))

const handle = await DurableStream.create({ url, contentType: "application/json" })
// Whoever listens may give the stream a profile before anything is in it.
say({ created: url })
await listen()

await change(handle, null, (headers) => schema.users.insert({ value: { id: "1", name: "Ada" }, headers }))
await change(handle, null, (headers) => schema.users.insert({ value: { id: "2", name: "Ben" }, headers }))

const db = createStreamDB({ streamOptions: { url, contentType: "application/json" }, live, state: schema })
await inTime(db.preload(), "what was there before")
assert.deepEqual(rows(db.collections.users), [{ id: "1", name: "Ada" }, { id: "2", name: "Ben" }])

await change(handle, db, (headers) => schema.users.update({ value: { id: "1", name: "Ada L." }, headers }))
await change(handle, db, (headers) => schema.rooms.insert({ value: { id: "r", name: "Attic" }, headers }))
await change(handle, db, (headers) => schema.users.delete({ key: "2", headers }))
await change(handle, db, (headers) => schema.users.insert({ value: { id: "3", name: "Cleo" }, headers }))
const users = [{ id: "1", name: "Ada L." }, { id: "3", name: "Cleo" }]
assert.deepEqual(rows(db.collections.users), users)
assert.deepEqual(rows(db.collections.rooms), [{ id: "r", name: "Attic" }])
db.close()

// The same state, from the whole history and without a database.
const state = new MaterializedState()
for (const event of await (await stream({ url, live: false })).json()) if (isChangeEvent(event)) state.apply(event)
assert.deepEqual([...state.getType("user").values()].sort((a, b) => a.id.localeCompare(b.id)), users)
say({ done: true })
process.exit(0)
