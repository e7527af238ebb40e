/** Requests of the topics protocol, and which of them are repeated. */

import { Requests } from "./requests.js";
import { RETRY, retrying } from "./retrying.js";

/** Calls of the topics protocol. */
export class Calls extends Requests {
  /** @param {import("./connection.js").Connection} connection */
  constructor(connection) {
    super(connection);
    this._retry = { ...RETRY, ...connection.retry };
  }

  /**
   * A call that may be repeated, because repeating it has no further effect.
   * @param {string} method
   * @param {string} path
   * @param {unknown} [body]
   * @param {{ signal?: AbortSignal, waitMs?: number, forMs?: number }} [how]
   * @returns {Promise<any>}
   */
  repeat(method, path, body, { signal = new AbortController().signal, waitMs = 0, forMs = Infinity } = {}) {
    const retry = { retry: this._retry, servers: this.servers, signal, forMs: Math.min(forMs, this._retry.forMs) };
    return retrying(() => this.once(method, path, body, { signal, waitMs }), retry);
  }

  /**
   * A call that is sent once.
   * @param {string} method
   * @param {string} path
   * @param {unknown} [body]
   * @param {{ signal?: AbortSignal, waitMs?: number }} [how]
   * @returns {Promise<any>}
   */
  once(method, path, body, { signal, waitMs } = {}) {
    const headers = { ...this._headers };
    if (body === undefined) return this._ask(path, { method, headers }, signal, waitMs);
    headers["content-type"] = "application/json";
    return this._ask(path, { method, headers, body: JSON.stringify(body) }, signal, waitMs);
  }
}

/**
 * A name as one segment of a path.
 * @param {string} name
 */
export const pathOf = (name) => (/^\.\.?$/.test(name) ? name.replaceAll(".", "%2E") : encodeURIComponent(name));

/** @param {string} topic */
export const topicPath = (topic) => `/v0/topics/${pathOf(topic)}`;
