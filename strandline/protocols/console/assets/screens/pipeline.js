/** Pipeline: the declared tables, how much of the logs is in the lake, and the last rounds. */

import { get, send } from "../api.js";
import { codeBlock, curl, python } from "../parts/code.js";
import { heading, stats } from "../parts/heading.js";
import { failure, liveMark, loading, repeat } from "../parts/states.js";
import { plainTable } from "../parts/table.js";
import { attempt } from "../shell/dialogs.js";
import { h, replace } from "../shell/dom.js";
import { ago, bytes, count, duration, plural, rate } from "../shell/format.js";
import { icon } from "../shell/icons.js";
import { bind } from "../shell/keys.js";
import { address } from "../shell/routes.js";
import { needs } from "../shell/session.js";
import { declaredTables } from "./pipeline/declared.js";

const REFRESH_MS = 2000;
const WORDS = { off: "off", missing: "cannot run", idle: "idle", running: "running", stopping: "stopping", backing_off: "failed, retries", elsewhere: "runs elsewhere" };
const KINDS = { running: "good", stopping: "warn", missing: "bad", backing_off: "bad", elsewhere: "accent" };

export function open(root, params) {
  const live = liveMark();
  const state = h("span.chip", {});
  const declared = declaredTables(params.table);
  // The tables are not drawn again with the rest, so that focus and scroll positions stay.
  const above = h("div.stack", {}, loading());
  const below = h("div.stack");
  const body = h("div.stack.pipeline", {}, above);
  const code = codeBlock();
  code.set({
    curl: [curl({ path: "/pipeline" }), curl({ path: "/pipeline/run", method: "POST" })].join("\n"),
    python: python(['print(json.loads(client.call("GET", "/pipeline").body)["state"])', 'client.call("POST", "/pipeline/run")', "", "# the lake is Delta: import polars; polars.read_delta(\"data/lake/records\")"]),
  });
  const run = h("button.primary", { type: "button", onclick: () => attempt(async () => (await send("POST", "/pipeline/run"), refresher.now()), "Pipeline run requested."), ...needs("admin") }, icon("run"), "Run now");
  const allowed = !run.disabled;
  let known = "";
  const ask = async () => {
    const pipeline = await get("/pipeline");
    live.set("live");
    state.textContent = WORDS[pipeline.state] ?? pipeline.state;
    state.dataset.kind = KINDS[pipeline.state] ?? "";
    run.disabled = !allowed || ["off", "missing"].includes(pipeline.state);
    if (allowed) run.title = pipeline.state === "off" ? "The pipeline is turned off in the server's settings" : pipeline.state === "missing" ? "A requirement of the pipeline is missing on this machine" : "";
    const now = JSON.stringify(pipeline);
    if (now !== known) draw(above, below, pipeline);
    declared.set(pipeline);
    if (!known) replace(body, above, declared.element, below);
    known = now;
  };
  const failed = (error) => {
    live.set(error.status ? "refused" : "waiting");
    if (!known) replace(above, failure(error, () => refresher.now()));
  };
  const refresher = repeat(REFRESH_MS, ask, failed);
  bind("r", "Run now", () => run.disabled || run.click());
  replace(root, heading("Pipeline", [state, live.element], [run]), body, code.element);
  return () => refresher.stop();
}

function draw(above, below, pipeline) {
  const { status } = pipeline;
  const lag = status?.lag;
  const last = status?.rounds?.filter((one) => !one.error && !one.stopped).at(-1);
  replace(
    above,
    pipeline.state === "off" ? h("p.card.pad", {}, "The pipeline is turned off in the server's settings (", h("code", {}, 'pipeline = "off"'), "). ", status ? "This is the last report of a pipeline that was started separately." : "Logs work as usual, but no records are copied to the lake.") : null,
    pipeline.missing.length ? h("div.card.pad.stack", { role: "alert" }, h("h2", {}, "The pipeline cannot run on this machine"), h("ul", {}, pipeline.missing.map((text) => h("li", {}, text)))) : null,
    pipeline.last_error ? h("details.card.pad.problem-card", { open: pipeline.retry_seconds > 0 }, h("summary", {}, `Last failure${pipeline.retry_seconds ? `; next attempt in ${duration(pipeline.retry_seconds * 1000)}` : ""}`), h("pre.json", { tabindex: "0", "aria-label": "Last failure" }, pipeline.last_error)) : null,
    pipeline.status_error ? h("p.problem", { role: "alert" }, pipeline.status_error) : null,
    stats([
      // A server whose pipeline is off does not compare the logs with the lake.
      ...(pipeline.state === "off" ? [] : [
        ["Not in the lake yet", plural(pipeline.new_records, "record"), pipeline.new_records ? "warn" : "good"],
        ["Pending deletions", count(pipeline.new_erasures), pipeline.new_erasures ? "warn" : undefined],
      ]),
      ["Logs", count(lag?.logs ?? 0)],
      ["Records in the lake", count(lag?.covered?.records ?? 0)],
      ["Rounds", count(status?.rounds_total ?? 0)],
      ["Last successful round", last ? ago(last.end) : "never"],
      ["Failures", count(pipeline.failures), pipeline.failures ? "bad" : undefined],
    ]),
    pipeline.reason || pipeline.lake ? h("p.muted.breakable", {}, pipeline.reason ? `Reason for the current run: ${pipeline.reason}. ` : "", pipeline.lake ? ["Lake: ", h("code", {}, pipeline.lake), status?.master ? `. Spark master: ${status.master}` : ""] : "") : null,
    pipeline.warnings?.length ? h("div.card.pad.stack", { role: "alert" }, pipeline.warnings.map((text) => h("p", {}, text))) : null,
    pipeline.retained?.logs ? retained(pipeline.retained) : null,
    status?.stages?.length ? underWay(status.stages) : null,
  );
  replace(
    below,
    h("div.columns", {}, covered(lag), rounds(status?.rounds ?? [])),
    status?.problems?.length ? problems(status) : null,
  );
}

