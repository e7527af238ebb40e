/** Clients: the open connections, what each one does, and which of them do not keep up. */

import { get, send } from "../api.js";
import { codeBlock, curl, python } from "../parts/code.js";
import { heading } from "../parts/heading.js";
import { empty, failure, liveMark, loading, repeat } from "../parts/states.js";
import { virtualTable } from "../parts/table.js";
import { confirm, notice, openDialog } from "../shell/dialogs.js";
import { h, replace } from "../shell/dom.js";
import { absolute, ago, bytes, count, duration, plural, short } from "../shell/format.js";
import { icon } from "../shell/icons.js";
import { address, note } from "../shell/routes.js";
import { needs } from "../shell/session.js";

const REFRESH_MS = 2000;
const LIMIT = 1000;
const PATH = "/v0/clients";
/** Kinds of connections: their names, what they mean, and the colours of their chips. */
const KINDS = {
  event_stream: ["Event stream", "follows logs over server-sent events", "accent"],
  websocket: ["WebSocket", "follows and writes topics over a WebSocket", "accent"],
  worker: ["Worker", "gets the jobs of a queue over an event stream", "accent"],
  long_poll: ["Long poll", "waits for new records", "accent"],
  download: ["Download", "reads a large answer in pieces", "good"],
  request: ["Request", "a request is being received or answered", "good"],
  idle: ["Idle", "kept open between requests", ""],
};

export function open(root, params) {
  root.classList.add("fixed");
  const live = liveMark();
  const found = h("span.muted", {});
  const search = h("input.grow", { type: "search", placeholder: "Search by address, API key, log or route", "aria-label": "Search by address, API key, log or route", value: params.search ?? "", dataset: { search: "" }, spellcheck: "false", autocomplete: "off" });
  const kinds = h("div.row.kinds", { role: "group", "aria-label": "Kinds of connections" });
  const place = h("div.place", {}, loading());
  const code = codeBlock();
  code.set({
    curl: [curl({ path: PATH }), curl({ path: `${PATH}?kind=event_stream` }), curl({ path: `${PATH}/17`, method: "DELETE" })].join("\n"),
    python: python([`clients = json.loads(client.call("GET", "${PATH}").body)`, 'for one in clients["clients"]:', '    print(one["peer"], one["kind"], one["behind"], one["unread_bytes"])']),
  });
  let kind = Object.hasOwn(KINDS, params.kind ?? "") ? params.kind : "";
  let answer = null;
  const again = () => refresher.now();
  const table = virtualTable({
    label: "Clients",
    columns: [
      { title: "Client", cell: (row) => h("button.link", { type: "button", title: "Details", dataset: { own: "" }, onclick: () => look(row, again) }, h("span", {}, row.forwarded_for || row.peer || "unknown", h("span.muted", {}, row.forwarded_for ? "" : `:${row.port}`))) },
      { title: "API key", class: "wide-only", width: "120px", cell: keyOf },
      { title: "Does", width: "122px", cell: (row) => h("span.chip", { dataset: { kind: KINDS[row.kind][2] }, title: KINDS[row.kind][1] }, KINDS[row.kind][0]) },
      { title: "Route", class: "data.wide-only", cell: (row) => (row.route ? h("span", { title: `${row.method} ${row.route}` }, h("b", {}, row.method), ` ${row.route}`) : h("span.none", {}, "no request yet")) },
      { title: "Logs", class: "wide-only", width: "15%", cell: logsOf },
      { title: "Since", class: "wide-only", width: "92px", cell: (row) => ago(row.since ?? row.connected_at) },
      { title: "Sent", class: "number.wide-only", width: "84px", cell: (row) => bytes(row.sent_bytes) },
      { title: "Behind", class: "number", width: "116px", cell: behindOf },
      { title: "Actions", unseen: true, class: "act.wide-only", width: "64px", cell: (row) => h("button.quiet.in-row", { type: "button", dataset: { own: "" }, "aria-label": `End connection ${row.id}`, onclick: () => end(row, again), ...needs("admin") }, "End…") },
    ],
    rowClass: (row) => (row.stalled_ms === null ? "" : "attention"),
    onopen: (row) => look(row, again),
  });
  table.element.classList.add("openable");
  table.bindKeys();
  const show = () => {
    const words = search.value.trim().toLowerCase();
    const rows = answer.clients.filter((row) => textOf(row).includes(words));
    found.textContent = `${plural(answer.total, "connection")}${answer.clients.length < (kind ? answer.counts[kind] : answer.total) ? `, the first ${count(answer.clients.length)} shown` : ""}`;
    replace(kinds, pick("", "All", answer.total), Object.entries(KINDS).map(([id, [title]]) => pick(id, title, answer.counts[id])));
    if (!rows.length) return void replace(place, empty("No matches", "No connection matches this search."));
    if (!table.element.isConnected) replace(place, table.element);
    table.set(rows);
    return undefined;
  };
  const pick = (id, title, number) => h("button.quiet.kind", { type: "button", "aria-pressed": String(id === kind), dataset: { kind: id }, onclick: () => {
    kind = id;
    remember();
    again();
  } }, title, h("span.chip", {}, count(number)));
  const remember = () => note("clients", "", { kind, search: search.value.trim() });
  const ask = async (signal) => {
    const next = await get(PATH, { kind, limit: LIMIT });
    if (signal.aborted) return;
    answer = next;
    live.set("live");
    const pressed = kinds.contains(document.activeElement) ? document.activeElement.dataset.kind : null;
    show();
    if (pressed !== null) kinds.querySelector(`[data-kind="${pressed}"]`)?.focus();
  };
  const failed = (error) => {
    live.set(error.status ? "refused" : "waiting");
    if (!answer) replace(place, failure(error, again));
  };
  const refresher = repeat(REFRESH_MS, ask, failed);
  search.addEventListener("input", () => {
    remember();
    if (answer) show();
  });
  replace(root, heading("Clients", [live.element, found]), h("div.row.toolbar", {}, search), kinds, place, code.element);
  return () => {
    refresher.stop();
    table.close();
  };
}

