/** The difference between two values, as lines of their JSON. */

import { h } from "../shell/dom.js";
import { plural } from "../shell/format.js";

/** Unchanged lines that are shown around a change. */
const AROUND = 3;
/** Larger parts are not compared line by line: the time grows with the product of their lengths. */
const MOST_PAIRS = 4_000_000;

/** A block with the changed lines. @param {any} before @param {any} after */
export function diffBlock(before, after) {
  const lines = lineDiff(text(before), text(after));
  if (lines.every(({ sign }) => sign === " ")) return h("p.muted", {}, "Nothing changes.");
  const near = lines.map((_, index) => lines.slice(Math.max(0, index - AROUND), index + AROUND + 1).some(({ sign }) => sign !== " "));
  const rows = [];
  for (let index = 0; index < lines.length; index += 1) {
    if (near[index]) {
      rows.push(h("span.diff-line", { dataset: { sign: lines[index].sign } }, `${lines[index].sign} ${lines[index].text}\n`));
      continue;
    }
    const from = index;
    while (index + 1 < lines.length && !near[index + 1]) index += 1;
    rows.push(h("span.diff-line.muted", {}, `⋯ ${plural(index - from + 1, "unchanged line")}\n`));
  }
  return h("pre.json.diff", { tabindex: "0", "aria-label": "Difference" }, rows);
}

/** @param {string[]} before @param {string[]} after @returns {{sign: " "|"-"|"+", text: string}[]} */
export function lineDiff(before, after) {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start += 1;
  let end = 0;
  while (end < before.length - start && end < after.length - start && before.at(-1 - end) === after.at(-1 - end)) end += 1;
  const same = (lines) => lines.map((line) => ({ sign: " ", text: line }));
  const old = before.slice(start, before.length - end);
  const now = after.slice(start, after.length - end);
  return [...same(before.slice(0, start)), ...changed(old, now), ...same(before.slice(before.length - end))];
}

function changed(old, now) {
  const removed = (line) => ({ sign: "-", text: line });
  const added = (line) => ({ sign: "+", text: line });
  if (old.length * now.length > MOST_PAIRS) return [...old.map(removed), ...now.map(added)];
  // common[i][j]: the number of lines that the rest of both has in common, from i and j on.
  const common = Array.from({ length: old.length + 1 }, () => new Uint32Array(now.length + 1));
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = now.length - 1; j >= 0; j -= 1) common[i][j] = old[i] === now[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
  }
  const lines = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) {
      lines.push({ sign: " ", text: old[i] });
      i += 1;
      j += 1;
    } else if (i < old.length && (j === now.length || common[i + 1][j] >= common[i][j + 1])) lines.push(removed(old[i++]));
    else lines.push(added(now[j++]));
  }
  return lines;
}

function text(value) {
  return Object.keys(value).length ? JSON.stringify(value, null, 2).split("\n") : [];
}
