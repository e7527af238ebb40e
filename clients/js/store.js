/** A store: rows of a table, their pages, their live events, and changes of single rows. */

import { closed } from "./errors.js";
import { listen } from "./live.js";
import { Pages } from "./pages.js";
import { RETRY, retrying, Wake } from "./retrying.js";
import { Rows } from "./rows.js";
import { Wire } from "./wire.js";

/** The first page waits this long for the live connection. If it is read afterwards, no change can be missed. */
const HEAD_START_MS = 1_500;

/** The first snapshot of every store. One shared object, so that React sees no change. */
export const LOADING = Object.freeze({
  data: Object.freeze(/** @type {any[]} */ ([])),
  isLoading: true,
  hasMore: false,
  isLive: false,
  error: null,
});

/** The methods of every store. */
export const STORE_METHODS = /** @type {const} */ ([
  ...["subscribe", "getSnapshot", "close", "loadMore"],
  ...["read", "history", "update", "rm", "rmBulk", "restore"],
]);

/**
 * @typedef {import("./errors.js").StrandlineError} StrandlineError
 * @typedef {import("./rows.js").Row} Row
 * @typedef {import("./pages.js").Event} Event
 * @typedef {{ list: string, live: string, parent?: string, orderOf: (row: Row) => number }} Source
 *   The operations that list the rows and follow them, and the number that orders the rows.
 * @typedef {Required<Pick<import("./strandline.js").LogOptions, "pageSize">> & import("./strandline.js").StoreOptions} Options
 */

/** `strandline.d.ts` documents each member. */
export class Store {
  /**
   * @param {import("./connection.js").TableReference} table
   * @param {Source} source
   * @param {Options} options
   */
  constructor(table, source, { pageSize, public: isPublic = false, retry }) {
    this._wire = new Wire(table, isPublic);
    this._source = source;
    this._pageSize = pageSize;
    this._retry = { ...RETRY, ...table._connection.retry, ...retry };
    this._rows = new Rows(source.orderOf);
    this._pages = new Pages(this._rows, pageSize);
    this._closing = new AbortController();
    /** Tells waiting appends that the server is back. */
    this._wake = new Wake();

    /** @type {Set<() => void>} */
    this._listeners = new Set();
    this._isNotifying = false;
    /** @type {any} */
    this._snapshot = LOADING;

    /** Number of loads in progress. The first one counts from the start. */
    this._loads = 1;
    this._hasLoaded = false;
    this._isLive = false;
    /** @type {StrandlineError | null} */
    this._loadError = null;
    /** @type {StrandlineError | null} */
    this._writeError = null;
    /** Requests whose answers contain rows: the ids that no event has removed or restored since. @type {Set<Set<string>>} */
    this._asked = new Set();
  }

  /**
   * Start to load and to listen.
   * @param {readonly string[]} methods the methods that also work without their store: `const { append } = log`
   * @param {Options} options
   */
  _open(methods, { live = true }) {
    for (const name of methods) Object.assign(this, { [name]: /** @type {any} */ (this)[name].bind(this) });
    if (live) this._listen();
    else this._reload();
  }

  /* State */

  /** @param {() => void} listener */
  subscribe(listener) {
    this._listeners.add(listener);
    return () => void this._listeners.delete(listener);
  }

  getSnapshot() {
    this._snapshot ??= Object.freeze({
      data: Object.freeze(this._rows.view()),
      isLoading: this._loads > 0,
      hasMore: this._pages.hasMore,
      isLive: this._isLive,
      error: this._writeError ?? this._loadError,
    });
    return this._snapshot;
  }

  get data() {
    return this.getSnapshot().data;
  }

  get isLoading() {
    return this.getSnapshot().isLoading;
  }

  get hasMore() {
    return this.getSnapshot().hasMore;
  }

  get isLive() {
    return this.getSnapshot().isLive;
  }

  get error() {
    return this.getSnapshot().error;
  }

  /* Reading */

  async loadMore(count = this._pageSize) {
    if (this._closing.signal.aborted) throw closed();
    this._loads++;
    this._changed();
    try {
      await this._pages.more(this._list(this._retry.forMs), count);
      this._loadError = null;
    } catch (error) {
      this._loadError = /** @type {StrandlineError} */ (error);
      throw error;
    } finally {
      this._loads--;
      this._changed();
    }
  }

  /** @param {string} id */
  read(id) {
    return this._read("read", { id });
  }

  /** @param {string} id */
  async history(id) {
    return (await this._read("history", { id })).edits;
  }

  /* Writing */

  /**
   * @param {string} id
   * @param {Row} patch
   * @param {{ expectedUpdatedAt?: number }} [options]
   */
  update(id, patch, { expectedUpdatedAt } = {}) {
    const edit = { id, patch };
    return this._write(async () => {
      this._rows.edits.add(edit);
      try {
        const real = await this._realId(id);
        const send = () => this._wire.write("update", { id: real, patch, expectedUpdatedAt });
        return await this._change([real], send, (row) => [{ type: "update", data: row }]);
      } finally {
        this._rows.edits.delete(edit);
      }
    });
  }

  /**
   * @param {string} id
   * @param {{ hard?: boolean }} [options]
   */
  rm(id, { hard } = {}) {
    return this._remove([id], ([real]) => this._wire.write("rm", { id: real, hard }));
  }

  /**
   * @param {string[]} ids
   * @param {{ hard?: boolean }} [options]
   */
  rmBulk(ids, { hard } = {}) {
    return this._remove(ids, (real) => this._wire.write("rmBulk", { ids: real, hard }));
  }

