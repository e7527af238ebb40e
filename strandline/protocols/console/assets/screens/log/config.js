/** The state of a log, and a form for its configuration. */

import { send } from "../../api.js";
import { curl, literal, python } from "../../parts/code.js";
import { isTopicName, streamPath, topicPath } from "../../parts/kinds.js";
import { attempt, confirm, field, notice } from "../../shell/dialogs.js";
import { h, replace } from "../../shell/dom.js";
import { absolute, bytes, count, DURATION, duration, durationText, parseDuration, plural } from "../../shell/format.js";
import { icon } from "../../shell/icons.js";
import { address, go } from "../../shell/routes.js";
import { needs } from "../../shell/session.js";

const ms = (value) => (value ? duration(value) : "unlimited");
/** @type {Record<string, {label: string, hint?: string, kind: "number"|"duration"|"choice"|"flag"|"text"|"maybe", options?: string[], absent?: any, min?: number, max?: number, step?: string, say?: (value: number) => string, queue?: boolean}>} */
const FIELDS = {
  durability: { label: "Durability", kind: "choice", options: ["ephemeral", "memory", "disk", "fsync", "replicated"], hint: "fsync acknowledges a write after the flush; disk flushes within 50 ms; replicated also waits for the replica" },
  ttl_ms: { label: "Max age", kind: "duration", say: ms, hint: "7d, 12h or 30m; 0: unlimited" },
  cap_records: { label: "Max records", kind: "number", say: (value) => (value ? count(value) : "unlimited"), hint: "0: unlimited" },
  cap_bytes: { label: "Max bytes", kind: "number", say: (value) => (value ? bytes(value) : "unlimited"), hint: "0: unlimited" },
  discard: { label: "When the log is full", kind: "choice", options: ["old", "reject"], hint: "old: remove the oldest records; reject: refuse new ones" },
  compact: { label: "Keep only the last record of each key", kind: "flag", absent: false, queue: false },
  priority: { label: "Priority", kind: "maybe", hint: "-1000 to 1000; empty: derived from recent reads" },
  auto_priority: { label: "Derive the priority from use if none is set", kind: "flag" },
  auto_create: { label: "Writes create the log again after it is deleted", kind: "flag" },
  idempotency_window_ms: { label: "Idempotency window", kind: "duration", say: (value) => (value ? duration(value) : "off") },
  dedupe_node: { label: "Do not send nodes their own records", kind: "flag" },
  lease_ms: { label: "Lease duration", kind: "duration", say: duration, queue: true },
  max_deliveries: { label: "Max deliveries", kind: "number", say: (value) => (value ? count(value) : "unlimited"), hint: "0: unlimited; a job whose last delivery fails becomes a dead letter", queue: true },
  dead_letter: { label: "Dead-letter log", kind: "text", hint: "empty: jobs are dropped when their last delivery fails", queue: true },
  retry_delay_ms: { label: "Retry delay", kind: "duration", absent: 0, say: (value) => (value ? duration(value) : "none"), hint: "delay after the first failure of a job", queue: true },
  retry_backoff: { label: "Retry backoff", kind: "number", absent: 2, min: 1, max: 1000, step: "any", hint: "multiplies the delay after each further failure", queue: true },
  retry_max_ms: { label: "Longest retry delay", kind: "duration", absent: 300_000, say: duration, hint: "not less than the retry delay", queue: true },
  retry_jitter: { label: "Retry jitter", kind: "number", absent: 0, max: 1, step: "any", hint: "0 to 1: shortens delays at random by up to this fraction", queue: true },
  claim_jitter_ms: { label: "Claim batching window", kind: "duration", say: (value) => (value ? duration(value) : "off"), queue: true },
  leases_durable: { label: "Leases survive a restart and a power failure", kind: "flag", queue: true },
};

/** Answers leave these members out while they have their default. */
const ABSENT = Object.fromEntries(Object.entries(FIELDS).filter(([, one]) => "absent" in one).map(([name, one]) => [name, one.absent]));

