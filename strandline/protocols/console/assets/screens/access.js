/** Access: the API keys that the caller may manage, and the audit log. */

import { get, send } from "../api.js";
import { codeBlock, curl, python } from "../parts/code.js";
import { heading } from "../parts/heading.js";
import { empty, failure, loading } from "../parts/states.js";
import { plainTable } from "../parts/table.js";
import { attempt, confirm, field, notice, openDialog } from "../shell/dialogs.js";
import { h, replace } from "../shell/dom.js";
import { absolute, ago, count, plural } from "../shell/format.js";
import { icon } from "../shell/icons.js";
import { bind } from "../shell/keys.js";
import { current, may, needs } from "../shell/session.js";

const KEYS = "/v0/keys";
const AUDIT = "/v0/audit";
const PAGE = 100;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const SCOPES = [["read", "read records and configurations"], ["write", "append, and work on jobs"], ["delete", "delete records and logs"], ["admin", "create and configure logs, manage API keys"]];
const LIFETIMES = [[0, "never"], [DAY_MS, "in a day"], [30 * DAY_MS, "in 30 days"], [90 * DAY_MS, "in 90 days"], [365 * DAY_MS, "in a year"]];
const KEPT = [[0, "stops at once"], [HOUR_MS, "works for another hour"], [DAY_MS, "works for another day"], [7 * DAY_MS, "works for another 7 days"]];
const OUTCOMES = { done: "good", refused: "warn", failed: "bad" };

export function open(root) {
  let closed = false;
  const keys = h("section.card", { "aria-label": "API keys" }, loading());
  const audit = h("section.card", { "aria-label": "Audit log" }, loading());
  const create = h("button.primary", { type: "button", onclick: () => addKey(loadKeys), ...managing() }, icon("plus"), "New API key");
  const code = codeBlock();
  code.set({
    curl: [curl({ path: KEYS }), curl({ path: KEYS, method: "POST", json: { name: "shop", scopes: ["read", "write"], prefixes: ["orders"] } }), curl({ path: AUDIT })].join("\n"),
    python: python([`keys = json.loads(client.call("GET", "${KEYS}").body)`, `entries = json.loads(client.call("GET", "${AUDIT}").body)["entries"]`, "print(keys, entries)"]),
  });

  const loadKeys = async () => {
    try {
      const answer = await get(KEYS);
      if (closed) return;
      replace(keys, h("h2", {}, "API keys"), answer.keys.length ? keysTable(answer.keys, loadKeys) : noKeys());
    } catch (error) {
      if (!closed) replace(keys, h("h2", {}, "API keys"), failure(error, loadKeys));
    }
  };
  const loadAudit = async () => {
    try {
      const page = await get(AUDIT, { limit: PAGE });
      if (!closed) showAudit(audit, page);
    } catch (error) {
      if (!closed) replace(audit, h("h2", {}, "Audit log"), failure(error, loadAudit));
    }
  };
  bind("n", "New API key", () => create.disabled || create.click());
  replace(root, heading("Access", [], [create]), h("div.stack.access", {}, keys, audit), code.element);
  loadKeys();
  loadAudit();
  return () => {
    closed = true;
  };
}

/** Attributes for controls that manage keys: none, or disabled with the reason. */
function managing() {
  if (!current().keys_required) return { disabled: true, title: "The server has no API keys in its settings, so every client may do everything" };
  return needs("admin");
}

function noKeys() {
  return empty("No API keys", "Every client that reaches the server may do everything. Set “api_keys” in the settings of the server to a key with the scope admin, and restart it. You can then add further keys here.");
}

function keysTable(keys, reload) {
  return plainTable("API keys", [
    { title: "Name", cell: (key) => [h("b.key-name", {}, key.name || key.id), key.id === current().key?.id ? h("span.chip", { dataset: { kind: "accent" } }, "in use") : null] },
    { title: "Id", class: "wide-only", width: "150px", cell: (key) => h("code", {}, key.id) },
    { title: "Scopes", cell: (key) => key.scopes.join(", ") },
    { title: "Names", class: "wide-only", cell: (key) => (key.prefixes.length ? key.prefixes.map((prefix) => `${prefix}*`).join(", ") : h("span.muted", {}, "all")) },
    { title: "Created", class: "wide-only", width: "130px", cell: (key) => (key.created_at ? ago(key.created_at) : h("span.muted", {}, "in the settings")) },
    { title: "Ends", class: "wide-only", width: "100px", cell: (key) => (key.expires_at ? ago(key.expires_at) : h("span.muted", {}, "never")) },
    { title: "Actions", unseen: true, class: "act", width: "160px", cell: (key) => key.source === "added" && [
      h("button.quiet.in-row", { type: "button", "aria-label": `Rotate ${key.name || key.id}`, onclick: () => rotateKey(key, reload) }, "Rotate…"),
      h("button.quiet.in-row", { type: "button", "aria-label": `Revoke ${key.name || key.id}`, onclick: () => revokeKey(key, reload) }, "Revoke…"),
    ] },
  ], keys);
}

