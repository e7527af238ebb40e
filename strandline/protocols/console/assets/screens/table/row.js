/** One row: its fields, who wrote it when, and its edits. */

import { jsonBlock } from "../../parts/json.js";
import { attempt } from "../../shell/dialogs.js";
import { h } from "../../shell/dom.js";
import { absolute, ago, count, plural } from "../../shell/format.js";
import { icon } from "../../shell/icons.js";
import { address } from "../../shell/routes.js";
import { needs } from "../../shell/session.js";
import { changesOf } from "./changing.js";
import { payloadOf, shownValue } from "./fields.js";

/** The edits that are shown at first. */
const SHOWN = 20;

/**
 * @param {{row: any, edits: {at: number, user: string|null, previous: any}[]}} answer
 * @param {{log: string, onedit: () => void, onremove: () => void, onclose?: () => void}} options
 */
export function rowView({ row, edits }, { log, onedit, onremove, onclose }) {
  const payload = payloadOf(row);
  const copy = () => attempt(() => navigator.clipboard.writeText(JSON.stringify(row, null, 2)), "Copied.");
  return h(
    "section.record",
    { "aria-label": `Row ${row.id}` },
    h(
      "header",
      {},
      h("h2", {}, `Row ${count(row.seq)}`),
      h("button.quiet.only-icon", { type: "button", "aria-label": "Copy the row", title: "Copy the row", onclick: copy }, icon("copy")),
      onclose ? h("button.quiet.only-icon", { type: "button", "aria-label": "Close the row", title: "Close (Esc)", onclick: onclose }, icon("close")) : null,
    ),
    h("div.row", {},
      h("button", { type: "button", dataset: { act: "edit" }, title: "Edit (e)", onclick: onedit, ...needs("write") }, "Edit…"),
      h("button", { type: "button", dataset: { act: "remove" }, title: "Remove (d)", onclick: onremove, ...needs("delete") }, icon("trash"), "Remove…"),
      h("a.button", { href: address("log", log, { seq: row.seq }), title: "The record of this row in its log" }, "Record")),
    h(
      "dl.facts",
      {},
      fact("Id", h("code", {}, row.id)),
      fact("Written", [absolute(row.createdAt), " ", h("span.muted", {}, "(", ago(row.createdAt), ")"), row.userId === null ? " by the application" : [" by ", h("b", {}, row.userId)]]),
      row.updatedAt === row.createdAt ? null : fact("Edited", [absolute(row.updatedAt), " ", h("span.muted", {}, "(", ago(row.updatedAt), ")")]),
      row.idempotencyKey ? fact("Idempotency key", h("code", {}, row.idempotencyKey)) : null,
      row.author ? fact("Author", jsonBlock(row.author)) : null,
    ),
    jsonBlock(payload),
    h("h3", {}, edits.length ? `History: ${plural(edits.length, "edit")}` : "History"),
    edits.length ? history(payload, edits) : h("p.muted", {}, "The row was never edited."),
  );
}

/** The edits, newest first, each with the fields that it changed. */
function history(current, edits) {
  const states = [...edits.map((one) => one.previous), current];
  const list = h("ol.edits");
  let drawn = edits.length;
  const draw = () => {
    const until = Math.max(0, drawn - SHOWN);
    for (; drawn > until; drawn -= 1) list.append(edit(edits[drawn - 1], states[drawn - 1], states[drawn]));
    if (drawn) {
      const more = h("li", {}, h("button.link", { type: "button", onclick: () => (more.remove(), draw()) }, `${plural(drawn, "earlier edit")}`));
      list.append(more);
    }
  };
  draw();
  return list;
}

function edit({ at, user }, before, after) {
  // An earlier version of the schema may have had other fields.
  const names = Object.keys(changesOf({}, { ...before, ...after })).filter((name) => JSON.stringify(before[name]) !== JSON.stringify(after[name]));
  return h("li", {}, h("p", {}, h("b", {}, user ?? "the application"), " ", h("span.muted", { title: absolute(at) }, ago(at))),
    h("dl.facts", {}, names.map((name) => h("div", {}, h("dt", {}, h("code", {}, name)), h("dd", {}, h("span.was", {}, shownValue(before[name])), " → ", h("span.is", {}, shownValue(after[name])))))),
    names.length ? null : h("p.muted", {}, "No value changed."));
}

function fact(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}
