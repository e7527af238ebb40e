/** One queue: leased, upcoming and delayed jobs, and dead letters. */

import { get, send } from "../api.js";
import { chart } from "../parts/chart.js";
import { codeBlock, curl, literal, python } from "../parts/code.js";
import { deadLetterFailures, failureCell } from "../parts/failures.js";
import { heading, stats } from "../parts/heading.js";
import { topicPath } from "../parts/kinds.js";
import { preview, recordView } from "../parts/record.js";
import { failure, liveMark, loading, repeat } from "../parts/states.js";
import { plainTable } from "../parts/table.js";
import { attempt, field, notice, openDialog } from "../shell/dialogs.js";
import { h, replace } from "../shell/dom.js";
import { ago, count, duration, percent, plural, rate } from "../shell/format.js";
import { icon } from "../shell/icons.js";
import { bind } from "../shell/keys.js";
import { address, go } from "../shell/routes.js";
import { needs } from "../shell/session.js";
import { appendByHand, parseJson } from "./log/appending.js";
import { PARTS, shares } from "./queues.js";

const REFRESH_MS = 1000;
const DEAD_SHOWN = 50;
/** The charts show the last ten minutes, from when the screen was opened. */
const KEPT = 600;

export function open(root, { name }) {
  if (!name) return void go("queues");
  const live = liveMark();
  const figures = h("div");
  const lists = h("div", {}, loading());
  const code = codeBlock();
  const add = h("button.primary", { type: "button", onclick: () => appendByHand({ name, kind: "queue", media_type: "application/json", writable_by: ["topics"] }, "", () => refresher.now()), ...needs("write") }, icon("plus"), "Add a job");
  const redriveButton = h("button", { type: "button", hidden: true, onclick: () => redrive(queue, () => refresher.now()), ...needs("read", "write", "delete") }, icon("redrive"), "Redrive…");
  const height = Math.max(110, Math.round(innerHeight * 0.2));
  const charts = [
    [chart({ title: "Throughput", series: [{ label: "jobs" }], format: rate, level: 2, height, sync: "queue" }), (one) => one.throughput],
    [chart({ title: "Age of the oldest ready job", series: [{ label: "age", colour: "series-4" }], format: duration, level: 2, height, sync: "queue" }), (one) => one.oldest_ready_ms ?? 0],
    [chart({ title: "Failure rate", series: [{ label: "failures", colour: "series-2" }], format: percent, level: 2, height, sync: "queue" }), (one) => one.failure_rate],
  ];
  const samples = [];
  const plot = () => {
    samples.push([Date.now() / 1000, ...charts.map(([, value]) => value(queue))]);
    if (samples.length > KEPT) samples.shift();
    charts.forEach(([one], index) => one.set(samples.map(([at]) => at), [samples.map((sample) => sample[index + 1])]));
  };
  let queue = null;
  let before = "";
  code.set({
    curl: [curl({ path: topicPath(name) }), curl({ path: `${topicPath(name)}/claim`, method: "POST", json: { node: "worker-1", max: 10 } }), curl({ path: `${topicPath(name)}/ack`, method: "POST", json: { node: "worker-1", seqs: [1] } })].join("\n"),
    python: python([`queue = client.queue(${literal(name)})`, "worker = queue.worker(concurrency=4)", "", "@worker.handler", "def work(job) -> None:", "    print(job.data, [failure.summary for failure in job.failures])", "", "worker.run()  # until SIGTERM", "# queue.redrive() moves dead letters back"]),
  });
  const ask = async () => {
    queue = await get(`/console/api/queue/${encodeURIComponent(name)}`);
    const dead = await deadRecords(queue);
    live.set("live");
    redriveButton.hidden = !dead.length;
    drawFigures(figures, queue);
    plot();
    // Unchanged lists are not drawn again, so that they keep the keyboard focus.
    const now = JSON.stringify([queue.counts, queue.config, queue.held, queue.delayed, queue.next, dead.map((one) => one.seq)]);
    if (now !== before) drawLists(lists, queue, dead, () => refresher.now());
    before = now;
  };
  const failed = (error) => {
    live.set(error.status ? "refused" : "waiting");
    if (queue === null || error.status === 404) replace(lists, failure(error, () => refresher.now()));
  };
  const refresher = repeat(REFRESH_MS, ask, failed);
  const head = heading(name, [h("span.chip", { dataset: { kind: "accent" } }, "queue"), live.element], [h("a.button", { href: address("log", name) }, "Open as log"), redriveButton, add]);
  head.prepend(h("a.back", { href: address("queues"), "aria-label": "All queues", title: "All queues (u)" }, icon("back")));
  bind("u", "All queues", () => go("queues"));
  bind("a", "Add a job", () => add.disabled || add.click());
  bind("r", "Redrive dead letters", () => redriveButton.hidden || redriveButton.disabled || redriveButton.click());
  replace(root, head, h("div.stack.queue", {}, figures, lists, h("div.columns", { role: "group", "aria-label": "Since this screen was opened" }, charts.map(([one]) => one.element))), code.element);
  return () => {
    refresher.stop();
    charts.forEach(([one]) => one.close());
  };
}

