/** Logs: list, search, sort and create them. */

import { get, send } from "../api.js";
import { codeBlock, curl, literal, python } from "../parts/code.js";
import { heading, segments } from "../parts/heading.js";
import { sparkline } from "../parts/sparkline.js";
import { empty, failure, loading, repeat } from "../parts/states.js";
import { virtualTable } from "../parts/table.js";
import { field, notice, openDialog } from "../shell/dialogs.js";
import { h, replace } from "../shell/dom.js";
import { ago, bytes, count, plural, rate, short } from "../shell/format.js";
import { icon } from "../shell/icons.js";
import { bind } from "../shell/keys.js";
import { address, go, note } from "../shell/routes.js";
import { needs } from "../shell/session.js";
import { kindChip } from "../parts/kinds.js";

const PAGE = 100;
const REFRESH_MS = 2000;
/** The points of two minutes. */
const POINTS = 24;
const KINDS = [["", "All"], ["topic", "Topics"], ["queue", "Queues"], ["stream", "Streams"], ["collection", "Collections"], ["table", "Tables"]];
/** The first sort order of each column: the most interesting rows first. */
const FIRST = { name: "asc", records: "desc", bytes: "desc", rate: "desc", lag: "desc", last: "desc" };

export function open(root, params) {
  const asked = { under: params.under ?? "", search: params.search ?? "", kind: params.kind ?? "", sort: params.sort ?? "name", order: params.order ?? "asc" };
  const pages = new Map();
  let total = null;
  let closed = false;
  let generation = 0;
  const wanted = new Set();

  const prefixes = h("nav.prefixes", { "aria-label": "Prefixes", hidden: true });
  const search = h("input.grow", { type: "search", placeholder: "Search by name", "aria-label": "Search by name", value: asked.search, dataset: { search: "" }, spellcheck: "false", autocomplete: "off" });
  const found = h("span.muted", { role: "status" });
  const create = h("button.primary", { type: "button", onclick: () => createLog(), ...needs("admin") }, icon("plus"), "New log");
  const code = codeBlock();
  const place = h("div.place", {}, loading());
  const table = virtualTable({
    label: "Logs",
    columns: [
      { title: "Name", sort: "name", cell: (log) => [h("a.log-name", { href: address("log", log.name), title: log.name }, log.name), kindChip(log.kind)] },
      { title: "Durability", class: "wide-only", width: "96px", cell: (log) => h("span.muted", {}, log.durability) },
      { title: "Records", sort: "records", class: "number", width: "118px", cell: (log) => count(log.records) },
      { title: "Size", sort: "bytes", class: "number.wide-only", width: "100px", cell: (log) => bytes(log.bytes) },
      { title: "Rate", sort: "rate", class: "number.wide-only", width: "164px", cell: (log) => [sparkline(log.recent, POINTS, `At most ${rate(Math.max(0, ...log.recent))} in the last two minutes`), log.rate ? rate(log.rate) : h("span.none", {}, "–")] },
      { title: "Lag", sort: "lag", class: "number.wide-only", width: "90px", cell: (log) => (log.lag === null ? h("span.none", { title: "No consumers" }, "–") : log.lag ? h("span.chip", { dataset: { kind: "warn" } }, short(log.lag)) : "0") },
      { title: "Last write", sort: "last", class: "number", width: "104px", cell: (log) => (log.last_ts ? ago(log.last_ts) : h("span.none", {}, "–")) },
    ],
    onopen: (log) => go("log", log.name),
    onsort: (sort) => {
      asked.order = asked.sort === sort ? (asked.order === "asc" ? "desc" : "asc") : FIRST[sort];
      asked.sort = sort;
      restart();
    },
  });
  table.element.classList.add("openable");
  table.bindKeys();
  bind("n", "New log", () => create.disabled || createLog());

  const load = async (page, number) => {
    const answer = await get("/console/api/logs", { ...asked, offset: page * PAGE, limit: PAGE });
    if (number !== generation) return;
    pages.set(page, answer.logs);
    if (answer.total !== total || !table.element.isConnected) show(answer.total);
    table.refresh();
  };
  const show = (length) => {
    total = length;
    found.textContent = plural(total, "log");
    const narrowed = asked.search || asked.kind || asked.under;
    if (!total) {
      const text = narrowed ? "No log matches this search." : "A log is created by its first record. You can also create one here.";
      replace(place, empty(narrowed ? "No matches" : "No logs yet", text, narrowed ? null : h("button.primary", { type: "button", onclick: () => createLog(), ...needs("admin") }, icon("plus"), "New log")));
      return;
    }
    if (!table.element.isConnected) replace(place, table.element);
    table.set({ length: total, row: (index) => pages.get(Math.floor(index / PAGE))?.[index % PAGE], need });
  };
  const need = (first, last) => {
    wanted.clear();
    for (let page = Math.floor(first / PAGE); page <= Math.floor(Math.max(first, last - 1) / PAGE); page += 1) {
      wanted.add(page);
      if (pages.has(page)) continue;
      pages.set(page, undefined);
      load(page, generation).catch(() => pages.delete(page));
    }
  };
  const restart = () => {
    generation += 1;
    pages.clear();
    wanted.clear();
    table.sorted(asked.sort, asked.order);
    table.choose(-1);
    table.element.scrollTop = 0;
    const shown = { ...asked };
    if (shown.sort === "name" && shown.order === "asc") delete shown.sort, delete shown.order;
    note("logs", "", shown);
    setCode();
    refresher.now();
  };
  const goUnder = (under) => {
    asked.under = under;
    showPrefixes();
    restart();
  };
  /** The parts of the chosen prefix, and the prefixes that go on from it. */
  const showPrefixes = async () => {
    const { under } = asked;
    const { prefixes: found } = await get("/console/api/prefixes", { under }).catch(() => ({ prefixes: [] }));
    if (under !== asked.under || closed) return;
    const parts = under.match(/[^:/]*[:/]?/g).filter(Boolean);
    const crumbs = under ? [["", "All logs"], ...parts.map((part, index) => [parts.slice(0, index + 1).join(""), part])] : [];
    prefixes.hidden = !crumbs.length && !found.length;
    replace(
      prefixes,
      crumbs.map(([to, text], index) => (index === crumbs.length - 1 ? h("b", { "aria-current": "true" }, text) : [h("button.link", { type: "button", onclick: () => goUnder(to) }, text), h("span.muted", { "aria-hidden": "true" }, "›")])),
      found.map(({ prefix, logs }) => h("button.in-row", { type: "button", title: `${plural(logs, "log")} with the prefix ${prefix}`, onclick: () => goUnder(prefix) }, prefix.slice(under.length), h("span.muted", {}, short(logs)))),
    );
  };
  const setCode = () => {
    code.set({
      curl: curl({ path: `/v0/topics?prefix=${encodeURIComponent(asked.under || asked.search)}` }),
      python: python([`for row in client.topics(prefix=${literal(asked.under || asked.search)}):`, "    print(row.topic, row.count, row.bytes)"]),
    });
  };
  const refresh = async () => {
    const number = generation;
    for (const page of wanted.size ? [...wanted] : [0]) await load(page, number);
  };
  const failed = (error) => total === null && replace(place, failure(error, () => refresher.now()));
  const refresher = repeat(REFRESH_MS, refresh, failed);
  let typing = 0;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => {
      asked.search = search.value.trim();
      restart();
    }, 150);
  });

  root.classList.add("fixed");
  replace(
    root,
    heading("Logs", [found], [create]),
    h("div.row.toolbar", {}, search, segments("Kind", KINDS, asked.kind, (kind) => ((asked.kind = kind), restart()))),
    prefixes,
    place,
    code.element,
  );
  showPrefixes();
  table.sorted(asked.sort, asked.order);
  setCode();
  return () => {
    closed = true;
    generation += 1;
    clearTimeout(typing);
    refresher.stop();
    table.close();
  };
}

