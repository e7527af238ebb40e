/** What the screens of subscriptions share: their state, their lag and whom they wake. */

import { h } from "../shell/dom.js";
import { ago, count, short } from "../shell/format.js";
import { address } from "../shell/routes.js";

const STATES = {
  idle: ["good", "No wake is needed: all records are acknowledged."],
  sending: ["accent", "The webhook is being sent."],
  waiting: ["warn", "A wake waits for a worker to claim it."],
  leased: ["accent", "The receiver works on the records of the wake."],
  retrying: ["bad", "The last attempt failed. It is repeated."],
};

export function isWebhook({ type }) {
  return type === "webhook";
}

export function stateChip(row) {
  const [kind, words] = STATES[row.state];
  return h("span.chip", { dataset: { kind }, title: row.holder ? `${words} Worker: ${row.holder}.` : words }, row.state);
}

/** Unacknowledged records. */
export function lagOf(row) {
  if (!row.lag) return "0";
  return h("span.chip", { dataset: { kind: "warn" }, title: `${count(row.lag)}${row.lag_is_least ? " or more" : ""} unacknowledged records in ${count(row.pending)} streams` }, `${short(row.lag)}${row.lag_is_least ? "+" : ""}`);
}

/** The URL of the webhook, or a link to the stream of wakes. */
export function targetOf(row) {
  return isWebhook(row) ? h("span", { title: row.target }, row.target) : h("a", { href: address("log", row.target), title: row.target }, row.target);
}

/** When the next thing happens by itself. */
export function nextOf(row) {
  if (row.state === "retrying") return ["Next attempt", row.retry_at ? ago(row.retry_at) : "–"];
  return row.leased_until ? ["Lease ends", ago(row.leased_until)] : null;
}