function textOf(row) {
  return [row.peer, row.port, row.forwarded_for, row.api_key, row.api_key_name, row.protocol, row.route, row.kind, ...row.logs.map((one) => one.log)].join(" ").toLowerCase();
}

function keyOf(row) {
  if (!row.api_key) return h("span.none", {}, "none");
  return row.api_key_name ? h("b", { title: row.api_key }, row.api_key_name) : h("code", { title: row.api_key }, row.api_key);
}

function logsOf(row) {
  if (!row.logs.length) return h("span.none", {}, "–");
  const [{ log }] = row.logs;
  return h("span", { title: row.logs.map((one) => one.log).join("\n") }, h("a", { href: address("log", log) }, log), row.log_count > 1 ? h("span.muted", {}, ` and ${count(row.log_count - 1)} more`) : null);
}

function behindOf(row) {
  if (row.stalled_ms !== null) return h("span.chip", { dataset: { kind: "bad" }, title: `The client has read nothing for ${duration(row.stalled_ms)}; ${bytes(row.unread_bytes)} wait for it` }, `stalled, ${bytes(row.unread_bytes)}`);
  if (row.behind) return h("span.chip", { dataset: { kind: "warn" }, title: `${count(row.behind)} records were not sent yet` }, short(row.behind));
  return row.behind === 0 ? "0" : h("span.none", {}, "–");
}

function look(row, again) {
  const facts = [
    ["Client", `${row.peer}:${row.port}`],
    ["Forwarded for", row.forwarded_for],
    ["API key", row.api_key ? keyOf(row) : "none"],
    ["Does", `${KINDS[row.kind][0]}: ${KINDS[row.kind][1]}`],
    ["Last request", row.route && h("code", {}, `${row.method} ${row.route}`)],
    ["Protocol", row.protocol && `${row.protocol}, ${row.lane === "fast" ? "fast lane" : "ASGI lane"}`],
    ["Connected", `${absolute(row.connected_at)}`],
    ["Does it since", row.since && absolute(row.since)],
    ["Sent", row.sent_bytes !== null && bytes(row.sent_bytes)],
    ["Received", row.received_bytes !== null && bytes(row.received_bytes)],
    ["Not read yet", row.unread_bytes ? `${bytes(row.unread_bytes)}${row.stalled_ms === null ? "" : `, nothing read for ${duration(row.stalled_ms)}`}` : ""],
    ["Logs", row.logs.length > 0 && h("ul", {}, row.logs.map((one) => h("li", {}, h("a", { href: address("log", one.log), onclick: () => shown.close() }, one.log), one.behind === null ? null : h("span.muted", {}, one.behind ? `${plural(one.behind, "record")} behind` : "up to date"))), row.log_count > row.logs.length ? h("li.muted", {}, `and ${count(row.log_count - row.logs.length)} more`) : null)],
  ].filter(([, value]) => value);
  const button = h("button.danger", { type: "button", onclick: () => {
    shown.close();
    end(row, again);
  }, ...needs("admin") }, icon("close"), "End connection…");
  const shown = openDialog({
    title: `Connection ${count(row.id)}`,
    body: [h("dl.facts.even", {}, facts.map(([title, value]) => h("div", {}, h("dt", {}, title), h("dd", {}, value)))), h("div.row", {}, button)],
  });
}

function end(row, again) {
  confirm({
    title: `End the connection of ${row.forwarded_for || `${row.peer}:${row.port}`}?`,
    text: "A live response sends its last message first; a request that waits gets no answer. Most clients connect again: to keep one out, revoke its API key.",
    action: "End connection",
    run: async () => {
      await send("DELETE", `${PATH}/${row.id}`);
      notice(`Connection ${count(row.id)} was ended.`);
      again();
    },
  });
}