/** The last dead letters, newest first; empty if the API key may not see them. */
async function deadRecords({ dead_letters: letters }) {
  if (!letters?.exists || !letters.records) return [];
  const page = await get(`/console/api/log/${encodeURIComponent(letters.log)}/records`, { before: Number.MAX_SAFE_INTEGER, limit: DEAD_SHOWN }).catch(() => ({ records: [] }));
  return page.records.reverse();
}

function drawFigures(place, { config, counts, oldest_ready_ms: oldest, throughput, failure_rate: failing }) {
  replace(place,
    stats([
      ...PARTS.map(([part, title]) => [title, count(counts[part]), part === "dead" && counts[part] ? "bad" : undefined]),
      ...(counts.dead_lettered ? [["Dead-lettered in total", count(counts.dead_lettered)]] : []),
      ...(counts.dropped ? [["Dropped", count(counts.dropped), "bad"]] : []),
      ["Oldest ready", oldest === null ? "–" : duration(oldest < 1000 ? oldest : Math.floor(oldest / 1000) * 1000)],
      ["Throughput", rate(throughput)],
      ["Failure rate", percent(failing), failing ? "warn" : undefined],
      ["Lease duration", duration(config.lease_ms)],
      ["Max deliveries", config.max_deliveries ? count(config.max_deliveries) : "unlimited"],
      ["Retry delay", config.retry_delay_ms ? duration(config.retry_delay_ms) : "none"],
      ["Dead-letter log", config.dead_letter ? h("a", { href: address("log", config.dead_letter), title: config.dead_letter }, config.dead_letter) : "none"],
    ]),
    h("div.under-stats", {}, shares(counts)));
}

function drawLists(place, queue, dead, again) {
  const { counts } = queue;
  replace(place, h("div.columns.queue-parts", {},
    card("Leased to workers", counts.in_flight, queue.held.length ? held(queue, again) : note("No job is leased.")),
    card("Next jobs", counts.ready, queue.next.length ? nextJobs(queue.next) : note("No job is ready.")),
    card("Delayed", counts.delayed, queue.delayed.length ? delayed(queue.delayed) : note("No job is delayed.")),
    card("Dead letters", queue.dead_letters?.records ?? 0, dead.length ? deadLetters(queue, dead, again) : note(withoutDeadLetters(queue.config)))));
}

function withoutDeadLetters({ dead_letter: log, max_deliveries: most }) {
  if (!most) return "Failing jobs are retried forever. To stop that, set max deliveries and a dead-letter log in the configuration.";
  return log ? "No dead letters." : "Jobs are dropped when their last delivery fails. To keep them, set a dead-letter log in the configuration.";
}

function card(title, number, content) {
  return h("section.card", { "aria-label": title }, h("header", {}, h("h2", {}, title), h("span.chip", {}, count(number))), content);
}

function note(text) {
  return h("p.pad.muted", {}, text);
}

function held(queue, again) {
  const release = (row) => attempt(async () => {
    await send("POST", `${topicPath(queue.name)}/nack`, { node: row.worker, seqs: [row.seq] });
    again();
  }, `Job ${count(row.seq)} was returned to the queue.`);
  return plainTable("Leased to workers", [
    { title: "Seq", width: "64px", cell: (row) => h("a", { href: address("log", queue.name, { seq: row.seq }) }, count(row.seq)) },
    { title: "Worker", cell: (row) => h("b", { title: row.worker }, row.worker) },
    ...lastFailure(queue.held),
    { title: "Lease ends", class: "number", width: "96px", cell: (row) => ago(row.until) },
    { title: "Delivery", class: "number.wide-only", width: "80px", cell: (row) => count(row.deliveries) },
    ...priority(queue.held),
    { title: "Actions", unseen: true, class: "act", width: "80px", cell: (row) => h("button.quiet.in-row", { type: "button", title: "Take the job from the worker and return it to the queue", "aria-label": `Return job ${row.seq}`, onclick: () => release(row), ...needs("read", "write") }, "Return") },
  ], queue.held);
}

