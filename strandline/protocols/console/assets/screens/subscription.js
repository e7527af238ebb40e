/** One subscription: its state, its last failure, and the position in each of its streams. */

import { get, send } from "../api.js";
import { codeBlock, curl, literal, python } from "../parts/code.js";
import { heading, stats } from "../parts/heading.js";
import { isWebhook, lagOf, nextOf, stateChip, targetOf } from "../parts/subscriptions.js";
import { empty, failure, liveMark, loading, repeat } from "../parts/states.js";
import { plainTable } from "../parts/table.js";
import { confirm, field, notice, openDialog } from "../shell/dialogs.js";
import { h, replace } from "../shell/dom.js";
import { ago, absolute, count, duration, plural, short } from "../shell/format.js";
import { icon } from "../shell/icons.js";
import { bind } from "../shell/keys.js";
import { address, go } from "../shell/routes.js";
import { needs } from "../shell/session.js";
import { PATH } from "./subscriptions.js";

const REFRESH_MS = 2000;

export function open(root, { name }) {
  if (!name) return void go("subscriptions");
  const path = `${PATH}/${encodeURIComponent(name)}`;
  const live = liveMark();
  const chips = h("span.beside.row");
  const figures = h("div");
  const place = h("div.stack", {}, loading());
  const code = codeBlock();
  code.set({
    curl: [curl({ path }), curl({ path: `${path}/claim`, method: "POST", json: { worker: "worker-1" } })].join("\n"),
    python: python([`subscription = json.loads(client.call("GET", ${literal(path)}).body)`, 'for stream in subscription["streams"]:', '    print(stream["path"], stream["acked_offset"])']),
  });
  const add = h("button", { type: "button", onclick: () => addStreams(path, name, () => refresher.now()), ...needs("admin") }, icon("plus"), "Add streams…");
  const remove = h("button.danger", { type: "button", onclick: () => removeAll(path, name), ...needs("admin") }, icon("trash"), "Delete…");
  let shown = "";
  const ask = async (signal) => {
    const row = await get(`/console/api/subscription/${encodeURIComponent(name)}`);
    if (signal.aborted) return;
    live.set("live");
    replace(chips, h("span.chip", {}, row.type), stateChip(row));
    replace(figures, stats(summary(row)));
    // Unchanged parts are not drawn again, so that they keep the keyboard focus.
    const now = JSON.stringify(row);
    if (now === shown) return;
    shown = now;
    replace(place, delivery(row), streams(row, path, () => refresher.now()));
  };
  const failed = (error) => {
    live.set(error.status ? "refused" : "waiting");
    if (shown && error.status !== 404) return;
    replace(figures);
    replace(place, failure({ status: error.status, message: error.status === 404 ? `The subscription “${name}” does not exist. It was deleted, or never created.` : error.message }, () => refresher.now()));
  };
  const refresher = repeat(REFRESH_MS, ask, failed);
  const head = heading(name, [chips, live.element], [add, remove]);
  head.prepend(h("a.back", { href: address("subscriptions"), "aria-label": "All subscriptions", title: "All subscriptions (u)" }, icon("back")));
  bind("u", "All subscriptions", () => go("subscriptions"));
  bind("a", "Add streams", () => add.disabled || add.click());
  bind("d", "Delete the subscription", () => remove.disabled || remove.click());
  replace(root, head, figures, place, code.element);
  return () => refresher.stop();
}

function summary(row) {
  return [
    ["Streams", count(row.logs)],
    ["With new records", count(row.pending)],
    ["Lag", row.lag ? `${short(row.lag)}${row.lag_is_least ? "+" : ""}` : "0", row.lag ? "warn" : undefined],
    ["Wakes", count(row.generation)],
    ["Last delivery", ago(row.delivered_at)],
    ["Failures in a row", count(row.failures), row.failures ? "bad" : undefined],
    ["Created", ago(row.created_at)],
  ];
}

