/** The hits of a query, with the matches highlighted. */

import { send } from "../../api.js";
import { curl, literal, python } from "../../parts/code.js";
import { seqOfOffset, streamPath } from "../../parts/kinds.js";
import { jsonBlock, jsonLine, mark } from "../../parts/json.js";
import { empty, failure, loading } from "../../parts/states.js";
import { virtualTable } from "../../parts/table.js";
import { openDialog } from "../../shell/dialogs.js";
import { h, replace } from "../../shell/dom.js";
import { count, plural } from "../../shell/format.js";
import { icon } from "../../shell/icons.js";
import { bind } from "../../shell/keys.js";
import { address } from "../../shell/routes.js";
import { wordsOf } from "./words.js";

const PAGE = 100;
/** Longer values are not shown in front of a record. */
const LONG = 200;
const NARROW = matchMedia("(max-width: 760px)");

export function openHits(place, subject, { code, learn }) {
  const { log, search } = subject;
  let generation = 0;
  let hits = [];
  let next = null;
  let marked = null;
  let body = {};
  let busy = false;
  const sortable = Object.entries(search.fields ?? {}).filter(([, one]) => one.sortable).map(([name]) => name);
  const sort = h("select", { "aria-label": "Sort" }, [["", "Best or newest first"], ["offset:desc", "Newest first"], ["offset:asc", "Oldest first"], ...sortable.flatMap((name) => [[`${name}:desc`, `${name} ↓`], [`${name}:asc`, `${name} ↑`]])].map(([value, text]) => h("option", { value }, text)));
  const found = h("span.muted", { role: "status" });
  const list = h("div.list", {}, loading());
  const panel = h("div.detail", { hidden: true });
  const primary = search.primaryTimestampField;
  const table = virtualTable({
    label: "Hits",
    columns: [
      { title: "Seq", class: "seq", width: "92px", cell: (hit) => h("button.link", { type: "button" }, count(hit.seq)) },
      primary ? { title: primary, class: "wide-only", width: "200px", cell: (hit) => h("span.muted.mono", {}, String(hit.fields?.[primary] ?? "–").replace("T", " ").replace("Z", "").slice(0, 23)) } : null,
      { title: "Score", class: "number.wide-only", width: "70px", cell: (hit) => (hit.score ? hit.score.toFixed(2) : h("span.none", {}, "–")) },
      { title: "Record", class: "data", cell: (hit) => [foundIn(hit.source, marked), jsonLine(hit.source, marked, 900)] },
    ].filter(Boolean),
    onopen: (hit, index) => show(hit, index),
    onscroll: (_, last) => next && last > hits.length - 30 && more(),
  });
  table.element.classList.add("openable");

  const show = (hit, index) => {
    table.choose(index);
    const view = h("section.record", { "aria-label": `Record ${hit.seq}` },
      h("header", {}, h("h2", {}, `Record ${count(hit.seq)}`), h("a.button", { href: address("log", log, { seq: hit.seq }) }, "Open in log"), NARROW.matches ? null : h("button.quiet.only-icon", { type: "button", "aria-label": "Close the record", title: "Close (Esc)", onclick: hide }, icon("close"))),
      jsonBlock(hit.source, marked));
    if (NARROW.matches) return void openDialog({ title: `Record ${count(hit.seq)}`, body: [view], wide: true });
    panel.hidden = false;
    replace(panel, view);
    return undefined;
  };
  const hide = () => {
    panel.hidden = true;
    table.choose(-1);
  };
  const tell = (answer, ms) => {
    const missing = answer.coverage?.possible_missing_events_upper_bound;
    found.textContent = `${next ? "more than " : ""}${plural(hits.length, "hit")} in ${Math.round(ms)} ms${answer.timed_out ? "; the search timed out, run it again for more" : missing ? `; up to ${count(missing)} records are not indexed yet` : ""}`;
  };
  const ask = async (number, after) => {
    const began = performance.now();
    const answer = await send("POST", `${streamPath(log)}/_search`, after ? { ...body, search_after: after } : body);
    if (number !== generation) return;
    hits = [...(after ? hits : []), ...answer.hits.map((hit) => ({ ...hit, seq: seqOfOffset(hit.offset) }))];
    next = answer.next_search_after;
    if (!hits.length) replace(list, empty("No matches", "No record matches the query. Records are searchable as soon as their append is acknowledged."));
    else {
      if (!table.element.isConnected) replace(list, table.element);
      table.set(hits);
    }
    tell(answer, performance.now() - began);
    learn(valuesOf(hits));
  };
  const more = async () => {
    if (busy) return;
    busy = true;
    await ask(generation, next).catch(() => (next = null));
    busy = false;
  };
  let q = "";
  const run = async (query) => {
    q = query;
    const number = (generation += 1);
    marked = wordsOf(query);
    body = { q: query || everything(search), size: PAGE, ...(sort.value ? { sort: [sort.value] } : query ? {} : { sort: ["offset:desc"] }) };
    code.set({
      curl: curl({ path: `${streamPath(log)}/_search`, method: "POST", json: body }),
      python: python([`for hit in client.stream(${literal(log)}).hits(${literal(body.q)}${body.sort ? `, sort=${literal(body.sort)}` : ""}):`, "    print(hit.offset, hit.score, hit.source)"]),
    });
    hide();
    table.element.scrollTop = 0;
    try {
      await ask(number, null);
    } catch (error) {
      if (number !== generation) return;
      found.textContent = "";
      replace(list, failure(error));
    }
  };
  sort.addEventListener("change", () => run(q));
  replace(place, h("div.row.toolbar", {}, found, h("span.grow"), sort), h("div.with-detail", {}, list, panel));
  table.bindKeys();
  bind("Escape", "Close the record", hide);
  return {
    run,
    close: () => {
      generation += 1;
      table.close();
    },
  };
}

/** The matching values, shown in front of a record, because they may be far to the right in it. */
function foundIn(source, marked) {
  if (!marked || !source || typeof source !== "object") return null;
  const found = Object.entries(source).filter(([, value]) => typeof value === "string" && value.search(marked) >= 0 && value.length < LONG);
  return found.length ? h("span.found", {}, found.map(([name, value]) => h("span.found-field", {}, h("span.muted", {}, `${name} `), mark(value, marked)))) : null;
}

/** A query that matches every record with a timestamp, or with any of the fields. */
export function everything(search) {
  const names = Object.keys(search.fields ?? {});
  const first = search.primaryTimestampField ? [search.primaryTimestampField] : names;
  return first.map((name) => `has:${name}`).join(" OR ");
}

function valuesOf(hits) {
  const values = new Map();
  for (const hit of hits.slice(0, 200)) {
    for (const [name, value] of Object.entries(hit.fields ?? {})) {
      if (typeof value !== "string" || value.length > 60) continue;
      if (!values.has(name)) values.set(name, new Set());
      values.get(name).add(value);
    }
  }
  return values;
}
