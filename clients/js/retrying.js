/** Waits and retries. */

import { closed, StrandlineError } from "./errors.js";

/** After a failure, wait about `firstMs`, then twice as long each time, up to `maxMs`; stop after `forMs`. */
export const RETRY = { firstMs: 250, maxMs: 10_000, forMs: 60_000 };

/** Ends waits early. */
export class Wake extends EventTarget {
  /** The number of signals. One that comes during an attempt counts for the wait after it. */
  count = 0;

  signal() {
    this.count++;
    this.dispatchEvent(new Event("wake"));
  }
}

/**
 * Wait, but end early when the device is online again or `wake` signals.
 * @param {number} ms
 * @param {AbortSignal} signal ends the wait with an error
 * @param {Wake} [wake]
 */
export function pause(ms, signal, wake) {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      wake?.removeEventListener("wake", end);
      globalThis.removeEventListener?.("online", end);
      if (signal.aborted) reject(closed());
      else resolve(undefined);
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end);
    wake?.addEventListener("wake", end);
    globalThis.addEventListener?.("online", end);
    if (signal.aborted) end();
  });
}

/** Waits that double and are randomised, so that many pages do not reconnect at the same moment. */
export class Backoff {
  /**
   * @param {typeof RETRY} retry
   * @param {number} [servers] how many servers may answer
   */
  constructor(retry, servers = 1) {
    this._retry = retry;
    this._servers = servers;
    this._next = retry.firstMs;
    /** The servers that failed since the last wait. */
    this._tried = 0;
  }

  reset() {
    this._next = this._retry.firstMs;
    this._tried = 0;
  }

  /**
   * The wait after an error: none as long as there is a server that was not tried since the last wait.
   * @param {StrandlineError} error
   */
  after({ server, retryAfterMs }) {
    if (server !== null && ++this._tried < this._servers) return 0;
    this._tried = 0;
    return this.next(retryAfterMs);
  }

  /** @param {number} atLeast */
  next(atLeast = 0) {
    const wait = this._next * (0.5 + Math.random());
    this._next = Math.min(this._next * 2, this._retry.maxMs);
    return Math.max(wait, atLeast);
  }
}

/**
 * Repeat a request until it succeeds, is refused permanently, or `forMs` have passed. For idempotent requests only.
 * @template T
 * @param {() => Promise<T>} attempt
 * @param {{ retry: typeof RETRY, servers?: number, signal: AbortSignal, forMs?: number, wake?: Wake,
 *   failed?: (error: StrandlineError) => void }} how
 * @returns {Promise<T>}
 */
export async function retrying(attempt, { retry, servers, signal, forMs = retry.forMs, wake, failed }) {
  const backoff = new Backoff(retry, servers);
  const until = Date.now() + forMs;
  for (;;) {
    const signals = wake?.count;
    try {
      return await attempt();
    } catch (error) {
      if (!(error instanceof StrandlineError) || !error.isTemporary || signal.aborted) throw error;
      const wait = backoff.after(error);
      if (Date.now() + wait > until) throw error;
      failed?.(error);
      if (wait && wake?.count === signals) await pause(wait, signal, wake);
    }
  }
}
