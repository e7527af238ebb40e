/** The readers of a log: consumers, routers, forks. */

import { send } from "../../api.js";
import { chart } from "../../parts/chart.js";
import { curl, literal, python } from "../../parts/code.js";
import { segments } from "../../parts/heading.js";
import { isTopicName, topicPath } from "../../parts/kinds.js";
import { plainTable } from "../../parts/table.js";
import { confirm, field, notice, openDialog } from "../../shell/dialogs.js";
import { h, replace } from "../../shell/dom.js";
import { ago, count, parseMoment, rate, short } from "../../shell/format.js";
import { icon } from "../../shell/icons.js";
import { address } from "../../shell/routes.js";
import { needs } from "../../shell/session.js";

/** A sample every two seconds: half an hour. */
const KEPT = 900;
/** The colours of a chart. */
const MOST_SERIES = 8;

export function openReaders(place, log, { code, reload }) {
  const consumers = h("div");
  const routers = h("div");
  const create = h("button.in-row", { type: "button", onclick: () => seek(log, "", reload), ...(isTopicName(log.name) ? needs("write") : { disabled: true, title: "Only logs with the name of a topic have consumers" }) }, icon("plus"), "New consumer");
  const lag = lagChart();
  const show = (one) => {
    lag.add(one.consumers);
    replace(consumers, one.consumers.length
      ? plainTable("Consumers", [
          { title: "Consumer", cell: (row) => h("b", {}, row.name) },
          { title: "Position", class: "number.wide-only", width: "110px", cell: (row) => count(row.seq) },
          { title: "Lag", class: "number", width: "100px", cell: (row) => (row.lag ? h("span.chip", { dataset: { kind: "warn" } }, count(row.lag)) : "0") },
          { title: "Committed", class: "number.wide-only", width: "110px", cell: (row) => ago(row.moved_at) },
          { title: "Actions", unseen: true, class: "act", width: "104px", cell: (row) => [h("button.quiet.in-row", { type: "button", "aria-label": `Seek consumer ${row.name}`, title: "Move it to another position", onclick: () => seek(one, row.name, reload), ...needs("write") }, "Seek…"), h("button.quiet.only-icon.in-row", { type: "button", "aria-label": `Delete consumer ${row.name}`, onclick: () => forget(one, row, reload), ...needs("delete") }, icon("trash"))] },
        ], one.consumers)
      : h("p.pad.muted", {}, "No consumers. A reader that commits its position appears here with its lag."));
    replace(routers, one.routers.length
      ? plainTable("Routers", [
          { title: "Router", cell: (row) => h("a", { href: address("routers", "", { router: row.name }) }, row.name) },
          { title: "From", class: "wide-only", cell: (row) => h("a", { href: address("log", row.source) }, row.source) },
          { title: "To", cell: (row) => h("a", { href: address("log", row.destination) }, row.destination) },
          { title: "Lag", class: "number", width: "90px", cell: (row) => count(row.lag) },
          { title: "Rate", class: "number.wide-only", width: "90px", cell: (row) => (row.rate === null ? "–" : rate(row.rate)) },
        ], one.routers)
      : h("p.pad.muted", {}, "No router reads from this log or writes to it."));
  };
  if (isTopicName(log.name)) code.set({
    curl: [curl({ path: `${topicPath(log.name)}/consumers` }), curl({ path: `${topicPath(log.name)}/consumers/billing`, method: "PUT", json: { seq: log.head } })].join("\n"),
    python: python([`billing = client.topic(${literal(log.name)}).consumer("billing")`, "for batch in billing.batches(size=100):  # committed when you request the next batch", "    print(len(batch))", "print(billing.position().lag)"]),
  });
  show(log);
  replace(place, h("div.stack.scroll", {}, h("div.columns", {}, h("section.card", { "aria-label": "Consumers" }, h("header", {}, h("h2", {}, "Consumers"), h("span.grow"), create), consumers), h("section.card", { "aria-label": "Routers" }, h("h2", {}, "Routers"), routers)), lag.element));
  return { update: show, close: lag.close };
}

/** The lag of the consumers over time, since the tab was opened. */
function lagChart() {
  const element = h("section.card.lag", { "aria-label": "Lag over time", hidden: true });
  let samples = [];
  let names = [];
  let drawn = null;
  const add = (consumers) => {
    const shown = consumers.slice(0, MOST_SERIES);
    if (shown.map((one) => one.name).join("\n") !== names.join("\n")) {
      names = shown.map((one) => one.name);
      samples = [];
      drawn?.close();
      drawn = names.length ? chart({ title: "Lag, since this tab was opened", series: names.map((label) => ({ label })), format: short, height: Math.max(150, Math.round(innerHeight * 0.34)), level: 2, whole: true }) : null;
      replace(element, drawn?.element);
      element.hidden = !drawn;
    }
    if (!drawn) return;
    samples.push([Date.now() / 1000, ...shown.map((one) => one.lag)]);
    if (samples.length > KEPT) samples.shift();
    drawn.set(samples.map(([at]) => at), names.map((_, index) => samples.map((sample) => sample[index + 1])));
  };
  return { element, add, close: () => drawn?.close() };
}

/** Moves a consumer to a position, or creates one there. @param {string} name empty: a new consumer */
function seek(log, name, done) {
  const named = h("input", { required: true, maxlength: 255, autocomplete: "off", spellcheck: "false", autofocus: true });
  const seq = h("input", { type: "number", min: 0, value: log.head });
  const time = h("input", { value: "-1h", autocomplete: "off", spellcheck: "false" });
  const fields = { seq: field("Sequence number", seq, "The last record that it has processed; 0: none."), time: field("Time", time, "2026-11-15 10:30, 10:30 or -1h. The next record is the first one from this time.") };
  const choose = (to) => Object.entries(fields).forEach(([id, element]) => (element.hidden = id !== to));
  const positions = segments("Position", [["start", "Start"], ["end", "End"], ["time", "Time"], ["seq", "Sequence number"]], "end", (to) => choose((position = to)));
  let position = "end";
  choose(position);
  const target = () => {
    if (position === "seq") return { seq: Number(seq.value) };
    if (position !== "time") return { at: position };
    const moment = parseMoment(time.value);
    if (moment === null) throw new Error(`“${time.value}” is not a time. Enter for example 2026-11-15 10:30, 10:30 or -1h.`);
    return { since_ts: Math.round(moment) };
  };
  openDialog({
    title: name ? `Seek consumer ${name}` : "New consumer",
    body: [name ? null : field("Name", named), h("div.field", {}, h("span", {}, "Position"), positions), Object.values(fields)],
    action: name ? "Seek" : "Create",
    submit: async () => {
      const consumer = name || named.value.trim();
      if (!name && log.consumers.some((one) => one.name === consumer)) throw new Error(`The consumer ${consumer} exists already.`);
      const answer = await send("PUT", `${topicPath(log.name)}/consumers/${encodeURIComponent(consumer)}`, target());
      notice(`Consumer ${consumer} is at ${count(answer.seq)}.`);
      done();
    },
  });
}

function forget(log, row, done) {
  confirm({
    title: `Delete consumer ${row.name}?`,
    text: `Its position (${count(row.seq)}) is lost. If the consumer returns, it starts from the beginning.`,
    action: "Delete",
    run: async () => {
      await send("DELETE", `${topicPath(log.name)}/consumers/${encodeURIComponent(row.name)}`);
      notice(`Consumer ${row.name} was deleted.`);
      done();
    },
  });
}
