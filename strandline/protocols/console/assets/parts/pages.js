/** A list that grows while the user scrolls: pages of rows, each with the cursor of the next one. */

import { ApiError } from "../api.js";

/** The rows that are kept. Users find further ones with a filter. */
const MOST = 10_000;
/** The most rows of one request. */
const AT_ONCE = 500;
/** A page may be empty although there are further rows. After this many in a row, the user has to ask for more. */
const EMPTY_PAGES = 20;

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
    this.ready = false;
    this._ask = ask;
    this._changed = changed;
    this._size = size;
    this._stop = new AbortController();
  }

  /** Reads the rows again, as many as were read before. The old ones are shown until the new ones arrive. */
  reload({ fresh = false } = {}) {
    this._stop.abort();
    this._stop = new AbortController();
    if (fresh) this.ready = false;
    const wanted = fresh ? this._size : Math.min(AT_ONCE, Math.max(this._size, this.items.length));
    return this._load([], null, wanted);
  }

  /** Reads the next page. */
  more() {
    if (this.loading || this.next === null || this.isFull) return undefined;
    return this._load(this.items, this.next, this._size);
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

  async _load(before, cursor, limit) {
    const { signal } = this._stop;
    let rows = before;
    let next = cursor;
    this.loading = true;
    try {
      for (let page = 0; page < EMPTY_PAGES && (page === 0 || (next !== null && rows.length === before.length)); page += 1) {
        const answer = await this._ask(next, limit, signal);
        if (signal.aborted) return;
        rows = [...rows, ...answer.rows];
        next = answer.next;
      }
      Object.assign(this, { items: rows, next, failed: null, ready: true });
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