function delayed(rows) {
  return plainTable("Delayed", [
    { title: "Seq", width: "64px", cell: (row) => count(row.seq) },
    { title: "Ready", width: "120px", cell: (row) => ago(row.at) },
    ...lastFailure(rows),
    { title: "Deliveries", class: "number", width: "96px", cell: (row) => count(row.deliveries) },
    ...priority(rows),
  ], rows);
}

/** The column of reasons, if any of the jobs failed before. */
function lastFailure(rows) {
  return rows.some((row) => row.failures.length) ? [{ title: "Failure", cell: (row) => failureCell(row.seq, row.failures) }] : [];
}

/** The column of priorities, if any of the jobs has one. */
function priority(rows) {
  return rows.some((row) => row.priority) ? [{ title: "Priority", class: "number.wide-only", width: "80px", cell: (row) => row.priority }] : [];
}

function nextJobs(rows) {
  return plainTable("Next jobs", [
    { title: "Seq", width: "64px", cell: (row) => h("button.link", { type: "button", onclick: () => look(row) }, count(row.seq)) },
    { title: "Written", class: "wide-only", width: "100px", cell: (row) => ago(row.ts) },
    ...lastFailure(rows),
    { title: "Data", class: "data", cell: (row) => preview(row) },
  ], rows);
}

function deadLetters(queue, rows, again) {
  const { log } = queue.dead_letters;
  const move = async (row, change = {}) => {
    const { redriven } = await send("POST", `${topicPath(log)}/redrive`, { seq: row.seq, ...change });
    if (!redriven) throw new Error(`Dead letter ${count(row.seq)} was not moved: it is no longer there, or its queue accepts no jobs.`);
    again();
  };
  const redriveOne = (row) => attempt(() => move(row), `Dead letter ${count(row.seq)} was moved back to its queue.`);
  const editOne = (row) => {
    const text = h("textarea", { rows: 12, spellcheck: "false", required: true, autofocus: true });
    text.value = JSON.stringify(row.data, null, 2);
    openDialog({
      title: `Edit dead letter ${count(row.seq)}`,
      action: "Save and redrive",
      wide: true,
      body: [field("Data (JSON)", text, "The job moves back to its queue with this data. Its key and its meta stay as they are.")],
      submit: async () => {
        await move(row, { data: parseJson("The data", text.value) });
        notice(`Dead letter ${count(row.seq)} was changed and moved back to its queue.`);
      },
    });
  };
  return plainTable("Dead letters", [
    { title: "Seq", width: "64px", cell: (row) => h("button.link", { type: "button", onclick: () => look(row) }, count(row.seq)) },
    { title: "Failed", class: "wide-only", width: "90px", cell: (row) => ago(row.ts) },
    { title: "Reason", cell: (row) => failureCell(row.meta?.$dead_letter_src_seq ?? row.seq, deadLetterFailures(row.meta)) },
    { title: "Data", class: "data", width: "28%", cell: (row) => preview(row) },
    { title: "Actions", unseen: true, class: "act", width: "132px", cell: (row) => [
      h("button.quiet.in-row", { type: "button", title: "Change the data of this job and move it back to its queue", "aria-label": `Edit dead letter ${row.seq}`, onclick: () => editOne(row), ...needs("read", "write", "delete") }, "Edit…"),
      h("button.quiet.in-row", { type: "button", title: "Move this job back to its queue", "aria-label": `Redrive dead letter ${row.seq}`, onclick: () => redriveOne(row), ...needs("read", "write", "delete") }, "Redrive"),
    ] },
  ], rows);
}

function look(record) {
  openDialog({ title: `Record ${count(record.seq)}`, body: [recordView(record)], wide: true });
}

function redrive(queue, done) {
  const log = queue.dead_letters.log;
  const limit = h("input", { type: "number", min: 0, value: "0" });
  const match = h("input", { placeholder: "any", spellcheck: "false", autocomplete: "off" });
  const to = h("input", { placeholder: "their original queues", spellcheck: "false", autocomplete: "off" });
  openDialog({
    title: "Redrive dead letters",
    action: `Redrive ${plural(queue.dead_letters.records, "dead letter")}`,
    body: [
      h("p", {}, `Moves jobs from ${log} back to their original queues, where they are delivered again.`),
      h("div.pair", {}, field("Max jobs", limit, "0: all"), field("Key filter", match, "customer:ann or customer:*")),
      field("Destination", to),
    ],
    submit: async () => {
      const body = { limit: Number(limit.value) };
      if (match.value.trim()) body.match = match.value.trim();
      if (to.value.trim()) body.to = to.value.trim();
      const answer = await send("POST", `${topicPath(log)}/redrive`, body);
      notice(`${plural(answer.redriven, "job")} moved${answer.remaining ? `, ${count(answer.remaining)} remaining` : ""}.`);
      done();
    },
  });
}
