/** Aggregations of the hits of a query, drawn over time. */

import { send } from "../../api.js";
import { chart } from "../../parts/chart.js";
import { curl, literal, python } from "../../parts/code.js";
import { streamPath } from "../../parts/kinds.js";
import { empty, failure, loading } from "../../parts/states.js";
import { plainTable } from "../../parts/table.js";
import { h, replace } from "../../shell/dom.js";
import { count, short } from "../../shell/format.js";

const RANGES = [["900", "15 minutes"], ["3600", "1 hour"], ["21600", "6 hours"], ["86400", "1 day"], ["604800", "7 days"], ["2592000", "30 days"], ["all", "All time"]];
const SECONDS = { s: 1, m: 60, h: 3600, d: 86400, w: 604800 };
/** Times before and after those of all records. */
const EARLIEST = "1970-01-01T00:00:00Z";
const LATEST = "9999-12-31T00:00:00Z";
const MOST_BUCKETS = 1500;
const MOST_SERIES = 8;
const OF_SUMMARY = ["count", "sum", "avg", "min", "max"];
/** Only measures with a histogram have these. */
const OF_HISTOGRAM = ["p50", "p95", "p99"];

export function openChart(place, subject, { code, asked, remember }) {
  const { log, search } = subject;
  const rollups = Object.keys(search.rollups ?? {});
  if (!rollups.length) {
    replace(place, empty("No rollups", "The search configuration of this log declares no rollups. A rollup names the measures to aggregate and the fields to group by."));
    return { run: () => {}, close: () => {} };
  }
  let generation = 0;
  let drawing = null;
  let q = "";
  let span = null;
  const pick = (label, options) => h("select", { "aria-label": label, title: label }, options.map(([value, text]) => h("option", { value }, text)));
  const rollup = pick("Rollup", rollups.map((name) => [name, name]));
  const range = pick("Range", RANGES);
  range.value = RANGES.some(([value]) => value === asked.range) ? asked.range : "all";
  if (rollups.includes(asked.rollup)) rollup.value = asked.rollup;
  const controls = h("div.row.toolbar.chart-bar");
  let measure = null;
  let group = null;
  let interval = null;
  const body = h("div.scroll.stack", {}, loading());

  const build = () => {
    const chosen = search.rollups[rollup.value];
    const measures = Object.entries(chosen.measures ?? {}).flatMap(([name, one]) => (one.kind === "count" ? [[`${name}|count`, name]] : [...OF_SUMMARY, ...(one.histogram || one.histogramJsonPointer ? OF_HISTOGRAM : [])].map((of) => [`${name}|${of}`, `${of} of ${name}`])));
    measure = pick("Measure", measures);
    group = pick("Group by", [["", "No grouping"], ...(chosen.dimensions ?? []).map((name) => [name, `by ${name}`])]);
    interval = pick("Interval", [["", "Interval: auto"], ...(chosen.intervals ?? []).map((one) => [one, `every ${one}`])]);
    for (const [one, wanted] of [[measure, asked.measure], [group, asked.group], [interval, asked.interval]]) {
      if ([...one.options].some(({ value }) => value === wanted)) one.value = wanted;
      one.addEventListener("change", () => (keep(), run(q)));
    }
    replace(controls, rollup, measure, group, range, interval);
  };
  /** Puts the choices into the address of the page. */
  const keep = () => remember({ rollup: rollup.value === rollups[0] ? "" : rollup.value, measure: measure.selectedIndex ? measure.value : "", group: group.value, range: range.value === "all" ? "" : range.value, interval: interval.value });
  rollup.addEventListener("change", () => (build(), keep(), run(q)));
  range.addEventListener("change", () => (keep(), run(q)));

  const run = async (query) => {
    const number = (generation += 1);
    q = query;
    try {
      const [from, to] = await bounds(number);
      if (number !== generation) return;
      if (from === null) return void replace(body, empty("No data", "No record has a timestamp yet."));
      const every = interval.value || fittingInterval(search.rollups[rollup.value].intervals, to - from);
      const [name, of] = measure.value.split("|");
      const request = { rollup: rollup.value, from: new Date(from).toISOString(), to: new Date(to).toISOString(), interval: every, measures: [name] };
      if (group.value) request.group_by = [group.value];
      if (q) request.q = q;
      code.set({
        curl: curl({ path: `${streamPath(log)}/_aggregate`, method: "POST", json: request }),
        python: python([`summed = client.stream(${literal(log)}).aggregate(`, `    ${literal(rollup.value)}, start=${literal(request.from)}, end=${literal(request.to)}, interval=${literal(every)}${q ? `, q=${literal(q)}` : ""}${group.value ? `, group_by=${literal([group.value])}` : ""}`, ")", "for bucket in summed.buckets:", "    for group in bucket.groups:", `        print(bucket.start, group.key, group.measures[${literal(name)}])`]),
      });
      const answer = await send("POST", `${streamPath(log)}/_aggregate`, request);
      if (number === generation) draw(answer, { name, of, every, from, to, group: group.value });
    } catch (error) {
      if (number === generation) replace(body, failure(error, () => run(q)));
    }
    return undefined;
  };

  const bounds = async () => {
    const now = Date.now();
    if (range.value !== "all") return [now - Number(range.value) * 1000, now + 1000];
    span ??= await wholeSpan(log, search, rollup.value);
    return span;
  };

  const draw = (answer, shown) => {
    drawing?.close();
    drawing = null;
    const series = seriesOf(answer, shown);
    if (!series.length) return void replace(body, empty("No data", "No record in this time range matches the query."));
    const title = `${shown.of === "count" && shown.name !== "count" ? shown.name : `${shown.of} of ${shown.name}`}, every ${shown.every}${shown.group ? `, by ${shown.group}` : ""}`;
    const drawn = series.slice(0, MOST_SERIES);
    const { seconds, columns } = columnsOf(drawn, range.value === "all" ? { ...shown, ...filled(series, shown) } : shown);
    drawing = chart({ title, series: drawn.map((one) => ({ label: one.label })), format: short, height: Math.max(300, Math.round(innerHeight * 0.55)), level: 2, whole: shown.of === "count", points: seconds.length < 80, fill: drawn.length === 1 });
    replace(body, drawing.element, totals(series, shown));
    drawing.set(seconds, columns);
    return undefined;
  };

  build();
  replace(place, controls, body);
  return {
    run,
    close: () => {
      generation += 1;
      drawing?.close();
    },
  };
}

