/** How far the records of a log are indexed: a bar with the number of records, the rate and the remaining time. */

import { get } from "../api.js";
import { h, replace } from "../shell/dom.js";
import { count, duration, plural, rate } from "../shell/format.js";
import { streamPath } from "./kinds.js";
import { repeat } from "./states.js";

const REFRESH_MS = 1000;

/**
 * Shows the progress while the log is being indexed, and nothing once all records are indexed.
 * @param {string} name of the log
 * @returns {{element: HTMLElement, close: () => void}}
 */
export function indexProgress(name) {
  const element = h("div.indexing", { hidden: true });
  const ask = async (signal) => {
    const { progress } = await get(`${streamPath(name)}/_index_status`, {}, signal);
    if (signal.aborted) return;
    // A server that does not report it has indexed everything.
    const done = !progress || progress.complete;
    element.hidden = done;
    if (done) return void refresher.stop();
    replace(element, h("progress", { max: Math.max(1, progress.records), value: progress.indexed_records, "aria-label": "Indexed records" }), h("span.muted", {}, inWords(progress)));
    return undefined;
  };
  const refresher = repeat(REFRESH_MS, ask, () => (element.hidden = true));
  return { element, close: refresher.stop };
}

/** @param {{indexed_records: number, records: number, records_per_second: number|null, remaining_ms: number|null}} progress */
function inWords(progress) {
  const parts = [`Indexing: ${count(progress.indexed_records)} of ${plural(progress.records, "record")}`];
  if (progress.records_per_second !== null) parts.push(rate(progress.records_per_second));
  if (progress.remaining_ms !== null) parts.push(`${duration(progress.remaining_ms)} remaining`);
  return parts.join(" · ");
}
