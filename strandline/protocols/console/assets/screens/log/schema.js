/** The schema of a log: its versions and its searchable fields, and forms for changes. */

import { ApiError, get, send } from "../../api.js";
import { curl, literal, python } from "../../parts/code.js";
import { jsonBlock } from "../../parts/json.js";
import { jsonEditor } from "../../parts/json_editor.js";
import { streamPath } from "../../parts/kinds.js";
import { indexProgress } from "../../parts/progress.js";
import { empty, failure, loading } from "../../parts/states.js";
import { plainTable } from "../../parts/table.js";
import { attempt, field, notice } from "../../shell/dialogs.js";
import { h, replace } from "../../shell/dom.js";
import { plural } from "../../shell/format.js";
import { icon } from "../../shell/icons.js";
import { address } from "../../shell/routes.js";
import { needs } from "../../shell/session.js";
import { editFields, removeFields } from "./fields.js";
import { openReviewed } from "./review.js";

export function openSchema(place, log, { code, buttons, reload }) {
  const path = `${streamPath(log.name)}/_schema`;
  let closed = false;
  let progress = null;
  const isJson = log.media_type === "application/json";
  const allowed = !isJson ? { disabled: true, title: "Only logs of JSON can have a schema or be searched" } : ["topic", "queue", "stream"].includes(log.kind) ? needs("write") : { disabled: true, title: `Its owner declares the searchable fields: ${log.note}` };
  const show = (schema) => {
    progress?.close();
    progress = schema.search ? indexProgress(log.name) : null;
    const choose = (words) => h("button", { type: "button", onclick: () => attempt(() => editFields(log, load)), ...allowed }, icon("search"), words);
    replace(buttons, schema.search ? h("button", { type: "button", onclick: () => removeFields(log, load), ...allowed }, icon("trash"), "Remove fields…") : null, choose("Searchable fields…"), h("button", { type: "button", onclick: () => edit(path, log, schema, load), ...allowed }, icon("plus"), "Change schema…"));
    if (!schema.currentVersion && !schema.search) return void replace(place, none(log, isJson, choose("Choose searchable fields…")));
    replace(place, h("div.columns.scroll", {}, searchCard(log, schema, progress), versionsCard(log, schema)));
    return undefined;
  };
  const load = async () => {
    replace(place, loading());
    try {
      const schema = await get(path);
      if (closed) return;
      code.set({
        curl: curl({ path }),
        python: python([`stream = client.stream(${literal(log.name)})`, "print(stream.schema())", "print(stream.search_config())"]),
      });
      show(schema);
      if (Boolean(schema.currentVersion) !== log.schema) reload();
    } catch (error) {
      if (closed) return;
      if (error instanceof ApiError && [404, 409, 400].includes(error.status)) show({});
      else replace(place, failure(error, load));
    }
  };
  load();
  return {
    close: () => {
      closed = true;
      progress?.close();
    },
  };
}

function none(log, isJson, choose) {
  if (!isJson) return empty("No schema", `This log holds ${log.media_type}. Only logs of JSON can have a schema or be searched.`);
  const first = log.head ? "You can add a first schema only to a log without records." : "A schema validates appended records.";
  return empty("No schema", `Records are not validated, and the log cannot be searched. ${first} You can make the log searchable at any time.`, choose);
}

function searchCard(log, { search }, progress) {
  const title = h("h2", {}, "Searchable fields");
  if (!search) return h("section.card", { "aria-label": "Searchable fields" }, title, h("p.pad.muted", {}, "No fields are searchable. Choose some with “Searchable fields…”."));
  return h("section.card", { "aria-label": "Searchable fields" }, h("header", {}, title, h("a", { href: address("search", "", { log: log.name }) }, "Search this log")), progress.element, fields(search), rollups(search));
}

function versionsCard(log, schema) {
  if (!schema.currentVersion) return h("section.card", { "aria-label": "Versions" }, h("h2", {}, "No schema"), h("p.pad.muted", {}, log.head ? "Records are not validated. You can add a first schema only to a log without records." : "Records are not validated."));
  const versions = Object.entries(schema.schemas ?? {}).sort(([a], [b]) => Number(b) - Number(a));
  return h(
    "section.card",
    { "aria-label": "Versions" },
    h("h2", {}, `Version ${schema.currentVersion}`),
    h("div.pad.stack", {},
      schema.routingKey ? h("p", {}, "The key of a record comes from ", h("code", {}, schema.routingKey.jsonPointer), schema.routingKey.required ? ", which is required." : ".") : null,
      versions.map(([version, one], index) => h("details", { open: index === 0 }, h("summary", {}, `Version ${version}`, boundary(schema, version)), jsonBlock(one))),
      Object.entries(schema.lenses ?? {}).map(([version, lens]) => h("details", {}, h("summary", {}, `Lens from version ${version} to ${Number(version) + 1}`), jsonBlock(lens))),
    ),
  );
}

function boundary(schema, version) {
  const found = (schema.boundaries ?? []).find((one) => one.version === Number(version));
  return found ? h("span.muted", {}, ` from record ${found.offset + 1}`) : null;
}

const FLAGS = ["exact", "prefix", "column", "exists", "sortable", "aggregatable", "positions"];

function fields(search) {
  return plainTable("Fields", [
    { title: "Field", cell: ([name]) => h("b", {}, name) },
    { title: "Kind", width: "90px", cell: ([, one]) => one.kind },
    { title: "Capabilities", class: "wide-only", cell: ([, one]) => h("span.muted", {}, FLAGS.filter((flag) => one[flag]).join(", ")) },
  ], Object.entries(search.fields ?? {}));
}

function rollups(search) {
  const entries = Object.entries(search.rollups ?? {});
  if (!entries.length) return null;
  return h("div.pad.stack", {}, h("h3", {}, plural(entries.length, "rollup")), entries.map(([name, one]) => h("p", {}, h("b", {}, name), ": ", Object.keys(one.measures ?? {}).join(", "), one.dimensions?.length ? ` by ${one.dimensions.join(", ")}` : "", `; per ${(one.intervals ?? []).join(", ")}`)));
}

function edit(path, log, schema, done) {
  const text = jsonEditor({ value: JSON.stringify(updateOf(schema), null, 2) });
  const labelled = field("Update (JSON)", text.input, "“schema” adds a version; a later version also needs a “lens”. “search” and “routingKey” can be changed with it or alone. The server rejects an invalid update as a whole.");
  text.element.append(text.input);
  labelled.querySelector("label").after(text.element);
  openReviewed({
    log,
    title: `Change schema of ${log.name}`,
    body: labelled,
    update: () => {
      try {
        return JSON.parse(text.input.value);
      } catch (error) {
        throw new Error(`The update is not valid JSON: ${error.message}`);
      }
    },
    install: async (body) => {
      await send("POST", path, body);
      notice("Schema installed.");
      done();
    },
  });
}

/** A start for an update: the current version with an empty lens to the next one, or a first schema. */
function updateOf({ schema, currentVersion: version, schemas }) {
  if (!version) return { schema: { type: "object" } };
  return { schema: schemas[version], lens: { apiVersion: "durable.lens/v1", schema, from: version, to: version + 1, ops: [] } };
}
