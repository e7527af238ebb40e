/**
 * The records of a log that match a filter on their content. The server scans the log backwards, part by part; the matches
 * arrive newest first, and the chart counts them over time. New records that match are added while the tab is open.
 */

import { events, get } from "../../api.js";
import { openComparison } from "../../parts/compare.js";
import { curl, literal, python } from "../../parts/code.js";
import { histogram } from "../../parts/histogram.js";
import { scalars } from "../../parts/paths.js";
import { preview, recordView } from "../../parts/record.js";
import { empty, failure, liveMark } from "../../parts/states.js";
import { virtualTable } from "../../parts/table.js";
import { attempt, notice, openDialog } from "../../shell/dialogs.js";
import { h, replace } from "../../shell/dom.js";
import { absolute, count, parseMoment, plural, short } from "../../shell/format.js";
import { bind } from "../../shell/keys.js";
import { note } from "../../shell/routes.js";
import { facets } from "./facets.js";

/** The records that are shown. Further matches are only counted: a range of time narrows them down. */
const MOST = 1000;
const PAGE = 200;
const NARROW = matchMedia("(max-width: 760px)");
const SYNTAX = [
  [".status = failed", "the member of a JSON object; also != > >= < <="],
  [".user.name ~ /^ann/i", "a regular expression on a value"],
  [".items.sku = 7   .items[0].sku = 7", "any element of an array; one element"],
  [".user", "the record has this member, whatever its value"],
  ['declined   "card declined"', "the record contains this text, ignoring case"],
  ["/E[0-9]{4}/", "the record matches a regular expression (RE2)"],
  ["a and b   a b   a or b   not a   (a or b)", "both; both; either; negation; grouping"],
];

