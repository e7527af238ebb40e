/** Overview: the state of the server, second by second or over hours and days. */

import { events, get } from "../api.js";
import { chart } from "../parts/chart.js";
import { codeBlock, curl, python } from "../parts/code.js";
import { heading, segments, stats } from "../parts/heading.js";
import { failure, liveMark, loading } from "../parts/states.js";
import { h, replace } from "../shell/dom.js";
import { ago, bytes, count, duration, micros, percent, rate, short } from "../shell/format.js";
import { address, note } from "../shell/routes.js";

const KEPT = 600;
/** Ranges of time: hours, or "" for the last ten minutes, second by second. */
const RANGES = [["", "10 min"], ["1", "1 h"], ["6", "6 h"], ["24", "24 h"], ["168", "7 d"]];
const HISTORY_MS = 30_000;
const BUSIEST = 10;
const TOTALS_MS = 5000;

export function open(root, params) {
  let hours = RANGES.some(([value]) => value === params.hours) ? params.hours : "";
  let asked = 0;
  const live = liveMark();
  const body = h("div.overview", {}, loading());
  const code = codeBlock();
  code.set({
    curl: [curl({ path: "/health" }), curl({ path: "/metrics" })].join("\n"),
    python: python(['health = json.loads(client.call("GET", "/health").body)', "print(health)"]),
  });
  const ranges = segments("Time range", RANGES, hours, (chosen) => {
    hours = chosen;
    note("overview", "", { hours });
    asked += 1;
    clearTimeout(timer);
    stop();
    begin();
  });
  replace(root, heading("Overview", [live.element], [ranges]), body, code.element);

  let closed = false;
  let stop = () => {};
  let timer = 0;
  let view = null;

  const begin = async () => {
    const number = asked;
    try {
      const overview = await get("/console/api/overview");
      const samples = hours ? await history() : overview.samples.slice(-KEPT);
      if (closed || number !== asked) return;
      view?.close();
      view = draw(body, overview, samples, !hours);
      stop();
      stop = events("/console/api/live", { state: live.set, on: { sample: (sample) => view.add(sample) } });
      timer = setTimeout(totals, TOTALS_MS);
    } catch (error) {
      if (closed || number !== asked) return;
      live.set("refused");
      replace(body, failure(error, begin));
      if (error.status === 0) timer = setTimeout(begin, 2000);
    }
  };
  const history = async () => (await get("/console/api/history", { hours })).samples;
  let drawn = Date.now();
  const totals = async () => {
    const number = asked;
    try {
      if (!document.hidden) view.totals(await get("/console/api/overview"));
      if (hours && !document.hidden && Date.now() - drawn > HISTORY_MS) {
        const samples = await history();
        if (number === asked) view.replace(samples);
        drawn = Date.now();
      }
    } catch {
      // The live mark shows that the server is unreachable; the next round tries again.
    }
    if (!closed && number === asked) timer = setTimeout(totals, TOTALS_MS);
  };
  begin();
  return () => {
    closed = true;
    stop();
    clearTimeout(timer);
    view?.close();
  };
}

/** `live`: new samples are added to the charts. */
function draw(body, overview, samples, live) {
  const figures = h("div");
  const busiest = h("div.busiest");
  const busiestTitle = h("h2", {}, "Busiest logs");
  const disk = h("div");
  const sync = "overview";
  // A tall window is filled.
  const [large, small] = innerWidth > 760 ? [Math.max(150, Math.round(innerHeight * 0.19)), Math.max(110, Math.round(innerHeight * 0.12))] : [170, 150];
  const charts = [
    [chart({ title: "Appends", series: [{ label: "appends" }], format: rate, sync, level: 2, height: large, whole: true }), (one) => [one.appends]],
    [chart({ title: "Bytes", series: [{ label: "bytes", colour: "series-7" }], format: (value) => `${bytes(value)}/s`, sync, level: 2, height: large, whole: true }), (one) => [one.bytes]],
    [chart({ title: "Requests", series: [{ label: "requests" }, { label: "errors", colour: "series-2" }], format: rate, sync, level: 2, height: small, whole: true }), (one) => [one.requests, one.errors]],
    [chart({ title: "Request time", series: [{ label: "p50", colour: "series-4" }, { label: "p99", colour: "series-2" }], format: duration, sync, level: 2, height: small }), (one) => [one.latency_p50_ms, one.latency_p99_ms]],
    [chart({ title: "Flush time", series: [{ label: "p50", colour: "series-4" }, { label: "p99", colour: "series-2" }], format: micros, sync, level: 2, height: small }), (one) => [one.flush_p50_us, one.flush_p99_us]],
    [chart({ title: "Memory", series: [{ label: "resident", colour: "series-3" }], format: bytes, sync, level: 2, height: small }), (one) => [one.rss_bytes]],
    [chart({ title: "Connections", series: [{ label: "connections", colour: "series-6" }], format: short, sync, level: 2, height: small, whole: true }), (one) => [one.connections]],
    [chart({ title: "Pressure", series: [{ label: "pressure", colour: "series-5" }], format: (value) => value.toFixed(2), sync, level: 2, height: small }), (one) => [one.pressure]],
  ];
  const used = chart({ title: "Used space", series: [{ label: "used", colour: "series-7" }], format: bytes, sync, level: 3, height: small });
  charts.push([used, (one) => [one.disk_bytes]]);
  replace(
    body,
    figures,
    h("div.charts", {}, charts.slice(0, -1).map(([one]) => one.element)),
    h("div.columns", {},
      h("section.card.disk", { "aria-label": "Disk" }, h("h2", {}, "Disk"), disk, used.element),
      h("section.card", { "aria-label": "Busiest logs" }, busiestTitle, busiest)),
  );
  const plot = () => {
    const shown = withGaps(samples);
    const seconds = shown.map((one) => one.at / 1000);
    for (const [one, values] of charts) {
      const rows = shown.map(values);
      one.set(seconds, rows.length ? rows[0].map((_, column) => rows.map((row) => row[column] ?? null)) : values({}).map(() => []));
    }
  };
  const totals = ({ totals: all, health, disk: space }) => (showDisk(disk, space), replace(figures, stats([
    ["Health", health.read_only ? "read-only" : health.ready ? "ready" : "not ready", health.ready && !health.read_only ? "good" : "bad"],
    ["Uptime", duration(health.uptime_ms)],
    ["Logs", count(all.logs)],
    ["Records", count(all.records)],
    ["Size", bytes(all.bytes)],
    ["Segments", count(all.segments)],
    ["Unsealed", bytes(all.journal_bytes)],
    ...(space ? [["Disk used", bytes(space.used_bytes)], ["Disk free", bytes(space.free_bytes), scarce(space)]] : []),
  ])));
  totals(overview);
  showBusiest(busiest, busiestTitle, overview.busiest);
  plot();
  return {
    totals,
    replace(next) {
      samples = next;
      plot();
    },
    add(sample) {
      if (live && !(samples.length && sample.at <= samples.at(-1).at)) {
        samples.push(sample);
        if (samples.length > KEPT) samples.shift();
        plot();
      }
      if (sample.busiest) showBusiest(busiest, busiestTitle, sample.busiest);
    },
    close: () => charts.forEach(([one]) => one.close()),
  };
}

