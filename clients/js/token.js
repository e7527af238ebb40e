/** The token that requests carry: a text, or a function that provides one. */

import { StrandlineError } from "./errors.js";

/**
 * The token of a request. A function is called every time, because the user of the page may have changed.
 * @param {import("./strandline.js").TokenProvider | undefined} provider
 */
export async function tokenOf(provider) {
  if (typeof provider !== "function") return provider;
  try {
    return await provider();
  } catch (cause) {
    throw new StrandlineError("NO_TOKEN", "the function that provides the token failed", { cause });
  }
}

/**
 * @param {string | null | undefined} token
 * @returns {Record<string, string>}
 */
export const tokenHeaders = (token) => (token ? { authorization: `Bearer ${token}` } : {});
