/** The schema of a log: its versions, its searchable fields, and a form for changes. */

import { ApiError, get, send } from "../../api.js";
import { curl, literal, python } from "../../parts/code.js";
import { jsonBlock } from "../../parts/json.js";
import { streamPath } from "../../parts/kinds.js";
import { empty, failure, loading } from "../../parts/states.js";
import { plainTable } from "../../parts/table.js";
import { field, notice, openDialog } from "../../shell/dialogs.js";
import { h, replace } from "../../shell/dom.js";
import { plural } from "../../shell/format.js";
import { icon } from "../../shell/icons.js";
import { address } from "../../shell/routes.js";
import { needs } from "../../shell/session.js";

export function openSchema(place, log, { code, buttons, reload }) {
  const path = `${streamPath(log.name)}/_schema`;
  let closed = false;
  code.set({ curl: curl({ path }), python: python([`print(client.stream(${literal(log.name)}).schema())`]) });
  const possible = log.media_type === "application/json" && ["topic", "queue", "stream"].includes(log.kind);
  const change = h("button", { type: "button", onclick: () => edit(path, log, load), ...(possible ? needs("write") : { disabled: true, title: "Only JSON topics, queues and streams can have a schema" }) }, icon("plus"), "Change schema…");
  replace(buttons, change);
  const load = async () => {
    replace(place, loading());
    try {
      const schema = await get(path);
      if (!closed) draw(place, log, schema);
      if (!closed && Boolean(schema.currentVersion) !== log.schema) reload();
    } catch (error) {
      if (closed) return;
      if (error instanceof ApiError && [404, 409, 400].includes(error.status)) replace(place, none(log));
      else replace(place, failure(error, load));
    }
  };
  if (possible) load();
  else replace(place, none(log));
  return { close: () => (closed = true) };
}

function none(log) {
  return empty("No schema", log.head ? "Records are not validated. You can add a first schema only to a log without records." : "Records are not validated. A schema validates appended records and declares searchable fields.");
}

function draw(place, log, schema) {
  if (!schema.currentVersion) return void replace(place, none(log));
  const search = schema.search;
  const versions = Object.entries(schema.schemas ?? {}).sort(([a], [b]) => Number(b) - Number(a));
  replace(
    place,
    h(
      "div.columns.scroll",
      {},
      h(
        "section.card",
        { "aria-label": "Versions" },
        h("h2", {}, `Version ${schema.currentVersion}`),
        h("div.pad.stack", {},
          schema.routingKey ? h("p", {}, "The key of a record comes from ", h("code", {}, schema.routingKey.jsonPointer), schema.routingKey.required ? ", which is required." : ".") : null,
          versions.map(([version, one], index) => h("details", { open: index === 0 }, h("summary", {}, `Version ${version}`, boundary(schema, version)), jsonBlock(one))),
          Object.entries(schema.lenses ?? {}).map(([version, lens]) => h("details", {}, h("summary", {}, `Lens from version ${version} to ${Number(version) + 1}`), jsonBlock(lens))),
        ),
      ),
      search
        ? h("section.card", { "aria-label": "Searchable fields" }, h("header", {}, h("h2", {}, "Searchable fields"), h("a", { href: address("search", "", { log: log.name }) }, "Search this log")), fields(search), rollups(search))
        : h("section.card", { "aria-label": "Searchable fields" }, h("h2", {}, "Searchable fields"), h("p.pad.muted", {}, "No fields are searchable. Add “search” with the fields to the schema.")),
    ),
  );
  return undefined;
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

function edit(path, log, done) {
  const text = h("textarea", { rows: 18, spellcheck: "false", required: true, autofocus: true });
  text.value = log.schema ? '{\n  "search": {"fields": {}}\n}' : '{\n  "schema": {"type": "object"},\n  "search": {\n    "fields": {\n      "name": {"kind": "keyword", "exact": true, "prefix": true, "bindings": [{"version": 1, "jsonPointer": "/name"}]}\n    }\n  }\n}';
  openDialog({
    title: `Change schema of ${log.name}`,
    action: "Install",
    wide: true,
    body: [field("Update (JSON)", text, "“schema” adds a version; a later version also needs a “lens”. “search” and “routingKey” can be changed with it or alone. The server rejects an invalid update as a whole.")],
    submit: async () => {
      let body;
      try {
        body = JSON.parse(text.value);
      } catch (error) {
        throw new Error(`The update is not valid JSON: ${error.message}`);
      }
      await send("POST", path, body);
      notice("Schema installed.");
      done();
    },
  });
}
