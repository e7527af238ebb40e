/** Records counted per interval of time: a chart of bars, in which a range can be dragged. */

import { short } from "../shell/format.js";
import { chart } from "./chart.js";

/** The chart has at most this number of bars, and at least a few: wide bars are hard to read. */
const BARS = 80;
const LEAST_BARS = 20;
/** The intervals, in seconds. */
const STEPS = [1, 5, 15, 60, 300, 900, 3600, 10800, 21600, 43200, 86400, 604800, 2592000, 31536000];

/**
 * `from` and `to` are milliseconds; the interval is chosen from their distance. `onselect` is called with the milliseconds
 * of a range. `step` is the interval in milliseconds; `add` counts records at the start of an interval, in seconds.
 * @param {{title: string, label: string, from: number, to: number, height?: number, onselect: (from: number, to: number) => void}} options
 */
export function histogram({ title, label, from, to, height = 120, onselect }) {
  const counts = new Map();
  const length = Math.max(1, (to - from) / 1000);
  const step = STEPS.find((one) => length / one <= BARS) ?? STEPS.at(-1);
  const start = (ms) => Math.floor(ms / 1000 / step) * step;
  let last = Math.max(start(from), start(to));
  let first = Math.min(start(from), last - LEAST_BARS * step);
  const drawing = chart({ title, series: [{ label }], format: short, height, level: 2, whole: true, bars: step, onselect: (low, high) => onselect(Math.max(low, first) * 1000, Math.ceil(high) * 1000) });
  return {
    element: drawing.element,
    step: step * 1000,
    start,
    add(at, found) {
      counts.set(at, (counts.get(at) ?? 0) + found);
      last = Math.max(last, at);
      first = Math.min(first, at);
    },
    draw() {
      const seconds = Array.from({ length: Math.floor((last - first) / step) + 1 }, (_, index) => first + index * step);
      drawing.set(seconds, [seconds.map((at) => counts.get(at) ?? 0)]);
    },
    close: drawing.close,
  };
}
