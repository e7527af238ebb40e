/** One complete record: position, time, node, data and meta. */

import { h, replace } from "../shell/dom.js";
import { attempt } from "../shell/dialogs.js";
import { absolute, ago, bytes, count } from "../shell/format.js";
import { icon } from "../shell/icons.js";
import { jsonBlock, jsonLine, mark } from "./json.js";
import { jsonTree } from "./tree.js";

/** The content of a record in one line. @returns {(Node|string)[]} */
export function preview(record, marked = null) {
  if (record.text !== undefined && record.text !== null) return mark(record.text.slice(0, 600).replaceAll("\n", " ⏎ "), marked);
  if (record.base64 !== undefined && record.base64 !== null) return [h("span.muted", {}, `${bytes(size(record))} of binary data`)];
  return jsonLine(record.data, marked);
}

/** Whether records are shown as trees. It stays so until the page is closed. */
let asTree = false;

/**
 * The panel that shows a record. `onfilter` is called with a condition of a filter, `oncompare` to compare the record.
 * @param {{onclose?: () => void, onkey?: (key: string) => void, onfilter?: (condition: string) => void, oncompare?: () => void, marked?: RegExp|null}} options
 */
export function recordView(record, { onclose, onkey, onfilter, oncompare, marked = null } = {}) {
  const shown = h("div.record-body");
  const draw = () => replace(shown, asTree && isTree(record) ? jsonTree(record.data, { onfilter }) : body(record, marked));
  const toggle = isTree(record)
    ? h("button.quiet.in-row", { type: "button", "aria-pressed": String(asTree), title: "Show the data as a tree", onclick: (event) => {
        asTree = !asTree;
        event.currentTarget.setAttribute("aria-pressed", String(asTree));
        draw();
      } }, "Tree")
    : null;
  draw();
  const copy = () => attempt(() => navigator.clipboard.writeText(plain(record)), "Copied.");
  return h(
    "section.record",
    { "aria-label": `Record ${record.seq}` },
    h(
      "header",
      {},
      h("h2", {}, `Record ${count(record.seq)}`),
      toggle,
      oncompare ? h("button.quiet.in-row", { type: "button", title: "Compare with another record", onclick: oncompare }, "Compare…") : null,
      h("button.quiet.only-icon", { type: "button", "aria-label": "Copy the data", title: "Copy the data", onclick: copy }, icon("copy")),
      onclose ? h("button.quiet.only-icon", { type: "button", "aria-label": "Close the record", title: "Close (Esc)", onclick: onclose }, icon("close")) : null,
    ),
    h(
      "dl.facts",
      {},
      fact("Written", [absolute(record.ts), " ", h("span.muted", {}, "(", ago(record.ts), ")")]),
      record.key !== null && record.key !== undefined
        ? fact("Key", onkey ? h("button.link", { type: "button", title: "Show only records with this key", onclick: () => onkey(record.key) }, record.key) : h("code", {}, record.key))
        : null,
      record.node ? fact("Node", h("code", {}, record.node)) : null,
    ),
    shown,
    record.meta !== null && record.meta !== undefined ? [h("h3", {}, "Meta"), jsonBlock(record.meta, marked)] : null,
  );
}

function body(record, marked) {
  if (record.text !== undefined && record.text !== null) return h("pre.json", { tabindex: "0", "aria-label": "Text" }, mark(record.text, marked));
  if (record.base64 !== undefined && record.base64 !== null) return [h("p.muted", {}, `${bytes(size(record))}, shown as base64:`), h("pre.json.wrap", { tabindex: "0", "aria-label": "Bytes" }, record.base64)];
  return jsonBlock(record.data, marked);
}

function isTree(record) {
  return record.data !== null && typeof record.data === "object";
}

function size(record) {
  return Math.floor((record.base64.replace(/=+$/, "").length * 3) / 4);
}

function plain(record) {
  return record.text ?? record.base64 ?? JSON.stringify(record.data, null, 2);
}

function fact(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}
