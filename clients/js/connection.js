/** A server, its tables, and who the page acts for. */

import { mayAnswerElsewhere, StrandlineError } from "./errors.js";
import { checkedConnection, checkedTable, checkedUrls, CONNECTION, known } from "./options.js";

/** A server, or several of which one answers, and the credentials of the page. Requests go to `url`. */
export class Connection {
  /**
   * @param {ServerUrl} urls
   * @param {import("./strandline.js").ConnectOptions} [options]
   */
  constructor(urls, options = {}) {
    const { token, user, retry } = checkedConnection(options);
    this.urls = checkedUrls(urls);
    this.url = this.urls[0];
    /**
     * What the servers that do not answer said, by URL.
     * @type {Map<string, string>}
     */
    this._failures = new Map();
    this.token = token;
    this.user = user;
    this.retry = retry;
  }

  answered() {
    this._failures.clear();
  }

  /**
   * Note that a request failed. If another server may answer, the following requests go to the leader that a standby
   * names, or else to the next one, and the error names all that do not answer.
   * @param {string} url
   * @param {unknown} error
   */
  failed(url, error) {
    if (this.urls.length === 1 || !(error instanceof StrandlineError) || !mayAnswerElsewhere(error)) return;
    error.server = url;
    const leader = this._leader(error);
    this._failures.delete(url);
    this._failures.set(url, `${url}: ${error.message}`);
    error.message = [...this._failures.values()].join("; ");
    // Another request may have moved on already.
    if (this.url === url) this.url = leader ?? this.urls[(this.urls.indexOf(url) + 1) % this.urls.length];
  }

  /**
   * The leader that a standby names, if it is one of the servers. Standbys name a leader that is lost until one of them
   * takes over.
   * @param {StrandlineError} error
   */
  _leader(error) {
    const place = error.detail?.detail?.leader;
    const found = this.urls.find((url) => isAt(url, place));
    return found && this._failures.has(found) ? undefined : found;
  }
}

/**
 * Whether a server is at `host:port`.
 * @param {string} text
 * @param {unknown} place
 */
function isAt(text, place) {
  const { hostname, port, protocol } = new URL(text);
  return `${hostname}:${port || (protocol === "https:" ? 443 : 80)}` === place;
}

/** One table of a server: what `createLog` and `useLog` open. */
export class TableReference {
  /**
   * @param {Connection} connection
   * @param {string} name
   */
  constructor(connection, name) {
    this._connection = connection;
    this.name = checkedTable(name);
    this.path = `/tables/${encodeURIComponent(name)}`;
  }

  get url() {
    return this._connection.url + this.path;
  }
}

/**
 * The tables of a server: `connect(url).vote` is the table `vote`. Nothing is requested until a log is opened.
 * @param {ServerUrl} url
 * @param {import("./strandline.js").ConnectOptions} [options]
 */
export function connect(url, options) {
  const connection = new Connection(url, options);
  /** @type {Map<string, TableReference>} */
  const tables = new Map();
  return new Proxy(Object.freeze({}), {
    get(_, name) {
      if (typeof name === "symbol") return undefined;
      const table = tables.get(name) ?? new TableReference(connection, name);
      // The same object every time, so that React sees the same table.
      tables.set(name, table);
      return table;
    },
  });
}

/**
 * The table and the options of a store, from the arguments of a caller.
 * @param {Where} where a table, or the URL of a server whose table is in the options
 * @param {any} options
 * @param {string[]} names the options that the store has
 * @returns {[TableReference, any]}
 */
export function opened(where, options, names) {
  if (where instanceof TableReference) return [where, known(options, names)];
  if (typeof where !== "string" && !(where instanceof URL)) {
    throw new TypeError("the first argument must be a table of connect(url), or the URL of a server");
  }
  const { table, token, user, ...rest } = known(options, ["table", ...CONNECTION, ...names]);
  return [new TableReference(new Connection(String(where), { token, user }), table), rest];
}

/**
 * @typedef {string | URL | readonly (string | URL)[]} ServerUrl
 * @typedef {string | URL | TableReference} Where
 */