/** The times of the first and the last record, in milliseconds; null without records. */
async function wholeSpan(log, search, rollup) {
  const field = search.primaryTimestampField;
  if (!search.fields?.[field]?.sortable) return spanOfBuckets(log, search, rollup);
  const ends = await Promise.all(["asc", "desc"].map((order) => send("POST", `${streamPath(log)}/_search`, { q: `has:${field}`, sort: [`${field}:${order}`], size: 1 })));
  const times = ends.map((answer) => timeOf(answer.hits[0]?.fields?.[field]));
  if (times.some((time) => time === null)) return [null, null];
  return [Math.min(...times), Math.max(...times) + 1000];
}

/** The same without a field to sort by: records need not be in the order of their times, so the buckets tell. */
async function spanOfBuckets(log, search, rollup) {
  const every = [...search.rollups[rollup].intervals].sort((a, b) => secondsOf(b) - secondsOf(a))[0];
  const { buckets } = await send("POST", `${streamPath(log)}/_aggregate`, { rollup, from: EARLIEST, to: LATEST, interval: every });
  if (!buckets.length) return [null, null];
  const starts = buckets.map((bucket) => Date.parse(bucket.start));
  return [Math.min(...starts), Math.max(...starts) + secondsOf(every) * 1000];
}

function timeOf(value) {
  const time = typeof value === "number" ? value : Date.parse(value ?? "");
  return Number.isNaN(time) ? null : time;
}

function secondsOf(interval) {
  const [, number, unit] = /^(\d+)\s*([smhdw])/.exec(interval) ?? [null, "1", "h"];
  return Number(number) * SECONDS[unit];
}

function fittingInterval(intervals, ms) {
  const sorted = [...intervals].sort((a, b) => secondsOf(a) - secondsOf(b));
  return sorted.find((one) => ms / 1000 / secondsOf(one) <= 300) ?? sorted.at(-1);
}

function seriesOf(answer, { name, of, group }) {
  const found = new Map();
  for (const bucket of answer.buckets) {
    for (const one of bucket.groups) {
      const label = group ? String(one.key?.[group] ?? "none") : name;
      if (!found.has(label)) found.set(label, { label, points: new Map(), total: 0, records: 0 });
      const entry = found.get(label);
      const value = one.measures?.[name]?.[of];
      if (value === null || value === undefined) continue;
      entry.points.set(Date.parse(bucket.start) / 1000, value);
      entry.total += value;
      entry.records += one.measures[name].count ?? 0;
    }
  }
  return [...found.values()].sort((a, b) => b.total - a.total);
}

/** The range of the buckets that have records. */
function filled(series, { every }) {
  const known = series.flatMap((one) => [...one.points.keys()]);
  return { from: Math.min(...known) * 1000, to: (Math.max(...known) + secondsOf(every)) * 1000 };
}

function columnsOf(series, { every, from, to, of }) {
  const step = secondsOf(every);
  const first = Math.floor(from / 1000 / step) * step;
  const buckets = Math.ceil((to / 1000 - first) / step);
  const known = [...new Set(series.flatMap((one) => [...one.points.keys()]))].sort((a, b) => a - b);
  const seconds = buckets <= MOST_BUCKETS && known.every((at) => (at - first) % step === 0) ? Array.from({ length: Math.max(1, buckets) }, (_, index) => first + index * step) : known;
  // Without records, a count or sum is 0, and other measures have no value.
  const absent = of === "count" || of === "sum" ? 0 : null;
  return { seconds, columns: series.map((one) => seconds.map((at) => one.points.get(at) ?? absent)) };
}

function totals(series, { name, of, group }) {
  const adds = of === "count" || of === "sum";
  return plainTable("Groups", [
    { title: group || "All", cell: (one, index) => [h("i.swatch", { style: { background: index < MOST_SERIES ? `var(--series-${index + 1})` : "transparent" } }), one.label] },
    { title: adds ? `${of} of ${name}` : `mean ${of}`, class: "number", width: "160px", cell: (one) => (adds ? count(one.total) : short(one.total / Math.max(1, one.points.size))) },
    { title: "Buckets", class: "number.wide-only", width: "110px", cell: (one) => count(one.points.size) },
  ], series.slice(0, 200));
}