/** Samples with an empty one where the server did not run, so that no line is drawn there. */
function withGaps(samples) {
  if (samples.length < 3) return samples;
  const steps = samples.slice(1).map((one, index) => one.at - samples[index].at);
  const usual = [...steps].sort((a, b) => a - b)[Math.floor(steps.length / 2)];
  return samples.flatMap((one, index) => (index && steps[index - 1] > 3 * usual ? [{ at: samples[index - 1].at + usual }, one] : [one]));
}

const PARTS = [["journal_bytes", "Journal"], ["segment_bytes", "Segments"], ["index_bytes", "Index files"], ["checkpoint_bytes", "Checkpoints"], ["lake_bytes", "Lake"], ["other_bytes", "Other"]];
const WEEK_MS = 604_800_000;

/** The class of a figure: whether little space is left. */
function scarce({ free_bytes: free, total_bytes: total, full_in_ms: full }) {
  if (free < total * 0.05 || (full !== null && full < WEEK_MS / 7)) return "bad";
  return free < total * 0.1 || (full !== null && full < WEEK_MS) ? "warn" : undefined;
}

function showDisk(element, disk) {
  if (!disk) return void replace(element, h("p.pad.muted", {}, "The disk has not been measured yet."));
  const parts = PARTS.filter(([part]) => disk[part] !== null);
  const growth = disk.growth_bytes_per_day;
  const colour = (index) => `var(--series-${index + 1})`;
  replace(element,
    stats([
      ["Used", `${disk.complete ? "" : "more than "}${bytes(disk.used_bytes)}`],
      ["Free", `${bytes(disk.free_bytes)} (${percent(disk.free_bytes / Math.max(1, disk.total_bytes))})`, scarce(disk)],
      ["Growth per day", growth === null ? h("span", { title: "Known after an hour" }, "–") : `${growth < 0 ? "−" : ""}${bytes(Math.abs(growth))}`],
      ["Full in", disk.full_in_ms === null ? "–" : duration(disk.full_in_ms).split(" ")[0], scarce(disk)],
    ]),
    h("div.pad", {},
      h("div.bar", { "aria-hidden": "true" }, parts.map(([part], index) => h("i", { style: { width: `${(100 * disk[part]) / Math.max(1, disk.used_bytes)}%`, background: colour(index) } }))),
      h("dl.legend", {}, parts.map(([part, title], index) => h("div", {}, h("dt", {}, h("i.swatch", { style: { background: colour(index) } }), title), h("dd", {}, bytes(disk[part])))))),
  );
  return undefined;
}

function showBusiest(element, title, logs) {
  const shown = logs.filter((one) => one.appends > 0).slice(0, BUSIEST);
  if (!shown.length) return showLast(element, title);
  title.textContent = "Busiest logs";
  delete element.dataset.idle;
  const most = Math.max(...shown.map((one) => one.appends));
  replace(element, h("ol", {}, shown.map((one) =>
    h("li", {}, h("a", { href: address("log", one.log) }, one.log), h("span.bar", { "aria-hidden": "true" }, h("i", { style: { width: `${(100 * one.appends) / most}%`, background: "var(--series-1)" } })), h("span.number", {}, rate(one.appends)), h("span.number.muted", {}, `${bytes(one.bytes)}/s`)),
  )));
}

/** While no log is being written to: the logs that were written to last, loaded once. */
async function showLast(element, title) {
  if (element.dataset.idle) return;
  element.dataset.idle = "true";
  const { logs } = await get("/console/api/logs", { sort: "last", order: "desc", limit: BUSIEST }).catch(() => ({ logs: [] }));
  if (!element.dataset.idle) return;
  title.textContent = "Last written logs";
  if (!logs.length) return void replace(element, h("p.pad.muted", {}, "This server has no logs yet."));
  replace(element, h("ol", {}, logs.map((log) =>
    h("li", {}, h("a", { href: address("log", log.name) }, log.name), h("span.muted", {}, ago(log.last_ts)), h("span.number", {}, short(log.records)), h("span.number.muted", {}, bytes(log.bytes))),
  )));
}
