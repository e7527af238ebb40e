/** The hook for React. */

import { Log, LOADING, METHODS } from "./log.js";

/**
 * Returns the hook `useLog(url, options)` for the given React.
 * @param {{ useMemo: Function, useSyncExternalStore: Function }} React
 */
export function makeUseLog(React) {
  /**
   * @param {string} url
   * @param {import("./strandline.js").LogOptions} options
   */
  return function useLog(url, options) {
    const identity = JSON.stringify([url, options]);
    const held = React.useMemo(() => new Held(url, options), [identity]);
    const snapshot = React.useSyncExternalStore(held.subscribe, held.getSnapshot, () => LOADING);
    return React.useMemo(() => ({ ...snapshot, ...held.methods }), [snapshot, held]);
  };
}

/** A store that is open while a component shows it. Rendering alone does not open it, so nothing stays open. */
class Held {
  /**
   * @param {string} url
   * @param {import("./strandline.js").LogOptions} options
   */
  constructor(url, options) {
    /** @type {Log | null} */
    this._log = null;
    this._users = 0;
    this._open = () => (this._log ??= new Log(url, options));
    /** @type {Record<string, Function>} */
    this.methods = {};
    for (const name of METHODS) {
      if (name === "subscribe" || name === "getSnapshot" || name === "close") continue;
      this.methods[name] = (/** @type {any[]} */ ...rest) => /** @type {any} */ (this._open())[name](...rest);
    }
  }

  getSnapshot = () => this._log?.getSnapshot() ?? LOADING;

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
    this._log?.close();
    this._log = null;
  }
}
