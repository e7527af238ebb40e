/** The readers of a log: consumers, routers, forks. */

import { send } from "../../api.js";
import { curl, literal, python } from "../../parts/code.js";
import { isTopicName, topicPath } from "../../parts/kinds.js";
import { plainTable } from "../../parts/table.js";
import { confirm, notice } from "../../shell/dialogs.js";
import { h, replace } from "../../shell/dom.js";
import { ago, count, rate } from "../../shell/format.js";
import { icon } from "../../shell/icons.js";
import { address } from "../../shell/routes.js";
import { needs } from "../../shell/session.js";

export function openReaders(place, log, { code, reload }) {
  const consumers = h("div");
  const routers = h("div");
  const show = (one) => {
    replace(consumers, one.consumers.length
      ? plainTable("Consumers", [
          { title: "Consumer", cell: (row) => h("b", {}, row.name) },
          { title: "Position", class: "number", width: "110px", cell: (row) => count(row.seq) },
          { title: "Lag", class: "number", width: "100px", cell: (row) => (row.lag ? h("span.chip", { dataset: { kind: "warn" } }, count(row.lag)) : "0") },
          { title: "Committed", class: "number.wide-only", width: "110px", cell: (row) => ago(row.moved_at) },
          { title: "Actions", unseen: true, class: "act", width: "44px", cell: (row) => h("button.quiet.only-icon.in-row", { type: "button", "aria-label": `Delete consumer ${row.name}`, onclick: () => forget(one, row, reload), ...needs("delete") }, icon("trash")) },
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
  replace(place, h("div.columns.scroll", {}, h("section.card", { "aria-label": "Consumers" }, h("h2", {}, "Consumers"), consumers), h("section.card", { "aria-label": "Routers" }, h("h2", {}, "Routers"), routers)));
  return { update: show, close: () => {} };
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
