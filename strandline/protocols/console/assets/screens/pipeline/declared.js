/** The declared tables of a project: the graph, and each table with its state. */

import { snippet } from "../../parts/code.js";
import { h, replace } from "../../shell/dom.js";
import { ago, count, duration, plural } from "../../shell/format.js";
import { address } from "../../shell/routes.js";
import { drawGraph } from "./graph.js";
import { MODES } from "./modes.js";

const KINDS = { streaming_table: "streaming table", materialized_view: "materialized view", temporary_view: "temporary view", sink: "sink" };
const STATES = { running: "good", failed: "bad", waiting: "", stopped: "" };
/** A running pipeline reports every few seconds. Without a report for this time, its states are old. */
const SILENT_MS = 60_000;

/**
 * The part of the screen. `set` shows the answer of `GET /pipeline`; open tables, focus and scroll positions stay.
 * @param {string} chosen the name of a table that is open at first
 */
export function declaredTables(chosen) {
  const picture = h("div.graph", { tabindex: "0", role: "group", "aria-label": "Graph of tables" });
  const list = h("ul.declared", { "aria-label": "Declared tables" });
  const element = h("section.card.declared-tables", { "aria-label": "Declared tables" });
  /** @type {Map<string, boolean>} */
  const opened = new Map(chosen ? [[chosen, true]] : []);
  let shown = "";
  let drawn = "";

  const select = (name) => {
    const item = [...list.querySelectorAll("details")].find((each) => each.dataset.table === name);
    if (!item) return;
    item.open = true;
    item.querySelector("summary").focus();
    item.scrollIntoView({ block: "nearest" });
  };
  const set = (pipeline) => {
    const { status } = pipeline;
    const declared = status?.declared ?? null;
    const isSilent = declared && status.state !== "ended" && Date.now() - status.updated > SILENT_MS;
    const now = JSON.stringify([declared, status?.state, isSilent, pipeline.lake]);
    if (now === shown) return;
    shown = now;
    if (!declared) {
      drawn = "";
      return void replace(element, h("h2", {}, "Declared tables"), nothing(pipeline));
    }
    const key = element.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
    const tables = (declared.tables ?? []).map((table) => ({ ...table, state: stateOf(table, status) }));
    replace(list, tables.map((table) => item(table, status, opened, select, tables)));
    const graph = JSON.stringify(tables.map((table) => [table.name, table.kind, table.mode, table.state, table.inputs, table.log, table.dead_letter_log, Boolean(table.error), Boolean(table.lag)]));
    if (graph !== drawn) {
      drawn = graph;
      const left = [picture.scrollLeft, picture.scrollTop];
      replace(picture, drawGraph(tables, select));
      [picture.scrollLeft, picture.scrollTop] = left;
    }
    if (!list.isConnected || !tables.length) {
      replace(element, h("header", {}), tables.length ? [picture, list] : h("p.pad.muted", {}, "The project declares no tables yet."));
    }
    element.querySelector(".declared-error")?.remove();
    replace(element.firstChild, h("h2", {}, "Declared tables"), h("span.muted.breakable", { title: declared.directory }, `project ${declared.project}`), state(status, isSilent));
    if (declared.error) element.firstChild.after(h("p.problem.declared-error", { role: "alert" }, declared.error));
    if (key) [...element.querySelectorAll("[data-key]")].find((each) => each.dataset.key === key)?.focus({ preventScroll: true });
  };
  return { element, set };
}

function state(status, isSilent) {
  if (status.state === "ended") return h("span.chip", {}, "not running");
  if (isSilent) return h("span.chip", { dataset: { kind: "warn" }, title: "The pipeline has not reported for a while. It may have been killed." }, "last report ", ago(status.updated));
  return null;
}

/** A process that was killed has left the state of its tables as it was. */
function stateOf(table, status) {
  if (table.error) return "failed";
  const state = table.state ?? "waiting";
  return status.state === "ended" && state === "running" ? "stopped" : state;
}

