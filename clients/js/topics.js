/**
 * Topics and queues of a server, for browsers and Node: write, read, follow, claim and process jobs.
 *
 * Every write has an idempotency key, so that it is applied once however often it is sent.
 *
 * @module strandline/topics
 */

import { Calls, pathOf, topicPath } from "./calls.js";
import { Connection } from "./connection.js";
import { StrandlineError } from "./errors.js";
import { CONNECTION, known, newKey } from "./options.js";
import { Queue } from "./queues.js";

export { StrandlineError } from "./errors.js";

/** Topics remember idempotency keys for two minutes by default: a write is not repeated later than this. */
const KEYED_MS = 100_000;
/** The wait of one long poll. */
const POLL_MS = 20_000;
/** The records of one page. */
const PAGE = 1000;

/** A server: its topics and queues. Nothing is requested until a method of one of them is called. */
export class Client {
  /**
   * @param {import("./connection.js").ServerUrl} url
   * @param {import("./strandline.js").ConnectOptions} [options]
   */
  constructor(url, options = {}) {
    this._calls = new Calls(new Connection(url, known(options, [...CONNECTION, "retry"])));
  }

  /** @param {string} name */
  topic(name) {
    return new Topic(this._calls, name);
  }

  /**
   * @param {string} name
   * @param {{ node?: string }} [options]
   */
  queue(name, options = {}) {
    const { node } = known(options, ["node"]);
    return new Queue(this._calls, this.topic(name), node);
  }

  /**
   * All topics whose names start with `prefix`.
   * @param {{ prefix?: string }} [options]
   */
  async *topics({ prefix = "" } = {}) {
    let cursor = null;
    do {
      const query = new URLSearchParams({ page_size: "1000", ...(prefix && { prefix }), ...(cursor && { cursor }) });
      const page = await this._calls.repeat("GET", `/v0/topics?${query}`);
      yield* page.topics;
      cursor = page.next_cursor;
    } while (cursor);
  }
}

/** One topic. It does not have to exist: the first write creates it. */
export class Topic {
  /**
   * @param {Calls} calls
   * @param {string} name
   */
  constructor(calls, name) {
    if (typeof name !== "string" || name === "") throw new TypeError("the name of a topic must be a non-empty string");
    this._calls = calls;
    this.name = name;
    this._path = topicPath(name);
  }

  /**
   * @param {unknown} data
   * @param {{ tag?: string, node?: string, meta?: unknown, idempotencyKey?: string }} [options]
   */
  write(data, options = {}) {
    const { idempotencyKey, ...record } = known(options, ["tag", "node", "meta", "idempotencyKey"]);
    return this.writeMany([{ ...record, data }], { idempotencyKey });
  }

  /**
   * Append records atomically, with consecutive numbers.
   * @param {Iterable<import("./topics.js").Draft>} records
   * @param {{ node?: string, idempotencyKey?: string, config?: object }} [options]
   */
  writeMany(records, options = {}) {
    const { node, idempotencyKey = newKey(), config } = known(options, ["node", "idempotencyKey", "config"]);
    const body = { records: [...records].map(wireDraft), node, config, idempotency_key: idempotencyKey };
    return this._calls.repeat("POST", `${this._path}?return_seqs=false`, body, { forMs: KEYED_MS });
  }

  /**
   * One page of the records after a number. With `waitMs`, waits for records if there are none.
   * @param {import("./topics.js").DiffOptions} [options]
   */
  async diff(options = {}) {
    const { after = 0, limit = PAGE, waitMs = 0, match, sinceTs, withoutNodes, latest, signal } = known(options, [
      "after",
      "limit",
      "waitMs",
      "match",
      "sinceTs",
      "withoutNodes",
      "latest",
      "signal",
    ]);
    return this._page(
      {
        from_seq: after,
        limit,
        wait_ms: waitMs || undefined,
        match,
        since_ts: sinceTs,
        node: withoutNodes,
        view: latest ? "latest" : undefined,
      },
      signal,
    );
  }

  /**
   * The records after a number, up to the end.
   * @param {import("./topics.js").ReadOptions} [options]
   */
  async *read(options = {}) {
    const { onLoss, after = 0, ...rest } = options;
    let position = after;
    for (;;) {
      const page = await this.diff({ ...rest, after: position });
      tellLoss(page.tombstone, onLoss);
      yield* page.records;
      if (page.caughtUp) return;
      position = page.next;
    }
  }

