/** Validates the arguments of callers. */

/** The default number of rows of a page. */
const PAGE_SIZE = 50;

/** @param {import("./strandline.js").LogOptions} options */
export function checked(options) {
  const { table, parent, user, pageSize = PAGE_SIZE } = options ?? {};
  for (const [name, value] of Object.entries({ table, parent })) {
    if (typeof value !== "string" || value === "") throw new TypeError(`${name} must be a non-empty string`);
  }
  if (user != null && !/^[^\p{Cc}\s](?:[^\p{Cc}]*[^\p{Cc}\s])?$/u.test(user)) {
    throw new TypeError("user must be a string without control characters and without surrounding spaces");
  }
  if (!Number.isInteger(pageSize) || pageSize < 1) throw new TypeError("pageSize must be an integer of at least 1");
  return { ...options, pageSize };
}

/**
 * @param {{ payload: Record<string, any>, idempotencyKey?: string }} item
 * @returns {{ payload: Record<string, any>, idempotencyKey: string }}
 */
export function appendable(item) {
  if (typeof item?.payload !== "object" || item.payload === null) {
    throw new TypeError("an appended item must have the form { payload: { … } }");
  }
  return { payload: item.payload, idempotencyKey: item.idempotencyKey || newKey() };
}

/** A unique key. Pages that are not served over HTTPS have no `crypto.randomUUID`. */
function newKey() {
  if (typeof crypto.randomUUID === "function") return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