/** Opens a dialog that creates a topic, a queue or a stream. */
function createLog() {
  const name = h("input", { required: true, autocomplete: "off", spellcheck: "false", pattern: "[A-Za-z0-9][A-Za-z0-9._:\\/\\-]{0,254}", title: "Letters, digits and . _ : - /; starts with a letter or digit", autofocus: true });
  const kind = h("select", {}, [["topic", "Topic: JSON records"], ["queue", "Queue: jobs for workers"], ["stream", "Stream: any media type, schema and search"]].map(([value, text]) => h("option", { value }, text)));
  const durability = h("select", {}, [["disk", "disk: flushed within 50 ms"], ["fsync", "fsync: acknowledged after the flush"], ["replicated", "replicated: acknowledged when the replica has it"], ["memory", "memory: flushed by the operating system"], ["ephemeral", "ephemeral: never written to disk"]].map(([value, text]) => h("option", { value }, text)));
  const media = h("input", { value: "application/json", spellcheck: "false" });
  const dead = h("input", { placeholder: "none", spellcheck: "false", autocomplete: "off" });
  const deliveries = h("input", { type: "number", min: 0, value: "5" });
  const ofTopics = field("Durability", durability);
  const ofQueues = h("div.pair", {}, field("Max deliveries", deliveries, "0: unlimited"), field("Dead-letter log", dead, "empty: jobs are dropped when their last delivery fails"));
  // Until the user types another name, so that no queue drops jobs by accident.
  let suggested = "";
  name.addEventListener("input", () => {
    if (dead.value !== suggested) return;
    suggested = name.value ? `${name.value}:dead` : "";
    dead.value = suggested;
  });
  const ofStreams = field("Media type", media);
  const adapt = () => {
    ofTopics.hidden = kind.value === "stream";
    ofQueues.hidden = kind.value !== "queue";
    ofStreams.hidden = kind.value !== "stream";
  };
  kind.addEventListener("change", adapt);
  adapt();
  openDialog({
    title: "New log",
    action: "Create",
    body: [field("Name", name), field("Kind", kind), ofTopics, ofQueues, ofStreams],
    submit: async () => {
      if (kind.value === "stream") {
        await send("PUT", `/v1/stream/${name.value.split("/").map(encodeURIComponent).join("/")}`, undefined, { "content-type": media.value });
      } else {
        const config = { type: kind.value === "queue" ? "queue" : "log", durability: durability.value };
        if (kind.value === "queue") Object.assign(config, { max_deliveries: Number(deliveries.value), dead_letter: dead.value.trim() || null });
        await send("PUT", `/v0/topics/${encodeURIComponent(name.value)}`, config);
      }
      notice(`${name.value} was created.`);
      go("log", name.value);
    },
  });
}
