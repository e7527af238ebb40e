/** Requests to a server, with the current token. */

import { closed, isStandby, refusal, StrandlineError, unreachable, unreachableError } from "./errors.js";
import { tokenHeaders, tokenOf } from "./token.js";

/** A request without an answer after this time has failed. */
const REQUEST_MS = 30_000;

/** @typedef {{ headers: Record<string, string>, method?: string, body?: string }} Request */

/** Sends requests of one connection. */
export class Requests {
  /** @param {import("./connection.js").Connection} connection */
  constructor(connection) {
    const { token, user } = connection;
    this._connection = connection;
    this._token = token;
    /** @type {Record<string, string>} */
    this._headers = {};
    if (user != null) this._headers["strandline-user"] = inBytes(user);
  }

  /** Whether a function provides the tokens, so that a later request may have another one. */
  get asksForTokens() {
    return typeof this._token === "function";
  }

  /** The number of servers that may answer. */
  get servers() {
    return this._connection.urls.length;
  }

  /**
   * @param {string} path
   * @param {Request} request
   * @param {AbortSignal} [signal]
   * @param {number} [waitMs] how much longer the answer may take
   */
  async _ask(path, request, signal, waitMs = 0) {
    const ending = new Ending(REQUEST_MS + waitMs, signal);
    try {
      const [response, server] = await this._response(path, { ...request, signal: ending.signal }, signal);
      const text = await response.text().catch((cause) => {
        const error = unreachableError(cause);
        if (!signal?.aborted) this._connection.failed(server, error);
        throw error;
      });
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
   * The answer of a server, and which one it is. A standby executes nothing, so the request then goes to the next server.
   * @param {string} path
   * @param {Request & { signal: AbortSignal }} request
   * @param {AbortSignal} [outer] the signal of the caller
   * @returns {Promise<[Response, string]>}
   */
  async _response(path, request, outer) {
    for (let others = this.servers - 1; ; others--) {
      const server = this._connection.url;
      try {
        const response = await this._fetch(server + path, request);
        if (!response.ok) throw await refusal(response);
        this._connection.answered();
        return [response, server];
      } catch (error) {
        if (outer?.aborted) throw error;
        this._connection.failed(server, error);
        if (others === 0 || !isStandby(error)) throw error;
      }
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
export class Ending {
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