export function openConfig(place, log, { code, buttons, reload }) {
  const state = h("dl.facts.pad");
  const form = h("form.config", { novalidate: false });
  const changeable = isTopicName(log.name) && ["topic", "queue", "stream"].includes(log.kind);
  const allowed = changeable ? needs("admin") : { disabled: true, title: log.note };
  let config = { ...ABSENT, ...log.config };
  const controls = {};

  const build = () => {
    const fields = Object.entries(FIELDS).filter(([name, one]) => name in config && (one.queue === undefined || one.queue === (log.kind === "queue"))).sort(([, a], [, b]) => (a.kind === "flag") - (b.kind === "flag"));
    replace(form, fields.map(([name, one]) => {
      const control = (controls[name] = makeControl(one, config[name], allowed));
      if (one.kind === "flag") return h("label.check", {}, control, one.label);
      const said = one.say ? h("span.muted.said", {}, one.say(config[name])) : null;
      if (said) control.addEventListener("input", () => (said.textContent = control.validity.valid ? one.say(read(one, control)) : ""));
      const element = field(one.label, control, one.hint);
      if (said) element.querySelector("label").append(" ", said);
      return element;
    }), h("div.row.submit", {}, save, undo));
    adapt();
  };
  const wanted = () => Object.fromEntries(Object.entries(controls).map(([name, control]) => [name, read(FIELDS[name], control)]));
  // A PUT replaces the whole configuration, so members that are not in the form are sent unchanged. A topic keeps its
  // search configuration if none is sent.
  const complete = () => {
    const next = { ...config, ...wanted() };
    delete next.durable;
    delete next.search;
    return next;
  };
  const changes = () => Object.entries(wanted()).filter(([name, value]) => value !== config[name]);
  const adapt = () => {
    const changed = changes();
    save.disabled = Boolean(allowed.disabled) || !changed.length;
    undo.hidden = !changed.length;
    save.textContent = changed.length ? `Save ${plural(changed.length, "change")}` : "Save";
    const next = complete();
    if (changeable) code.set({
      curl: curl({ path: topicPath(log.name), method: "PUT", json: next }),
      python: python([`client.topic(${literal(log.name)}).configure(`, ...Object.entries(next).map(([name, value]) => `    ${name}=${literal(value)},`), ")"]),
    });
    else code.set({ curl: curl({ path: streamPath(log.name), method: "HEAD" }).replace("-X 'HEAD'", "-I").replace("-X HEAD", "-I"), python: python([`print(client.stream(${literal(log.name)}).head())`]) });
  };
  const save = h("button.primary", { type: "submit", ...allowed }, "Save");
  const undo = h("button", { type: "button", hidden: true, onclick: build }, "Discard changes");
  form.addEventListener("input", adapt);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(async () => {
      const next = complete();
      const answer = await send("PUT", topicPath(log.name), next);
      config = { ...ABSENT, ...answer.config };
      build();
      reload();
      notice("Configuration saved.");
    });
  });

  const show = (one) => replace(state, facts(one));
  show(log);
  build();
  replace(buttons, h("button", { type: "button", onclick: () => removeLog(log), ...(["topic", "queue", "stream"].includes(log.kind) ? needs("delete") : { disabled: true, title: log.note }) }, icon("trash"), "Delete log…"));
  replace(place, h("div.columns.scroll", {}, h("section.card", { "aria-label": "State" }, h("h2", {}, "State"), state), h("section.card", { "aria-label": "Configuration" }, h("h2", {}, "Configuration"), changeable ? null : h("p.pad.muted", {}, `The configuration cannot be changed here: ${log.note}.`), form)));
  return {
    update: (next) => {
      show(next);
      const changed = { ...ABSENT, ...next.config };
      if (!changes().length && JSON.stringify(changed) !== JSON.stringify(config)) {
        config = changed;
        build();
      }
    },
    close: () => {},
  };
}

function makeControl(one, value, allowed) {
  const disabled = allowed.disabled ? { disabled: true, title: allowed.title } : {};
  if (one.kind === "choice") return h("select", disabled, one.options.map((option) => h("option", { value: option, selected: option === value }, option)));
  if (one.kind === "flag") return h("input", { type: "checkbox", checked: Boolean(value), ...disabled });
  if (one.kind === "text") return h("input", { value: value ?? "", placeholder: "none", spellcheck: "false", ...disabled });
  if (one.kind === "duration") return h("input", { required: true, pattern: DURATION, value: durationText(value), spellcheck: "false", autocomplete: "off", ...disabled, title: disabled.title ?? "For example 7d, 12h, 30m, 20s or 500ms" });
  if (one.kind === "maybe") return h("input", { type: "number", value: value ?? "", ...disabled });
  return h("input", { type: "number", min: one.min ?? 0, max: one.max, step: one.step ?? 1, required: true, value: String(value), ...disabled });
}

function read(one, control) {
  if (one.kind === "flag") return control.checked;
  if (one.kind === "number") return Number(control.value);
  if (one.kind === "duration") return parseDuration(control.value);
  if (one.kind === "maybe") return control.value === "" ? null : Number(control.value);
  if (one.kind === "text") return control.value.trim() || null;
  return control.value;
}

function facts(log) {
  const rows = [
    ["Kind", log.kind],
    ["About", log.note],
    ["Writable by", log.writable_by.join(", ") || "no protocol"],
    ["Media type", log.media_type],
    ["Head", count(log.head)],
    ["Earliest", count(log.earliest)],
    ["Floor", count(log.floor)],
    ["Epoch", count(log.epoch)],
    ["Records", count(log.records)],
    ["Size", bytes(log.bytes)],
    ["Profile", log.profile ?? "none"],
    ["Schema", log.schema ? "validates appends" : "none"],
    ["Closed", log.closed ? "yes" : "no"],
    log.expires_at ? ["Expires", absolute(log.expires_at)] : null,
    ["Forked from", log.fork ? [h("a", { href: address("log", log.fork.of) }, log.fork.of), ` up to record ${count(log.fork.through)}`] : "–"],
    ["Forks", count(log.forks)],
  ];
  return rows.filter(Boolean).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)));
}

function removeLog(log) {
  confirm({
    title: `Delete ${log.name}?`,
    text: `This permanently deletes ${plural(log.records, "record")} (${bytes(log.bytes)}) and all routers from and to the log.`,
    action: "Delete log",
    run: async () => {
      const path = log.kind !== "stream" && isTopicName(log.name) ? topicPath(log.name) : streamPath(log.name);
      await send("DELETE", path);
      notice(`${log.name} was deleted.`);
      go("logs");
    },
  });
}