  /**
   * Restore one row.
   * @param {string} id
   */
  restore(id) {
    return this._write(() => {
      const send = () => this._wire.write("restore", { id });
      return this._change([id], send, (row) => [{ type: "restore", data: row }]);
    });
  }

  close() {
    this._closing.abort();
    this._listeners.clear();
    this._isLive = false;
    this._changed();
  }

  /* Pages */

  /** Loads everything again, and retries until that works. */
  _reload() {
    if (this._closing.signal.aborted) return;
    const failed = (/** @type {StrandlineError} */ error) => {
      this._loadError = error;
      this._changed();
    };
    const done = (/** @type {StrandlineError | null} */ error) => {
      if (this._closing.signal.aborted) return;
      this._loadError = error;
      if (!this._hasLoaded) this._loads--;
      this._hasLoaded = true;
      this._changed();
    };
    this._pages.reload(this._list(Infinity, failed)).then(() => done(null), done);
  }

  /**
   * @param {number} forMs
   * @param {(error: StrandlineError) => void} [failed]
   * @returns {import("./pages.js").List}
   */
  _list(forMs, failed) {
    const { list, parent } = this._source;
    return (limit, cursor) => this._read(list, { parent, limit, cursor }, forMs, failed);
  }

  /**
   * @param {string} operation
   * @param {Record<string, string | number | undefined>} parameters
   * @param {number} [forMs]
   * @param {(error: StrandlineError) => void} [failed]
   */
  async _read(operation, parameters, forMs, failed) {
    const { signal } = this._closing;
    if (signal.aborted) throw closed();
    const ask = () => this._wire.read(operation, parameters, signal);
    return retrying(ask, { retry: this._retry, servers: this._wire.servers, signal, forMs, failed });
  }

  /* Live */

  _listen() {
    const firstLoad = () => {
      clearTimeout(headStart);
      if (!this._hasLoaded) this._reload();
    };
    const headStart = setTimeout(firstLoad, HEAD_START_MS);
    const setLive = (/** @type {boolean} */ isLive) => {
      this._isLive = isLive;
      this._changed();
    };
    listen(this._wire, {
      source: this._source,
      signal: this._closing.signal,
      retry: this._retry,
      told: (event) => {
        this._heard(event);
        this._told(event);
      },
      stands: (isAnew) => {
        clearTimeout(headStart);
        if (isAnew) this._reload();
        else this._loadError = null;
        this._wake.signal();
        setLive(true);
      },
      lost: () => {
        firstLoad();
        setLive(false);
      },
      refused: (error) => {
        firstLoad();
        this._loadError = error;
        setLive(false);
      },
    });
    this._closing.signal.addEventListener("abort", () => clearTimeout(headStart));
  }

  /**
   * Apply a change, from the live connection or from the answer to a local change.
   * @param {Event} event
   */
  _told(event) {
    if (event.type === "purge" || event.type === "restoreAll") this._reload();
    else this._pages.apply(event);
    this._changed();
  }

  /* Changes */

  /**
   * @param {string[]} ids
   * @param {(ids: string[]) => Promise<any>} send
   */
  _remove(ids, send) {
    const removals = ids.map((id) => ({ id }));
    return this._write(async () => {
      for (const removal of removals) this._rows.removals.add(removal);
      try {
        const real = await Promise.all(ids.map((id) => this._realId(id)));
        return await this._change(
          real,
          () => send(real),
          () => real.map((id) => ({ type: "rm", data: { id } })),
        );
      } finally {
        for (const removal of removals) this._rows.removals.delete(removal);
      }
    });
  }

  /**
   * Send a request and apply its answer, except for rows that an event has removed or restored since: the event is as
   * new as the answer, or a newer event follows.
   * @param {string[]} ids
   * @param {() => Promise<any>} ask
   * @param {(answer: any) => Event[]} eventsOf
   */
  async _change(ids, ask, eventsOf) {
    const unheard = new Set(ids);
    this._asked.add(unheard);
    try {
      const answer = await ask();
      for (const event of eventsOf(answer)) if (unheard.has(event.data.id)) this._told(event);
      return answer;
    } finally {
      this._asked.delete(unheard);
    }
  }

  /**
   * Only removals and restores matter: of two versions of a row, the later one wins anyway.
   * @param {Event} event
   */
  _heard({ type, data }) {
    for (const unheard of this._asked) {
      if (type === "purge") unheard.clear();
      else if (type === "rm" || type === "restore") unheard.delete(data.id);
    }
  }

  /**
   * The server's id of a row. A pending row gets it with the answer.
   * @param {string} id
   */
  async _realId(id) {
    const appending = this._rows.appendShowing(id);
    return appending === undefined ? id : (await appending.answer).id;
  }

  /**
   * @template T
   * @param {() => Promise<T>} work starts immediately, so that its optimistic changes show immediately
   * @returns {Promise<T>}
   */
  async _write(work) {
    if (this._closing.signal.aborted) throw closed();
    this._writeError = null;
    this._changed();
    try {
      return await work();
    } catch (error) {
      this._writeError = /** @type {StrandlineError} */ (error);
      throw error;
    } finally {
      this._changed();
    }
  }

  /* Listeners */

  /** Calls the listeners once for all changes of the same moment. */
  _changed() {
    this._snapshot = null;
    if (this._isNotifying) return;
    this._isNotifying = true;
    queueMicrotask(() => {
      this._isNotifying = false;
      for (const listener of [...this._listeners]) listener();
    });
  }
}
