/** Requests to one table, and its live events. */

import { closed, refusal, StrandlineError, unreachable } from "./errors.js";

/** A request without an answer after this time has failed. */
const REQUEST_MS = 30_000;
/** A live connection without any data for this time is dead. Servers send a heartbeat every 15 s. */
const SILENCE_MS = 45_000;

/** Sends requests to one table on behalf of one user. */
export class Wire {
  /**
   * @param {string} url
   * @param {import("./strandline.js").LogOptions} options
   */
  constructor(url, { table, key, user, public: isPublic = false }) {
    const base = `${String(url).replace(/\/+$/, "")}/tables/${encodeURIComponent(table)}`;
    this._writes = base;
    this._reads = `${base}/${isPublic ? "pub" : "auth"}`;
    /** @type {Record<string, string>} */
    this._headers = {};
    if (key != null) this._headers["authorization"] = `Bearer ${key}`;
    if (user != null) this._headers["strandline-user"] = inBytes(user);
  }

  /**
   * @param {string} operation
   * @param {Record<string, string | number | undefined>} parameters
   * @param {AbortSignal} signal
   */
  read(operation, parameters, signal) {
    return this._ask(this._address(operation, parameters), { headers: this._headers }, signal);
  }

  /**
   * Only the timeout ends a write. Closing the page does not cancel it, because the user has already triggered it.
   * @param {string} operation
   * @param {unknown} body
   */
  write(operation, body) {
    const headers = { ...this._headers, "content-type": "application/json" };
    return this._ask(`${this._writes}/${operation}`, { method: "POST", headers, body: JSON.stringify(body) });
  }

  /**
   * The events of a live connection, until it ends or is considered dead.
   * @param {string} parent
   * @param {string} after
   * @param {AbortSignal} signal
   * @returns {AsyncGenerator<{ type: string, id: string | null, data: any }>}
   */
  async *live(parent, after, signal) {
    const headers = { ...this._headers, accept: "text/event-stream" };
    const ending = new Ending(SILENCE_MS, signal);
    try {
      const address = this._address("live", { parent, after });
      const response = await reach(address, { headers, cache: "no-store", signal: ending.signal });
      if (!response.ok) throw await refusal(response);
      if (response.body === null) throw new StrandlineError("BAD_ANSWER", "the answer to the live request has no body");
      yield* eventsOf(response.body.getReader(), ending);
    } finally {
      ending.end();
    }
  }

  /**
   * @param {string} operation
   * @param {Record<string, string | number | undefined>} parameters
   */
  _address(operation, parameters) {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(parameters)) if (value !== undefined) query.set(name, String(value));
    return `${this._reads}/${operation}?${query}`;
  }

  /**
   * @param {string} address
   * @param {RequestInit} request
   * @param {AbortSignal} [signal]
   */
  async _ask(address, request, signal) {
    const ending = new Ending(REQUEST_MS, signal);
    try {
      const response = await reach(address, { ...request, cache: "no-store", signal: ending.signal });
      if (!response.ok) throw await refusal(response);
      const text = await response.text().catch(unreachable);
      try {
        return JSON.parse(text);
      } catch (cause) {
        throw new StrandlineError("BAD_ANSWER", "the answer of the server is not valid JSON", { status: response.status, cause });
      }
    } catch (error) {
      throw signal?.aborted ? closed() : error;
    } finally {
      ending.end();
    }
  }
}

/**
 * UTF-8 with one character per byte, the only form that `fetch` accepts in a header.
 * @param {string} text
 */
const inBytes = (text) => String.fromCharCode(...new TextEncoder().encode(text));

/** Ends a request after a timeout, or when the caller aborts it. */
class Ending {
  /**
   * @param {number} ms
   * @param {AbortSignal} [outer]
   */
  constructor(ms, outer) {
    const controller = new AbortController();
    this.signal = controller.signal;
    this._ms = ms;
    this._outer = outer;
    this._abort = () => controller.abort();
    this._timer = setTimeout(this._abort, ms);
    outer?.addEventListener("abort", this._abort);
    if (outer?.aborted) this._abort();
  }

  /** Restarts the timeout after data has arrived. */
  again() {
    clearTimeout(this._timer);
    this._timer = setTimeout(this._abort, this._ms);
  }

  end() {
    clearTimeout(this._timer);
    this._outer?.removeEventListener("abort", this._abort);
    this._abort();
  }
}

/**
 * @param {string} address
 * @param {RequestInit} request
 */
const reach = (address, request) => fetch(address, request).catch(unreachable);

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
