/** Subscriptions: what they match, whom they wake, how far behind they are, and which of them fail. */

import { get, send } from "../api.js";
import { codeBlock, curl, python } from "../parts/code.js";
import { heading } from "../parts/heading.js";
import { isWebhook, lagOf, stateChip, targetOf } from "../parts/subscriptions.js";
import { empty, failure, liveMark, loading, repeat } from "../parts/states.js";
import { virtualTable } from "../parts/table.js";
import { field, notice, openDialog } from "../shell/dialogs.js";
import { h, replace } from "../shell/dom.js";
import { ago, count, plural } from "../shell/format.js";
import { icon } from "../shell/icons.js";
import { bind } from "../shell/keys.js";
import { address, go } from "../shell/routes.js";
import { needs } from "../shell/session.js";

const REFRESH_MS = 2000;
/** More subscriptions can be found with the search. */
const LIMIT = 500;
export const PATH = "/v1/stream/__ds/subscriptions";

export function open(root) {
  root.classList.add("fixed");
  const live = liveMark();
  const found = h("span.muted", {});
  const failing = h("span.chip", { dataset: { kind: "bad" }, hidden: true });
  const search = h("input.grow", { type: "search", placeholder: "Search by id, stream or target", "aria-label": "Search by id, stream or target", dataset: { search: "" }, spellcheck: "false", autocomplete: "off" });
  const place = h("div.place", {}, loading());
  const add = h("button.primary", { type: "button", onclick: create, ...needs("admin") }, icon("plus"), "New subscription");
  const code = codeBlock();
  code.set({
    curl: [curl({ path: `${PATH}/mailer`, method: "PUT", json: { type: "webhook", pattern: "mail/*", webhook: { url: "https://example.org/hook" } } }), curl({ path: `${PATH}/mailer` })].join("\n"),
    python: python(['hook = {"type": "webhook", "pattern": "mail/*", "webhook": {"url": "https://example.org/hook"}}', `client.call("PUT", "${PATH}/mailer", hook)`, `print(json.loads(client.call("GET", "${PATH}/mailer").body))`]),
  });
  const table = virtualTable({
    label: "Subscriptions",
    columns: [
      { title: "Subscription", cell: (row) => h("a.log-name", { href: address("subscription", row.id), title: row.description ? `${row.id}: ${row.description}` : row.id }, row.id) },
      { title: "Matches", class: "wide-only", width: "16%", cell: matches },
      { title: "Wakes", class: "wide-only", width: "22%", cell: targetOf },
      { title: "State", width: "96px", cell: stateChip },
      { title: "Lag", class: "number", width: "78px", cell: lagOf },
      { title: "Streams", class: "number.wide-only", width: "84px", cell: (row) => count(row.logs) },
      { title: "Last delivery", class: "wide-only", width: "108px", cell: (row) => ago(row.delivered_at) },
      { title: "Last failure", class: "wide-only", width: "20%", cell: reason },
    ],
    onopen: (row) => go("subscription", row.id),
  });
  table.element.classList.add("openable");
  table.bindKeys();
  let rows = null;
  const ask = async () => {
    const answer = await get("/console/api/subscriptions", { search: search.value.trim(), limit: LIMIT });
    rows = answer.subscriptions;
    found.textContent = answer.total > rows.length ? `${count(rows.length)} of ${plural(answer.total, "subscription")}` : plural(answer.total, "subscription");
    failing.hidden = !answer.failing;
    failing.textContent = `${count(answer.failing)} failing`;
    live.set("live");
    if (!rows.length) return void replace(place, search.value.trim() ? empty("No matches", "No subscription matches this search.") : empty("No subscriptions yet", "A subscription calls a webhook, or wakes a worker, when streams have new records, and stores how far each stream is processed."));
    if (!table.element.isConnected) replace(place, table.element);
    table.set(rows);
    return undefined;
  };
  const failed = (error) => {
    live.set(error.status ? "refused" : "waiting");
    if (!rows?.length) replace(place, failure(error, () => refresher.now()));
  };
  const refresher = repeat(REFRESH_MS, ask, failed);
  search.addEventListener("input", () => refresher.now());
  bind("n", "New subscription", () => add.disabled || add.click());
  replace(root, heading("Subscriptions", [live.element, found, failing], [add]), h("div.row.toolbar", {}, search), place, code.element);
  return () => {
    refresher.stop();
    table.close();
  };
}

function matches(row) {
  const parts = [...(row.pattern ? [row.pattern] : []), ...row.named];
  return h("span", { title: parts.join("\n") }, row.pattern ? h("code", {}, row.pattern) : null, row.pattern && row.named.length ? " and " : null, row.named.length ? (row.named.length === 1 ? row.named[0] : plural(row.named.length, "stream")) : null);
}

function reason(row) {
  if (!row.last_failure) return h("span.none", {}, "none");
  return h(row.failures ? "span.bad-text" : "span.muted", { title: row.last_failure.why }, ago(row.last_failure.at), ": ", row.last_failure.why);
}

function create() {
  const id = h("input", { required: true, autocomplete: "off", spellcheck: "false", autofocus: true });
  const pattern = h("input", { autocomplete: "off", spellcheck: "false", placeholder: "mail/*" });
  const streams = h("input", { autocomplete: "off", spellcheck: "false" });
  const type = h("select", { onchange: () => show() }, h("option", { value: "webhook" }, "calls a webhook"), h("option", { value: "pull-wake" }, "wakes a worker through a stream"));
  const url = h("input", { type: "url", autocomplete: "off", spellcheck: "false", placeholder: "https://example.org/hook" });
  const stream = h("input", { autocomplete: "off", spellcheck: "false", placeholder: "wakes" });
  const lease = h("input", { type: "number", min: 1, max: 600, value: "30" });
  const about = h("input", { autocomplete: "off" });
  const targets = [field("URL", url, "Wakes are sent to public addresses over TLS, unless the settings allow others."), field("Stream", stream, "It is created if it does not exist.")];
  const show = () => targets.forEach((target, index) => (target.hidden = (index === 0) !== isWebhook({ type: type.value })));
  show();
  openDialog({
    title: "New subscription",
    action: "Create",
    body: [
      h("div.pair", {}, field("Id", id), field("Type", type)),
      h("div.pair", {}, field("Pattern", pattern, "* is one segment of a name, ** any number"), field("Streams", streams, "names with spaces between them")),
      ...targets,
      h("div.pair", {}, field("Lease in seconds", lease), field("Description", about)),
    ],
    submit: async () => {
      const name = id.value.trim();
      const body = { type: type.value, lease_ttl_ms: Number(lease.value) * 1000 };
      const named = streams.value.split(/\s+/).filter(Boolean);
      if (pattern.value.trim()) body.pattern = pattern.value.trim();
      if (named.length) body.streams = named;
      if (isWebhook(body)) body.webhook = { url: url.value.trim() };
      else body.wake_stream = stream.value.trim();
      if (about.value.trim()) body.description = about.value.trim();
      await send("PUT", `${PATH}/${encodeURIComponent(name)}`, body);
      notice(`${name} was created.`);
      go("subscription", name);
    },
  });
}
