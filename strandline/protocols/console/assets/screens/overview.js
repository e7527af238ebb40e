/** Overview: the state of the server, second by second. */

import { events, get } from "../api.js";
import { chart } from "../parts/chart.js";
import { codeBlock, curl, python } from "../parts/code.js";
import { heading, stats } from "../parts/heading.js";
import { failure, liveMark, loading } from "../parts/states.js";
import { h, replace } from "../shell/dom.js";
import { bytes, count, duration, micros, rate, short } from "../shell/format.js";
import { address } from "../shell/routes.js";

const KEPT = 600;
const BUSIEST = 10;
const TOTALS_MS = 5000;

export function open(root) {
  const live = liveMark();
  const body = h("div.overview", {}, loading());
  const code = codeBlock();
  code.set({
    curl: [curl({ path: "/console/api/overview" }), curl({ path: "/console/api/live", follow: true }), curl({ path: "/metrics" })].join("\n"),
    python: python(['overview = json.loads(client.call("GET", "/console/api/overview").body)', 'print(overview["totals"], overview["samples"][-1:])']),
  });
  replace(root, heading("Overview", [live.element]), body, code.element);

  let closed = false;
  let stop = () => {};
  let timer = 0;
  let view = null;

  const begin = async () => {
    try {
      const overview = await get("/console/api/overview");
      if (closed) return;
      view = draw(body, overview);
      stop();
      stop = events("/console/api/live", { state: live.set, on: { sample: (sample) => view.add(sample) } });
      timer = setTimeout(totals, TOTALS_MS);
    } catch (error) {
      if (closed) return;
      live.set("refused");
      replace(body, failure(error, begin));
      if (error.status === 0) timer = setTimeout(begin, 2000);
    }
  };
  const totals = async () => {
    try {
      if (!document.hidden) view.totals(await get("/console/api/overview"));
    } catch {
      // The live mark shows that the server is unreachable; the next round tries again.
    }
    if (!closed) timer = setTimeout(totals, TOTALS_MS);
  };
  begin();
  return () => {
    closed = true;
    stop();
    clearTimeout(timer);
    view?.close();
  };
}

function draw(body, overview) {
  const samples = overview.samples.slice(-KEPT);
  const figures = h("div");
  const busiest = h("div.busiest");
  const sync = "overview";
  const charts = [
    [chart({ title: "Appends", series: [{ label: "appends" }], format: rate, sync, level: 2, height: 170, whole: true }), (one) => [one.appends]],
    [chart({ title: "Bytes", series: [{ label: "bytes", colour: "series-7" }], format: (value) => `${bytes(value)}/s`, sync, level: 2, height: 170, whole: true }), (one) => [one.bytes]],
    [chart({ title: "Flush time", series: [{ label: "p50", colour: "series-4" }, { label: "p99", colour: "series-2" }], format: micros, sync, level: 2 }), (one) => [one.flush_p50_us, one.flush_p99_us]],
    [chart({ title: "Memory", series: [{ label: "resident", colour: "series-3" }], format: bytes, sync, level: 2 }), (one) => [one.rss_bytes]],
    [chart({ title: "Connections", series: [{ label: "connections", colour: "series-6" }], format: short, sync, level: 2, whole: true }), (one) => [one.connections]],
    [chart({ title: "Pressure", series: [{ label: "pressure", colour: "series-5" }], format: (value) => value.toFixed(2), sync, level: 2 }), (one) => [one.pressure]],
  ];
  replace(
    body,
    figures,
    h("div.charts", {}, charts.map(([one]) => one.element)),
    h("section.card", { "aria-label": "Busiest logs" }, h("h2", {}, "Busiest logs"), busiest),
  );
  const plot = () => {
    const seconds = samples.map((one) => one.at / 1000);
    for (const [one, values] of charts) {
      const rows = samples.map(values);
      one.set(seconds, rows.length ? rows[0].map((_, column) => rows.map((row) => row[column] ?? null)) : values({}).map(() => []));
    }
  };
  const totals = ({ totals: all, health }) => replace(figures, stats([
    ["Health", health.read_only ? "read-only" : health.ready ? "ready" : "not ready", health.ready && !health.read_only ? "good" : "bad"],
    ["Uptime", duration(health.uptime_ms)],
    ["Logs", count(all.logs)],
    ["Records", count(all.records)],
    ["Size", bytes(all.bytes)],
    ["Segments", count(all.segments)],
    ["Journal", bytes(all.journal_bytes)],
  ]));
  totals(overview);
  showBusiest(busiest, overview.busiest);
  plot();
  return {
    totals,
    add(sample) {
      if (samples.length && sample.at <= samples.at(-1).at) return;
      samples.push(sample);
      if (samples.length > KEPT) samples.shift();
      plot();
      if (sample.busiest) showBusiest(busiest, sample.busiest);
    },
    close: () => charts.forEach(([one]) => one.close()),
  };
}

function showBusiest(element, logs) {
  const shown = logs.filter((one) => one.appends > 0).slice(0, BUSIEST);
  if (!shown.length) return void replace(element, h("p.pad.muted", {}, "No log is being written to at the moment."));
  const most = Math.max(...shown.map((one) => one.appends));
  replace(element, h("ol", {}, shown.map((one) =>
    h("li", {}, h("a", { href: address("log", one.log) }, one.log), h("span.bar", { "aria-hidden": "true" }, h("i", { style: { width: `${(100 * one.appends) / most}%`, background: "var(--series-1)" } })), h("span.number", {}, rate(one.appends)), h("span.number.muted", {}, `${bytes(one.bytes)}/s`)),
  )));
}
