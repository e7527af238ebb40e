/** Charts of a log: the records written over hours and days, and its rate, size and lag since the tab was opened. */

import { get } from "../../api.js";
import { chart } from "../../parts/chart.js";
import { curl, literal, python } from "../../parts/code.js";
import { segments } from "../../parts/heading.js";
import { histogram } from "../../parts/histogram.js";
import { failure } from "../../parts/states.js";
import { h, replace } from "../../shell/dom.js";
import { absolute, bytes, plural, rate, short } from "../../shell/format.js";
import { note } from "../../shell/routes.js";

/** Hours, or "all": then a log of any length is counted, part by part, as long as the tab is open. */
const RANGES = [["1", "1 h"], ["24", "24 h"], ["168", "7 d"], ["all", "All time"]];
const FIRST_RANGE = "24";
/** A sample every two seconds: half an hour. The server knows the rates of two minutes, every five seconds. */
const KEPT = 900;
const RECENT_SECONDS = 5;

export function openActivity(place, log, { code, options, toTab }) {
  const path = `/console/api/log/${encodeURIComponent(log.name)}`;
  const small = Math.max(120, Math.round(innerHeight * 0.18));
  let hours = RANGES.some(([value]) => value === options.hours) ? options.hours : FIRST_RANGE;
  let generation = 0;
  let drawing = null;
  /** The record up to which the chart counts, the records that it shows, and whether all of them have been counted. */
  let through = 0;
  let records = 0;
  let complete = false;
  const drawn = h("div.histogram");
  const told = h("span.muted", { role: "status" });
  const charts = [
    [chart({ title: "Appends", series: [{ label: "appends" }], format: rate, sync: "activity", level: 2, height: small, whole: true }), (one) => one.rate],
    [chart({ title: "Size", series: [{ label: "size", colour: "series-7" }], format: bytes, sync: "activity", level: 2, height: small }), (one) => one.bytes],
    [chart({ title: "Lag of the slowest consumer", series: [{ label: "lag", colour: "series-4" }], format: short, sync: "activity", level: 2, height: small, whole: true }), (one) => one.lag],
  ];
  const now = Date.now() / 1000;
  const samples = log.recent.map((value, index) => [now - (log.recent.length - index) * RECENT_SECONDS, value, null, null]);

  const add = (one) => {
    samples.push([Date.now() / 1000, ...charts.map(([, value]) => value(one))]);
    if (samples.length > KEPT) samples.shift();
    charts.forEach(([each], index) => each.set(samples.map(([at]) => at), [samples.map((sample) => sample[index + 1])]));
  };
  const keep = () => note("log", log.name, { tab: "activity", hours: hours === FIRST_RANGE ? "" : hours });
  const run = async () => {
    const number = (generation += 1);
    drawing?.close();
    drawing = null;
    try {
      const [from, to] = hours === "all" ? await span() : [Date.now() - Number(hours) * 3_600_000, Date.now()];
      if (number !== generation) return;
      drawing = histogram({ title: "Records written: drag to see a range", label: "records", from, to, height: Math.max(160, Math.round(innerHeight * 0.26)), onselect: (low, high) => toTab("filter", { since: absolute(low).slice(0, 19), until: absolute(high).slice(0, 19) }) });
      replace(drawn, drawing.element);
      [through, records, complete] = [log.head, 0, false];
      await count(number, Math.round(from));
    } catch (error) {
      if (number === generation) replace(drawn, failure(error, run));
    }
  };
  /** The times of the first and of the last record. */
  const span = async () => {
    const { records } = await get(`${path}/records`, { limit: 1, after: 0 });
    const first = records[0]?.ts ?? Date.now();
    return [first, Math.max(log.last_ts ?? first, first)];
  };
  /** Counts the records from the end of the log on. */
  const count = async (number, since) => {
    let before = through + 1;
    do {
      const answer = await get(`${path}/matches`, { since, before, limit: 0, bucket_ms: drawing.step });
      if (number !== generation) return;
      for (const [at, found] of answer.counts) drawing.add(at / 1000, found);
      records += answer.matched;
      before = answer.next;
      complete = before === null;
      tell();
    } while (!complete);
  };
  const tell = () => {
    drawing.draw();
    told.textContent = `${plural(records, "record")}${complete ? "" : " so far…"}`;
  };
  /** Adds the records that were written since. */
  const grow = (next) => {
    if (!drawing || next.head <= through || next.epoch !== log.epoch) return;
    drawing.add(drawing.start(next.last_ts), next.head - through);
    records += next.head - through;
    through = next.head;
    tell();
  };
  const ranges = segments("Time range", RANGES, hours, (chosen) => {
    hours = chosen;
    keep();
    run();
  });
  const query = `${path}/matches?limit=0&bucket_ms=60000`;
  code.set({
    curl: curl({ path: query }),
    python: python([`found = json.loads(client.call("GET", ${literal(query)}).body)`, 'for start, records in found["counts"]:  # per minute', "    print(start, records)"]),
  });
  replace(place, h("div.stack.scroll", {}, h("div.row.toolbar", {}, ranges, told), drawn, h("div.columns", { role: "group", "aria-label": "Since this tab was opened" }, charts.map(([one]) => one.element))));
  keep();
  add(log);
  run();
  return {
    update: (next) => {
      grow(next);
      log = next;
      add(next);
    },
    close: () => {
      generation += 1;
      drawing?.close();
      charts.forEach(([one]) => one.close());
    },
  };
}