function delivery(row) {
  const next = nextOf(row);
  const facts = [
    [isWebhook(row) ? "Webhook" : "Stream of wakes", targetOf(row)],
    row.pattern ? ["Pattern", h("code", {}, row.pattern)] : null,
    row.named.length ? ["Named streams", row.named.slice(0, 20).join(", ") + (row.named.length > 20 ? ` and ${count(row.named.length - 20)} more` : "")] : null,
    row.description ? ["Description", row.description] : null,
    ["Lease", duration(row.lease_ms)],
    row.holder ? ["Worker", h("b", {}, row.holder)] : null,
    next,
  ].filter(Boolean);
  return h("section.card", { "aria-label": "Delivery" }, h("h2", {}, "Delivery"),
    h("div.pad.stack", {},
      row.last_failure ? h(row.failures ? "p.problem" : "p.muted", {}, row.failures ? `The last ${row.failures === 1 ? "attempt" : `${count(row.failures)} attempts`} failed: ` : `Failed at ${absolute(row.last_failure.at)}, and worked since: `, row.last_failure.why) : null,
      h("dl.facts.even", {}, facts.map(([title, value]) => h("div", {}, h("dt", {}, title), h("dd", {}, value))))));
}

function streams(row, path, again) {
  const content = row.shown.length ? plainTable("Streams", [
    { title: "Stream", cell: (one) => (one.exists ? h("a", { href: address("log", one.name), title: one.name }, one.name) : h("span.muted", { title: "The stream does not exist yet" }, one.name)) },
    { title: "Because of", class: "wide-only", width: "130px", cell: (one) => [one.named ? "its name" : "", one.matched ? "the pattern" : ""].filter(Boolean).join(" and ") },
    { title: "Acknowledged", class: "number", width: "112px", cell: (one) => count(one.acked) },
    { title: "End", class: "number", width: "96px", cell: (one) => (one.exists ? count(one.head) : h("span.none", {}, "–")) },
    { title: "Lag", class: "number", width: "78px", cell: (one) => lagOf({ lag: one.lag, pending: 1 }) },
    { title: "Actions", unseen: true, class: "act", width: "90px", cell: (one) => one.named && h("button.quiet.in-row", { type: "button", "aria-label": `Remove ${one.name}`, onclick: () => removeStream(path, one.name, again), ...needs("admin") }, "Remove…") },
  ], row.shown) : empty("No streams", row.pattern ? `No stream matches ${row.pattern} yet. A stream that does is added when it is created.` : "Add streams by name.");
  return h("section.card.streams-of", { "aria-label": "Streams" }, h("header", {}, h("h2", {}, "Streams"), h("span.muted", {}, row.logs > row.shown.length ? `${count(row.shown.length)} of ${plural(row.logs, "stream")}, those with new records first` : plural(row.logs, "stream"))), content);
}

function addStreams(path, name, again) {
  const names = h("textarea", { rows: 5, required: true, spellcheck: "false", autofocus: true });
  openDialog({
    title: `Add streams to ${name}`,
    action: "Add",
    body: [field("Names", names, "One per line. They need not exist yet. Records that a stream has by now count as acknowledged.")],
    submit: async () => {
      const wanted = names.value.split(/\s+/).filter(Boolean);
      await send("POST", `${path}/streams`, { streams: wanted });
      notice(`${plural(wanted.length, "stream")} added.`);
      again();
    },
  });
}

function removeStream(path, stream, again) {
  confirm({
    title: `Remove ${stream}?`,
    text: "The subscription no longer names this stream. If the pattern matches it, it stays.",
    action: "Remove",
    run: async () => {
      await send("DELETE", `${path}/streams/${stream.split("/").map(encodeURIComponent).join("/")}`);
      notice(`${stream} was removed.`);
      again();
    },
  });
}

function removeAll(path, name) {
  confirm({
    title: `Delete subscription ${name}?`,
    text: "Nothing is woken any more, and the positions in its streams are lost. The streams and their records stay.",
    action: "Delete subscription",
    run: async () => {
      await send("DELETE", path);
      notice(`${name} was deleted.`);
      go("subscriptions");
    },
  });
}