async function addKey(done) {
  const name = h("input", { autocomplete: "off", spellcheck: "false", maxlength: 200, autofocus: true });
  const scopes = SCOPES.map(([scope, text]) => [scope, h("input", { type: "checkbox", checked: scope === "read", disabled: !may(scope) }), text]);
  const prefixes = h("input", { autocomplete: "off", spellcheck: "false", placeholder: "all names" });
  const lifetime = choice(LIFETIMES);
  const answer = await openDialog({
    title: "New API key",
    action: "Create",
    body: [
      field("Name", name, "for people: the program that uses the key"),
      h("fieldset.field", {}, h("legend", {}, "Scopes"), scopes.map(([scope, box, text]) => h("label.check", {}, box, h("span", {}, h("b", {}, scope), h("span.muted", {}, `: ${text}`))))),
      h("div.pair", {}, field("Names that start with", prefixes, "several prefixes with spaces between them"), field("Ends", lifetime)),
    ],
    submit: async () => {
      const chosen = scopes.filter(([, box]) => box.checked).map(([scope]) => scope);
      if (!chosen.length) throw new Error("Choose at least one scope.");
      const body = { name: name.value.trim(), scopes: chosen, prefixes: prefixes.value.split(/\s+/).filter(Boolean), expires_in_ms: Number(lifetime.value) };
      return send("POST", KEYS, body);
    },
  }).closed;
  if (!answer) return;
  done();
  showSecret("The API key was created", answer);
}

async function rotateKey(key, done) {
  const kept = choice(KEPT, DAY_MS);
  const answer = await openDialog({
    title: `Rotate ${key.name || key.id}?`,
    action: "Rotate",
    body: [h("p", {}, "A new key with the same rights replaces this one. Move the clients to it while the old one still works."), field("The old key", kept)],
    submit: () => send("POST", `${KEYS}/${encodeURIComponent(key.id)}/rotate`, { keep_ms: Number(kept.value) }),
  }).closed;
  if (!answer) return;
  done();
  showSecret("The API key was rotated", answer);
}

function revokeKey(key, done) {
  confirm({
    title: `Revoke ${key.name || key.id}?`,
    text: "The key stops working at once, and the connections of its clients are closed.",
    action: "Revoke",
    run: async () => {
      await send("DELETE", `${KEYS}/${encodeURIComponent(key.id)}`);
      notice(`The API key ${key.name || key.id} was revoked.`);
      done();
    },
  });
}

/** Shows a secret, which the server does not show again. */
function showSecret(title, { key, secret, replaced }) {
  const copy = h("button", { type: "button", onclick: () => attempt(() => navigator.clipboard.writeText(secret), "Copied.") }, icon("copy"), "Copy");
  openDialog({
    title,
    body: [
      h("p", {}, `This is the secret of ${key.name || key.id}. Copy it now: the server does not show it again.`),
      h("div.row", {}, h("code.secret", { "aria-label": "Secret" }, secret), copy),
      replaced?.expires_at ? h("p.muted", {}, `The old key ends at ${absolute(replaced.expires_at)}.`) : null,
    ],
  });
}

function choice(options, chosen = options[0][0]) {
  return h("select", {}, options.map(([value, text]) => h("option", { value: String(value), selected: value === chosen }, text)));
}

function showAudit(place, { entries, next_before: before }) {
  let next = before;
  const all = [...entries];
  const older = h("button", { type: "button", hidden: next === null, onclick: () => attempt(async () => {
    const page = await get(AUDIT, { limit: PAGE, before: next });
    all.push(...page.entries);
    next = page.next_before;
    older.hidden = next === null;
    draw();
  }) }, "Older entries");
  const list = h("div");
  const found = h("span.muted", { role: "status" });
  const draw = () => {
    found.textContent = plural(all.length, "change", "changes");
    replace(list, all.length ? auditTable(all) : empty("No changes", "Changes of configurations, deletions and changes of API keys are recorded here."));
  };
  draw();
  replace(place, h("header", {}, h("h2", {}, "Audit log"), found, h("span.grow"), older), list);
}

function auditTable(entries) {
  return plainTable("Audit log", [
    { title: "Time", width: "106px", cell: (one) => ago(one.time) },
    { title: "API key", class: "wide-only", width: "150px", cell: (one) => (one.api_key ? h("code", { title: one.api_key }, one.api_key) : h("span.none", {}, "–")) },
    { title: "Client", class: "wide-only", width: "150px", cell: (one) => one.forwarded_for || one.peer || h("span.none", {}, "–") },
    { title: "Request", class: "data", cell: (one) => h("span", { title: `${one.method} ${one.path}` }, h("b", {}, one.method), ` ${one.path}`) },
    { title: "Outcome", width: "116px", cell: (one) => h("span.chip", { dataset: { kind: OUTCOMES[one.outcome] }, title: `Status ${count(one.status)}` }, one.outcome) },
  ], entries);
}
