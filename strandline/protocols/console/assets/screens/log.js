/** One log: its records, live or from any position; its keys, configuration, schema and readers. */

import { get } from "../api.js";
import { codeBlock } from "../parts/code.js";
import { heading, stats, tabs } from "../parts/heading.js";
import { kindChip } from "../parts/kinds.js";
import { failure, loading, repeat } from "../parts/states.js";
import { h, replace } from "../shell/dom.js";
import { ago, bytes, count, rate, short } from "../shell/format.js";
import { icon } from "../shell/icons.js";
import { bind } from "../shell/keys.js";
import { address, go, note } from "../shell/routes.js";
import { openConfig } from "./log/config.js";
import { openFilter } from "./log/filter.js";
import { openKeys } from "./log/keys.js";
import { openReaders } from "./log/readers.js";
import { openRecords } from "./log/records.js";
import { openSchema } from "./log/schema.js";

const REFRESH_MS = 2000;
const TABS = [["records", "Records"], ["filter", "Filter"], ["keys", "Keys"], ["config", "Configuration"], ["schema", "Schema"], ["readers", "Readers and routers"]];
const OPEN = { records: openRecords, filter: openFilter, keys: openKeys, config: openConfig, schema: openSchema, readers: openReaders };

export function open(root, params) {
  const { name } = params;
  if (!name) return void go("logs");
  root.classList.add("fixed");
  const head = h("div.log-head", { tabindex: "0", role: "group", "aria-label": "Key figures" });
  const place = h("div.tab-panel", { id: "tab-panel", role: "tabpanel" }, loading());
  const code = codeBlock();
  const buttons = h("div.row", {});
  let tab = params.where ? "filter" : Object.hasOwn(OPEN, params.tab ?? "") ? params.tab : "records";
  let log = null;
  let panel = null;

  const openTab = (id, options = {}) => {
    tab = id;
    if (log === null) return;
    panel?.close();
    note("log", name, { tab: id === "records" ? "" : id });
    replace(place);
    replace(buttons);
    place.setAttribute("aria-labelledby", `tab-${id}`);
    panel = OPEN[id](place, log, { code, buttons, options, toTab: (next, given) => bar.choose(next, given), reload: () => refresher.now() });
  };
  const bar = tabs("Views of the log", TABS, tab, (id) => openTab(id));
  bar.choose = ((choose) => (id, given) => {
    choose(id);
    if (given) openTab(id, given);
  })(bar.choose);

  const ask = async (signal) => {
    const answer = await get(`/console/api/log/${encodeURIComponent(name)}`);
    if (signal.aborted) return;
    const first = log === null;
    log = answer;
    replace(head, figures(log));
    if (first) {
      replace(title.querySelector(".beside"), kindChip(log.kind), owned(log), log.closed ? h("span.chip", { dataset: { kind: "warn" } }, "closed") : null);
      openTab(tab, params);
    } else panel?.update?.(log);
  };
  const failed = (error) => {
    if (log !== null && error.status !== 404) return;
    refresher.stop();
    panel?.close();
    panel = null;
    bar.element.hidden = true;
    replace(head);
    replace(buttons);
    const text = error.status === 404 ? `The log “${name}” does not exist. It was deleted, or nothing has been written to it yet.` : error.message;
    replace(place, failure({ status: error.status, message: text }, () => location.reload()));
  };
  const refresher = repeat(REFRESH_MS, ask, failed);

  const title = heading(name, [h("span.beside.row")], [buttons]);
  title.prepend(h("a.back", { href: address("logs"), "aria-label": "All logs", title: "All logs (u)" }, icon("back")));
  bind("u", "All logs", () => go("logs"));
  TABS.forEach(([id, words], index) => bind(String(index + 1), words, () => bar.choose(id)));
  replace(root, title, head, bar.element, place, code.element);
  return () => {
    refresher.stop();
    panel?.close();
  };
}

/** The link to the table or the collection that the log belongs to. */
function owned(log) {
  const [, table, parent] = /^([^/~]+)\/(.+)$/.exec(log.name) ?? [];
  if (log.kind === "table" && parent) return h("a.chip", { href: address("table", table, { parent }) }, "rows");
  return log.kind === "collection" ? h("a.chip", { href: address("document", log.name) }, "document") : null;
}

function figures(log) {
  return stats([
    ["Records", count(log.records)],
    ["Size", bytes(log.bytes)],
    ["Rate", rate(log.rate)],
    ["Sequence numbers", log.head ? `${count(log.earliest)} – ${count(log.head)}` : "none"],
    ["Durability", log.durability],
    ["Lag", log.lag === null ? "–" : short(log.lag), log.lag ? "warn" : undefined],
    ["Last write", log.last_ts ? ago(log.last_ts) : "never"],
  ]);
}
