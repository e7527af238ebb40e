/** The fields of records with their most frequent values: a value becomes a filter, a field a column. */

import { condition, scalars } from "../../parts/paths.js";
import { h, replace } from "../../shell/dom.js";
import { count } from "../../shell/format.js";

const FIELDS = 24;
const VALUES = 5;
/** Longer values are rarely a choice. */
const LONG = 80;

/**
 * @param {{onvalue: (condition: string) => void, oncolumns: (paths: string[]) => void, columns: string[]}} options
 * @returns {{element: HTMLElement, set: (records: any[]) => void}}
 */
export function facets({ onvalue, oncolumns, columns }) {
  const body = h("div.facets");
  const element = h("details.fields", { hidden: true }, h("summary", {}, "Fields and values"), body);
  let records = [];
  let drawn = null;
  const draw = () => {
    if (!element.open || drawn === records) return;
    drawn = records;
    const fields = fieldsOf(records);
    replace(body, fields.length ? fields.map((field) => facet(field)) : h("p.muted", {}, "The records are not JSON objects."));
  };
  const facet = ({ path, present, values }) => {
    const box = h("input", { type: "checkbox", checked: columns.includes(path), onchange: () => {
      const index = columns.indexOf(path);
      if (index < 0) columns.push(path);
      else columns.splice(index, 1);
      oncolumns(columns);
    } });
    return h("section.facet", { "aria-label": path },
      h("header", {}, h("label.check", { title: "Show as a column" }, box, h("code", {}, path)), h("span.muted", {}, count(present))),
      h("ul", {}, values.slice(0, VALUES).map(([value, number]) => h("li", {}, h("button.link", { type: "button", title: `Filter: ${condition(path, value)}`, onclick: () => onvalue(condition(path, value)) }, String(value)), h("span.muted", {}, count(number)))),
        values.length > VALUES ? h("li.muted", {}, `${count(values.length - VALUES)} other values`) : null));
  };
  element.addEventListener("toggle", draw);
  return {
    element,
    set(next) {
      records = next;
      element.hidden = !records.length;
      draw();
    },
  };
}

function fieldsOf(records) {
  const fields = new Map();
  for (const record of records) {
    if (record.data === null || typeof record.data !== "object") continue;
    for (const [path, value] of scalars(record.data)) {
      if (path.includes("[") || path === "." || (typeof value === "string" && value.length > LONG)) continue;
      if (!fields.has(path)) fields.set(path, { path, present: 0, values: new Map() });
      const field = fields.get(path);
      field.present += 1;
      field.values.set(value, (field.values.get(value) ?? 0) + 1);
    }
  }
  return [...fields.values()]
    .sort((a, b) => b.present - a.present)
    .slice(0, FIELDS)
    .map((field) => ({ ...field, values: [...field.values].sort((a, b) => b[1] - a[1]) }));
}
