/** What callers say, checked before anything is done with it. */

/** How many rows a page has unless the caller says otherwise. */
const PAGE_SIZE = 50;

/** @param {import("./strandline.js").LogOptions} options */
export function checked(options) {
  const { table, parent, user, pageSize = PAGE_SIZE } = options ?? {};
  for (const [name, value] of Object.entries({ table, parent })) {
    if (typeof value !== "string" || value === "") throw new TypeError(`${name} has to be a text`);
  }
  if (user != null && !/^[^\p{Cc}\s](?:[^\p{Cc}]*[^\p{Cc}\s])?$/u.test(user)) {
    throw new TypeError("user has to be a text without control characters, and without spaces around it");
  }
  if (!Number.isInteger(pageSize) || pageSize < 1) throw new TypeError("pageSize has to be a whole number from 1 on");
  return { ...options, pageSize };
}

/**
 * @param {{ payload: Record<string, any>, idempotencyKey?: string }} item
 * @returns {{ payload: Record<string, any>, idempotencyKey: string }}
 */
export function appendable(item) {
  if (typeof item?.payload !== "object" || item.payload === null) {
    throw new TypeError("what is appended has to be { payload: { … } }");
  }
  return { payload: item.payload, idempotencyKey: item.idempotencyKey || newKey() };
}

/** A key that nobody else has. Pages that did not come over HTTPS have no `crypto.randomUUID`. */
function newKey() {
  if (typeof crypto.randomUUID === "function") return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
