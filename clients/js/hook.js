/** The hooks for React. */

import { opened } from "./connection.js";
import { Feed, FEED_METHODS } from "./feed.js";
import { Log, LOG_METHODS } from "./log.js";
import { FEED, LOG } from "./options.js";
import { LOADING } from "./store.js";

/**
 * @typedef {{ useMemo: Function, useSyncExternalStore: Function }} React
 * @typedef {import("./connection.js").Where} Where
 */

/**
 * Returns the hook `useLog(table, options)` for the given React.
 * @param {React} React
 */
export const makeUseLog = (React) =>
  makeHook(React, (where, options) => new Log(...opened(where, options, LOG)), LOG_METHODS);

/**
 * Returns the hook `useFeed(table, options)` for the given React.
 * @param {React} React
 */
export const makeUseFeed = (React) =>
  makeHook(React, (where, options) => new Feed(...opened(where, options, FEED)), FEED_METHODS);

/**
 * @param {React} React
 * @param {(where: Where, options: any) => Log | Feed} open
 * @param {readonly string[]} methods
 */
function makeHook(React, open, methods) {
  /**
   * @param {Where} where
   * @param {any} [options]
   */
  return (where, options = {}) => {
    const held = React.useMemo(() => new Held(() => open(where, options), methods), [where, JSON.stringify(options)]);
    const snapshot = React.useSyncExternalStore(held.subscribe, held.getSnapshot, () => LOADING);
    return React.useMemo(() => ({ ...snapshot, ...held.methods }), [snapshot, held]);
  };
}

/** A store that is open while a component shows it. Rendering alone does not open it, so nothing stays open. */
class Held {
  /**
   * @param {() => Log | Feed} open
   * @param {readonly string[]} methods
   */
  constructor(open, methods) {
    /** @type {Log | Feed | null} */
    this._store = null;
    this._users = 0;
    this._open = () => (this._store ??= open());
    /** @type {Record<string, Function>} */
    this.methods = {};
    for (const name of methods) {
      if (name === "subscribe" || name === "getSnapshot" || name === "close") continue;
      this.methods[name] = (/** @type {any[]} */ ...rest) => /** @type {any} */ (this._open())[name](...rest);
    }
  }

  getSnapshot = () => this._store?.getSnapshot() ?? LOADING;

  /** @param {() => void} listener */
  subscribe = (listener) => {
    this._users++;
    const unsubscribe = this._open().subscribe(listener);
    return () => {
      unsubscribe();
      this._users--;
      // React's strict mode unsubscribes and subscribes again immediately; keep the connection.
      setTimeout(() => this._users === 0 && this._close());
    };
  };

  _close() {
    this._store?.close();
    this._store = null;
  }
}
