// The published client for Node, told what to do by the test that started it: lines of JSON in, lines of JSON out.
import { createInterface } from "node:readline"
import { AppendLogCursor, StarfishClient, SyncManager, fetchServerConfig } from "@drakkar.software/starfish-client"
import { createRetryFetch } from "@drakkar.software/starfish-client/fetch"
import { deriveRootIdentity, mintDeviceCap } from "@drakkar.software/starfish-identities"
import {
  addCollectionRecipient,
  addRecipient,
  createKeyring,
  createKeyringEncryptor,
  ensureKeyringRecipient,
  listRecipients,
  removeRecipient,
  rotateEpoch,
} from "@drakkar.software/starfish-keyring"
import { signDocAuthor, verifyDocAuthor } from "@drakkar.software/starfish-protocol"
import {
  addMemberEntry,
  createPublicLink,
  listMembers,
  mintMemberCap,
  parsePublicLink,
  removeMemberEntry,
} from "@drakkar.software/starfish-sharing"

const cursors = new Map()
const managers = new Map()

// Whoever `as` is: a certificate with its key, or a link with the key of whoever follows it, or nobody.
function client({ url, namespace, as, fetch }) {
  const options = { baseUrl: url }
  if (fetch) options.fetch = fetch
  if (namespace) options.namespace = namespace
  if (as) {
    const cap = as.link ? parsePublicLink(as.link).cap : as.cap
    const held = { cap, devEdPrivHex: as.priv }
    if (cap.kind === "audience") held.pubHex = as.pub
    options.capProvider = { getCap: async () => held }
  }
  return new StarfishClient(options)
}

async function encryptor(keys) {
  if (!keys) return undefined
  const recipient = { kemPubHex: keys.kemPub, kemPrivHex: keys.kemPriv }
  return createKeyringEncryptor(keys.keyring, recipient, { trustedAdders: keys.trusted })
}

// The names of options are told with underscores.
const camel = (options) =>
  Object.fromEntries(
    Object.entries(options).map(([name, value]) => [
      name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase()),
      name === "verify_author" && typeof value === "object" ? camel(value) : value,
    ]),
  )

// Whoever changes a keyring on the server.
const changer = (who) => ({ edPriv: who.priv, edPub: who.pub, kemPriv: who.kemPriv })
const trusting = (who) => ({ trustedAdders: [who.pub] })

const adder = (who) => ({ edPrivHex: who.priv, edPubHex: who.pub })
const keyed = (recipients) => recipients.map((subKemHex) => ({ subKemHex }))

