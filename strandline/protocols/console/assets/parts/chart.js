/** A chart of one or several series over time, drawn with uPlot. Its title shows the values at the pointer, or the last. */

import uPlot from "../vendor/uplot/uPlot.esm.js";
import { h, replace } from "../shell/dom.js";
import { absolute, clock } from "../shell/format.js";
import { colour, onTheme } from "../shell/theme.js";
import { shifted } from "../shell/zone.js";

/** The distances between times on an axis. */
const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 14_400, 21_600, 28_800, 43_200, 86_400, 172_800, 345_600, 604_800, 1_209_600, 2_419_200, 4_838_400, 9_676_800, 31_536_000, 63_072_000, 157_680_000];
/** The shortest time that a chart of lines shows. */
const LEAST_SECONDS = 10;
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/**
 * @param {{title: string, series: {label: string, colour?: string}[], format: (value: number) => string, height?: number,
 *   sync?: string, points?: boolean, fill?: boolean, level?: number, whole?: boolean, bars?: number,
 *   onselect?: (from: number, to: number) => void}} options
 * `sync`: charts with the same name share the pointer; `whole`: values are integers; `bars`: the seconds that a bar
 * stands for; `onselect`: called with the seconds of a range that the user drags
 * @returns {{element: HTMLElement, set: (seconds: number[], columns: (number|null)[][]) => void, close: () => void}}
 */
export function chart({ title, series, format, height = 150, sync, points = false, fill = series.length === 1, level = 3, whole = false, bars = 0, onselect }) {
  const values = h("div.chart-values");
  const plot = h("div.plot", { role: "img" });
  const element = h("figure.chart", {}, h("figcaption", {}, h(`h${level}`, {}, title), values), plot);
  let data = [[], ...series.map(() => [])];
  let drawing = null;

  const tell = () => {
    const at = drawing?.cursor.idx ?? null;
    const index = at ?? data[0].length - 1;
    const when = at === null || !data[0].length ? null : h("span.when", {}, Date.now() / 1000 - data[0][at] < 86400 ? clock(data[0][at] * 1000).slice(0, 8) : absolute(data[0][at] * 1000).slice(0, 16));
    replace(values, when, series.map((one, number) => {
      const value = data[number + 1][index];
      const text = value === null || value === undefined ? "–" : format(value);
      return h("span.value", {}, series.length > 1 ? [h("i", { style: { background: `var(--${one.colour ?? `series-${(number % 8) + 1}`})` } }), one.label, " "] : null, h("b", {}, text));
    }));
  };

  const build = () => {
    drawing?.destroy();
    plot.replaceChildren();
    const width = plot.clientWidth;
    if (!width) return void (drawing = null);
    drawing = new uPlot(options({ series, format, height, width, sync, points, fill, whole, bars, onselect, tell }), data, plot);
    tell();
  };

  const watch = new ResizeObserver(() => {
    if (!drawing) build();
    else if (plot.clientWidth && plot.clientWidth !== drawing.width) drawing.setSize({ width: plot.clientWidth, height });
  });
  watch.observe(plot);
  const unbind = onTheme(build);

  return {
    element,
    set(seconds, columns) {
      data = [seconds, ...columns];
      if (drawing) drawing.setData(data);
      tell();
      plot.setAttribute("aria-label", summary(title, series, format, data));
    },
    close() {
      watch.disconnect();
      unbind();
      drawing?.destroy();
    },
  };
}

function options({ series, format, height, width, sync, points, fill, whole, bars, onselect, tell }) {
  const axis = { stroke: colour("muted"), font: `11px ${colour("sans")}`, grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false } };
  return {
    width,
    height,
    legend: { show: false },
    padding: [8, 28, 0, 0],
    cursor: { y: false, drag: { setScale: false, x: Boolean(onselect), y: false }, points: { size: 6, show: !bars }, sync: sync ? { key: sync } : undefined },
    scales: { x: { range: bars ? (plot) => (plot.data[0].length ? [plot.data[0][0], plot.data[0].at(-1) + bars] : [0, 1]) : rangeOfTime }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.12 : 1] } },
    axes: [
      { ...axis, size: 27, gap: 7, space: 64, incrs: SECONDS, values: (_, splits, __, ___, step) => splits.map((second) => tick(second, step)) },
      { ...axis, size: widthOfLabels, space: height < 130 ? 24 : 34, incrs: whole ? [1, 2, 5].flatMap((n) => Array.from({ length: 12 }, (_, power) => n * 10 ** power)).sort((a, b) => a - b) : undefined, values: (_, splits) => splits.map((value) => format(value)) },
    ],
    series: [{}, ...series.map((one, number) => line(colour(one.colour ?? `series-${(number % 8) + 1}`), points, fill, bars))],
    hooks: { setCursor: [tell], setSelect: onselect ? [(plot) => selected(plot, onselect)] : [] },
  };
}

/** A few samples do not fill the width: a range of milliseconds has no readable labels. */
function rangeOfTime({ data: [seconds] }) {
  const last = seconds.at(-1) ?? Date.now() / 1000;
  return [Math.min(seconds[0] ?? last, last - LEAST_SECONDS), last];
}

/** The space for the labels at the left: as much as the longest needs. */
function widthOfLabels(plot, labels) {
  const longest = (labels ?? []).reduce((most, label) => (label.length > most.length ? label : most), "");
  plot.ctx.font = plot.axes[1].font[0];
  return Math.max(44, Math.ceil(plot.ctx.measureText(longest).width / devicePixelRatio) + 16);
}

function selected(plot, onselect) {
  const { left, width } = plot.select;
  if (width < 3) return;
  onselect(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
}

function line(stroke, points, fill, bars) {
  if (bars) return { stroke, width: 0, fill: `${stroke}bb`, points: { show: false }, paths: uPlot.paths.bars({ size: [0.85], align: 1 }) };
  return { stroke, width: 1.5, fill: fill ? `${stroke}22` : undefined, points: { show: points || ((plot) => plot.data[0].length === 1), size: 5, fill: stroke }, spanGaps: false };
}

function tick(second, step) {
  const at = shifted(second * 1000);
  if (step >= 86400) return `${MONTHS[at.getUTCMonth()]} ${at.getUTCDate()}`;
  return at.toISOString().slice(11, step >= 60 ? 16 : 19);
}

function summary(title, series, format, data) {
  const last = data[0].length - 1;
  if (last < 0) return `${title}: no data yet`;
  return `${title}: ${series.map((one, number) => `${one.label} ${data[number + 1][last] === null || data[number + 1][last] === undefined ? "none" : format(data[number + 1][last])}`).join(", ")}`;
}
