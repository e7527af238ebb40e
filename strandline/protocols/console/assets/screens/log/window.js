/**
 * A window onto the records of a log: consecutive records that grow at both ends while the user scrolls, and that follow
 * the log while they include its end.
 */

import { events, get } from "../../api.js";

const PAGE = 200;
/** The maximum number of records in memory. More are dropped at the front, so that the page can stay open for days. */
const MOST = 20_000;
const GATHER_MS = 60;
const NEAR = 40;
const FEW = 3;

export class Window {
  /**
   * @param {string} name @param {{key: string, prefix: string}} filter read for every request
   * @param {{changed: (change?: {before?: number, added?: number}) => void, state: (state: string) => void, lost: (why: string) => void}} tell
   */
  constructor(name, filter, tell) {
    this.path = `/console/api/log/${encodeURIComponent(name)}`;
    this.filter = filter;
    this.tell = tell;
    this.items = [];
    this.head = 0;
    this.earliest = 1;
    this.atStart = false;
    this.atEnd = false;
    this.loading = false;
    this.paused = false;
    this.failed = null;
    this.generation = 0;
    this.stop = () => {};
    this.arrived = [];
    this.timer = 0;
    this.tell.state("waiting");
  }

  /** Loads the last records and follows new ones. */
  openEnd() {
    return this.open({ before: Number.MAX_SAFE_INTEGER, limit: PAGE }, true);
  }

  /** Loads the records from a position. @param {{after?: number, at?: number, around?: number}} where */
  openAt({ after, at, around }) {
    if (around !== undefined) return this.open({ after: Math.max(0, around - PAGE / 2), limit: PAGE }, false);
    return this.open(at === undefined ? { after, limit: PAGE } : { at, limit: PAGE }, false);
  }

  /** @returns {Promise<boolean>} whether these records are shown, and not those of a later request */
  async open(where, fromEnd) {
    const number = (this.generation += 1);
    this.leave();
    this.loading = true;
    try {
      const page = await this.ask(where);
      if (number !== this.generation) return false;
      this.failed = null;
      this.loading = false;
      this.items = entries(page);
      this.last = fromEnd ? page.head : page.next_after;
      // A page that is read backwards is caught up when it includes the first record.
      this.atStart = fromEnd ? page.caught_up : where.after === 0;
      this.atEnd = fromEnd || page.caught_up;
      if (this.atEnd) this.listen();
      else this.tell.state("earlier");
      this.tell.changed();
      return true;
    } catch (error) {
      if (number !== this.generation) return false;
      this.loading = false;
      this.failed = error;
      this.tell.state("refused");
      this.tell.changed();
      return false;
    }
  }

  /** Loads more records next to the visible rows. */
  reach(first, last) {
    if (first < NEAR && !this.atStart && this.items.length) this.older();
    if (last > this.items.length - NEAR && !this.atEnd && this.items.length) this.newer();
  }

  async older() {
    if (this.busy === this.generation) return;
    const number = (this.busy = this.generation);
    const page = await this.ask({ before: this.items[0].tombstone ? this.items[0].tombstone.gap_from : this.items[0].seq, limit: PAGE }).catch(() => null);
    if (number !== this.generation) return;
    this.busy = 0;
    if (!page) return;
    const found = entries(page);
    this.atStart = page.caught_up;
    if (!found.length) return;
    this.items = [...found, ...this.items];
    this.tell.changed({ before: found.length });
  }

  async newer() {
    if (this.busy === this.generation) return;
    const number = (this.busy = this.generation);
    const page = await this.ask({ after: this.last, limit: PAGE }).catch(() => null);
    if (number !== this.generation) return;
    this.busy = 0;
    if (!page) return;
    this.items = [...this.items, ...entries(page)];
    this.last = page.next_after;
    this.atEnd = page.caught_up;
    if (this.atEnd) this.listen();
    this.tell.changed();
  }

  /** Takes the state of the log: records may have been deleted. */
  told(log) {
    this.head = Math.max(this.head, log.head);
    this.earliest = log.earliest;
  }

  setPaused(paused) {
    this.paused = paused;
    if (paused) {
      this.leave();
      this.atEnd = false;
      this.generation += 1;
      this.tell.state("paused");
    } else this.openEnd();
  }

  listen() {
    if (this.paused) return this.tell.state("paused");
    const state = (word, error) => {
      this.tell.state(word);
      if (error) this.tell.lost(error.message);
    };
    this.stop = events(`${this.path}/tail?after=${this.last}`, {
      state,
      on: {
        record: (record) => this.gather(record.records ?? [record]),
        tombstone: (tombstone) => this.gather([{ tombstone, seq: tombstone.gap_to }]),
        dropped: () => {
          this.stop();
          this.tell.state("refused");
          this.tell.lost("The log was deleted.");
        },
      },
    });
    return undefined;
  }

  gather(records) {
    for (const record of records) {
      this.last = Math.max(this.last, record.seq);
      this.head = Math.max(this.head, record.seq);
      if (record.tombstone || this.matches(record)) this.arrived.push(record);
    }
    this.timer ||= setTimeout(() => this.flush(), GATHER_MS);
  }

  flush() {
    this.timer = 0;
    const added = this.arrived.length;
    // Only a few records at a time are highlighted.
    if (added <= FEW) for (const record of this.arrived) record.fresh = Date.now();
    this.items.push(...this.arrived);
    this.arrived = [];
    const over = this.items.length - MOST;
    if (over > 0) {
      this.items.splice(0, over);
      this.atStart = false;
    }
    if (added) this.tell.changed({ added, before: over > 0 ? -over : 0 });
  }

  matches(record) {
    if (this.filter.key) return record.key === this.filter.key;
    if (this.filter.prefix) return (record.key ?? "").startsWith(this.filter.prefix) && record.key !== undefined;
    return true;
  }

  leave() {
    this.stop();
    this.stop = () => {};
    clearTimeout(this.timer);
    this.timer = 0;
    this.arrived = [];
  }

  close() {
    this.generation += 1;
    this.leave();
  }

  async ask(where) {
    const page = await get(`${this.path}/records`, { ...where, ...this.filter });
    this.head = Math.max(this.head, page.head);
    this.earliest = page.earliest;
    return page;
  }
}

function entries(page) {
  const lost = page.tombstone ? [{ tombstone: page.tombstone, seq: page.tombstone.gap_to }] : [];
  return [...lost, ...page.records];
}
