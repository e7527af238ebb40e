/** SQL: a statement over logs, the lake and declared tables, its result as a table or a chart, and saved statements. */

import { file, send } from "../api.js";
import { codeBlock, curl } from "../parts/code.js";
import { heading, segments } from "../parts/heading.js";
import { empty, failure, loading } from "../parts/states.js";
import { attempt, notice } from "../shell/dialogs.js";
import { h, replace } from "../shell/dom.js";
import { count, duration, plural } from "../shell/format.js";
import { icon } from "../shell/icons.js";
import { bind } from "../shell/keys.js";
import { note } from "../shell/routes.js";
import { current, needs } from "../shell/session.js";
import { resultChart } from "./sql/drawing.js";
import { editor } from "./sql/editor.js";
import { openSaved, saveStatement } from "./sql/saved.js";
import { resultTable } from "./sql/table.js";

const PATH = "/console/api/sql";
const FORMATS = [["csv", "CSV"], ["json", "JSON"], ["parquet", "Parquet"]];
const VIEWS = { table: resultTable, chart: resultChart };

export function open(root, params) {
  root.classList.add("fixed");
  let view = params.view in VIEWS ? params.view : "table";
  let result = null;
  let drawn = null;
  let running = null;
  const field = editor(params.q ?? "", () => run());
  const told = h("span.muted", { role: "status" });
  const isAvailable = current().sql;
  const place = h("div.place", {}, isAvailable ? start() : notInstalled());
  const code = codeBlock();
  const runButton = h("button.primary", { type: "button", title: "Run (Ctrl+Enter)", onclick: () => run(), ...needs("read"), ...(isAvailable ? {} : { disabled: true, title: "The server has no DuckDB" }) }, icon("run"), "Run");
  const cancelButton = h("button", { type: "button", hidden: true, onclick: () => cancel() }, "Cancel");
  const downloads = h("div.row.nowrap", { hidden: true }, FORMATS.map(([format, title]) => h("button", { type: "button", title: `Download all rows as ${title}`, onclick: () => attempt(() => download(format)) }, icon("download"), title)));

  const keep = () => note("sql", "", { q: field.value(), view: view === "table" ? "" : view });
  const setCode = (statement) => {
    const quoted = `'${statement.replaceAll("'", "'\\''")}'`;
    code.set({
      curl: curl({ path: PATH, method: "POST", json: { statement, format: "csv" } }),
      python: `# On the command line, without limits:\n# strandline --url ${location.origin} sql ${quoted.replaceAll("\n", " ")} --csv`,
    });
  };
  const draw = () => {
    drawn?.close();
    drawn = null;
    if (!result) return;
    if (!result.columns.length || (!result.rows.length && view === "chart")) return void replace(place, empty("No rows", "The statement returned no rows."));
    drawn = VIEWS[view](place, result);
  };
  const run = async () => {
    const statement = field.value().trim();
    field.closeList();
    if (!statement || runButton.disabled) return;
    cancel();
    keep();
    setCode(statement);
    const id = crypto.randomUUID?.() ?? `${Date.now()}-${Math.floor(Math.random() * 1e9)}`;
    running = id;
    result = null;
    draw();
    told.textContent = "";
    downloads.hidden = true;
    cancelButton.hidden = false;
    replace(place, loading("Running…"));
    try {
      const answer = await send("POST", PATH, { statement, id });
      if (running !== id) return;
      result = answer;
      told.textContent = `${answer.truncated ? "the first " : ""}${plural(answer.rows.length, "row")} in ${duration(answer.elapsed_ms)}${answer.warnings.length ? `; ${answer.warnings.join("; ")}` : ""}`;
      downloads.hidden = false;
      draw();
    } catch (error) {
      if (running === id) replace(place, failure(error.status === 400 || error.status === 422 ? { status: error.status, message: error.message } : error));
    } finally {
      if (running === id) finish();
    }
  };
  const finish = () => {
    running = null;
    cancelButton.hidden = true;
  };
  const cancel = () => {
    if (running === null) return;
    send("POST", `${PATH}/${running}/cancel`).catch((error) => notice(error.message, "bad"));
    finish();
    replace(place, empty("Cancelled", "The query was cancelled before it was complete."));
  };
  const download = async (format) => {
    const blob = await file(PATH, { statement: field.value().trim(), format });
    const link = h("a", { href: URL.createObjectURL(blob), download: `query.${format}` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    notice(`Downloaded ${count(blob.size)} bytes.`);
  };

  const take = (statement) => {
    field.set(statement);
    run();
  };
  const saved = h("button", { type: "button", onclick: () => openSaved(take) }, "Saved…");
  const save = h("button", { type: "button", onclick: () => saveStatement(field.value().trim()) }, icon("save"), "Save…");
  const views = segments("Show", [["table", "Table"], ["chart", "Chart"]], view, (chosen) => {
    view = chosen;
    keep();
    draw();
  });
  replace(
    root,
    heading("SQL", [], [saved, save]),
    field.element,
    h("div.row.toolbar", {}, runButton, cancelButton, views, told, h("span.grow"), downloads),
    place,
    code.element,
  );
  bind("v", "Switch between table and chart", () => views.querySelector("input:not(:checked)").click());
  bind("r", "Run the statement", () => run());
  setCode(field.value() || "select 1");
  if (field.value()) run();
  return () => {
    if (running !== null) cancel();
    field.close();
    drawn?.close();
  };
}

function notInstalled() {
  return empty("SQL is not installed", h("span", {}, "This server has no DuckDB. Run ", h("code", {}, "pip install 'strandline[sql]'"), " where the server runs, and restart it. ", h("code", {}, "strandline sql"), " works on every machine with this extra, against this server too."));
}

function start() {
  return empty("Query logs with SQL", h("span", {}, "Every log is a table with the columns seq, ts, key, node, meta and data. Read a field of JSON data with ", h("code", {}, "data->>'field'"), "."));
}
