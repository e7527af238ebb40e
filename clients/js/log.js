/** A log: the rows of one parent of a table. */

import { appendable, bulkAppendable, checkedLog } from "./options.js";
import { pause, retrying } from "./retrying.js";
import { Store, STORE_METHODS } from "./store.js";

/** The live event of an appended row usually arrives with the answer. After this time the row is requested. */
const ARRIVAL_MS = 250;

export const LOG_METHODS = /** @type {const} */ ([
  ...STORE_METHODS,
  ...["search", "counts", "indexed", "trash"],
  ...["append", "appendBulk", "purge"],
]);

/**
 * @typedef {import("./errors.js").StrandlineError} StrandlineError
 * @typedef {import("./rows.js").Row} Row
 * @typedef {import("./rows.js").Appended} Appended
 * @typedef {{ payload: Row, idempotencyKey: string, isNew: boolean }} Item
 */

/** `strandline.d.ts` documents each member. */
export class Log extends Store {
  /**
   * @param {import("./connection.js").TableReference} table
   * @param {import("./strandline.js").LogOptions} options
   */
  constructor(table, options) {
    const { parent, ...rest } = checkedLog(options);
    super(table, { list: "list", live: "live", parent, orderOf: (row) => row.seq }, rest);
    this._parent = parent;
    this._user = table._connection.user;
    this._open(LOG_METHODS, rest);
  }

  /* Reading */

  /**
   * @param {string} query
   * @param {{ limit?: number }} [options]
   */
  search(query, { limit } = {}) {
    return this._read("search", { parent: this._parent, query, limit });
  }

  /** @param {string} by */
  counts(by) {
    return this._read("counts", { parent: this._parent, by });
  }

  /** @param {string} by */
  indexed(by) {
    return this._read("indexed", { parent: this._parent, indexBy: by });
  }

  /** @param {{ limit?: number, cursor?: string }} [options] */
  trash({ limit, cursor } = {}) {
    return this._read("trash", { parent: this._parent, limit, cursor });
  }

  /* Writing */

  /** @param {{ payload: Row, idempotencyKey?: string }} item */
  async append(item) {
    const only = appendable(item);
    const { payload, idempotencyKey } = only;
    const [answer] = this._append([only], async () => [
      await this._wire.write("append", { parent: this._parent, payload, idempotencyKey }),
    ]);
    return answer;
  }

  /** @param {Row[]} payloads */
  async appendBulk(payloads) {
    const all = payloads.map(bulkAppendable);
    if (all.length === 0) return { count: 0, results: [] };
    const items = all.map(({ payload, idempotencyKey }) => ({ ...payload, idempotencyKey }));
    const results = await Promise.all(
      this._append(all, async () => (await this._wire.write("appendBulk", { parent: this._parent, items })).results),
    );
    return { count: results.filter((result) => result.created).length, results };
  }

  /** @param {{ hard?: boolean }} [options] */
  purge({ hard } = {}) {
    return this._write(async () => {
      const result = await this._wire.write("purgeByParent", { parent: this._parent, hard });
      this._told({ type: "purge", data: result });
      return result;
    });
  }

  /** @param {string} [id] */
  restore(id) {
    if (id !== undefined) return super.restore(id);
    return this._write(async () => {
      const result = await this._wire.write("restoreByParent", { parent: this._parent });
      this._told({ type: "restoreAll", data: result });
      return result;
    });
  }

  /** @param {import("./pages.js").Event} event */
  _told(event) {
    if (event.type === "purge") this._rows.clear();
    super._told(event);
  }

  /**
   * Show the rows, and send them until there is an answer or the log is closed. Returns one promise per row.
   * @param {Item[]} items
   * @param {() => Promise<Appended[]>} send
   */
  _append(items, send) {
    const { signal } = this._closing;
    const how = { retry: this._retry, servers: this._wire.servers, signal, forMs: Infinity, wake: this._wake };
    const answers = this._write(() => retrying(send, how));
    return items.map((item, place) => this._appendOne(item, answers.then((results) => results[place])));
  }

  /**
   * @param {Item} item
   * @param {Promise<Appended>} sent
   */
  _appendOne({ payload, idempotencyKey: key, isNew }, sent) {
    /** @type {Row | null} */
    let seen = null;
    const arrived = (/** @type {Row} */ row) => (seen = row);
    const answered = (/** @type {Appended} */ result) => {
      this._rows.answeredAppend(key, result);
      this._confirm(key, result.id);
      // With a key that was made for it, an earlier attempt of this append created the row.
      return isNew ? { ...result, created: true } : result;
    };
    const failed = (/** @type {StrandlineError} */ error) => {
      this._rows.endAppend(key);
      this._changed();
      if (seen === null) throw error;
      // The row was seen, so the append was applied; only its answer was lost.
      if (this._writeError === error) this._writeError = null;
      return { id: seen.id, seq: seen.seq, created: true };
    };
    const answer = sent.then(answered, failed);
    this._rows.beginAppend(key, { row: this._optimistic(payload, key), answer, arrived });
    return answer;
  }

  /**
   * @param {Row} payload
   * @param {string} key
   */
  _optimistic(payload, key) {
    const now = Date.now();
    const own = { id: `pending:${key}`, parent: this._parent, seq: null, userId: this._user ?? null, own: true };
    return { ...payload, ...own, createdAt: now, updatedAt: now, idempotencyKey: key, pending: true };
  }

  /**
   * Show the row of an answered append as the server stores it, or remove it.
   * @param {string} key
   * @param {string} id
   */
  async _confirm(key, id) {
    try {
      if (this._isLive && this._rows.appendOf(key)) await pause(ARRIVAL_MS, this._closing.signal);
      if (!this._rows.appendOf(key)) return;
      await this._change(
        [id],
        () => this.read(id),
        (row) => (row === null ? [] : [{ type: "update", data: row }]),
      );
    } catch {
      // The append succeeded; a failure to read the row now is not an error of the append.
    }
    this._rows.endAppend(key);
    this._changed();
  }
}
