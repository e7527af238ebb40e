/**
 * Rows of a Strandline table in a web page: loaded in pages, kept up to date, changed optimistically.
 *
 * `createLog(url, { table, parent })` returns a store for React's `useSyncExternalStore`, or for any other code that
 * calls `subscribe` and `getSnapshot`. `makeUseLog(React)` returns the hook. Browsers load the files of this folder as
 * they are: there are no dependencies and no build step.
 *
 * Guarantees:
 * - An append is applied once, however often it is sent, because it has an idempotency key.
 * - A row appears once, whether the answer or the live event arrives first.
 * - Events that a broken connection missed arrive after it is reconnected.
 * - A change that the server refuses is reverted, and the promise of the call rejects with the server's error.
 *
 * @module strandline
 */

import { Log } from "./log.js";

export { StrandlineError } from "./errors.js";
export { makeUseLog } from "./react.js";

/**
 * The live rows of one parent of a table.
 * @param {string} url the URL of the server, for example `http://127.0.0.1:4000`
 * @param {import("./strandline.js").LogOptions} options
 */
export function createLog(url, options) {
  return new Log(url, options);
}
