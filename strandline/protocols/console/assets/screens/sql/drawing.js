/**
 * The result of a statement as a chart. With a column of times: lines over time, one for each column of numbers, or one
 * for each value of a column of text. Otherwise: a bar for each row.
 */

import { chart } from "../../parts/chart.js";
import { empty } from "../../parts/states.js";
import { h, replace } from "../../shell/dom.js";
import { count, short } from "../../shell/format.js";
import { isNumber, isTime } from "./types.js";

const MOST_SERIES = 8;
const MOST_BARS = 100;

export function resultChart(place, { columns, rows }) {
  const numbers = indexes(columns, isNumber);
  const [time] = indexes(columns, isTime);
  if (!numbers.length) {
    replace(place, empty("Nothing to draw", "A chart needs a column of numbers, and a column of times or names. For example: select date_trunc('minute', ts) as minute, count(*) as records from … group by minute"));
    return { close: () => {} };
  }
  return time === undefined ? bars(place, columns, rows, numbers) : lines(place, columns, rows, time, numbers);
}

function lines(place, columns, rows, time, numbers) {
  const [text] = indexes(columns, (column) => !isNumber(column) && !isTime(column));
  const series = new Map();
  const seconds = new Set();
  for (const row of rows) {
    const at = secondsOf(row[time]);
    if (at === null) continue;
    seconds.add(at);
    for (const number of numbers) {
      const label = text === undefined ? columns[number].name : `${row[text] ?? "null"}${numbers.length > 1 ? `, ${columns[number].name}` : ""}`;
      if (!series.has(label)) series.set(label, new Map());
      if (row[number] !== null) series.get(label).set(at, Number(row[number]));
    }
  }
  const drawn = [...series].slice(0, MOST_SERIES);
  const times = [...seconds].sort((a, b) => a - b);
  const title = `${numbers.map((number) => columns[number].name).join(", ")} over ${columns[time].name}${text === undefined ? "" : `, by ${columns[text].name}`}`;
  const drawing = chart({ title, series: drawn.map(([label]) => ({ label })), format: short, height: Math.max(260, Math.round(innerHeight * 0.42)), level: 2, points: times.length < 80, fill: drawn.length === 1 });
  const rest = series.size - drawn.length;
  replace(place, h("div.scroll.stack", {}, drawing.element, rest > 0 ? h("p.muted", {}, `${count(rest)} more series are not shown. Select fewer values of ${columns[text].name}.`) : null));
  drawing.set(times, drawn.map(([, points]) => times.map((at) => points.get(at) ?? null)));
  return drawing;
}

function bars(place, columns, rows, numbers) {
  const names = columns.map((_, index) => index).filter((index) => !numbers.includes(index));
  let chosen = numbers[0];
  const body = h("div.busiest");
  const draw = () => {
    const shown = rows.slice(0, MOST_BARS);
    const most = Math.max(...shown.map((row) => Math.abs(Number(row[chosen]))), 0) || 1;
    replace(body, h("ol", {}, shown.map((row, index) =>
      h("li.bar-row", {}, h("span.cut", {}, names.length ? names.map((name) => String(row[name] ?? "null")).join(", ") : `Row ${index + 1}`), h("span.bar", { "aria-hidden": "true" }, h("i", { style: { width: `${(100 * Math.abs(Number(row[chosen]))) / most}%`, background: "var(--series-1)" } })), h("span.number", {}, row[chosen] === null ? "null" : Number.isInteger(Number(row[chosen])) ? count(row[chosen]) : short(Number(row[chosen])))),
    )));
  };
  const pick = numbers.length > 1 ? h("select", { "aria-label": "Value", onchange: (event) => ((chosen = Number(event.target.value)), draw()) }, numbers.map((number) => h("option", { value: number }, columns[number].name))) : null;
  draw();
  replace(place, h("div.scroll.stack", {}, pick ? h("div.row", {}, pick) : null, h("section.card", { "aria-label": "Bars" }, h("h2", {}, columns[chosen].name), body), rows.length > MOST_BARS ? h("p.muted", {}, `The first ${count(MOST_BARS)} of ${count(rows.length)} rows.`) : null));
  return { close: () => {} };
}

function indexes(columns, fits) {
  return columns.map((_, index) => index).filter((index) => fits(columns[index]));
}

function secondsOf(value) {
  const text = typeof value === "string" && value.length > 10 && !/(?:Z|[+-]\d{2}:\d{2})$/.test(value) ? `${value}Z` : value;
  const ms = Date.parse(text);
  return Number.isNaN(ms) ? null : ms / 1000;
}
