/** A server, its tables, and who the page acts for. */

import { checkedConnection, checkedTable, checkedUrl, CONNECTION, known } from "./options.js";

/** A server, and the credentials of the page. */
export class Connection {
  /**
   * @param {string} url
   * @param {import("./strandline.js").ConnectOptions} [options]
   */
  constructor(url, options = {}) {
    const { token, user, retry } = checkedConnection(options);
    this.url = checkedUrl(url);
    this.token = token;
    this.user = user;
    this.retry = retry;
  }
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
    this.url = `${connection.url}/tables/${encodeURIComponent(name)}`;
  }
}

/**
 * The tables of a server: `connect(url).vote` is the table `vote`. Nothing is requested until a log is opened.
 * @param {string} url
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

/** @typedef {string | URL | TableReference} Where */
