/** The removed rows of a parent, which can be restored or deleted permanently. */

import { get } from "../../api.js";
import { curl, literal, python } from "../../parts/code.js";
import { jsonLine } from "../../parts/json.js";
import { Pages } from "../../parts/pages.js";
import { empty, failure, loading } from "../../parts/states.js";
import { virtualTable } from "../../parts/table.js";
import { h, replace } from "../../shell/dom.js";
import { ago, count } from "../../shell/format.js";
import { icon } from "../../shell/icons.js";
import { needs } from "../../shell/session.js";
import { actingField } from "./acting.js";
import { removeRow, restoreAll, restoreRow, tablePath } from "./changing.js";
import { payloadOf } from "./fields.js";

export function openTrash(place, first, { code, buttons, reload }) {
  let told = first;
  const { table } = first;
  const { parent } = first.parent;
  const list = h("div.list.place", {}, loading());
  if (!table.soft_delete) {
    replace(place, empty("This table has no trash", "Removed rows are deleted at once. Declare the table with soft_delete=True, so that they can be restored."));
    code.set({ curl: curl({ path: "/tables" }), python: python([`make_log(${literal(table.name)}, …, soft_delete=True)`]) });
    return { close: () => {} };
  }
  const all = h("button", { type: "button", onclick: () => restoreAll(table, parent, told.parent.owner, changed), ...needs("delete") }, icon("redrive"), "Restore all");
  const view = virtualTable({
    label: "Trash",
    columns: [
      { title: "Row", class: "seq", width: "76px", cell: (row) => h("span", { title: row.id }, count(row.seq)) },
      { title: "Payload", class: "data", cell: (row) => jsonLine(payloadOf(row)) },
      { title: "Author", class: "wide-only", width: "130px", cell: (row) => row.userId ?? h("span.none", {}, "–") },
      { title: "Removed by", class: "wide-only", width: "130px", cell: (row) => row.deletedBy ?? h("span.none", { title: "The application itself" }, "–") },
      { title: "Removed", class: "number.wide-only", width: "110px", cell: (row) => (row.deletedAt ? ago(row.deletedAt) : h("span.none", {}, "–")) },
      { title: "Actions", unseen: true, class: "act", width: "156px", cell: (row) => [
        h("button.quiet.in-row", { type: "button", "aria-label": `Restore row ${row.seq}`, onclick: () => restoreRow(table, row, told.parent.owner, changed), ...needs("delete") }, "Restore"),
        h("button.quiet.in-row", { type: "button", "aria-label": `Delete row ${row.seq} permanently`, title: "Delete the row and its history permanently", onclick: () => removeRow(table, row, told.parent.owner, changed, { hard: true }), ...needs("delete") }, "Delete…"),
      ] },
    ],
  });
  const pages = new Pages(
    (cursor, limit, signal) => get(`/console/api/table/${encodeURIComponent(table.name)}/trash`, { parent, cursor, limit }, signal),
    draw,
  );
  function draw() {
    if (pages.failed && !pages.items.length) return replace(list, failure(pages.failed, () => pages.reload({ fresh: true })));
    if (!pages.items.length && pages.next === null) return replace(list, empty("The trash is empty", "Removed rows appear here until they are restored or deleted permanently."));
    if (!view.element.isConnected) replace(list, view.element);
    view.set(pages.source);
    return undefined;
  }
  function changed() {
    reload();
    pages.reload();
  }
  replace(buttons, all);
  const rule = `The owner of the ${table.parent} can restore every row, and authors those that they removed.`;
  replace(place, h("div.row.toolbar", {}, h("span.grow.muted", {}, rule), actingField()), list);
  view.bindKeys();
  code.set({
    curl: [curl({ path: `${tablePath(table.name, "auth/trash")}?parent=${encodeURIComponent(parent)}` }), curl({ path: tablePath(table.name, "restore"), method: "POST", json: { id: `${parent}:1` } })].join("\n"),
    python: python([`table = client.table(${literal(table.name)})`, `for row in table.trash(${literal(parent)}):`, "    table.restore(row.id)"]),
  });
  pages.reload({ fresh: true });
  return {
    update: (next) => {
      const before = told.parent.revision;
      told = next;
      if (before !== next.parent.revision) pages.reload();
    },
    close: () => {
      pages.close();
      view.close();
    },
  };
}
