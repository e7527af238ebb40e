// Topics and queues against a server that loses answers and refuses.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import test from "node:test";

import { Client } from "../../../clients/js/topics.js";

/** A server that answers the next requests as it is told: with `[status, body]`, or not at all. */
async function scripted(t, ...answers) {
  const requests = [];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const part of request) body += part;
    requests.push({ method: request.method, path: request.url, headers: request.headers, body: body && JSON.parse(body) });
    const answer = answers.shift();
    if (answer === undefined) return request.socket.destroy();
    response.writeHead(answer[0], { "content-type": "application/json", ...answer[2] });
    response.end(JSON.stringify(answer[1]));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { requests, url: `http://127.0.0.1:${server.address().port}` };
}

const RETRY = { firstMs: 1, maxMs: 5, forMs: 30_000 };
const WRITTEN = { first_seq: 1, last_seq: 1, deduped: true };

test("a write whose answer is lost is repeated with the same idempotency key", async (t) => {
  const { url, requests } = await scripted(t, undefined, [503, { error: { code: "not_ready", message: "soon" } }], [200, WRITTEN]);
  const client = new Client(url, { retry: RETRY, token: () => "secret" });
  assert.deepEqual(await client.topic("a/b").write(1, { tag: "x" }), WRITTEN);
  assert.equal(requests.length, 3);
  assert.equal(new Set(requests.map(({ body }) => body.idempotency_key)).size, 1);
  assert.match(requests[0].body.idempotency_key, /^[0-9a-f-]{32,36}$/);
  assert.equal(requests[0].path, "/v0/topics/a%2Fb?return_seqs=false");
  assert.equal(requests[0].headers.authorization, "Bearer secret");
  assert.deepEqual(requests[0].body.records, [{ data: 1, tag: "x" }]);
});

test("a refused write is not repeated", async (t) => {
  const { url, requests } = await scripted(t, [409, { error: { code: "topic_full", message: "full", topic: "a" } }]);
  const refused = new Client(url, { retry: RETRY }).topic("a").write(1);
  await assert.rejects(refused, { name: "StrandlineError", code: "topic_full", status: 409, message: "full" });
  assert.equal(requests.length, 1);
});

test("a claim is sent once", async (t) => {
  const { url, requests } = await scripted(t, undefined, [200, { claimed: [] }]);
  await assert.rejects(new Client(url, { retry: RETRY }).queue("q", { node: "w" }).claim(), { code: "UNREACHABLE" });
  assert.equal(requests.length, 1);
});

test("a worker survives lost answers and reports each job", async (t) => {
  const state = { head_seq: 1, count: 1, config: { lease_ms: 30_000 } };
  const job = { $seq: 1, $ts: 5, lease_id: "l1", deadline: 9, deliveries: 1, data: "x" };
  const { url, requests } = await scripted(
    t,
    [200, state],
    undefined,
    [200, { claimed: [job] }],
    undefined,
    [200, { acked: 1 }],
  );
  const stop = new AbortController();
  const worker = new Client(url, { retry: RETRY }).queue("q", { node: "w" }).worker(() => stop.abort());
  await worker.run({ signal: stop.signal });
  assert.equal(worker.done, 1);
  const acks = requests.filter(({ path }) => path.endsWith("/ack"));
  assert.deepEqual(acks.map(({ body }) => body), [1, 2].map(() => ({ node: "w", seqs: [1], lease_ids: ["l1"] })));
});

const STANDBY = [503, { error: { code: "standby", message: "this server is a standby" } }];
const NOBODY = "http://127.0.0.1:1";

test("writes and claims go to the server that answers, and stay with it", async (t) => {
  const standby = await scripted(t, STANDBY, STANDBY);
  const leader = await scripted(t, [200, WRITTEN], [200, WRITTEN], [200, { claimed: [] }]);
  const client = new Client([standby.url, NOBODY, `${leader.url}/`], { retry: RETRY });
  for (const number of [1, 2]) assert.deepEqual(await client.topic("a").write(number), WRITTEN);
  assert.deepEqual(await client.queue("q").claim(), []);
  assert.deepEqual([standby.requests.length, leader.requests.length], [1, 3]);
  // A standby has not claimed anything, so the claim goes to the next server.
  const other = await scripted(t, [200, { claimed: [] }]);
  assert.deepEqual(await new Client(`${standby.url}, ${other.url}`).queue("q").claim(), []);
});

test("a write whose answer is lost goes to another server with the same idempotency key", async (t) => {
  const [old, leader] = [await scripted(t, undefined), await scripted(t, [503, { error: { code: "not_ready", message: "" } }], [200, WRITTEN])];
  const client = new Client([old.url, leader.url], { retry: RETRY });
  assert.deepEqual(await client.topic("a").write(1), WRITTEN);
  const keys = [...old.requests, ...leader.requests].map(({ body }) => body.idempotency_key);
  assert.deepEqual([keys.length, new Set(keys).size], [3, 1]);
});

test("a server that cannot write is left, and what it may have done is not repeated", async (t) => {
  const old = await scripted(t, [503, { error: { code: "read_only", message: "replaced" } }]);
  const leader = await scripted(t, [200, { claimed: [] }]);
  const queue = new Client([old.url, leader.url], { retry: RETRY }).queue("q");
  await assert.rejects(queue.claim(), { code: "read_only", server: old.url });
  assert.deepEqual(await queue.claim(), []);
});

test("an error names all servers", async (t) => {
  const standby = await scripted(t, ...Array(1000).fill(STANDBY));
  const client = new Client([NOBODY, standby.url], { retry: { firstMs: 1, maxMs: 5, forMs: 50 } });
  await assert.rejects(client.topic("a").write(1), (error) => {
    assert.match(error.message, /http:\/\/127.0.0.1:1: the server cannot be reached/);
    return error.message.includes(`${standby.url}: this server is a standby`);
  });
});

test("a worker continues with another server", async (t) => {
  const state = { head_seq: 1, count: 1, config: { lease_ms: 30_000 } };
  const job = { $seq: 1, $ts: 5, lease_id: "l1", deadline: 9, deliveries: 1, data: "x" };
  const old = await scripted(t, [200, state], undefined);
  const leader = await scripted(t, [200, { claimed: [job] }], [200, { acked: 1 }]);
  const stop = new AbortController();
  const client = new Client([old.url, leader.url], { retry: RETRY });
  const worker = client.queue("q", { node: "w" }).worker(() => stop.abort());
  await worker.run({ signal: stop.signal });
  assert.deepEqual([worker.done, leader.requests.length], [1, 2]);
});

test("wrong arguments are refused at once", async () => {
  const client = new Client("http://127.0.0.1:1");
  assert.throws(() => client.topic(""), TypeError);
  for (const urls of [[], "http://a,b", ["http://a", ""]]) assert.throws(() => new Client(urls), TypeError);
  assert.throws(() => new Client("127.0.0.1"), TypeError);
  assert.throws(() => new Client("http://a", { key: "x" }), /unknown option key/);
  assert.throws(() => client.topic("a").writeMany([1]), /a record must have the form/);
  assert.throws(() => client.topic("a").write(1, { key: "x" }), /unknown option key/);
  assert.throws(() => client.queue("q").enqueue(1, { delayMs: 1, notBefore: 2 }), /not both/);
  assert.throws(() => client.queue("q").worker("f"), /must be a function/);
  assert.throws(() => client.queue("q").worker(() => {}, { concurrency: 0 }), /concurrency/);
});
