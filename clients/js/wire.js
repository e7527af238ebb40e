/** Requests to one table, and its live events. */

import { closed, refusal, StrandlineError, unreachable } from "./errors.js";
import { tokenHeaders, tokenOf } from "./token.js";

/** A request without an answer after this time has failed. */
const REQUEST_MS = 30_000;
/** A live connection without any data for this time is dead. Servers send a heartbeat every 15 s. */
const SILENCE_MS = 45_000;

/** @typedef {{ headers: Record<string, string>, method?: string, body?: string }} Request */

/** Sends requests to one table. */
export class Wire {
  /**
   * @param {import("./connection.js").TableReference} table
   * @param {boolean} isPublic
   */
  constructor(table, isPublic) {
    const { token, user } = table._connection;
    this._url = table.url;
    this._variant = isPublic ? "pub" : "auth";
    this._token = token;
    /** @type {Record<string, string>} */
    this._headers = {};
    if (user != null) this._headers["strandline-user"] = inBytes(user);
  }

  /** Whether a function provides the tokens, so that a later request may have another one. */
  get asksForTokens() {
    return typeof this._token === "function";
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
    return this._ask(`${this._url}/${operation}`, { method: "POST", headers, body: JSON.stringify(body) });
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
      const address = this._address(live, { parent, after });
      const response = await this._fetch(address, { headers, signal: ending.signal });
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
    // Removed rows are never public.
    const variant = operation === "trash" ? "auth" : this._variant;
    return `${this._url}/${variant}/${operation}?${query}`;
  }

  /**
   * @param {string} address
   * @param {Request} request
   * @param {AbortSignal} [signal]
   */
  async _ask(address, request, signal) {
    const ending = new Ending(REQUEST_MS, signal);
    try {
      const response = await this._fetch(address, { ...request, signal: ending.signal });
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

  /**
   * Sends a request with the current token. If the server refuses it and there is another one now, the request is sent
   * once more.
   * @param {string} address
   * @param {Request & { signal: AbortSignal }} request
   */
  async _fetch(address, request) {
    const token = await this._currentToken(request);
    const response = await sent(address, request, token);
    if (response.status !== 401 || !this.asksForTokens) return response;
    const next = await this._currentToken(request);
    if (next === token) return response;
    await response.body?.cancel();
    return sent(address, request, next);
  }

  /** @param {{ signal: AbortSignal }} request */
  _currentToken({ signal }) {
    return within(tokenOf(this._token), signal);
  }
}

/**
 * @param {string} address
 * @param {Request & { signal: AbortSignal }} request
 * @param {string | null | undefined} token
 */
function sent(address, request, token) {
  const headers = { ...request.headers, ...tokenHeaders(token) };
  return fetch(address, { ...request, cache: "no-store", headers }).catch(unreachable);
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
 * The result, or an error if the signal aborts first.
 * @template T
 * @param {Promise<T>} result
 * @param {AbortSignal} signal
 * @returns {Promise<T>}
 */
function within(result, signal) {
  return new Promise((resolve, reject) => {
    const end = () => reject(new StrandlineError("NO_TOKEN", "the function that provides the token does not answer"));
    signal.addEventListener("abort", end);
    result.then(resolve, reject).finally(() => signal.removeEventListener("abort", end));
  });
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
