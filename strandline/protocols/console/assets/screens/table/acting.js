/**
 * The user in whose name rows are changed. A server without API keys believes the header; with API keys, one with the admin
 * scope may act for users, and has the rights of the program if it names none.
 */

import { h } from "../../shell/dom.js";
import { current, may } from "../../shell/session.js";

let named = "";

/** Whether the user can be chosen. Otherwise it is the id of the API key. */
export function mayAct() {
  return !current()?.keys_required || may("admin");
}

/** The field for the user; nothing if the API key cannot act for others. */
export function actingField() {
  if (!mayAct()) return null;
  const { keys_required: keyed } = current();
  const input = h("input.acting", {
    value: named, "aria-label": "Change rows as this user", autocomplete: "off", spellcheck: "false",
    placeholder: keyed ? "As the program" : "As the author",
    title: keyed ? "The user in whose name rows are changed. Without one, your API key has the rights of the program." : "The user in whose name rows are changed. Without one, the author of a row changes it, and the owner of the parent all rows.",
  });
  input.addEventListener("input", () => (named = input.value.trim()));
  return input;
}

/** The headers of a change. @param {(string|null|undefined)[]} candidates the users who may make it, best first */
export function actingHeaders(...candidates) {
  const user = named || (current()?.keys_required ? "" : candidates.find(Boolean));
  if (!user || !mayAct()) return {};
  // The server reads UTF-8; a header holds bytes.
  return { "strandline-user": String.fromCharCode(...new TextEncoder().encode(user)) };
}

/** Who makes a change, in words. */
export function actingWords(...candidates) {
  if (!mayAct()) return `your API key (${current().key.id})`;
  return named || (current()?.keys_required ? "the program" : candidates.find(Boolean) ?? "anonymous");
}
