/** Why jobs failed: one line in a table, and a dialog with everything that is known. */

import { h } from "../shell/dom.js";
import { openDialog } from "../shell/dialogs.js";
import { absolute, ago, count } from "../shell/format.js";
import { jsonBlock } from "./json.js";

/** @typedef {{at: number, delivery: number, worker: string, reason: any}} Failure */

/** A reason in one line: the type and the message of an exception, the first line of a text, or JSON. */
export function summary(reason) {
  const text = isException(reason) ? [reason.type, reason.message].filter(Boolean).join(": ") : typeof reason === "string" ? firstLine(reason.trim()) : JSON.stringify(reason);
  return text.replace(/\s+/g, " ").trim();
}

function firstLine(text) {
  const end = text.search(/[\r\n]/);
  return end < 0 ? text : `${text.slice(0, end)} …`;
}

/** The last reason as a button that opens all failures. @param {number} seq @param {Failure[]} failures oldest first */
export function failureCell(seq, failures) {
  if (!failures.length) return h("span.none", {}, "–");
  const text = summary(failures.at(-1).reason);
  return h("button.link.cut-link", { type: "button", title: text, onclick: () => showFailures(seq, failures) }, text);
}

/** The failures of a dead letter, from the meta that the server added. @returns {Failure[]} */
export function deadLetterFailures(meta) {
  const failures = meta?.$dead_letter_failures;
  return Array.isArray(failures) ? failures.map(({ at, delivery, node, reason }) => ({ at, delivery, worker: node, reason })) : [];
}

function showFailures(seq, failures) {
  openDialog({
    title: `Failures of job ${count(seq)}`,
    wide: true,
    body: [h("ol.failures", {}, [...failures].reverse().map((one) => h("li", {}, h("p", {}, h("b", {}, `Delivery ${count(one.delivery)}`), h("span.muted", {}, " at ", h("code", {}, one.worker), ", ", absolute(one.at), " (", ago(one.at), ")")), reasonView(one.reason))))],
  });
}

function reasonView(reason) {
  if (isException(reason)) {
    const trace = typeof reason.traceback === "string" && reason.traceback ? h("details", {}, h("summary", {}, "Traceback"), block(reason.traceback)) : null;
    return [block(summary(reason)), trace];
  }
  if (typeof reason !== "string") return jsonBlock(reason);
  const [first, ...more] = reason.split("\n");
  return [block(first), more.length ? h("details", {}, h("summary", {}, "More"), block(more.join("\n"))) : null];
}

function block(text) {
  return h("pre.json", { tabindex: "0", "aria-label": "Reason" }, text);
}

function isException(reason) {
  return typeof reason === "object" && reason !== null && typeof reason.type === "string" && typeof reason.message === "string";
}
