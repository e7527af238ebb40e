/**
 * Rows of a Strandline table in a page: loaded in pages, kept up to date by the server, changed at once.
 *
 * `createLog(url, { table, parent })` gives a store that fits React's `useSyncExternalStore` and anything else that
 * can call `subscribe` and `getSnapshot`. `makeUseLog(React)` gives the hook. No dependencies, no build step: the files
 * of this folder are what browsers load.
 *
 * What can be relied on:
 * - An append is made once, however often it had to be sent: every one has an idempotency key.
 * - A row is shown once, whether the answer or the live connection brings it first.
 * - What the live connection missed while it was cut off is told when it is back; nothing is left out.
 * - A change that the server refuses is taken back, and the promise of the call fails with the server's error.
 *
 * @module strandline
 */

import { Log } from "./log.js";

export { StrandlineError } from "./errors.js";
export { makeUseLog } from "./react.js";

/**
 * The rows of one parent of a table, live.
 * @param {string} url where the server is, for instance `http://127.0.0.1:4000`
 * @param {import("./strandline.js").LogOptions} options
 */
export function createLog(url, options) {
  return new Log(url, options);
}