function nothing(pipeline) {
  if (!pipeline.lake) return h("p.pad.muted", {}, "Declared tables are shown only to API keys with access to all logs.");
  const place = pipeline.lake.replace(/^file:\/\//, "");
  const lake = /\s/.test(place) ? `'${place}'` : place;
  return h(
    "div.pad.stack",
    {},
    h("p.wide-text", {}, "A project declares tables over logs in SQL or Python: filters, joins, windowed counts, the last record of each key. The pipeline keeps them current, and can write their rows back into a log."),
    snippet("Make a project and run it", [`strandline pipeline init shop --url ${location.origin}`, `strandline pipeline run --project shop --url ${location.origin} --lake ${lake} --continuous`].join("\n")),
    pipeline.state === "off" ? null : h("p.muted.wide-text", {}, "If this server is to keep the tables current itself, set ", h("code", {}, "pipeline_project"), " to the directory of the project in its settings and restart it."),
  );
}

function item(table, status, opened, select, tables) {
  const failed = Boolean(table.error);
  const isOpen = opened.get(table.name) ?? failed;
  const [kept] = MODES[table.mode] ?? [KINDS[table.kind] ?? table.kind];
  const kind = STATES[table.state];
  return h("li", {}, h(
    "details",
    { open: isOpen, dataset: { table: table.name }, ontoggle: (event) => opened.set(table.name, event.target.open) },
    h(
      "summary",
      { dataset: { key: `table ${table.name}` } },
      h("b.name", {}, table.name),
      h("span.kept", {}, kept),
      h("span.lag", {}, lag(table, status)),
      h("span.rows-read", {}, table.mode && table.mode !== "refresh" ? plural(table.rows ?? 0, "row") : ""),
      h("span.batch", {}, table.updated ? ago(table.updated) : ""),
      h("span.chip", { dataset: { kind } }, table.state),
    ),
    h("div.stack.details", {}, failed ? failure(table) : null, facts(table, status, select, tables)),
  ));
}

function failure(table) {
  const again = table.retry ? ["; next attempt ", ago(table.retry)] : "";
  return h("div.problem", {}, h("p", {}, plural(table.failures || 1, "failure"), again), h("pre", {}, table.error));
}

function facts(table, status, select, tables) {
  const [, sentence] = MODES[table.mode] ?? [];
  const isTable = (name) => tables.some((each) => each.name === name && each.kind !== "sink");
  const link = (name) => (isTable(name) ? h("button.link", { type: "button", dataset: { key: `${table.name} reads ${name}` }, onclick: () => select(name) }, name) : logLink(name, `${table.name} reads ${name}`));
  const between = (links) => links.flatMap((each, index) => (index ? [", ", each] : [each]));
  const given = [
    ["Kind", table.comment ? `${KINDS[table.kind] ?? table.kind}: ${table.comment}` : (KINDS[table.kind] ?? table.kind)],
    ["Kept current", sentence ? [sentence, why(table)] : table.kind === "temporary_view" ? "It has no rows of its own: it is part of the queries that read it." : "Not known yet."],
    ["Reads", table.inputs?.length ? between(table.inputs.map(link)) : null],
    [table.mode === "sink" ? "Writes to" : "Also written to", table.log ? ["log ", logLink(table.log, `${table.name} writes`)] : null],
    ["Rows that fail", table.dead_letter_log ? ["go to the log ", logLink(table.dead_letter_log, `${table.name} fails`)] : null],
    ["Lag", table.mode ? lag(table, status) : null],
    [table.mode === "refresh" ? "Last refresh" : "Last batch", table.updated ? [ago(table.updated), table.seconds === null || table.seconds === undefined ? "" : `, took ${duration(table.seconds * 1000)}`] : table.mode ? "none since the pipeline started" : null],
    ["Rows read", table.mode && table.mode !== "refresh" ? `${count(table.rows ?? 0)} since the pipeline started` : null],
    ["Deleted records", table.erasures ? [`${plural(table.erasures, "erasure")} since the table was computed. To apply them: `, h("code", {}, `strandline pipeline refresh --full ${table.name}`)] : null],
  ];
  return h("dl.facts", {}, given.filter(([, value]) => value !== null).map(([title, value]) => h("div", {}, h("dt", {}, title), h("dd", {}, value))));
}

/** The reason, if it says more than the sentence about the mode. */
function why(table) {
  const [, reason] = (table.reason ?? "").split("computed as a whole: ");
  return reason ? ` Reason: ${reason}.` : "";
}

/** The records that the table lacks, and since when. */
function lag(table, status) {
  if (table.lag === null || table.lag === undefined) return table.mode ? "lag not known" : "";
  if (!table.lag) return "no lag";
  const since = table.updated ? ` · ${duration(Math.max(0, Math.round((status.updated - table.updated) / 1000)) * 1000)}` : "";
  return h("span.chip", { dataset: { kind: "warn" }, title: since ? "Records that are not processed, and the time since the last batch" : "Records that are not processed" }, `${count(table.lag)} behind${since}`);
}

function logLink(name, key) {
  return h("a", { href: address("log", name), dataset: { key } }, name);
}