function underWay(stages) {
  return h("section.card", { "aria-label": "In progress" }, h("h2", {}, "In progress"), h("div.pad.stack", {}, stages.map((stage) =>
    h("div.stage", {}, h("b", {}, stage.stage), stage.total ? h("progress", { max: stage.total, value: stage.records ?? 0, "aria-label": stage.stage }) : h("span.muted", {}, "…"), h("span.number", {}, `${count(stage.records ?? 0)}${stage.total ? ` of ${count(stage.total)}` : ""}`), h("span.number.muted", {}, rate(stage.rate ?? 0))))));
}

function retained(lag) {
  const held = lag.held_records ? `${plural(lag.held_records, "record")} (${bytes(lag.held_bytes)}) beyond the retention` : "nothing beyond the retention";
  return h("section.card", { "aria-label": "Logs that wait for the lake" }, h("header", {}, h("h2", {}, "Logs that wait for the lake"), h("span.muted", {}, held)), plainTable("Logs that wait for the lake", [
    { title: "Log", cell: (row) => h("a", { href: address("log", row.log) }, row.log) },
    { title: "Not in the lake", class: "number", width: "128px", cell: (row) => count(row.lag_records) },
    { title: "Oldest", class: "number", width: "96px", cell: (row) => (row.lag_records ? duration(row.lag_seconds * 1000) : "–") },
    { title: "Beyond retention", class: "number wide-only", width: "144px", cell: (row) => count(row.held_records) },
  ], lag.rows.slice(0, 20)));
}

function covered(lag) {
  const rows = lag?.rows ?? [];
  const content = rows.length
    ? plainTable("Progress by log", [
        { title: "Log", cell: (row) => h("a", { href: address("log", row.log) }, row.log) },
        { title: "In the lake", class: "wide-only", width: "30%", cell: (row) => h("progress", { max: Math.max(1, row.head), value: least(row), "aria-label": `${row.log}: ${count(least(row))} of ${count(row.head)}`, title: Object.entries(row.covered).map(([table, seq]) => `${table}: ${count(seq)}`).join("\n") }) },
        { title: "Head", class: "number", width: "104px", cell: (row) => count(row.head) },
        { title: "Lag", class: "number", width: "96px", cell: (row) => (row.head > least(row) ? h("span.chip", { dataset: { kind: "warn" } }, count(row.head - least(row))) : "0") },
      ], rows)
    : h("p.pad.muted", {}, "No records are in the lake yet.");
  return h("section.card", { "aria-label": "Progress by log" }, h("header", {}, h("h2", {}, "Progress by log"), lag?.covered ? h("span.muted", {}, Object.entries(lag.covered).map(([table, seqs]) => `${table} ${lag.heads ? Math.floor((100 * seqs) / lag.heads) : 100} %`).join(" · ")) : null), content);
}

function least(row) {
  const values = Object.values(row.covered);
  return values.length ? Math.min(...values) : 0;
}

function rounds(list) {
  const content = list.length
    ? h("ul.rounds", {}, [...list].reverse().map((round) => {
        const kind = round.error ? "bad" : round.stopped ? "warn" : "good";
        return h("li", {},
          h("div.row", {}, h("span.chip", { dataset: { kind } }, round.error ? "failed" : round.stopped ? "stopped" : "done"), ago(round.end), h("span.muted", {}, `took ${duration(round.end - round.begin)}`)),
          round.error ? h("p.problem", {}, round.error) : null,
          (round.stages ?? []).filter((stage) => stage.records).length ? h("ul.stages", {}, round.stages.filter((stage) => stage.records).map((stage) => h("li", {}, h("span", {}, stage.stage), h("span.number", {}, plural(stage.records, "record")), h("span.number.muted", {}, rate(stage.rate)), h("span.number.muted.wide-only", {}, stage.bytes ? bytes(stage.bytes) : "")))) : null);
      }))
    : h("p.pad.muted", {}, "No rounds yet. The pipeline runs when there is enough to do, or when you select “Run now”.");
  return h("section.card", { "aria-label": "Last rounds" }, h("h2", {}, "Last rounds"), content);
}

function problems(status) {
  return h("section.card", { "aria-label": "Problems" }, h("header", {}, h("h2", {}, "Problems"), h("span.chip", { dataset: { kind: "bad" } }, count(status.problems_total))), plainTable("Problems", [
    { title: "When", width: "100px", cell: (one) => ago(one.time) },
    { title: "Stage", class: "wide-only", width: "120px", cell: (one) => one.stage },
    { title: "Log", class: "wide-only", width: "180px", cell: (one) => (one.log ? h("a", { href: address("log", one.log, { seq: one.seq ?? "" }) }, one.seq ? `${one.log} ${count(one.seq)}` : one.log) : "–") },
    { title: "Message", cell: (one) => h("span", { title: one.message }, one.message) },
  ], [...status.problems].reverse()));
}