const doing = {
  root: async ({ passphrase }) => deriveRootIdentity(passphrase),
  device: async ({ issuer, subject, scope }) =>
    mintDeviceCap(issuer.priv, issuer.pub, { edPubHex: subject.pub, kemPubHex: subject.kemPub }, scope),
  member: async ({ issuer, subject, collection, scope }) =>
    mintMemberCap(
      issuer.priv,
      issuer.pub,
      { edPubHex: subject.pub, kemPubHex: subject.kemPub, userIdHex: subject.userId },
      collection,
      scope,
    ),
  link: async ({ issuer, collection, scope, audience }) => {
    const options = { issEdPrivHex: issuer.priv, issEdPubHex: issuer.pub, collection, scope }
    if (audience) options.allowedIdentities = audience
    return (await createPublicLink(options)).fragment
  },
  append: async ({ key, data, ts, keys, ...where }) => {
    const sealed = keys ? await (await encryptor(keys)).encrypt(data) : data
    return client(where).append(`/push/${key}`, sealed, ts == null ? {} : { ts })
  },
  // The answer to the first attempt is lost, and the client's own wrapper sends the request again.
  append_lossy: async ({ key, data, ...where }) => {
    const real = globalThis.fetch
    let lost = 0
    globalThis.fetch = async (...request) => {
      const answer = await real(...request)
      if (lost++) return answer
      throw new TypeError("fetch failed")
    }
    try {
      const fetch = createRetryFetch({ initialDelayMs: 1 })
      return await client({ ...where, fetch }).append(`/push/${key}`, data)
    } finally {
      globalThis.fetch = real
    }
  },
  append_many: async ({ key, datas, ...where }) => {
    const speaking = client(where)
    return Promise.all(datas.map((data) => speaking.append(`/push/${key}`, data)))
  },
  append_anonymous: async ({ key, data, signer, ...where }) => {
    const signs = { edPubHex: signer.pub, edPrivHex: signer.priv }
    return client(where).appendAnonymous(`/push/${key}`, data, signs)
  },
  pull: async ({ key, bounds, ...where }) => client(where).pull(`/pull/${key}`, camel(bounds)),
  batch: async ({ names, params, append_params, ...where }) =>
    client(where).batchPull(names, { params, appendParams: append_params }),
  batch_many: async ({ name, requests, ...where }) => client(where).batchPullManyAppend(name, requests),
  config: async ({ url }) => fetchServerConfig(url),
  cursor: async ({ key, options, keys, ...where }) => {
    const given = { client: client(where), pullPath: `/pull/${key}`, ...camel(options ?? {}) }
    if (keys) given.encryptor = await encryptor(keys)
    cursors.set(cursors.size, new AppendLogCursor(given))
    return cursors.size - 1
  },
  cursor_pull: async ({ cursor }) => cursors.get(cursor).pull(),
  cursor_items: async ({ cursor }) => cursors.get(cursor).getItems(),
  cursor_decrypted: async ({ cursor }) => cursors.get(cursor).getDecryptedItems(),
  cursor_checkpoint: async ({ cursor }) => cursors.get(cursor).getCheckpoint(),
  create_keyring: async ({ by, recipients }) => (await createKeyring(adder(by), keyed(recipients))).keyring,
  add_recipient: async ({ document, by, content_key, recipient }) =>
    addRecipient(document, adder(by), Buffer.from(content_key, "hex"), recipient),
  push: async ({ key, data, base, by, ...where }) => {
    const author = by ? await signDocAuthor(key, data, by.pub, by.priv) : undefined
    return client(where).push(`/push/${key}`, data, base ?? null, author)
  },
  pull_document: async ({ key, with_keyring, ...where }) =>
    client(where).pull(`/pull/${key}`, with_keyring ? { withKeyring: true } : undefined),
  is_by: async ({ key, data, author, signature }) => verifyDocAuthor(key, data, author, signature),
  share: async ({ key, by, recipient, ...where }) => {
    await addCollectionRecipient(client(where), key, { subKem: recipient }, changer(by), trusting(by))
  },
  unshare: async ({ key, by, recipients, ...where }) =>
    removeRecipient(client(where), key, recipients, changer(by), trusting(by)),
  shared_with: async ({ key, by, ...where }) => listRecipients(client(where), key, trusting(by)),
  add_member: async ({ key, cap, ...where }) => {
    await addMemberEntry(client(where), key, cap)
  },
  members: async ({ key, ...where }) => (await listMembers(client(where), key)).map((entry) => entry.sub),
  remove_member: async ({ key, nonce, ...where }) => removeMemberEntry(client(where), key, nonce),
  sync: async ({ key, keys, ...where }) => {
    const given = { client: client(where), pullPath: `/pull/${key}`, pushPath: `/push/${key}` }
    managers.set(managers.size, new SyncManager({ ...given, encryptor: await encryptor(keys) }))
    return managers.size - 1
  },
  sync_push: async ({ manager, data }) => managers.get(manager).push(data),
  sync_pull: async ({ manager }) => {
    await managers.get(manager).pull()
    return managers.get(manager).getData()
  },
  ensure_all: async ({ key, by, recipients, ...where }) => {
    const options = { maxAttempts: recipients.length, recipientOpts: trusting(by) }
    const ensuring = recipients.map((subKem) =>
      ensureKeyringRecipient(client(where), key, { subKem }, changer(by), options),
    )
    return Promise.all(ensuring)
  },
  rotate: async ({ document, by, retained }) => (await rotateEpoch(document, adder(by), keyed(retained))).keyring,
}

function failure(error) {
  if (error.name === "ConflictError") {
    return { status: 409, body: JSON.stringify({ error: "hash_mismatch", currentHash: error.currentHash }) }
  }
  if (error.status !== undefined) return { status: error.status, body: error.body ?? error.message }
  if (error.name === "AppendAuthorError") return { ts: error.ts }
  return { message: String(error.message ?? error) }
}

for await (const line of createInterface({ input: process.stdin })) {
  const { what, ...given } = JSON.parse(line)
  let answer
  try {
    answer = { done: (await doing[what](given)) ?? null }
  } catch (error) {
    answer = { failed: failure(error) }
  }
  process.stdout.write(JSON.stringify(answer) + "\n")
}