export function openFilter(place, log, { code, buttons, options }) {
  const path = `/console/api/log/${encodeURIComponent(log.name)}`;
  let generation = 0;
  let stop = () => {};
  let state = blank();
  const where = h("input.grow.mono", { type: "search", value: options.where ?? "", placeholder: '.status = failed and "timed out"', "aria-label": "Filter by content", autocomplete: "off", spellcheck: "false", dataset: { search: "" } });
  const since = h("input.moment", { value: options.since ?? "", placeholder: "From", "aria-label": "From this time", title: "2026-11-15, 2026-11-15 10:30, 10:30 or -15m", autocomplete: "off" });
  const until = h("input.moment", { value: options.until ?? "", placeholder: "To", "aria-label": "To this time", title: "2026-11-15, 2026-11-15 10:30, 10:30 or -15m", autocomplete: "off" });
  const halt = h("button", { type: "button", hidden: true, onclick: () => end("stopped") }, "Stop");
  const clear = h("button", { type: "button", hidden: true, onclick: () => range("", "") }, "All time");
  const told = h("span.muted", { role: "status" });
  const live = liveMark();
  const form = h("form.row.toolbar", { role: "search" }, where, since, until, h("button.primary", { type: "submit" }, "Filter"), h("button", { type: "button", onclick: explain }, "Syntax"), clear);
  const drawn = h("div.histogram", { hidden: true });
  const list = h("div.list");
  const panel = h("div.detail", { hidden: true });
  const columns = (options.columns ?? "").split(",").filter(Boolean);
  const order = { sort: "seq", descending: true };
  const values = facets({ columns, onvalue: (condition) => narrow(condition), oncolumns: () => (keep(), rebuild()) });
  let table = build();

  /** A table with the chosen columns. */
  function build() {
    const built = virtualTable({
      label: "Matches",
      columns: [
        { title: "Seq", sort: "seq", class: "seq", width: "92px", cell: (record) => h("button.link", { type: "button" }, count(record.seq)) },
        { title: "Time", class: "wide-only", width: "206px", cell: (record) => h("span.muted.mono", {}, absolute(record.ts)) },
        { title: "Key", sort: "key", class: "wide-only", width: "140px", cell: (record) => (record.key === undefined ? h("span.none", {}, "–") : h("span", { title: record.key }, record.key)) },
        ...columns.map((path) => ({ title: path, sort: path, width: "150px", cell: (record) => shownValue(valueAt(record, path)) })),
        { title: "Data", class: "data", cell: (record) => preview(record) },
      ],
      onsort: (sort) => {
        Object.assign(order, { sort, descending: order.sort === sort ? !order.descending : sort === "seq" });
        draw();
      },
      onopen: (record, index) => show(record, index),
    });
    built.element.classList.add("openable");
    // Chosen columns must not take the space of the data.
    if (columns.length) built.element.querySelector("table").style.setProperty("min-width", `${(NARROW.matches ? 300 : 680) + 150 * columns.length}px`);
    built.sorted(order.sort, order.descending ? "desc" : "asc");
    built.bindKeys();
    return built;
  }
  function rebuild() {
    if (order.sort.startsWith(".") && !columns.includes(order.sort)) Object.assign(order, { sort: "seq", descending: true });
    table.close();
    table.element.remove();
    table = build();
    draw();
  }
  /** The shown records in the chosen order. */
  function ordered() {
    if (order.sort === "seq") return order.descending ? state.records : [...state.records].reverse();
    const of = order.sort === "key" ? (record) => record.key : (record) => valueAt(record, order.sort);
    const sign = order.descending ? -1 : 1;
    return [...state.records].sort((a, b) => sign * compared(of(a), of(b)));
  }

  function show(record, index) {
    table.choose(index);
    const oncompare = () => attempt(() => openComparison(log.name, record));
    if (NARROW.matches) {
      const leave = (act) => (value) => (dialog.close(), act(value));
      const { dialog } = openDialog({ title: `Record ${count(record.seq)}`, body: [recordView(record, { onfilter: leave(narrow), oncompare: leave(oncompare) })], wide: true });
      return;
    }
    panel.hidden = false;
    replace(panel, recordView(record, { onclose: hide, onfilter: narrow, oncompare }));
  }
  /** Adds a condition to the filter. */
  function narrow(condition) {
    const words = where.value.trim();
    where.value = !words ? condition : /\bor\b/i.test(words) ? `(${words}) and ${condition}` : `${words} and ${condition}`;
    run();
  }
  function hide() {
    panel.hidden = true;
    table.choose(-1);
  }
  function range(from, to) {
    since.value = from;
    until.value = to;
    run();
  }
  function tell() {
    const shown = state.records.length < state.matched ? `; the newest ${count(state.records.length)} are shown` : "";
    const scanned = `${short(state.scanned)} of ${plural(log.records, "record")} scanned`;
    const skipped = state.skipped ? `; ${plural(state.skipped, "record")} too large to search live` : "";
    told.textContent = `${plural(state.matched, "match", "matches")}${shown}${skipped}; ${state.ended === "complete" ? "complete" : `${scanned}${state.ended === "stopped" ? ", stopped" : "…"}`}`;
  }
  function draw() {
    tell();
    if (!state.records.length) {
      if (state.ended) replace(list, empty("No matches", "No record in this range matches the filter."));
      else replace(list);
    } else {
      if (!table.element.isConnected) replace(list, table.element);
      table.set(ordered());
      table.sorted(order.sort, order.descending ? "desc" : "asc");
    }
    if (state.ended) values.set([...state.records]);
    state.chart?.draw();
  }
  function prepare(from, to) {
    state.chart = histogram({ title: "Matches over time: drag to select a range", label: "matches", from, to, onselect: (low, high) => range(absolute(low).slice(0, 19), absolute(high).slice(0, 19)) });
    drawn.hidden = false;
    replace(drawn, state.chart.element);
  }
  function moment(field) {
    const words = field.value.trim();
    if (!words) return null;
    const at = parseMoment(words);
    if (at === null) throw new Error(`“${words}” is not a time. Enter for example 2026-11-15 10:30, 10:30 or -15m.`);
    return Math.round(at);
  }
  async function run() {
    const number = (generation += 1);
    let from = null;
    let to = null;
    stop();
    state.chart?.close();
    state = blank();
    hide();
    table.element.scrollTop = 0;
    clear.hidden = !since.value && !until.value;
    try {
      [from, to] = [moment(since), moment(until)];
    } catch (error) {
      return void notice(error.message, "bad");
    }
    const asked = { where: where.value.trim(), since: from, until: to };
    keep();
    setCode(asked);
    halt.hidden = false;
    live.element.hidden = to !== null;
    live.set("waiting");
    try {
      const [start, end, head] = await span(from, to);
      if (number !== generation) return;
      prepare(start, end);
      await scan(number, asked, head);
      if (number === generation && to === null) follow(number, asked.where, head);
    } catch (error) {
      if (number !== generation) return;
      state.ended = "failed";
      halt.hidden = true;
      live.set("refused");
      told.textContent = "";
      replace(list, failure(error, error.status === 400 ? undefined : run));
    }
  }
  /** The range of time to draw, and the last record when the scan begins. */
  async function span(from, to) {
    const page = await get(`${path}/records`, { limit: 1, ...(from === null ? { after: 0 } : { at: from }) });
    const state = await get(path);
    const first = page.records[0]?.ts ?? Date.now();
    return [from ?? first, to ?? Math.max(state.last_ts ?? first, first), state.head];
  }
  async function scan(number, asked, head) {
    let before = head + 1;
    draw();
    while (number === generation && state.ended === "") {
      const limit = Math.min(PAGE, MOST - state.records.length);
      const answer = await get(`${path}/matches`, { ...asked, before, limit, bucket_ms: state.chart.step });
      if (number !== generation || state.ended) return;
      state.records.push(...answer.records);
      state.matched += answer.matched;
      state.scanned += answer.scanned;
      for (const [at, found] of answer.counts) state.chart.add(at / 1000, found);
      before = answer.next;
      if (before === null) end("complete");
      else draw();
    }
  }
  function follow(number, filter, head) {
    stop = events(`${path}/tail?${new URLSearchParams({ after: head, ...(filter ? { where: filter } : {}) })}`, {
      state: live.set,
      on: {
        record: (record) => {
          if (number !== generation) return;
          state.records.unshift(record);
          state.records.length = Math.min(state.records.length, MOST);
          state.matched += 1;
          state.chart.add(state.chart.start(record.ts), 1);
          // New records come in groups; they are drawn together.
          state.frame ||= requestAnimationFrame(() => {
            state.frame = 0;
            if (number === generation) draw();
          });
        },
        skipped: () => {
          if (number !== generation) return;
          state.skipped += 1;
          draw();
        },
      },
    });
  }
  function end(why) {
    state.ended = why;
    halt.hidden = true;
    draw();
  }
  function keep() {
    note("log", log.name, { tab: "filter", where: where.value.trim(), since: since.value.trim(), until: until.value.trim(), columns: columns.join(",") });
  }
  function setCode(asked) {
    const query = new URLSearchParams(Object.entries({ ...asked, limit: 100 }).filter(([, value]) => value));
    code.set({
      curl: curl({ path: `${path}/matches?${query}` }),
      python: python([`found = json.loads(client.call("GET", ${literal(`${path}/matches?${query}`)}).body)`, 'for record in found["records"]:', '    print(record["seq"], record.get("data"))', '# next: repeat with &before= and found["next"], until it is null']),
    });
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  replace(buttons);
  replace(place, form, drawn, h("div.row.toolbar", {}, told, halt, h("span.grow"), live.element), values.element, h("div.with-detail", {}, list, panel));
  bind("Escape", "Close the record", hide);
  if (where.value || since.value || until.value) run();
  else {
    live.element.hidden = true;
    setCode({ where: ".status = failed" });
    replace(list, empty("Find records by their content", h("span", {}, "For example ", h("code", {}, ".status = failed"), ", ", h("code", {}, '"timed out"'), " or ", h("code", {}, "/E[0-9]+/"), ". No schema or index is needed: the log is scanned from its end.")));
  }
  return {
    update: (next) => (log = next),
    close: () => {
      generation += 1;
      stop();
      state.chart?.close();
      table.close();
    },
  };
}

function valueAt(record, path) {
  return record.data !== null && typeof record.data === "object" ? scalars(record.data).get(path) : undefined;
}

function shownValue(value) {
  return value === undefined ? h("span.none", {}, "–") : h("span", { title: String(value) }, typeof value === "string" ? value : JSON.stringify(value));
}

/** Compares two values; records without a value come last in ascending order. */
function compared(a, b) {
  if (a === undefined || b === undefined) return a === b ? 0 : a === undefined ? 1 : -1;
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b));
}

function blank() {
  return { records: [], matched: 0, scanned: 0, skipped: 0, ended: "", chart: null, frame: 0 };
}

function explain() {
  openDialog({ title: "Filter syntax", wide: true, body: [h("dl.syntax", {}, SYNTAX.map(([example, text]) => h("div", {}, h("dt", {}, h("code", {}, example)), h("dd", {}, text))))] });
}
