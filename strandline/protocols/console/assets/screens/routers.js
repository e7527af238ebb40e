/** Routers: a graph of logs and routers, with rates and lag. */

import { get, send } from "../api.js";
import { codeBlock, curl, literal, python } from "../parts/code.js";
import { fitting, layout } from "../parts/graph.js";
import { heading } from "../parts/heading.js";
import { empty, failure, liveMark, loading, repeat } from "../parts/states.js";
import { virtualTable } from "../parts/table.js";
import { confirm, field, notice, openDialog } from "../shell/dialogs.js";
import { h, replace, s } from "../shell/dom.js";
import { count, plural, rate, short } from "../shell/format.js";
import { icon } from "../shell/icons.js";
import { bind } from "../shell/keys.js";
import { address } from "../shell/routes.js";
import { needs } from "../shell/session.js";

const REFRESH_MS = 2000;
/** The maximum number of routers in the graph; more would not be readable. */
const DRAWN = 150;
const MARGIN = 12;

export function open(root, params) {
  root.classList.add("fixed");
  const live = liveMark();
  const found = h("span.muted", {});
  const search = h("input.grow", { type: "search", placeholder: "Search by router or log", "aria-label": "Search by router or log", value: params.router ?? "", dataset: { search: "" }, spellcheck: "false", autocomplete: "off" });
  const picture = h("div.graph", { tabindex: "0", role: "group", "aria-label": "Graph of routers" });
  const place = h("div.place.routers", {}, loading());
  const code = codeBlock();
  const add = h("button.primary", { type: "button", onclick: () => create(() => refresher.now()), ...needs("admin") }, icon("plus"), "New router");
  code.set({
    curl: [curl({ path: "/v0/routers" }), curl({ path: "/v0/routers/orders-%3Eann", method: "PUT", json: { source: "orders", dest: "orders:ann", filter: "customer:ann*" } })].join("\n"),
    python: python(['client.router("orders->ann").configure("orders", "orders:ann", filter="customer:ann*")', "for router in client.routers():", "    print(router.source, router.dest)"]),
  });
  let routers = null;
  let drawn = "";
  const table = virtualTable({
    label: "Routers",
    columns: [
      { title: "Router", cell: (row) => h("b", { title: row.name }, row.name) },
      { title: "From", class: "wide-only", cell: (row) => h("a", { href: address("log", row.source) }, row.source) },
      { title: "To", cell: (row) => h("a", { href: address("log", row.destination) }, row.destination) },
      { title: "Filter", class: "wide-only", width: "13%", cell: (row) => filterText(row.filter) ?? h("span.none", {}, "all records") },
      { title: "Forwarded", class: "number.wide-only", width: "110px", cell: (row) => count(row.forwarded) },
      { title: "Rate", class: "number.wide-only", width: "90px", cell: (row) => (row.rate ? rate(row.rate) : h("span.none", {}, "–")) },
      { title: "Lag", class: "number", width: "86px", cell: (row) => (row.paused ? h("span.chip", { dataset: { kind: "bad" }, title: "The destination refuses records: it is full, closed, or has a schema" }, "paused") : row.lag ? h("span.chip", { dataset: { kind: "warn" } }, short(row.lag)) : "0") },
      { title: "Actions", unseen: true, class: "act", width: "44px", cell: (row) => h("button.quiet.only-icon.in-row", { type: "button", "aria-label": `Delete router ${row.name}`, title: "Delete", onclick: () => remove(row, () => refresher.now()), ...needs("delete") }, icon("trash")) },
    ],
  });
  table.bindKeys();
  const show = () => {
    const words = search.value.trim().toLowerCase();
    const rows = routers.filter((row) => [row.name, row.source, row.destination].some((name) => name.toLowerCase().includes(words)));
    if (!rows.length) return void replace(place, words ? empty("No matches", "No router, source or destination matches this search.") : empty("No routers yet", "A router copies each new record of one log into another log, exactly once. A filter can limit it to some keys."));
    if (!table.element.isConnected) replace(place, picture, table.element);
    table.set(rows);
    const now = JSON.stringify(rows);
    if (now === drawn) return undefined;
    drawn = now;
    const left = [picture.scrollLeft, picture.scrollTop];
    replace(picture, draw(rows.slice(0, DRAWN)), rows.length > DRAWN ? h("p.pad.muted", {}, `The graph shows the first ${DRAWN} of ${count(rows.length)} routers. Search to see others.`) : null);
    [picture.scrollLeft, picture.scrollTop] = left;
    return undefined;
  };
  search.addEventListener("input", () => routers && show());
  const ask = async () => {
    routers = (await get("/console/api/routers")).routers;
    found.textContent = plural(routers.length, "router");
    live.set("live");
    show();
  };
  const failed = (error) => {
    live.set(error.status ? "refused" : "waiting");
    if (!routers) replace(place, failure(error, () => refresher.now()));
  };
  const refresher = repeat(REFRESH_MS, ask, failed);
  bind("n", "New router", () => add.disabled || add.click());
  replace(root, heading("Routers", [live.element, found], [add]), h("div.row.toolbar", {}, search), place, code.element);
  return () => {
    refresher.stop();
    table.close();
  };
}

