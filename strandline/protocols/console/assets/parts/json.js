/** JSON with syntax colours and highlighted matches. */

import { h } from "../shell/dom.js";

/** Longer text is cut, with a button for the rest, because browsers are slow with very many coloured elements. */
const SHOWN = 60_000;
const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)/g;

/** A block of indented JSON. @param {any} value @param {RegExp|null} marked what to highlight (global) */
export function jsonBlock(value, marked = null) {
  const text = JSON.stringify(value, null, 2) ?? "null";
  const pre = h("pre.json", { tabindex: "0", "aria-label": "JSON" });
  pre.append(...coloured(text.slice(0, SHOWN), marked));
  if (text.length > SHOWN) pre.append(restButton(pre, text.slice(SHOWN)));
  return pre;
}

/** A value as one line of JSON, as nodes to append. */
export function jsonLine(value, marked = null, limit = 600) {
  const text = typeof value === "string" ? value : JSON.stringify(value) ?? "null";
  const cut = text.length > limit ? `${text.slice(0, limit)}…` : text;
  return typeof value === "string" ? mark(cut, marked) : coloured(cut, marked);
}

/** Text with matches in <mark> elements. */
export function mark(text, marked) {
  if (!marked) return [text];
  const pieces = [];
  let at = 0;
  for (const found of text.matchAll(marked)) {
    if (!found[0]) continue;
    pieces.push(text.slice(at, found.index), h("mark", {}, found[0]));
    at = found.index + found[0].length;
  }
  pieces.push(text.slice(at));
  return pieces.filter((piece) => piece !== "");
}

function restButton(pre, rest) {
  const button = h("button", { type: "button", onclick: () => (button.remove(), pre.append(rest)) }, `Show ${rest.length.toLocaleString("en")} more characters`);
  return button;
}

/** Text with JSON in colours, as nodes. It need not be valid. */
export function coloured(text, marked = null) {
  const pieces = [];
  let at = 0;
  for (const found of text.matchAll(TOKEN)) {
    const [all, string, colon, word] = found;
    if (found.index > at) pieces.push(...mark(text.slice(at, found.index), null));
    const kind = string ? (colon ? "key" : "string") : word ? "word" : "number";
    const body = colon ? string : all;
    pieces.push(h(`span.json-${kind}`, {}, kind === "key" ? body : mark(body, marked)));
    if (colon) pieces.push(colon);
    at = found.index + all.length;
  }
  pieces.push(...mark(text.slice(at), marked));
  return pieces;
}
