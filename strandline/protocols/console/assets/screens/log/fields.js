/** The editor of a log's searchable fields. Starts from the installed configuration and proposes fields of its records. */

import { get, send } from "../../api.js";
import { segments } from "../../parts/heading.js";
import { jsonEditor } from "../../parts/json_editor.js";
import { streamPath } from "../../parts/kinds.js";
import { plainTable } from "../../parts/table.js";
import { confirm, field, notice } from "../../shell/dialogs.js";
import { h, replace } from "../../shell/dom.js";
import { count, plural } from "../../shell/format.js";
import { openReviewed } from "./review.js";

/** The capabilities that a field gets when its kind is changed. */
const CAPABILITIES = {
  keyword: { exact: true, prefix: true, sortable: true },
  text: { analyzer: "unicode_word_v1", prefix: true, positions: true },
  integer: { exact: true, column: true, sortable: true, aggregatable: true },
  float: { exact: true, column: true, sortable: true, aggregatable: true },
  date: { exact: true, column: true, sortable: true },
  bool: { exact: true, column: true },
};
const TEMPLATE = { fields: { name: { kind: "keyword", bindings: [{ version: 1, jsonPointer: "/name" }], exact: true, prefix: true } } };

/**
 * Opens the editor, which installs the configuration. @param {{name: string}} log @param {() => void} done
 */
export async function editFields(log, done) {
  const found = await get(`/console/api/log/${encodeURIComponent(log.name)}/inference`);
  const proposed = new Map(found.fields.map((one) => [one.name, one]));
  const nothingInstalled = proposed.size === Object.keys(found.search?.fields ?? {}).length;
  let config = found.search ?? TEMPLATE;
  let rows = rowsOf(config, (name) => nothingInstalled || !proposed.has(name));
  let view = found.search ? "fields" : "json";

  const text = jsonEditor({ label: "Search configuration (JSON)", oninput: () => (problem.hidden = true) });
  const primary = h("select", { onchange: () => (config = { ...config, primaryTimestampField: primary.value || undefined }) });
  const problem = h("p.problem", { role: "alert", hidden: true });
  const place = h("div.stack");
  const wanted = () => (view === "json" ? parse(text.input.value) : assembled(config, rows));
  const adapt = () => {
    const dates = rows.filter((row) => row.chosen && row.declaration.kind === "date").map((row) => row.name);
    replace(primary, ["", ...dates].map((name) => h("option", { value: name, selected: name === config.primaryTimestampField }, name || "none")));
    dialog.button.disabled = view === "fields" && !rows.some((row) => row.chosen);
  };
  const show = () => {
    if (view === "json") {
      replace(place, text.element);
      text.set(JSON.stringify(config, null, 2));
    } else replace(place, plainTable("Fields of the records", columns(proposed, found.records, adapt), rows), field("Primary timestamp", primary, "The time of a record. Charts, rollups and searches within a time range use it."));
    adapt();
  };
  const turn = (next) => {
    problem.hidden = true;
    try {
      config = wanted();
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
      views.querySelector(`input[value="${view}"]`).checked = true;
      return;
    }
    if (view === "json") rows = [...rowsOf(config, () => true), ...rows.filter((row) => !(row.name in config.fields)).map((row) => ({ ...row, chosen: false }))];
    view = next;
    show();
  };
  const views = segments("View", [["fields", "Fields"], ["json", "JSON"]], view, turn);
  const about = found.fields.length ? `${plural(found.fields.length, "field")} proposed from the last ${plural(found.records, "record")}.` : "The last records have no other members to propose.";
  const dialog = openReviewed({
    log,
    title: `Searchable fields of ${log.name}`,
    body: [h("div.row", {}, views, h("span.muted", {}, about)), problem, place],
    update: () => ({ search: wanted() }),
    install: async ({ search }) => {
      await send("POST", `${streamPath(log.name)}/_schema`, { search });
      notice(`${plural(Object.keys(search.fields).length, "field")} can be searched.`);
      done();
    },
  });
  show();
}

/** Removes the configuration after a confirmation. */
export function removeFields(log, done) {
  return confirm({
    title: `Remove the searchable fields of ${log.name}?`,
    text: "The records stay. The log cannot be searched until you install searchable fields again.",
    action: "Remove",
    run: async () => {
      await send("POST", `${streamPath(log.name)}/_schema`, { search: null });
      notice("The searchable fields were removed.");
      done();
    },
  });
}

function rowsOf(config, isChosen) {
  return Object.entries(config.fields).map(([name, declaration]) => ({ name, declaration, chosen: isChosen(name) }));
}

function columns(proposed, records, changed) {
  return [
    { title: "Field", cell: (row) => h("label.check", {}, h("input", { type: "checkbox", checked: row.chosen, onchange: (event) => ((row.chosen = event.target.checked), changed()) }), h("b", {}, row.name)) },
    { title: "Kind", class: "control", width: "132px", cell: (row) => h("select", { "aria-label": `Kind of ${row.name}`, onchange: (event) => (change(row, event.target.value), changed()) }, Object.keys(CAPABILITIES).map((kind) => h("option", { value: kind, selected: kind === row.declaration.kind }, kind))) },
    { title: "Where", class: "wide-only", width: "22%", cell: (row) => h("code", {}, row.declaration.bindings.at(-1)?.jsonPointer ?? "") },
    { title: "Example", class: "wide-only", width: "34%", cell: (row) => example(proposed.get(row.name), records) },
  ];
}

function example(one, records) {
  if (!one) return h("span.muted", {}, "installed");
  return h("span", { title: `in ${count(one.records)} of ${plural(records, "record")}` }, h("code", {}, JSON.stringify(one.example)));
}

function change(row, kind) {
  row.declaration = { kind, bindings: row.declaration.bindings, ...CAPABILITIES[kind] };
}

/** The configuration with the chosen fields only. The server reports a rollup that needs another field. */
function assembled(config, rows) {
  const fields = Object.fromEntries(rows.filter((row) => row.chosen).map((row) => [row.name, row.declaration]));
  const next = { ...config, fields };
  if (fields[next.primaryTimestampField]?.kind !== "date") delete next.primaryTimestampField;
  if (next.aliases) next.aliases = Object.fromEntries(Object.entries(next.aliases).filter(([, target]) => target in fields));
  if (next.defaultFields) next.defaultFields = next.defaultFields.filter((one) => one.field in fields);
  if (next.containsDefaultFields) next.containsDefaultFields = next.containsDefaultFields.filter((name) => name in fields);
  // A proposal for fields that were not chosen leaves nothing behind.
  for (const name of ["aliases", "defaultFields", "containsDefaultFields"]) if (next[name] && !Object.keys(next[name]).length) delete next[name];
  return next;
}

function parse(text) {
  let config;
  try {
    config = JSON.parse(text);
  } catch (error) {
    throw new Error(`The configuration is not valid JSON: ${error.message}`);
  }
  const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
  if (!isObject(config) || !isObject(config.fields) || !Object.values(config.fields).every((one) => isObject(one) && Array.isArray(one.bindings))) throw new Error("The configuration must be an object whose “fields” have “bindings”.");
  return config;
}