function draw(rows) {
  const { width, height, nodes, edges } = layout(rows);
  const arrow = s("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" }, s("path.arrow", { d: "M0 0.500 8 4 0 7.500z" }));
  // Edges that go backwards run below the nodes.
  const below = edges.some((edge) => edge.back) ? 24 : 0;
  const busiest = Math.max(1, ...rows.map((row) => row.rate ?? 0));
  return s(
    "svg",
    { width: width + 2 * MARGIN, height: height + 2 * MARGIN + below, viewBox: `${-MARGIN} ${-MARGIN} ${width + 2 * MARGIN} ${height + 2 * MARGIN + below}`, role: "group", "aria-label": `${plural(rows.length, "router")} between ${plural(nodes.length, "log")}` },
    s("defs", {}, arrow),
    edges.map((edge) => drawEdge(edge, busiest)),
    nodes.map(drawNode),
  );
}

function drawEdge({ edge: router, from, to, back }, busiest) {
  const [x1, y1] = back ? [from.x + from.width / 2, from.y + from.height] : [from.x + from.width, from.y + from.height / 2];
  const [x2, y2] = back ? [to.x + to.width / 2, to.y + to.height] : [to.x, to.y + to.height / 2];
  const bend = Math.max(50, (x2 - x1) / 2);
  const low = Math.max(y1, y2) + 34;
  const path = back ? `M${x1} ${y1} C${x1} ${low} ${x2} ${low} ${x2} ${y2 + 2}` : `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2 - 2} ${y2}`;
  const state = router.paused ? "paused" : router.lag ? "lagging" : router.rate ? "moving" : "still";
  const label = router.paused ? "paused" : [router.rate ? rate(router.rate) : "", router.lag ? `lag ${short(router.lag)}` : ""].filter(Boolean).join(" · ") || filterText(router.filter) || "";
  const middle = [(x1 + x2) / 2, back ? low - 8 : (y1 + y2) / 2];
  return s(
    "g.edge",
    { "data-state": state },
    s("title", {}, `${router.name}: ${router.source} → ${router.destination}${filterText(router.filter) ? `, filter ${filterText(router.filter)}` : ""}, ${count(router.forwarded)} forwarded`),
    s("path", { d: path, "stroke-width": 1.500 + 2 * ((router.rate ?? 0) / busiest), "marker-end": "url(#arrow)" }),
    label ? s("text", { x: middle[0], y: middle[1] + 4, "text-anchor": "middle" }, label) : null,
  );
}

function drawNode({ name, x, y, width, height }) {
  return s("a.node", { href: address("log", name) }, s("title", {}, name), s("rect", { x, y, width, height, rx: 7 }), s("text", { x: x + width / 2, y: y + height / 2 + 4, "text-anchor": "middle" }, fitting(name)));
}

function filterText(filter) {
  if (!filter) return null;
  return filter.key ?? (filter.prefix !== undefined && filter.prefix !== null ? `${filter.prefix}*` : null);
}

function create(done) {
  const source = h("input", { required: true, autocomplete: "off", spellcheck: "false", autofocus: true });
  const dest = h("input", { required: true, autocomplete: "off", spellcheck: "false" });
  const name = h("input", { placeholder: "source->destination", autocomplete: "off", spellcheck: "false" });
  const filter = h("input", { placeholder: "all records", autocomplete: "off", spellcheck: "false" });
  const once = h("input", { type: "checkbox" });
  openDialog({
    title: "New router",
    action: "Create",
    body: [
      h("div.pair", {}, field("From", source), field("To", dest, "created if it does not exist")),
      field("Name", name),
      field("Key filter", filter, "customer:ann, or customer:* for keys with this prefix"),
      h("label.check", {}, once, "Add the source of each record to its copy (exactly_once)"),
    ],
    submit: async () => {
      const called = name.value.trim() || `${source.value.trim()}->${dest.value.trim()}`;
      const body = { source: source.value.trim(), dest: dest.value.trim() };
      if (filter.value.trim()) body.filter = filter.value.trim();
      if (once.checked) body.guarantee = "exactly_once";
      await send("PUT", `/v0/routers/${encodeURIComponent(called)}`, body);
      notice(`${called} was created.`);
      done();
    },
  });
}

function remove(row, done) {
  confirm({
    title: `Delete router ${row.name}?`,
    text: `New records of ${row.source} are no longer copied to ${row.destination}. Existing copies stay.`,
    action: "Delete router",
    run: async () => {
      await send("DELETE", `/v0/routers/${encodeURIComponent(row.name)}`);
      notice(`${row.name} was deleted.`);
      done();
    },
  });
}
