/** Requests to one table, and its live events. */

import { StrandlineError, unreachable } from "./errors.js";
import { Ending, Requests } from "./requests.js";

/** A live connection without any data for this time is dead. Servers send a heartbeat every 15 s. */
const SILENCE_MS = 45_000;

/** Sends requests to one table. */
export class Wire extends Requests {
  /**
   * @param {import("./connection.js").TableReference} table
   * @param {boolean} isPublic
   */
  constructor(table, isPublic) {
    super(table._connection);
    this._path = table.path;
    this._variant = isPublic ? "pub" : "auth";
  }

  /**
   * @param {string} operation
   * @param {Record<string, string | number | undefined>} parameters
   * @param {AbortSignal} signal
   */
  read(operation, parameters, signal) {
    return this._ask(this._pathOf(operation, parameters), { headers: this._headers }, signal);
  }

  /**
   * Only the timeout ends a write. Closing the page does not cancel it, because the user has already triggered it.
   * @param {string} operation
   * @param {unknown} body
   */
  write(operation, body) {
    const headers = { ...this._headers, "content-type": "application/json" };
    return this._ask(`${this._path}/${operation}`, { method: "POST", headers, body: JSON.stringify(body) });
  }

  /**
   * The events of a live connection, until it ends or is considered dead.
   * @param {import("./store.js").Source} source
   * @param {string} after
   * @param {AbortSignal} signal
   * @returns {AsyncGenerator<{ type: string, id: string | null, data: any }>}
   */
  async *live({ live, parent }, after, signal) {
    const headers = { ...this._headers, accept: "text/event-stream" };
    const ending = new Ending(SILENCE_MS, signal);
    try {
      const path = this._pathOf(live, { parent, after });
      const [response, server] = await this._response(path, { headers, signal: ending.signal }, signal);
      if (response.body === null) throw new StrandlineError("BAD_ANSWER", "the answer to the live request has no body");
      try {
        yield* eventsOf(response.body.getReader(), ending);
      } catch (error) {
        if (!signal.aborted) this._connection.failed(server, error);
        throw error;
      }
    } finally {
      ending.end();
    }
  }

  /**
   * @param {string} operation
   * @param {Record<string, string | number | undefined>} parameters
   */
  _pathOf(operation, parameters) {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(parameters)) if (value !== undefined) query.set(name, String(value));
    // Removed rows are never public.
    const variant = operation === "trash" ? "auth" : this._variant;
    return `${this._path}/${variant}/${operation}?${query}`;
  }
}

/**
 * Parses server-sent events. The browser's EventSource cannot send headers.
 * @param {ReadableStreamDefaultReader<Uint8Array>} reader
 * @param {Ending} ending
 */
async function* eventsOf(reader, ending) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch(unreachable);
    if (done) return;
    ending.again();
    rest += decoder.decode(value, { stream: true });
    const blocks = rest.split(/\r?\n\r?\n/);
    rest = /** @type {string} */ (blocks.pop());
    for (const block of blocks) {
      const event = eventOf(block);
      if (event !== null) yield event;
    }
  }
}

/** @param {string} block */
function eventOf(block) {
  let type = "message";
  let id = null;
  const data = [];
  for (const line of block.split(/\r?\n/)) {
    const [, field, value] = /^([^:]*):? ?(.*)$/.exec(line) ?? [];
    if (field === "event") type = value;
    else if (field === "id") id = value;
    else if (field === "data") data.push(value);
  }
  return data.length ? { type, id, data: JSON.parse(data.join("\n")) } : null;
}
