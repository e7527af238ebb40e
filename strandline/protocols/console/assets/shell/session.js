/** Who is signed in, and what they may do. */

import { get } from "../api.js";

let session = null;

/** Asks the server; the answer is what `session()` says from then on. */
export async function loadSession() {
  session = await get("/console/api/session");
  return session;
}

export function current() {
  return session;
}

/** Whether the key in use has this scope. @param {"read"|"write"|"delete"|"admin"} scope */
export function may(scope) {
  return !session?.keys_required || Boolean(session.key?.scopes.includes(scope));
}

/** For a control that needs scopes: nothing, or why it is disabled. */
export function needs(...scopes) {
  const missing = scopes.filter((scope) => !may(scope));
  return missing.length ? { disabled: true, title: `This key lacks the ${missing.join(" and ")} scope` } : {};
}
