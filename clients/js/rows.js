/** The rows to show: the rows of the server, and local changes. */

/**
 * @typedef {Record<string, any>} Row
 * @typedef {{ id: string, seq: number, created: boolean }} Appended
 * @typedef {{ row: Row, answer: Promise<Appended>, arrived: (row: Row) => void }} Appending
 *   An append without an answer, or whose row has not arrived yet; `arrived` is called when the row arrives.
 * @typedef {{ id: string, patch: Row }} Edit
 * @typedef {{ id: string }} Removal
 */

/**
 * The rows of the server, and the changes that it has not confirmed. They are stored separately and merged for each
 * snapshot, so that reverting a change needs no undo.
 */
export class Rows {
  /** @param {(row: Row) => number} orderOf */
  constructor(orderOf) {
    /** Rows with a greater number are newer. */
    this.orderOf = orderOf;
    /** @type {Map<string, Row>} by id */
    this._told = new Map();
    /** Removed rows. Earlier versions of them may still arrive. @type {Set<string>} */
    this._gone = new Set();
    /** @type {Map<string, Appending>} by key */
    this._appending = new Map();
    /** @type {Set<Edit>} */
    this.edits = new Set();
    /** @type {Set<Removal>} */
    this.removals = new Set();
    /** Rows below this number are not loaded; those that arrived as events are not shown. */
    this.floor = 0;
  }

  /* Rows of the server */

  get count() {
    return this._told.size;
  }

  clear() {
    this._told.clear();
    this._gone.clear();
  }

  /**
   * Of two versions of a row, the later one wins, whichever arrives first.
   * @param {Row} row
   */
  put(row) {
    if (this._gone.has(row.id)) return;
    const known = this._told.get(row.id);
    if (known === undefined || known.updatedAt <= row.updatedAt) this._told.set(row.id, row);
    for (const [key, appending] of this._appending) {
      if (key === row.idempotencyKey || appending.row.id === row.id) this._arrived(key, appending, row);
    }
  }

  /** @param {Row} row */
  putBack(row) {
    this._gone.delete(row.id);
    this.put(row);
  }

  /** @param {string} id */
  take(id) {
    this._told.delete(id);
    this._gone.add(id);
    for (const [key, { row }] of this._appending) if (row.id === id) this._appending.delete(key);
  }

  /* Unconfirmed appends */

  /** @param {string} key */
  appendOf(key) {
    return this._appending.get(key);
  }

  /**
   * The append that shows this row.
   * @param {string} id
   */
  appendShowing(id) {
    for (const appending of this._appending.values()) if (appending.row.id === id) return appending;
    return undefined;
  }

  /**
   * @param {string} key
   * @param {Appending} appending
   */
  beginAppend(key, appending) {
    for (const row of this._told.values()) if (row.idempotencyKey === key) return;
    this._appending.set(key, appending);
  }

  /**
   * The append is answered; its row may not have arrived.
   * @param {string} key
   * @param {Appended} answer
   */
  answeredAppend(key, { id, seq }) {
    const appending = this._appending.get(key);
    if (appending === undefined) return;
    this._renamed(appending.row.id, id);
    if (this._told.has(id) || this._gone.has(id)) this._appending.delete(key);
    else appending.row = { ...appending.row, id, seq };
  }

  /** @param {string} key */
  endAppend(key) {
    this._appending.delete(key);
  }

  /**
   * @param {string} key
   * @param {Appending} appending
   * @param {Row} row
   */
  _arrived(key, appending, row) {
    this._appending.delete(key);
    this._renamed(appending.row.id, row.id);
    appending.arrived(row);
  }

  /**
   * Move the changes of a pending row to the real row.
   * @param {string} from
   * @param {string} to
   */
  _renamed(from, to) {
    for (const change of [...this.edits, ...this.removals]) if (change.id === from) change.id = to;
  }

  /* View */

  /** The rows to show, newest first. Rows without a seq are the newest. */
  view() {
    const hidden = new Set(Array.from(this.removals, (removal) => removal.id));
    const rows = Array.from(this._told.values()).filter((row) => this.orderOf(row) >= this.floor);
    for (const { row } of this._appending.values()) rows.push(row);
    const orders = new Map(rows.map((row, place) => [row, this.orderOf(row) ?? Number.MAX_SAFE_INTEGER + place]));
    rows.sort((one, other) => (orders.get(other) ?? 0) - (orders.get(one) ?? 0));
    return rows.filter((row) => !hidden.has(row.id)).map((row) => this._edited(row));
  }

  /** @param {Row} row */
  _edited(row) {
    for (const { id, patch } of this.edits) if (id === row.id) row = { ...row, ...patch, pending: true };
    return row;
  }
}
