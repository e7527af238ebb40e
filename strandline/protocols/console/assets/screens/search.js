/** Search and charts: queries in the query language of streams, their hits, and aggregations over time. */

import { get } from "../api.js";
import { codeBlock } from "../parts/code.js";
import { heading, segments } from "../parts/heading.js";
import { streamPath } from "../parts/kinds.js";
import { indexProgress } from "../parts/progress.js";
import { empty, failure, loading } from "../parts/states.js";
import { h, replace } from "../shell/dom.js";
import { openDialog } from "../shell/dialogs.js";
import { bind } from "../shell/keys.js";
import { address, note } from "../shell/routes.js";
import { queryField } from "./search/completing.js";
import { openChart } from "./search/charting.js";
import { openHits } from "./search/hits.js";

/** What a chart is drawn of, as it is in the address of the page. */
const CHOICES = ["rollup", "measure", "group", "range", "interval"];
const OPEN = { hits: openHits, chart: openChart };

export function open(root, params) {
  root.classList.add("fixed");
  const asked = { log: params.log ?? "", q: params.q ?? "", view: params.view === "chart" ? "chart" : "hits" };
  const chosen = Object.fromEntries(CHOICES.map((name) => [name, params[name] ?? ""]));
  const keep = () => note("search", "", { ...asked, ...(asked.view === "chart" ? chosen : {}) });
  const names = h("datalist", { id: "search-logs" });
  const logField = h("input.search-log", { list: "search-logs", value: asked.log, placeholder: "Log", "aria-label": "Log", autocomplete: "off", spellcheck: "false" });
  const place = h("div.place");
  const code = codeBlock();
  const query = queryField(asked.q, () => run());
  let progress = { element: h("div", { hidden: true }), close: () => {} };
  let panel = null;
  let subject = null;
  let generation = 0;

  const run = () => {
    asked.q = query.value();
    keep();
    panel?.run(asked.q);
  };
  const openPanel = () => {
    panel?.close();
    replace(place);
    keep();
    panel = OPEN[asked.view](place, subject, { code, asked: chosen, remember: (choices) => (Object.assign(chosen, choices), keep()), learn: query.learn });
    panel.run(asked.q);
  };
  const choose = async () => {
    const number = (generation += 1);
    asked.log = logField.value.trim();
    panel?.close();
    panel = null;
    progress.close();
    progress.element.hidden = true;
    keep();
    if (!asked.log) return void replace(place, empty("Select a log", "Enter the name of a log that has searchable fields."), await suggestions());
    replace(place, loading());
    try {
      const [{ fields }, schema] = await Promise.all([
        get(`/console/api/fields/${encodeURIComponent(asked.log)}`),
        get(`${streamPath(asked.log)}/_schema`).catch((error) => {
          if (error.status === 404 || error.status === 403 || error.status === 0) throw error;
          return {};
        }),
      ]);
      if (number !== generation) return;
      const known = fields.filter((one) => one.from === "configuration");
      query.setFields(known.length ? known : fields);
      subject = { log: asked.log, fields: known, search: schema.search ?? null };
      if (!schema.search) return void replace(place, undeclared(asked.log, fields));
      const before = progress.element;
      progress = indexProgress(asked.log);
      before.replaceWith(progress.element);
      openPanel();
    } catch (error) {
      if (number === generation) replace(place, failure(error, choose));
    }
    return undefined;
  };
  const suggestions = async () => {
    const { logs } = await get("/console/api/logs", { kind: "stream", sort: "records", order: "desc", limit: 12 }).catch(() => ({ logs: [] }));
    return logs.length ? h("div.row.suggestions", {}, h("span.muted", {}, "Suggestions"), logs.map((log) => h("a.button", { href: address("search", "", { log: log.name }) }, log.name))) : null;
  };
  let typing = 0;
  const offer = async () => {
    const { logs } = await get("/console/api/logs", { search: logField.value.trim(), limit: 20 }).catch(() => ({ logs: [] }));
    replace(names, logs.map((log) => h("option", { value: log.name })));
  };
  logField.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(offer, 150);
  });
  logField.addEventListener("change", choose);
  const form = h("form.row.toolbar.search-bar", { role: "search" }, logField, names, query.element, h("button.primary", { type: "submit" }, "Search"), h("button", { type: "button", onclick: explain }, "Syntax"), segments("Show", [["hits", "Hits"], ["chart", "Chart"]], asked.view, (view) => ((asked.view = view), subject?.search && asked.log && openPanel())));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    query.closeList();
    if (logField.value.trim() !== asked.log || !panel) choose();
    else run();
  });
  bind("v", "Switch between hits and chart", () => form.querySelector(".segments input:not(:checked)").click());
  replace(root, heading("Search"), form, progress.element, place, code.element);
  offer();
  choose();
  return () => {
    generation += 1;
    clearTimeout(typing);
    progress.close();
    panel?.close();
  };
}

function undeclared(log, fields) {
  const found = fields.length ? ` Its records contain the fields ${fields.slice(0, 8).map((one) => one.name).join(", ")}${fields.length > 8 ? " …" : ""}.` : "";
  return empty("This log cannot be searched", `Search uses the fields that a log declares as searchable. This log declares none.${found} You can declare them at any time.`, h("a.button", { href: address("log", log, { tab: "schema" }) }, "Choose searchable fields"));
}

const SYNTAX = [
  ["customer:ann", "this keyword, number, date or boolean"],
  ["customer:an*", "keywords with this prefix"],
  ["amount:>=1000", "values in this range: = > >= < <="],
  ["note:gift", "texts with this word; note:wrap* for words with this prefix"],
  ['note:"gift wrapped"', "texts with this phrase"],
  ["gift", "the word in the default fields"],
  ["has:note", "records with any value in the field"],
  ["a b   a AND b   a OR b", "both, both, either; AND binds tighter than OR"],
  ["NOT a   -a   (a OR b)", "negation and grouping"],
];

function explain() {
  openDialog({ title: "Query syntax", wide: true, body: [h("dl.syntax", {}, SYNTAX.map(([example, text]) => h("div", {}, h("dt", {}, h("code", {}, example)), h("dd", {}, text))))] });
}
