/** The API key in use, and its permissions. */

import { get } from "../api.js";

let session = null;

/** Loads the session from the server. `current()` returns it from then on. */
export async function loadSession() {
  session = await get("/console/api/session");
  return session;
}

export function current() {
  return session;
}

/** Whether the API key has this scope. @param {"read"|"write"|"delete"|"admin"} scope */
export function may(scope) {
  return !session?.keys_required || Boolean(session.key?.scopes.includes(scope));
}

/** Attributes for a control that requires scopes: none, or disabled with the reason. */
export function needs(...scopes) {
  const missing = scopes.filter((scope) => !may(scope));
  return missing.length ? { disabled: true, title: `Your API key lacks the ${missing.join(" and ")} scope` } : {};
}
