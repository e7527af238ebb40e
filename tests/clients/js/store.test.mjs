// The store against a server that does as it is told. Nothing here waits for time: only for what is to be seen.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { afterEach, beforeEach, test } from "node:test";
import { connect, createFeed, createLog, StrandlineError } from "../../../clients/js/strandline.js";
import { HandServer } from "./hand_server.mjs";

const QUICK = { firstMs: 1, maxMs: 5, forMs: 30_000 };
let server;
let logs;

beforeEach(async () => {
  server = await HandServer.start();
  logs = [];
});

afterEach(async () => {
  for (const log of logs) log.close();
  await server.stop();
});

function open(options = {}) {
  return opened(createLog(server.url, { table: "vote", parent: "p", user: "me", retry: QUICK, ...options }));
}

function opened(log) {
  log.views = [];
  log.subscribe(() => log.views.push(log.getSnapshot()));
  logs.push(log);
  return log;
}

/** Wait until this is so. Looks after every change, and every now and then for what is not the store's. */
async function until(isSo, what) {
  for (let look = 0; look < 5000; look++) {
    if (isSo()) return;
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  assert.fail(`never so: ${what ?? isSo}`);
}

const stands = (log) => until(() => log.isLive && !log.isLoading, "live and loaded");
const texts = (log) => log.data.map((row) => row.text);
const fill = (count) => {
  for (let number = 1; number <= count; number++) server.append("p", { text: `row ${number}` });
};

// --- loading ---

test("the newest rows are loaded, newest first, and further ones when asked for", async () => {
  fill(7);
  const log = open({ pageSize: 3 });
  assert.deepEqual(log.getSnapshot(), { data: [], isLoading: true, hasMore: false, isLive: false, error: null });
  await stands(log);
  assert.deepEqual(texts(log), ["row 7", "row 6", "row 5"]);
  assert.equal(log.hasMore, true);
  const loading = log.loadMore();
  assert.equal(log.isLoading, true);
  await loading;
  assert.deepEqual(texts(log), ["row 7", "row 6", "row 5", "row 4", "row 3", "row 2"]);
  await log.loadMore(10);
  assert.equal(log.data.length, 7);
  assert.equal(log.hasMore, false);
  const before = server.asked("list").length;
  await log.loadMore();
  assert.equal(server.asked("list").length, before);
});

test("an empty page that is not the last one is gone past", async () => {
  fill(3);
  server.next("list", (serve, response) => {
    response.end(JSON.stringify({ page: [], isDone: false, continueCursor: "3" }));
  });
  const log = open({ live: false });
  await until(() => !log.isLoading);
  assert.deepEqual(texts(log), ["row 2", "row 1"]);
});

test("a snapshot is the same object until something changes, and so are the rows that do not", async () => {
  fill(2);
  const log = open();
  await stands(log);
  const before = log.getSnapshot();
  assert.equal(log.getSnapshot(), before);
  server.update("p:1", { text: "edited" });
  await until(() => log.getSnapshot() !== before);
  assert.equal(log.data[0], before.data[0]);
  assert.notEqual(log.data[1], before.data[1]);
});

test("a first load that fails is tried again, and says so meanwhile", async () => {
  fill(1);
  server.refuse("list", 503, { code: "UNAVAILABLE", message: "come again" });
  const log = open();
  await stands(log);
  assert.deepEqual(texts(log), ["row 1"]);
  assert.equal(log.error, null);
  assert.ok(log.views.some((view) => view.error?.code === "UNAVAILABLE" && view.isLoading));
});

test("a first load that is refused is not tried again", async () => {
  for (const op of ["live", "list"]) server.refuse(op, 403, { code: "FORBIDDEN", message: "not for you", table: "vote" });
  const log = open();
  await until(() => !log.isLoading);
  assert.equal(log.error.code, "FORBIDDEN");
  assert.equal(log.error.status, 403);
  assert.deepEqual(log.error.detail, { table: "vote" });
  assert.equal(log.isLive, false);
});

test("a page in between that answers in no words of ours becomes an error all the same", async () => {
  server.next("append", (serve, response) => response.writeHead(418).end("<html>"));
  const log = open({ live: false });
  await assert.rejects(log.append({ payload: { text: "x" } }), { code: "HTTP_418", status: 418 });
});

test("who asks is told in headers, any name, and public rows are asked for under pub", async () => {
  const log = open({ user: "Zoë Ž", token: "secret", public: true });
  await stands(log);
  for (const { headers, path } of server.requests) {
    assert.equal(headers.authorization, "Bearer secret");
    assert.equal(Buffer.from(headers["strandline-user"], "latin1").toString(), "Zoë Ž");
    assert.match(path, /^\/tables\/vote\/pub\/(live|list)$/);
  }
});

/** Another way to the server, which can vanish, or answer as a standby does. */
async function door() {
  const found = { isStandby: false, requests: 0 };
  const http = createServer((request, response) => {
    found.requests++;
    if (!found.isStandby) return server.answer(request, response);
    response.writeHead(503, { "content-type": "application/json" });
    const detail = found.leader && { leader: new URL(found.leader).host };
    response.end(JSON.stringify({ error: { code: "STANDBY", message: "this server is a standby", detail } }));
  });
  http.listen(0, "127.0.0.1");
  await once(http, "listening");
  found.vanish = () => {
    http.closeAllConnections();
    http.close();
  };
  found.url = `http://127.0.0.1:${http.address().port}`;
  return found;
}

test("a log continues with another server where it was", async () => {
  fill(2);
  const front = await door();
  const log = opened(createLog(connect([front.url, server.url], { user: "me" }).vote, { parent: "p", retry: QUICK }));
  await stands(log);
  const lists = server.asked("list").length;
  front.vanish();
  server.append("p", { text: "row 3" });
  await log.append({ payload: { text: "row 4" } });
  await until(() => log.data.length === 4 && log.isLive);
  assert.deepEqual(texts(log), ["row 4", "row 3", "row 2", "row 1"]);
  assert.equal(server.asked("list").length, lists);
});

test("a change that is sent once goes to the server that is not a standby", async () => {
  fill(1);
  const front = await door();
  const log = opened(createLog(`${front.url},${server.url}`, { table: "vote", parent: "p", user: "me", live: false }));
  await until(() => !log.isLoading);
  front.isStandby = true;
  const before = front.requests;
  await log.rm("p:1");
  await log.append({ payload: { text: "row 2" } });
  assert.deepEqual(texts(log), ["row 2"]);
  assert.equal(front.requests, before + 1);
  front.vanish();
});

test("the leader that a standby names is asked next, unless it does not answer", async () => {
  fill(1);
  const [front, middle] = [await door(), await door()];
  Object.assign(front, { isStandby: true, leader: server.url });
  const open = (...urls) => opened(createLog(connect(urls, { user: "me" }).vote, { parent: "p", live: false, retry: QUICK }));
  const log = open(front.url, middle.url, server.url);
  await until(() => !log.isLoading);
  assert.deepEqual([texts(log), front.requests, middle.requests], [["row 1"], 1, 0]);
  front.leader = middle.url;
  middle.vanish();
  const other = open(middle.url, front.url, server.url);
  await until(() => !other.isLoading);
  assert.deepEqual([texts(other), front.requests], [["row 1"], 2]);
  front.vanish();
});

test("nonsense is refused before anything is sent", () => {
  assert.throws(() => createLog(server.url, { table: "vote" }), TypeError);
  assert.throws(() => createLog(server.url, { table: "", parent: "p" }), TypeError);
  assert.throws(() => createLog(server.url, { table: "vote", parent: "p", user: "a\nb" }), TypeError);
  assert.throws(() => createLog(server.url, { table: "vote", parent: "p", pageSize: 0 }), TypeError);
  assert.throws(() => createLog(server.url, { table: "vote", parent: "p", token: 7 }), TypeError);
  assert.throws(() => createLog(server.url, { table: "vote", parent: "p", key: "secret" }), /unknown option key; expected .*token/);
  assert.throws(() => createLog(undefined, { table: "vote", parent: "p" }), TypeError);
  assert.throws(() => createLog(connect(server.url).vote, { table: "vote", parent: "p" }), TypeError);
  assert.throws(() => connect(server.url, { key: "secret" }), TypeError);
  assert.throws(() => connect("127.0.0.1:4720"), /the URL needs http:\/\/ or https:\/\//);
  assert.throws(() => createLog("/here", { table: "vote", parent: "p" }), /the URL needs http/);
  assert.deepEqual(server.requests, []);
});

// --- a connection and its tables ---

test("a table of a connection is a log as well, and the same table every time", async () => {
  fill(1);
  const api = connect(`${server.url}/`, { user: "me", token: "secret", retry: QUICK });
  assert.equal(api.vote, api.vote);
  assert.deepEqual([api.vote.name, api["chat-message"].url], ["vote", `${server.url}/tables/chat-message`]);
  assert.equal(await api, api, "a connection is no promise");
  assert.deepEqual(server.requests, []);
  const log = opened(createLog(api.vote, { parent: "p", pageSize: 3 }));
  await stands(log);
  await log.append({ payload: { text: "mine" } });
  await until(() => log.data.length === 2 && !log.data[0].pending);
  assert.equal(log.views[0].data[0]?.userId ?? "me", "me");
  for (const { headers, path } of server.requests) {
    assert.deepEqual([headers.authorization, headers["strandline-user"]], ["Bearer secret", "me"]);
    assert.match(path, /^\/tables\/vote\/(append|auth\/(live|list|read))$/);
  }
});

test("a function provides the token of every request", async () => {
  let token = "";
  const api = connect(server.url, { token: () => token, retry: QUICK });
  const log = opened(createLog(api.vote, { parent: "p" }));
  await stands(log);
  for (const user of ["bob", "cat"]) {
    token = user;
    await log.append({ payload: { text: user } });
  }
  assert.deepEqual(server.asked("append").map(({ headers }) => headers.authorization), ["Bearer bob", "Bearer cat"]);
  server.cut();
  await until(() => server.asked("live").length > 1);
  assert.deepEqual(server.asked("live").map(({ headers }) => headers.authorization), [undefined, "Bearer cat"]);
});

test("a refused request is sent once more if the function gives another token", async () => {
  const tokens = ["expired"];
  const log = open({ token: async () => tokens.shift() ?? "fresh", live: false });
  await until(() => !log.isLoading);
  tokens.push("expired");
  server.token = "fresh";
  assert.equal((await log.append({ payload: { text: "mine" } })).seq, 1);
  assert.equal(server.asked("append").length, 2);
  server.token = "another";
  await assert.rejects(log.append({ payload: { text: "mine" } }), { code: "NOT_AUTHENTICATED", status: 401 });
  assert.equal(server.asked("append").length, 3, "the same token is not sent again");
});

test("a token that is refused twice is an error", async () => {
  server.token = "another";
  let asked = 0;
  const log = open({ token: () => `token ${++asked}`, live: false });
  await until(() => !log.isLoading);
  assert.deepEqual([log.error.code, log.error.status, asked], ["NOT_AUTHENTICATED", 401, 2]);
  const text = open({ token: "a text", live: false });
  await until(() => !text.isLoading);
  assert.equal(text.error.status, 401);
  assert.equal(server.asked("list").length, 3, "a text is not asked for again");
});

test("a live connection goes on when the function gives a token that is accepted again", async () => {
  let token = "mine";
  server.token = "mine";
  const [log, fixed] = [open({ token: () => token }), open({ token })];
  await stands(log);
  await stands(fixed);
  server.token = "new";
  server.cut();
  server.append("p", { text: "meanwhile" });
  await until(() => log.error?.status === 401 && fixed.error?.status === 401);
  assert.equal(log.isLive, false);
  token = "new";
  await stands(log);
  await until(() => log.data.length === 1);
  assert.deepEqual([texts(log), log.error], [["meanwhile"], null]);
  assert.deepEqual([fixed.isLive, fixed.error.status, texts(fixed)], [false, 401, []]);
});

test("a log whose first token is refused loads when the function gives another one", async () => {
  fill(2);
  let token = "expired";
  server.token = "fresh";
  const log = open({ token: () => token });
  await until(() => log.error?.status === 401 && !log.isLoading);
  token = "fresh";
  await until(() => log.data.length === 2 && log.isLive && log.error === null);
});

test("while a token cannot be had, an append waits", async () => {
  let isOut = true;
  const token = async () => {
    if (isOut) throw new Error("the sign-in does not answer");
    return "secret";
  };
  const log = open({ token });
  await until(() => log.error?.code === "NO_TOKEN");
  const answer = log.append({ payload: { text: "mine" } });
  assert.equal(log.data[0].pending, true);
  assert.deepEqual(server.requests, []);
  isOut = false;
  assert.equal((await answer).seq, 1);
  await stands(log);
  assert.equal(log.error, null);
});

test("no token is no header", async () => {
  const log = open({ token: () => null });
  await stands(log);
  assert.ok(server.requests.every(({ headers }) => !("authorization" in headers)));
});

// --- live ---

test("what others do is seen", async () => {
  fill(2);
  const log = open();
  await stands(log);
  server.append("p", { text: "row 3" });
  await until(() => texts(log)[0] === "row 3");
  server.update("p:1", { text: "first" });
  await until(() => texts(log)[2] === "first");
  server.rm("p:2");
  await until(() => log.data.length === 2);
  server.restore("p:2");
  await until(() => log.data.length === 3);
  assert.deepEqual(texts(log), ["row 3", "row 2", "first"]);
  server.purge("p");
  await until(() => log.data.length === 0);
  server.restoreAll("p");
  await until(() => log.data.length === 3);
});

test("what happened while the connection was cut off is told after it, once", async () => {
  fill(3);
  const log = open();
  await stands(log);
  const release = server.hold("live");
  server.cut();
  await until(() => !log.isLive);
  server.append("p", { text: "row 4" });
  server.rm("p:1");
  server.update("p:2", { text: "second" });
  release();
  await until(() => log.isLive);
  assert.deepEqual(texts(log), ["row 4", "row 3", "second"]);
  assert.equal(server.asked("list").length, 1);
  assert.equal(server.asked("live").at(-1).query.after, "3");
});

test("a cursor that is too old means that everything is loaded anew", async () => {
  fill(3);
  const log = open();
  await stands(log);
  const release = server.hold("live");
  server.cut();
  await until(() => !log.isLive);
  server.rm("p:1");
  server.append("p", { text: "row 4" });
  server.forgotten = server.story.length;
  release();
  await until(() => log.isLive && texts(log)[0] === "row 4");
  await until(() => log.data.length === 3);
  assert.deepEqual(texts(log), ["row 4", "row 3", "row 2"]);
  assert.equal(log.error, null);
});

test("a reload keeps as many rows as were shown", async () => {
  fill(9);
  const log = open({ pageSize: 3 });
  await stands(log);
  await log.loadMore();
  assert.equal(log.data.length, 6);
  server.tell("restoreAll", { parent: "p" });
  await until(() => server.asked("list").length === 3);
  await until(() => !log.isLoading && log.data.length === 6);
});

test("what happens while a page is on its way is not undone by the page", async () => {
  fill(4);
  const log = open({ pageSize: 2 });
  await stands(log);
  let send;
  server.next("list", async (serve, response) => {
    const before = JSON.stringify(server.list({ limit: 2, cursor: "3" }));
    await new Promise((resolve) => (send = resolve));
    response.end(before);
  });
  const loading = log.loadMore();
  await until(() => send);
  server.rm("p:1");
  server.update("p:2", { text: "second" });
  server.append("p", { text: "row 5" });
  await until(() => texts(log)[0] === "row 5");
  send();
  await loading;
  assert.deepEqual(texts(log), ["row 5", "row 4", "row 3", "second"]);
});

test("what happens while everything is read anew is not undone by it", async () => {
  fill(3);
  const log = open();
  await stands(log);
  let send;
  server.next("list", async (serve, response) => {
    const before = JSON.stringify(server.list({ limit: 50 }));
    await new Promise((resolve) => (send = resolve));
    response.end(before);
  });
  server.restoreAll("p");
  await until(() => send);
  server.rm("p:1");
  server.append("p", { text: "row 4" });
  await until(() => texts(log)[0] === "row 4");
  send();
  await log.loadMore(); // comes in turn, after it
  assert.deepEqual(texts(log), ["row 4", "row 3", "row 2"]);
});

test("rows further back than what is loaded are not shown by chance", async () => {
  fill(5);
  const log = open({ pageSize: 2 });
  await stands(log);
  server.update("p:1", { text: "far away" });
  server.update("p:5", { text: "near" });
  await until(() => texts(log)[0] === "near");
  assert.deepEqual(texts(log), ["near", "row 4"]);
  await log.loadMore(10);
  assert.deepEqual(texts(log), ["near", "row 4", "row 3", "row 2", "far away"]);
});

test("events arrive whole however they are cut into pieces", async () => {
  server.next("live", async (serve, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const row = { text: "zwölf ☀", id: "p:1", parent: "p", seq: 1, userId: null, createdAt: 1, updatedAt: 1 };
    const story = `event: ready\r\nid: 0\r\ndata: {"cursor":"0"}\r\n\r\n: \n\nid: 1\nevent: append\ndata: ${JSON.stringify(row)}\n\n`;
    for (const byte of Buffer.from(story)) {
      response.write(Buffer.from([byte]));
      await new Promise(setImmediate);
    }
  });
  const log = open();
  await until(() => texts(log)[0] === "zwölf ☀");
});

// --- appending ---

test("an appended row is shown at once, and once only, when the answer is first", async () => {
  const log = open();
  await stands(log);
  server.cut(); // nobody tells of it
  const stop = server.hold("live");
  const answer = log.append({ payload: { text: "mine" } });
  assert.equal(log.data[0].pending, true);
  assert.equal(log.data[0].seq, null);
  assert.equal(log.data[0].userId, "me");
  const { id, seq, created } = await answer;
  assert.deepEqual([id, seq, created], ["p:1", 1, true]);
  await until(() => !log.data[0].pending);
  assert.equal(log.data[0].userId, "somebody", "the row as the server has it");
  stop();
  await until(() => log.isLive);
  assert.deepEqual(texts(log), ["mine"]);
  assert.ok(log.views.every((view) => view.data.length <= 1));
});

test("an appended row is shown once only when the live connection is first", async () => {
  const log = open();
  await stands(log);
  let send;
  server.next("append", async (serve, response, body) => {
    const result = server.append("p", body.payload, body.idempotencyKey);
    await new Promise((resolve) => (send = resolve));
    response.end(JSON.stringify(result));
  });
  const answer = log.append({ payload: { text: "mine" } });
  await until(() => log.data.length === 1 && !log.data[0].pending);
  send();
  assert.equal((await answer).seq, 1);
  assert.ok(log.views.every((view) => view.data.length <= 1));
  assert.equal(server.asked("read").length, 0);
});

test("an append without an answer is sent again with the same key, and made once", async () => {
  const log = open();
  await stands(log);
  server.next("append", (serve, response, body) => {
    server.append("p", body.payload, body.idempotencyKey);
    response.destroy();
  });
  server.refuse("append", 503, { code: "UNAVAILABLE", message: "not now" });
  const { seq } = await log.append({ payload: { text: "mine" } });
  assert.equal(seq, 1);
  const keys = server.asked("append").map((request) => request.body.idempotencyKey);
  assert.equal(keys.length, 3);
  assert.equal(new Set(keys).size, 1);
  assert.ok(keys[0].length >= 32);
  assert.equal(server.rows.length, 1);
  await until(() => !log.data[0].pending);
  assert.ok(log.views.every((view) => view.data.length <= 1));
});

test("an append whose row was seen has been made, even if no answer ever comes", async () => {
  const log = open({ retry: { firstMs: 1_000_000, maxMs: 1_000_000 } });
  await stands(log);
  let lose;
  server.next("append", async (serve, response, body) => {
    server.append("p", body.payload, body.idempotencyKey);
    await new Promise((resolve) => (lose = resolve));
    response.destroy();
  });
  const answer = log.append({ payload: { text: "mine" } });
  await until(() => log.data[0] && !log.data[0].pending);
  lose();
  log.close();
  assert.deepEqual(await answer, { id: "p:1", seq: 1, created: true });
  assert.equal(log.error, null);
});

test("a refused append is not shown any more, and says why", async () => {
  const log = open();
  await stands(log);
  const fields = { fields: ["text"], fieldErrors: { text: "is too long" } };
  server.refuse("append", 400, { code: "VALIDATION_FAILED", message: "Invalid: text", ...fields });
  const answer = log.append({ payload: { text: "mine" } });
  assert.equal(log.data.length, 1);
  const error = await answer.catch((thrown) => thrown);
  assert.ok(error instanceof StrandlineError);
  assert.deepEqual([error.code, error.message, error.status], ["VALIDATION_FAILED", "Invalid: text", 400]);
  assert.deepEqual(error.detail, fields);
  assert.equal(log.data.length, 0);
  assert.equal(log.error, error);
  await log.append({ payload: { text: "short" } });
  assert.equal(log.error, null, "until the next change");
});

test("a limit of the table is a refusal, not something to wait for", async () => {
  const log = open();
  await stands(log);
  const limit = { max: 1, remaining: 0, window: 60_000 };
  server.refuse("append", 429, { code: "RATE_LIMITED", message: "too fast", retryAfter: 59_000, limit });
  const error = await log.append({ payload: { text: "x" } }).catch((thrown) => thrown);
  assert.deepEqual([error.code, error.retryAfterMs, error.detail.limit], ["RATE_LIMITED", 59_000, limit]);
  assert.equal(server.asked("append").length, 1);
});

test("an append is repeated as long as the log is open", async () => {
  const log = open({ live: false, retry: { firstMs: 1, maxMs: 1, forMs: 0 } });
  await until(() => !log.isLoading);
  const { port } = server;
  await server.stop();
  const answer = log.append({ payload: { text: "mine" } });
  await assert.rejects(log.read("p:1"), { code: "UNREACHABLE", status: 0 }, "what is asked for is not");
  assert.deepEqual(log.data.map((row) => [row.text, row.pending]), [["mine", true]]);
  server = await HandServer.start(port);
  assert.deepEqual(await answer, { id: "p:1", seq: 1, created: true });
  await until(() => !log.data[0].pending);
});

test("an append that was stored before the server died is made once", async () => {
  const log = open();
  await stands(log);
  const { port } = server;
  const died = new Promise((resolve) => {
    server.next("append", (serve, response, body) => {
      server.append("p", body.payload, body.idempotencyKey);
      server.stop().then(resolve);
    });
  });
  const answer = log.append({ payload: { text: "mine" } });
  await died;
  const { rows, story } = server;
  server = await HandServer.start(port);
  Object.assign(server, { rows, story });
  assert.deepEqual(await answer, { id: "p:1", seq: 1, created: true }, "this append has created it");
  await stands(log);
  assert.deepEqual([texts(log), server.rows.length], [["mine"], 1]);
  assert.ok(log.views.every((view) => view.data.length === 1 || view.isLoading || view.data.length === 0));
});

test("a waiting append is sent as soon as the live connection is back", async () => {
  const release = server.hold("live");
  server.next("append", (serve, response) => response.destroy());
  const log = open({ retry: { firstMs: 1_000_000, maxMs: 1_000_000 } });
  const answer = log.append({ payload: { text: "mine" } });
  await until(() => server.asked("append").length === 1 && server.asked("live").length === 1);
  release();
  assert.equal((await answer).seq, 1);
});

test("a key that was used before brings the row of that time", async () => {
  server.append("p", { text: "first" }, "k");
  const log = open();
  await stands(log);
  const { created, seq } = await log.append({ payload: { text: "second" }, idempotencyKey: "k" });
  assert.deepEqual([created, seq], [false, 1]);
  await log.append({ payload: { text: "third" } });
  await until(() => log.data.length === 2 && !log.data[0].pending);
  assert.deepEqual(texts(log), ["third", "first"]);
  assert.ok(log.views.every((view) => !view.data.some((row) => row.text === "second")));
});

test("a row that readers cannot see is not left behind as an optimistic one", async () => {
  server.append("p", { text: "gone" }, "k");
  server.rm("p:1");
  const log = open();
  await stands(log);
  const { created } = await log.append({ payload: { text: "again" }, idempotencyKey: "k" });
  assert.equal(created, false);
  await until(() => log.data.length === 0);
});

test("several are appended at once, shown in order, and told one by one", async () => {
  const log = open();
  await stands(log);
  const release = server.hold("appendBulk");
  const answer = log.appendBulk([{ text: "a" }, { text: "b", idempotencyKey: "own" }]);
  assert.deepEqual(texts(log), ["b", "a"]);
  release();
  const { count, results } = await answer;
  assert.equal(count, 2);
  assert.deepEqual(results.map((result) => result.seq), [1, 2]);
  await until(() => log.data.every((row) => !row.pending));
  assert.deepEqual(texts(log), ["b", "a"]);
  assert.equal(log.data[0].idempotencyKey, "own");
  assert.deepEqual(await log.appendBulk([]), { count: 0, results: [] });
});

test("several that are refused disappear together", async () => {
  const log = open();
  await stands(log);
  server.refuse("appendBulk", 400, { code: "VALIDATION_FAILED", message: "no" });
  await assert.rejects(log.appendBulk([{ text: "a" }, { text: "b" }]), StrandlineError);
  assert.deepEqual(log.data, []);
});

test("what is appended has to be a payload", async () => {
  const log = open({ live: false });
  await assert.rejects(log.append({ text: "x" }), TypeError);
  await assert.rejects(log.appendBulk([{ text: "x" }, null]), TypeError);
  assert.deepEqual(log.data, []);
});

// --- changing ---

test("an edit is shown at once, and taken back when it is refused", async () => {
  fill(1);
  const log = open();
  await stands(log);
  const release = server.hold("update");
  const answer = log.update("p:1", { text: "edited" }, { expectedUpdatedAt: 1001 });
  assert.deepEqual([log.data[0].text, log.data[0].pending], ["edited", true]);
  release();
  assert.equal((await answer).text, "edited");
  assert.equal(log.data[0].pending, undefined);
  assert.equal(server.asked("update")[0].body.expectedUpdatedAt, 1001);

  server.refuse("update", 409, { code: "CONFLICT", message: "somebody was faster" });
  const refused = log.update("p:1", { text: "again" });
  assert.equal(log.data[0].text, "again");
  await assert.rejects(refused, { code: "CONFLICT" });
  assert.deepEqual([log.data[0].text, log.data[0].pending], ["edited", undefined]);
  assert.equal(log.error.code, "CONFLICT");
});

test("an edit without an answer is not sent again, and what became of it is told", async () => {
  fill(1);
  const log = open();
  await stands(log);
  server.next("update", (serve, response, body) => {
    server.update(body.id, body.patch);
    response.destroy();
  });
  await assert.rejects(log.update("p:1", { text: "edited" }), { code: "UNREACHABLE" });
  assert.equal(server.asked("update").length, 1);
  await until(() => log.data[0].text === "edited" && !log.data[0].pending);
});

test("a page that was opened from a file is told why it reaches no server", async (context) => {
  globalThis.location = { origin: "null" };
  context.after(() => delete globalThis.location);
  server.next("update", (serve, response) => response.destroy());
  const message = "the server cannot be reached; this page has no origin: serve it over HTTP, not from a file";
  await assert.rejects(open({ live: false }).update("p:1", { text: "x" }), { code: "UNREACHABLE", message });
});

test("word of an earlier edit does not undo a later one", async () => {
  fill(1);
  const log = open();
  await stands(log);
  const old = server.alive()[0];
  await log.update("p:1", { text: "edited" });
  server.tell("update", { ...old, text: "from before" });
  server.append("p", { text: "row 2" });
  await until(() => log.data.length === 2);
  assert.equal(log.data[1].text, "edited");
});

test("a removed row is hidden at once, and comes back when that is refused", async () => {
  fill(2);
  const log = open();
  await stands(log);
  server.refuse("rm", 403, { code: "FORBIDDEN", message: "not yours" });
  const refused = log.rm("p:1");
  assert.deepEqual(texts(log), ["row 2"]);
  await assert.rejects(refused, { code: "FORBIDDEN" });
  assert.deepEqual(texts(log), ["row 2", "row 1"]);
  assert.deepEqual(await log.rm("p:1", { hard: true }), { id: "p:1", deleted: true, soft: true });
  assert.equal(server.asked("rm").at(-1).body.hard, true);
  assert.deepEqual(texts(log), ["row 2"]);
  const { count } = await log.rmBulk(["p:2", "p:1"]);
  assert.equal(count, 2);
  assert.deepEqual(texts(log), []);
  assert.equal((await log.restore("p:1")).text, "row 1");
  assert.deepEqual(texts(log), ["row 1"]);
});

test("what is done to a row that is on its way is done to the real one", async () => {
  const log = open();
  await stands(log);
  const release = server.hold("append");
  const appended = log.append({ payload: { text: "mine" } });
  const edited = log.update(log.data[0].id, { text: "mine, edited" });
  assert.equal(log.data[0].text, "mine, edited");
  release();
  await appended;
  assert.equal((await edited).id, "p:1");
  await until(() => !log.data[0].pending);
  assert.deepEqual(texts(log), ["mine, edited"]);
  assert.ok(!log.views.slice(1).some((view) => view.data[0]?.text === "mine"), "never without the edit");

  const again = server.hold("append");
  const second = log.append({ payload: { text: "oops" } });
  const removed = log.rm(log.data[0].id);
  assert.deepEqual(texts(log), ["mine, edited"]);
  again();
  await second;
  assert.deepEqual(await removed, { id: "p:2", deleted: true, soft: true });
  assert.deepEqual(texts(log), ["mine, edited"]);
});

test("what is done to a row whose append is refused fails with it", async () => {
  const log = open();
  await stands(log);
  const release = new Promise((resolve) => {
    server.next("append", async (serve, response) => {
      await new Promise((go) => resolve(go));
      response.writeHead(400).end(JSON.stringify({ error: { code: "VALIDATION_FAILED", message: "no" } }));
    });
  });
  const appended = log.append({ payload: { text: "mine" } });
  const edited = log.update(log.data[0].id, { text: "edited" });
  (await release)();
  await assert.rejects(appended, { code: "VALIDATION_FAILED" });
  await assert.rejects(edited, { code: "VALIDATION_FAILED" });
  assert.equal(server.asked("update").length, 0);
  assert.deepEqual(log.data, []);
});

test("everything is purged and brought back", async () => {
  fill(3);
  const log = open();
  await stands(log);
  assert.deepEqual(await log.purge(), { deleted: 3, soft: true });
  assert.deepEqual(log.data, []);
  assert.deepEqual(await log.restore(), { restored: 3 });
  await until(() => log.data.length === 3);
  server.refuse("purgeByParent", 403, { code: "FORBIDDEN", message: "not the owner" });
  await assert.rejects(log.purge({ hard: true }), { code: "FORBIDDEN" });
  assert.equal(log.data.length, 3);
});

test("all of it works without live events", async () => {
  fill(1);
  const log = open({ live: false });
  await until(() => !log.isLoading);
  await log.append({ payload: { text: "row 2" } });
  await until(() => log.data.length === 2 && !log.data[0].pending);
  await log.update("p:1", { text: "first" });
  assert.deepEqual(texts(log), ["row 2", "first"]);
  await log.rm("p:2");
  assert.deepEqual(texts(log), ["first"]);
  await log.purge();
  assert.deepEqual(texts(log), []);
  await log.restore();
  await until(() => log.data.length === 2);
  assert.equal(server.asked("live").length, 0);
});

// --- feeds ---

test("a feed has the rows of all parents, newest first, and follows them", async () => {
  for (const parent of ["a", "b", "a", "c"]) server.append(parent, { text: `in ${parent}` });
  const feed = opened(createFeed(connect(server.url, { retry: QUICK }).vote, { public: true, pageSize: 2 }));
  await stands(feed);
  assert.deepEqual(texts(feed), ["in c", "in a"]);
  await feed.loadMore();
  assert.deepEqual(feed.data.map((row) => row.id), ["c:4", "a:3", "b:2", "a:1"]);
  server.append("b", { text: "new" });
  server.update("a:3", { text: "edited" });
  server.rm("b:2");
  await until(() => feed.data.length === 4 && feed.data[2].text === "edited");
  assert.deepEqual(texts(feed), ["new", "in c", "edited", "in a"]);
  assert.equal((await feed.update("a:1", { text: "mine" })).text, "mine");
  assert.equal((await feed.restore("b:2")).id, "b:2");
  assert.deepEqual(texts(feed), ["new", "in c", "edited", "in b", "mine"]);
  for (const { path, query } of server.requests.filter(({ path }) => path.includes("/pub/"))) {
    assert.match(path, /^\/tables\/vote\/pub\/feed(\/live)?$/);
    assert.ok(!("parent" in query));
  }
  assert.equal("append" in feed, false);
});

test("what a feed does not tell row by row is read again, and never gone meanwhile", async () => {
  for (const parent of ["a", "b"]) server.append(parent, { text: `in ${parent}` });
  const feed = opened(createFeed(server.url, { table: "vote", retry: QUICK }));
  await stands(feed);
  server.find("a:1").isDeleted = true;
  server.tell("purge", { soft: true });
  await until(() => feed.data.length === 1);
  assert.ok(feed.views.slice(feed.views.findIndex((view) => view.data.length === 2)).every((view) => view.data.length > 0));
  server.find("a:1").isDeleted = false;
  server.tell("restoreAll", {});
  await until(() => feed.data.length === 2);
});

test("a feed has no parent", () => {
  assert.throws(() => createFeed(connect(server.url).vote, { parent: "p" }), TypeError);
  assert.throws(() => createFeed(server.url, {}), TypeError);
});

// --- the end ---

test("a closed log asks for nothing and tells nothing, but a write on its way arrives", async () => {
  fill(1);
  const log = open();
  await stands(log);
  const release = server.hold("append");
  const answer = log.append({ payload: { text: "last" } });
  await until(() => server.asked("append").length === 1);
  log.close();
  await until(() => server.readers.size === 0);
  const views = log.views.length;
  release();
  assert.equal((await answer).seq, 2);
  await assert.rejects(log.append({ payload: { text: "x" } }), { code: "CLOSED" });
  await assert.rejects(log.read("p:1"), { code: "CLOSED" });
  await assert.rejects(log.loadMore(), { code: "CLOSED" });
  assert.equal(log.views.length, views);
  assert.equal(log.isLive, false);
});

test("a log that is closed while it waits to try again ends", async () => {
  const log = open({ retry: { firstMs: 1_000_000, maxMs: 1_000_000, forMs: 10_000_000 } });
  await stands(log);
  server.next("append", (serve, response) => response.destroy());
  const answer = log.append({ payload: { text: "x" } });
  await until(() => server.asked("append").length === 1);
  server.cut();
  await until(() => !log.isLive);
  log.close();
  await assert.rejects(answer, StrandlineError);
});
