/** One queue: leased, upcoming and delayed jobs, and dead letters. */

import { get, send } from "../api.js";
import { codeBlock, curl, literal, python } from "../parts/code.js";
import { heading, stats } from "../parts/heading.js";
import { topicPath } from "../parts/kinds.js";
import { preview, recordView } from "../parts/record.js";
import { failure, liveMark, loading, repeat } from "../parts/states.js";
import { plainTable } from "../parts/table.js";
import { attempt, field, notice, openDialog } from "../shell/dialogs.js";
import { h, replace } from "../shell/dom.js";
import { ago, count, duration, plural } from "../shell/format.js";
import { icon } from "../shell/icons.js";
import { bind } from "../shell/keys.js";
import { address, go } from "../shell/routes.js";
import { needs } from "../shell/session.js";
import { appendByHand } from "./log/appending.js";
import { PARTS, shares } from "./queues.js";

const REFRESH_MS = 1000;
const DEAD_SHOWN = 50;

export function open(root, { name }) {
  if (!name) return void go("queues");
  const live = liveMark();
  const body = h("div.stack.queue", {}, loading());
  const code = codeBlock();
  const add = h("button.primary", { type: "button", onclick: () => appendByHand({ name, kind: "queue", media_type: "application/json", writable_by: ["topics"] }, "", () => refresher.now()), ...needs("write") }, icon("plus"), "Add a job");
  const redriveButton = h("button", { type: "button", hidden: true, onclick: () => redrive(queue, () => refresher.now()), ...needs("read", "write", "delete") }, icon("redrive"), "Re-drive…");
  let queue = null;
  let before = "";
  code.set({
    curl: [curl({ path: `/console/api/queue/${encodeURIComponent(name)}` }), curl({ path: `${topicPath(name)}/claim`, method: "POST", json: { node: "worker-1", max: 10 } }), curl({ path: `${topicPath(name)}/ack`, method: "POST", json: { node: "worker-1", seqs: [1] } })].join("\n"),
    python: python([`queue = client.queue(${literal(name)})`, "worker = queue.worker(concurrency=4)", "", "@worker.handler", "def work(job) -> None:", "    print(job.data)", "", "worker.run()  # until SIGTERM", "# queue.redrive() moves dead letters back"]),
  });
  const ask = async () => {
    queue = await get(`/console/api/queue/${encodeURIComponent(name)}`);
    const dead = await deadRecords(queue);
    live.set("live");
    redriveButton.hidden = !dead.length;
    // Unchanged content is not drawn again, so that it keeps the keyboard focus.
    const now = JSON.stringify([queue, dead.map((one) => one.seq)]);
    if (now !== before) draw(body, queue, dead, () => refresher.now());
    before = now;
  };
  const failed = (error) => {
    live.set(error.status ? "refused" : "waiting");
    if (queue === null || error.status === 404) replace(body, failure(error, () => refresher.now()));
  };
  const refresher = repeat(REFRESH_MS, ask, failed);
  const head = heading(name, [h("span.chip", { dataset: { kind: "accent" } }, "queue"), live.element], [h("a.button", { href: address("log", name) }, "Open as log"), redriveButton, add]);
  head.prepend(h("a.back", { href: address("queues"), "aria-label": "All queues", title: "All queues (u)" }, icon("back")));
  bind("u", "All queues", () => go("queues"));
  bind("a", "Add a job", () => add.disabled || add.click());
  bind("r", "Re-drive dead letters", () => redriveButton.hidden || redriveButton.disabled || redriveButton.click());
  replace(root, head, body, code.element);
  return () => refresher.stop();
}

/** The last dead letters, newest first; empty if the API key may not see them. */
async function deadRecords({ dead_letters: letters }) {
  if (!letters?.exists || !letters.records) return [];
  const page = await get(`/console/api/log/${encodeURIComponent(letters.log)}/records`, { before: Number.MAX_SAFE_INTEGER, limit: DEAD_SHOWN }).catch(() => ({ records: [] }));
  return page.records.reverse();
}

function draw(body, queue, dead, again) {
  const { config, counts } = queue;
  replace(
    body,
    h("div", {}, stats([
      ...PARTS.map(([part, title]) => [title, count(counts[part]), part === "dead" && counts[part] ? "bad" : undefined]),
      ["Lease duration", duration(config.lease_ms)],
      ["Max deliveries", config.max_deliveries ? count(config.max_deliveries) : "unlimited"],
      ["Dead-letter log", config.dead_letter ? h("a", { href: address("log", config.dead_letter) }, config.dead_letter) : "none"],
    ]), h("div.under-stats", {}, shares(counts))),
    h("div.columns.queue-parts", {},
    card("Leased to workers", counts.in_flight, queue.held.length ? held(queue, again) : note("No job is leased.")),
    card("Next jobs", counts.ready, queue.next.length ? records("Next jobs", queue.next) : note("No job is ready.")),
    card("Delayed", counts.delayed, queue.delayed.length ? delayed(queue.delayed) : note("No job is delayed.")),
    card("Dead letters", counts.dead, dead.length ? deadLetters(dead) : note(config.dead_letter ? "No dead letters." : "Failing jobs are retried forever. To stop that, set a dead-letter log and max deliveries in the configuration."))),
  );
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
    { title: "Seq", width: "70px", cell: (row) => h("a", { href: address("log", queue.name, { seq: row.seq }) }, count(row.seq)) },
    { title: "Worker", cell: (row) => h("b", {}, row.worker) },
    { title: "Lease ends", class: "number", width: "96px", cell: (row) => ago(row.until) },
    { title: "Delivery", class: "number.wide-only", width: "100px", cell: (row) => count(row.deliveries) },
    { title: "Priority", class: "number.wide-only", width: "90px", cell: (row) => row.priority },
    { title: "Actions", unseen: true, class: "act", width: "92px", cell: (row) => h("button.quiet.in-row", { type: "button", title: "Take the job from the worker and return it to the queue", "aria-label": `Return job ${row.seq}`, onclick: () => release(row), ...needs("read", "write") }, "Return") },
  ], queue.held);
}

function delayed(rows) {
  return plainTable("Delayed", [
    { title: "Seq", width: "90px", cell: (row) => count(row.seq) },
    { title: "Ready", cell: (row) => ago(row.at) },
    { title: "Deliveries so far", class: "number", width: "130px", cell: (row) => count(row.deliveries) },
    { title: "Priority", class: "number.wide-only", width: "90px", cell: (row) => row.priority },
  ], rows);
}

function records(label, rows) {
  return plainTable(label, [
    { title: "Seq", width: "90px", cell: (row) => h("button.link", { type: "button", onclick: () => look(row) }, count(row.seq)) },
    { title: "Written", class: "wide-only", width: "100px", cell: (row) => ago(row.ts) },
    { title: "Data", class: "data", cell: (row) => preview(row) },
  ], rows);
}

function deadLetters(rows) {
  return plainTable("Dead letters", [
    { title: "Seq", width: "90px", cell: (row) => h("button.link", { type: "button", onclick: () => look(row) }, count(row.seq)) },
    { title: "Failed", width: "100px", cell: (row) => ago(row.ts) },
    { title: "Deliveries", class: "number.wide-only", width: "100px", cell: (row) => row.meta?.$dead_letter_deliveries ?? "–" },
    { title: "Job seq", class: "number.wide-only", width: "100px", cell: (row) => row.meta?.$dead_letter_src_seq ?? "–" },
    { title: "Data", class: "data", cell: (row) => preview(row) },
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
    title: "Re-drive dead letters",
    action: `Re-drive ${plural(queue.dead_letters.records, "dead letter")}`,
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
