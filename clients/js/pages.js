/** Loads rows: page by page, or everything again. */

/** The maximum number of rows of one request. */
const LARGEST_PAGE = 100;

/**
 * @typedef {import("./rows.js").Row} Row
 * @typedef {{ type: string, data: any }} Event
 * @typedef {{ page: Row[], isDone: boolean, continueCursor: string }} Page
 * @typedef {(limit: number, cursor: string | undefined) => Promise<Page>} List
 */

export class Pages {
  /**
   * @param {import("./rows.js").Rows} rows
   * @param {number} pageSize
   */
  constructor(rows, pageSize) {
    this._rows = rows;
    this._pageSize = pageSize;
    this.hasMore = false;
    /** The cursor of the next page. @type {string | undefined} */
    this._next = undefined;
    /** Pages are read one at a time, so that a reload and the next page do not interfere. */
    this._turn = Promise.resolve();
    /** @type {Promise<void> | null} */
    this._reloading = null;
    this._isOutdated = false;
    /** Events that arrive during a reload, applied again after it. @type {Event[]} */
    this._meanwhile = [];
  }

  /**
   * Read the shown rows again. A call during a reload adds one more round instead of a parallel reload.
   * @param {List} list
   */
  reload(list) {
    this._isOutdated = true;
    this._reloading ??= this._inTurn(() => this._readAnew(list)).finally(() => (this._reloading = null));
    return this._reloading;
  }

  /**
   * @param {List} list
   * @param {number} count
   */
  more(list, count) {
    return this._inTurn(async () => {
      if (!this.hasMore) return;
      const rows = await this._read(list, count, this._next);
      this._rows.floor = Math.min(this._rows.floor, this._floor(rows));
      for (const row of rows) this._rows.put(row);
    });
  }

  /**
   * Apply an event. If a page that was requested earlier arrives later, the event still wins.
   * @param {Event} event
   */
  apply(event) {
    if (this._reloading !== null) this._meanwhile.push(event);
    this._apply(event);
  }

  /** @param {List} list */
  async _readAnew(list) {
    const wanted = Math.max(this._pageSize, this._rows.count);
    /** @type {Row[]} */
    let rows = [];
    while (this._isOutdated) {
      this._isOutdated = false;
      this._meanwhile = [];
      rows = await this._read(list, wanted, undefined);
    }
    this._rows.clear();
    this._rows.floor = this._floor(rows);
    for (const row of rows) this._rows.put(row);
    for (const event of this._meanwhile) this._apply(event);
  }

  /**
   * Read `count` rows, or fewer if there are no more. A page can be empty without being the last one.
   * @param {List} list
   * @param {number} count
   * @param {string | undefined} cursor
   */
  async _read(list, count, cursor) {
    const rows = [];
    let isDone = false;
    while (rows.length < count && !isDone) {
      const told = await list(Math.min(count - rows.length, LARGEST_PAGE), cursor);
      rows.push(...told.page);
      isDone = told.isDone;
      cursor = told.continueCursor;
    }
    this._next = cursor;
    this.hasMore = !isDone;
    return rows;
  }

  /** @param {Row[]} rows */
  _floor(rows) {
    return this.hasMore ? Math.min(...rows.map(this._rows.orderOf)) : 0;
  }

  /** @param {Event} event */
  _apply({ type, data }) {
    if (type === "append" || type === "update") this._rows.put(data);
    else if (type === "restore") this._rows.putBack(data);
    else if (type === "rm") this._rows.take(data.id);
  }

  /**
   * @param {() => Promise<void>} work
   * @returns {Promise<void>}
   */
  _inTurn(work) {
    const done = this._turn.then(work);
    this._turn = done.catch(() => undefined);
    return done;
  }
}
