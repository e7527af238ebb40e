/** A list that grows while the user scrolls: pages of rows, each with the cursor of the next one. */

import { ApiError } from "../api.js";

/** The rows that are kept. Users find further ones with a filter. */
const MOST = 10_000;
/** The most rows of one request. */
const AT_ONCE = 500;
/** A page may be empty although there are further rows. After this many requests, the user has to ask for more. */
const MOST_REQUESTS = 20;
/** Rows that change all the time are only read again by themselves if that takes little: this many rows, and milliseconds. */
const QUICK_ROWS = 2000;
const QUICK_MS = 500;

export class Pages {
  /**
   * @param {(cursor: string|number|null, limit: number, signal: AbortSignal) => Promise<{rows: any[], next: any}>} ask
   * @param {() => void} changed called when rows arrive, or when a request fails
   * @param {number} size rows per page
   */
  constructor(ask, changed, size = 100) {
    this.items = [];
    this.next = null;
    this.loading = false;
    this.failed = null;
    this._took = 0;
    this._ask = ask;
    this._changed = changed;
    this._size = size;
    this._stop = new AbortController();
  }

  /** Reads the rows again, as many as were read before. The old ones are shown until the new ones arrive. */
  reload({ fresh = false } = {}) {
    this._stop.abort();
    this._stop = new AbortController();
    const wanted = fresh ? 1 : this.items.length;
    return this._load([], null, wanted, Math.min(AT_ONCE, Math.max(this._size, wanted)));
  }

  /** Reads the next page. */
  more() {
    if (this.loading || this.next === null || this.isFull) return undefined;
    return this._load(this.items, this.next, this.items.length + 1, this._size);
  }

  /** Whether reading the rows again takes so little that it can be done after every change. */
  get isQuick() {
    return this.items.length <= QUICK_ROWS && this._took < QUICK_MS;
  }

  get isFull() {
    return this.items.length >= MOST;
  }

  /** The rows for a table, and one that stands for the rows that are not there yet. */
  get source() {
    const length = this.items.length;
    return {
      length: length + (this.next === null || this.isFull ? 0 : 1),
      row: (index) => this.items[index],
      need: (first, last) => last > length - 10 && this.more(),
    };
  }

  close() {
    this._stop.abort();
  }

  /** Reads pages until there are `wanted` rows. */
  async _load(before, cursor, wanted, limit) {
    const { signal } = this._stop;
    const began = performance.now();
    let rows = before;
    let next = cursor;
    this.loading = true;
    try {
      for (let request = 0; request < MOST_REQUESTS; request += 1) {
        const answer = await this._ask(next, limit, signal);
        if (signal.aborted) return;
        rows = [...rows, ...answer.rows];
        next = answer.next;
        if (next === null || rows.length >= wanted) break;
      }
      Object.assign(this, { items: rows, next, failed: null, _took: performance.now() - began });
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      this.failed = error;
      // A request that was refused would be refused again.
      this.next = null;
    } finally {
      if (!signal.aborted) this.loading = false;
    }
    this._changed();
  }
}
