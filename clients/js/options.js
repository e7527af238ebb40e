/** Validates the arguments of callers. */

/** The default number of rows of a page. */
const PAGE_SIZE = 50;
/** The names of options: of a feed, of a log, and of who asks. */
export const FEED = ["public", "pageSize", "live", "retry"];
export const LOG = ["parent", ...FEED];
export const CONNECTION = ["token", "user"];

/** @param {import("./strandline.js").ConnectOptions} options */
export function checkedConnection(options) {
  const { token, user } = known(options, [...CONNECTION, "retry"]);
  if (token != null && typeof token !== "string" && typeof token !== "function") {
    throw new TypeError("token must be a string or a function that returns one");
  }
  if (user != null && !/^[^\p{Cc}\s](?:[^\p{Cc}]*[^\p{Cc}\s])?$/u.test(user)) {
    throw new TypeError("user must be a string without control characters and without surrounding spaces");
  }
  return options;
}

/**
 * The URLs of a server and its standbys, without a slash at their ends.
 * @param {import("./connection.js").ServerUrl} urls
 */
export function checkedUrls(urls) {
  const texts = Array.isArray(urls) ? urls.map(String) : String(urls).split(",");
  if (texts.length === 0) throw new TypeError("the list of URLs is empty");
  for (const url of texts) {
    // A browser would take anything else for a path of the page's own server.
    if (!/^\s*https?:\/\/[^/]/i.test(url)) throw new TypeError(`the URL needs http:// or https://, not ${url}`);
  }
  return [...new Set(texts.map((url) => url.trim().replace(/\/+$/, "")))];
}

/** @param {unknown} name */
export function checkedTable(name) {
  return text("table", name);
}

/** @param {import("./strandline.js").LogOptions} options */
export function checkedLog({ parent, ...rest }) {
  return { ...checkedStore(rest), parent: text("parent", parent) };
}

/** @param {import("./strandline.js").StoreOptions} options */
export function checkedStore({ pageSize = PAGE_SIZE, ...rest }) {
  if (!Number.isInteger(pageSize) || pageSize < 1) throw new TypeError("pageSize must be an integer of at least 1");
  return { ...rest, pageSize };
}

/**
 * @param {{ payload: Record<string, any>, idempotencyKey?: string }} item
 */
export function appendable(item) {
  const { payload, idempotencyKey } = item ?? {};
  if (!isObject(payload)) throw new TypeError("an appended item must have the form { payload: { … } }");
  return keyed(payload, idempotencyKey);
}

/** @param {Record<string, any>} item a payload, with an optional idempotency key beside its fields */
export function bulkAppendable(item) {
  if (!isObject(item)) throw new TypeError("an item of a bulk must be a payload: { … }");
  const { idempotencyKey, ...payload } = item;
  return keyed(payload, idempotencyKey);
}

/**
 * `isNew`: the key was made here, so no earlier append can have it.
 * @param {Record<string, any>} payload
 * @param {string} [key]
 */
const keyed = (payload, key) => ({ payload, idempotencyKey: key || newKey(), isNew: !key });

/** A unique key. Pages that are not served over HTTPS have no `crypto.randomUUID`. */
export function newKey() {
  if (typeof crypto.randomUUID === "function") return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** @param {unknown} value */
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/**
 * @param {string} name
 * @param {unknown} value
 */
function text(name, value) {
  if (typeof value !== "string" || value === "") throw new TypeError(`${name} must be a non-empty string`);
  return value;
}

/**
 * The options, which have no other names.
 * @template {object} T
 * @param {T} options
 * @param {string[]} names
 * @returns {T}
 */
export function known(options, names) {
  for (const name of Object.keys(options ?? {})) {
    if (!names.includes(name)) throw new TypeError(`unknown option ${name}; expected ${names.join(", ")}`);
  }
  return options ?? {};
}