  /**
   * The records after a number, then new ones as they arrive, until `signal` aborts. Without `after`, only new ones.
   * @param {import("./topics.js").ReadOptions} [options]
   */
  async *tail(options = {}) {
    const { onLoss, signal, ...rest } = options;
    try {
      let position = options.after ?? (await this.state({ signal })).head_seq;
      for (;;) {
        const page = await this.diff({ ...rest, signal, after: position, waitMs: POLL_MS });
        tellLoss(page.tombstone, onLoss);
        yield* page.records;
        position = page.next;
      }
    } catch (error) {
      if (!signal?.aborted) throw error;
    }
  }

  /** @param {string} name a reader whose position the server stores */
  consumer(name) {
    return new Consumer(this, name);
  }

  /**
   * Create the topic, or replace its whole configuration.
   * @param {object} config
   */
  configure(config) {
    return this._calls.repeat("PUT", this._path, config);
  }

  /** @param {{ signal?: AbortSignal }} [options] */
  state({ signal } = {}) {
    return this._calls.repeat("GET", `${this._path}?touch=false`, undefined, { signal });
  }

  /** Delete the topic with all its records. */
  delete() {
    return this._calls.repeat("DELETE", this._path);
  }

  /**
   * @param {Record<string, unknown> & { wait_ms?: number }} body
   * @param {AbortSignal} [signal]
   */
  async _page(body, signal) {
    const how = { signal, waitMs: body.wait_ms };
    const page = await this._calls.repeat("POST", `${this._path}/diff`, { ...body, include_tags: true }, how);
    return {
      records: page.records.map(recordOf),
      next: page.next_from_seq,
      head: page.head_seq,
      caughtUp: page.caught_up,
      tombstone: page.tombstone ?? null,
    };
  }
}

/** A named reader. Records that were read and not committed are delivered again to the next reader. */
export class Consumer {
  /**
   * @param {Topic} topic
   * @param {string} name
   */
  constructor(topic, name) {
    this._topic = topic;
    this.name = name;
    this._path = `${topic._path}/consumers/${pathOf(name)}`;
  }

  /** The committed position and the lag. */
  position() {
    return this._topic._calls.repeat("GET", this._path);
  }

  /** @param {number} seq everything up to it is processed */
  commit(seq) {
    return this._topic._calls.repeat("PUT", this._path, { seq });
  }

  /**
   * The records after the committed position up to the end, in batches. A batch is committed when the next one is
   * requested.
   * @param {{ size?: number, signal?: AbortSignal, onLoss?: (lost: object) => void }} [options]
   */
  async *batches({ size = 256, signal, onLoss } = {}) {
    for (;;) {
      const page = await this._topic._page({ consumer: this.name, limit: size }, signal);
      tellLoss(page.tombstone, onLoss);
      if (page.records.length) yield page.records;
      await this.commit(page.next);
      if (page.caughtUp) return;
    }
  }

  delete() {
    return this._topic._calls.repeat("DELETE", this._path);
  }
}

/** @param {any} record */
const recordOf = ({ $seq: seq, $ts: ts, $tag: tag = null, $node: node = null, data, meta = null }) => ({
  seq,
  ts,
  time: new Date(ts),
  tag,
  node,
  data,
  meta,
});

/** @param {any} draft */
function wireDraft(draft) {
  if (typeof draft !== "object" || draft === null || !("data" in draft)) {
    throw new TypeError("a record must have the form { data, tag?, node?, meta?, priority?, notBefore? }");
  }
  const { data, tag, node, meta, priority, notBefore } = known(draft, [
    "data",
    "tag",
    "node",
    "meta",
    "priority",
    "notBefore",
  ]);
  if (data === undefined) throw new TypeError("the data of a record must be JSON, not undefined");
  return { data, tag, node, meta, priority, not_before_ts: notBefore === undefined ? undefined : Number(notBefore) };
}

/**
 * @param {any} tombstone
 * @param {((lost: any) => void) | undefined} onLoss
 */
function tellLoss(tombstone, onLoss) {
  if (!tombstone) return;
  if (onLoss) return onLoss(tombstone);
  const { gap_from: from, gap_to: to, reason } = tombstone;
  throw new StrandlineError("RECORDS_LOST", `records ${from} to ${to} are lost (${reason}); pass onLoss to continue`, {
    detail: tombstone,
  });
}
