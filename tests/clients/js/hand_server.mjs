// A table behind HTTP that does as it is told: it can hold an answer back, refuse, lose a connection, or tell of a row
// before it answers. It speaks the protocol of tables as far as the module uses it, for one table without options.

import { createServer } from "node:http";
import { once } from "node:events";

export class HandServer {
  rows = []; // { row, isDeleted }
  changes = []; // { at: index of rows, type, data }
  story = []; // everything that live readers are told, in order
  requests = []; // { op, body, query, headers }
  behaviours = new Map(); // operation → functions, each for one request
  readers = new Set();
  forgotten = 0; // cursors before this are too old
  clock = 1000;
  token = null; // what requests must carry, if anything

  static async start(port = 0) {
    const server = new HandServer();
    server.http = createServer((request, response) => server.answer(request, response).catch(console.error));
    server.http.listen(port, "127.0.0.1");
    await once(server.http, "listening");
    server.port = server.http.address().port;
    server.url = `http://127.0.0.1:${server.port}`;
    return server;
  }

  async stop() {
    this.cut();
    this.http.closeAllConnections();
    this.http.close();
    await once(this.http, "close");
  }

  // --- by hand ---

  /** The next request of this kind is treated like so: `behave(serve, response, body)`. */
  next(op, behave) {
    this.behaviours.set(op, [...(this.behaviours.get(op) ?? []), behave]);
  }

  /** The next request of this kind waits until the returned function is called. */
  hold(op) {
    let release;
    const released = new Promise((resolve) => (release = resolve));
    this.next(op, async (serve) => {
      await released;
      await serve();
    });
    return release;
  }

  refuse(op, status, error) {
    this.next(op, (serve, response) => json(response, { error }, status));
  }

  /** End all live connections. */
  cut() {
    for (const reader of this.readers) reader.response.destroy();
    this.readers.clear();
  }

  asked(op) {
    return this.requests.filter((request) => request.op === op);
  }

  // --- the table ---

  append(parent, payload, idempotencyKey, userId = "somebody") {
    const found = this.rows.find(({ row }) => idempotencyKey && row.idempotencyKey === idempotencyKey);
    if (found) return { id: found.row.id, seq: found.row.seq, created: false };
    const seq = this.rows.length + 1;
    const at = ++this.clock;
    const row = { ...payload, id: `${parent}:${seq}`, parent, seq, userId, createdAt: at, updatedAt: at };
    if (idempotencyKey) row.idempotencyKey = idempotencyKey;
    this.rows.push({ row, isDeleted: false });
    this.tell("append", row);
    return { id: row.id, seq, created: true };
  }

  update(id, patch) {
    const found = this.find(id);
    if (!found || found.isDeleted) throw new Refused(404, "NOT_FOUND");
    found.row = { ...found.row, ...patch, updatedAt: ++this.clock };
    this.tell("update", found.row);
    return found.row;
  }

  rm(id) {
    const found = this.find(id);
    if (!found || found.isDeleted) return { id, deleted: false };
    found.isDeleted = true;
    this.tell("rm", { id, seq: found.row.seq, soft: true });
    return { id, deleted: true, soft: true };
  }

  restore(id) {
    const found = this.find(id);
    found.isDeleted = false;
    this.tell("restore", found.row);
    return found.row;
  }

  purge(parent) {
    const alive = this.rows.filter((each) => !each.isDeleted);
    for (const each of alive) each.isDeleted = true;
    this.tell("purge", { parent, soft: true });
    return { deleted: alive.length, soft: true };
  }

  restoreAll(parent) {
    const gone = this.rows.filter((each) => each.isDeleted);
    for (const each of gone) each.isDeleted = false;
    this.tell("restoreAll", { parent });
    return { restored: gone.length };
  }

  find(id) {
    return this.rows.find(({ row }) => row.id === id);
  }

  alive() {
    return this.rows.filter((each) => !each.isDeleted).map((each) => each.row);
  }

  tell(type, data) {
    this.story.push({ type, data });
    for (const reader of this.readers) this.goOn(reader);
  }

  goOn(reader) {
    for (; reader.at < this.story.length; reader.at++) {
      const { type, data } = this.story[reader.at];
      reader.response.write(`id: ${reader.at + 1}\nevent: ${type}\ndata: ${JSON.stringify(data)}\n\n`);
    }
  }

  // --- HTTP ---

  async answer(request, response) {
    const url = new URL(request.url, this.url);
    const op = url.pathname.split("/").at(-1);
    const query = Object.fromEntries(url.searchParams);
    const text = await read(request);
    const body = text ? JSON.parse(text) : undefined;
    this.requests.push({ op, path: url.pathname, body, query, headers: request.headers });
    if (this.token !== null && request.headers.authorization !== `Bearer ${this.token}`) {
      return json(response, { error: { code: "NOT_AUTHENTICATED", message: "who are you?" } }, 401);
    }
    const behave = this.behaviours.get(op)?.shift();
    const serve = () => this.serve(op, query, body, response);
    if (behave) await behave(serve, response, body);
    else await serve();
  }

  serve(op, query, body, response) {
    if (op === "live") return this.live(query, response);
    const answers = {
      append: () => this.append(body.parent, body.payload, body.idempotencyKey),
      appendBulk: () => {
        const results = body.items.map((item) => {
          const { idempotencyKey, ...payload } = item;
          return this.append(body.parent, payload, idempotencyKey);
        });
        return { count: results.length, results };
      },
      update: () => this.update(body.id, body.patch),
      rm: () => this.rm(body.id),
      rmBulk: () => {
        const results = body.ids.map((id) => this.rm(id));
        return { count: results.length, results };
      },
      purgeByParent: () => this.purge(body.parent),
      restoreByParent: () => this.restoreAll(body.parent),
      restore: () => this.restore(body.id),
      list: () => this.list(query),
      feed: () => this.list(query),
      read: () => this.alive().find((row) => row.id === query.id) ?? null,
    };
    try {
      json(response, answers[op]());
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      json(response, { error: { code: error.code, message: "there is no such row" } }, error.status);
    }
  }

  list({ limit, cursor }) {
    const below = this.alive().filter((row) => !cursor || row.seq < Number(cursor));
    const page = below.slice(-Number(limit)).reverse();
    return { page, isDone: page.length === below.length, continueCursor: String(page.at(-1)?.seq ?? 0) };
  }

  live({ after }, response) {
    const at = after === "now" ? this.story.length : Number(after);
    if (at < this.forgotten) return json(response, { error: { code: "CURSOR_TOO_OLD", message: "too old" } }, 410);
    response.writeHead(200, { "content-type": "text/event-stream" });
    const reader = { response, at };
    this.readers.add(reader);
    response.on("close", () => this.readers.delete(reader));
    response.write("retry: 1000\n\n: a heartbeat\n\n");
    this.goOn(reader);
    response.write(`event: ready\nid: ${reader.at}\ndata: {"cursor":"${reader.at}"}\n\n`);
  }
}

class Refused extends Error {
  constructor(status, code) {
    super(code);
    this.status = status;
    this.code = code;
  }
}

async function read(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

function json(response, value, status = 200) {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
}
