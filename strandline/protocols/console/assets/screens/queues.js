/** Queues: the number of ready, leased and delayed jobs and of dead letters in each. */

import { get } from "../api.js";
import { codeBlock, curl, python } from "../parts/code.js";
import { heading } from "../parts/heading.js";
import { empty, failure, liveMark, loading, repeat } from "../parts/states.js";
import { virtualTable } from "../parts/table.js";
import { h, replace } from "../shell/dom.js";
import { count, plural } from "../shell/format.js";
import { address, go } from "../shell/routes.js";

const REFRESH_MS = 1000;
/** More queues can be found with the search. */
const LIMIT = 500;
export const PARTS = [["ready", "Ready", "series-1"], ["in_flight", "Leased", "series-4"], ["delayed", "Delayed", "series-6"], ["dead", "Dead letters", "series-2"]];

export function open(root) {
  root.classList.add("fixed");
  const live = liveMark();
  const found = h("span.muted", {});
  const search = h("input.grow", { type: "search", placeholder: "Search by name", "aria-label": "Search by name", dataset: { search: "" }, spellcheck: "false", autocomplete: "off" });
  const place = h("div.place", {}, loading());
  const code = codeBlock();
  code.set({
    curl: [curl({ path: "/v0/topics/emails", method: "PUT", json: { type: "queue", max_deliveries: 5, dead_letter: "emails:dead" } }), curl({ path: "/v0/topics/emails/claim", method: "POST", json: { node: "worker-1" } })].join("\n"),
    python: python(['emails = client.queue("emails")', 'emails.configure(max_deliveries=5, dead_letter="emails:dead")', 'emails.enqueue({"to": "ann"})', "emails.worker(lambda job: print(job.data), concurrency=4).run(until_empty=True)"]),
  });
  const number = (name) => (row) => (row[name] ? (name === "dead" ? h("span.chip", { dataset: { kind: "bad" } }, count(row[name])) : count(row[name])) : h("span.none", {}, "0"));
  const table = virtualTable({
    label: "Queues",
    columns: [
      { title: "Queue", cell: (row) => h("a.log-name", { href: address("queue", row.name), title: row.name }, row.name) },
      { title: "Distribution", unseen: true, class: "wide-only", width: "26%", cell: (row) => shares(row) },
      ...PARTS.map(([name, title]) => ({ title, class: name === "delayed" ? "number.wide-only" : "number", width: name === "dead" ? "108px" : "86px", cell: number(name) })),
      { title: "Dead-letter log", class: "wide-only", width: "18%", cell: (row) => (row.dead_letter ? h("a", { href: address("log", row.dead_letter) }, row.dead_letter) : h("span.none", {}, "none")) },
    ],
    onopen: (row) => go("queue", row.name),
  });
  table.element.classList.add("openable");
  table.bindKeys();
  let queues = [];
  const show = () => {
    if (!queues.length) {
      return void replace(place, search.value.trim() ? empty("No matches", "No queue matches this search.") : empty("No queues yet", "A queue delivers its records as jobs, each to one worker at a time. Create one with “New log”.", h("a.button", { href: address("logs") }, "Go to logs")));
    }
    if (!table.element.isConnected) replace(place, table.element);
    table.set(queues);
    return undefined;
  };
  const ask = async () => {
    const { queues: listed, total } = await get("/console/api/queues", { search: search.value.trim(), limit: LIMIT });
    queues = listed;
    found.textContent = total > queues.length ? `${count(queues.length)} of ${plural(total, "queue")}` : plural(total, "queue");
    live.set("live");
    show();
  };
  const failed = (error) => {
    live.set(error.status ? "refused" : "waiting");
    if (!queues.length) replace(place, failure(error, () => refresher.now()));
  };
  const refresher = repeat(REFRESH_MS, ask, failed);
  search.addEventListener("input", () => refresher.now());
  replace(root, heading("Queues", [live.element, found]), h("div.row.toolbar", {}, search), place, code.element);
  return () => {
    refresher.stop();
    table.close();
  };
}

/** A bar that shows how many jobs are in which state. */
export function shares(row) {
  const all = PARTS.reduce((sum, [name]) => sum + row[name], 0);
  return h("span.bar", { title: PARTS.map(([name, title]) => `${title}: ${count(row[name])}`).join(", ") }, all ? PARTS.map(([name, , colour]) => (row[name] ? h("i", { style: { flex: `${Math.max(row[name], all * 0.02)} 0 0`, background: `var(--${colour})` } }) : null)) : null);
}
