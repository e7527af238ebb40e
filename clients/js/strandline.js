/**
 * Rows of a Strandline table in a web page: loaded in pages, kept up to date, changed optimistically.
 *
 * `connect(url)` returns the tables of a server, and `createLog(api.vote, { parent })` a store for React's
 * `useSyncExternalStore`, or for any other code that calls `subscribe` and `getSnapshot`. `createFeed(api.vote)` has the
 * rows of all parents. `makeUseLog(React)` and `makeUseFeed(React)` return the hooks. Browsers load the files of this
 * folder as they are: there are no dependencies and no build step.
 *
 * Guarantees:
 * - An append is applied once, however often it is sent, because it has an idempotency key.
 * - An append is repeated as long as the log is open, also while the server restarts.
 * - A row appears once, whether the answer or the live event arrives first.
 * - Events that a broken connection missed arrive after it is reconnected.
 * - A change that the server refuses is reverted, and the promise of the call rejects with the server's error.
 *
 * @module strandline
 */

import { opened } from "./connection.js";
import { Feed } from "./feed.js";
import { Log } from "./log.js";
import { FEED, LOG } from "./options.js";

export { connect } from "./connection.js";
export { StrandlineError } from "./errors.js";
export { makeUseFeed, makeUseLog } from "./hook.js";

/**
 * The live rows of one parent of a table.
 * @param {import("./connection.js").Where} where `connect(url).vote`, or the URL of a server
 * @param {import("./strandline.js").LogOptions | import("./strandline.js").ServerLogOptions} options
 */
export function createLog(where, options) {
  return new Log(...opened(where, options, LOG));
}

/**
 * The live rows of all parents of a table that is declared with a feed.
 * @param {import("./connection.js").Where} where
 * @param {import("./strandline.js").StoreOptions | import("./strandline.js").ServerStoreOptions} [options]
 */
export function createFeed(where, options = {}) {
  return new Feed(...opened(where, options, FEED));
}
