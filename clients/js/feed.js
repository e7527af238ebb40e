/** A feed: the rows of all parents of a table, newest first. */

import { checkedStore } from "./options.js";
import { Store, STORE_METHODS } from "./store.js";

export const FEED_METHODS = STORE_METHODS;

/** `strandline.d.ts` documents each member. */
export class Feed extends Store {
  /**
   * @param {import("./connection.js").TableReference} table
   * @param {import("./strandline.js").StoreOptions} options
   */
  constructor(table, options) {
    const checked = checkedStore(options);
    // Rows of different parents have the same seqs. A feed has them in the order of their times.
    super(table, { list: "feed", live: "feed/live", orderOf: (row) => row.createdAt }, checked);
    this._open(FEED_METHODS, checked);
  }
}
