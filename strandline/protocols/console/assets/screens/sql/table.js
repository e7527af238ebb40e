/** The result of a statement as a table. */

import { jsonBlock, jsonLine } from "../../parts/json.js";
import { virtualTable } from "../../parts/table.js";
import { openDialog } from "../../shell/dialogs.js";
import { h, replace } from "../../shell/dom.js";
import { count } from "../../shell/format.js";
import { isNumber, isTime } from "./types.js";

/** The least width of a column, in pixels. */
const LEAST = 110;

export function resultTable(place, { columns, rows }) {
  const table = virtualTable({
    label: "Result",
    columns: columns.map((column, index) => ({ title: column.name, class: isNumber(column) ? "number" : isTime(column) ? "mono" : undefined, cell: (row) => cell(row[index], column) })),
    onopen: (row, index) => openDialog({ title: `Row ${count(index + 1)}`, wide: true, body: [jsonBlock(Object.fromEntries(columns.map((column, at) => [column.name, row[at]])))] }),
  });
  table.element.classList.add("openable");
  table.element.querySelector("table").style.setProperty("min-width", `${columns.length * LEAST}px`);
  replace(place, table.element);
  table.set(rows);
  table.bindKeys();
  return table;
}

function cell(value, column) {
  if (value === null) return h("span.none", {}, "null");
  if (typeof value === "object") return h("span.mono", {}, jsonLine(value));
  const text = isTime(column) ? String(value).replace("T", " ").replace(/Z$/, "") : String(value);
  return h("span", { title: text.slice(0, 500) }, text.slice(0, 500));
}
