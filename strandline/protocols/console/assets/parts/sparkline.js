/** A small line without axes, for a row of a table. */

import { s } from "../shell/dom.js";

const WIDTH = 64;
const HEIGHT = 16;

/** @param {number[]} values oldest first @param {number} most the number of values that fill the width @returns {SVGElement|null} */
export function sparkline(values, most, title) {
  if (values.length < 2) return null;
  const highest = Math.max(...values);
  const step = WIDTH / (most - 1);
  const points = values.map((value, index) => `${(WIDTH - (values.length - 1 - index) * step).toFixed(1)},${(HEIGHT - 1 - ((HEIGHT - 2) * value) / (highest || 1)).toFixed(1)}`);
  return s("svg.sparkline", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: "img", "aria-label": title }, s("title", {}, title), s("polyline", { points: points.join(" ") }));
}
