/** JSON as a tree: parts open and close, a path can be copied, and a value can become a filter. */

import { attempt } from "../shell/dialogs.js";
import { h } from "../shell/dom.js";
import { count } from "../shell/format.js";
import { icon } from "../shell/icons.js";
import { below, condition } from "./paths.js";

/** The children that are drawn at once; a button draws the next ones. */
const SHOWN = 100;
/** The levels that are open at first. */
const OPEN = 3;

/** @param {any} value @param {{onfilter?: (condition: string) => void}} options called with the condition for a value */
export function jsonTree(value, { onfilter } = {}) {
  return h("div.tree", { tabindex: "0", role: "group", "aria-label": "JSON as a tree" }, h("ul", {}, branch("", "", value, 0, onfilter)));
}

function branch(name, path, value, depth, onfilter) {
  const label = name === "" ? null : [h("span.json-key", {}, typeof name === "number" ? `${name}` : name), ": "];
  if (value === null || typeof value !== "object") {
    const kind = typeof value === "string" ? "string" : typeof value === "number" ? "number" : "word";
    return h("li.leaf", {}, h("span.leaf-text", {}, label, h(`span.json-${kind}`, {}, JSON.stringify(value))), actions(path || ".", value, onfilter));
  }
  const entries = Array.isArray(value) ? [...value.entries()] : Object.entries(value);
  const about = Array.isArray(value) ? `[${count(entries.length)}]` : `{${count(entries.length)}}`;
  const list = h("ul");
  let drawn = 0;
  const draw = () => {
    list.append(...entries.slice(drawn, drawn + SHOWN).map(([step, each]) => branch(step, below(path, step), each, depth + 1, onfilter)));
    drawn = Math.min(entries.length, drawn + SHOWN);
    if (drawn < entries.length) {
      const more = h("li", {}, h("button.link", { type: "button", onclick: () => (more.remove(), draw()) }, `${count(entries.length - drawn)} more`));
      list.append(more);
    }
  };
  const details = h("details", { open: depth < OPEN, ontoggle: () => details.open && !drawn && draw() }, h("summary", {}, label, h("span.muted", {}, about)), list);
  if (depth < OPEN) draw();
  return h("li", {}, details);
}

function actions(path, value, onfilter) {
  const copy = (event) => {
    event.preventDefault();
    attempt(() => navigator.clipboard.writeText(path), `Copied ${path}`);
  };
  return h("span.leaf-actions", {},
    h("button.quiet.only-icon", { type: "button", "aria-label": `Copy the path ${path}`, title: `Copy the path ${path}`, onclick: copy }, icon("copy")),
    onfilter && path !== "." ? h("button.quiet.only-icon", { type: "button", "aria-label": `Filter by ${path}`, title: `Filter: ${condition(path, value)}`.slice(0, 200), onclick: () => onfilter(condition(path, value)) }, icon("search")) : null);
}
