/** One table: its parents and its declaration; or, with a parent, the rows of that parent. */

import { get } from "../api.js";
import { codeBlock, curl, literal, python } from "../parts/code.js";
import { heading, stats, tabs } from "../parts/heading.js";
import { failure, liveMark, loading, repeat } from "../parts/states.js";
import { h, replace } from "../shell/dom.js";
import { ago, bytes, count } from "../shell/format.js";
import { icon } from "../shell/icons.js";
import { bind } from "../shell/keys.js";
import { address, go, note } from "../shell/routes.js";
import { openDeclaration } from "./table/declaration.js";
import { openFeed } from "./table/feed.js";
import { openParents } from "./table/parents.js";
import { openRows } from "./table/rows.js";
import { openTrash } from "./table/trash.js";
import { optionChips } from "./tables.js";

const REFRESH_MS = 2000;

export function open(root, params) {
  const { name } = params;
  if (!name) return void go("tables");
  root.classList.add("fixed");
  return params.parent ? openParent(root, name, params) : openTable(root, name, params);
}

function openTable(root, name, params) {
  const views = { parents: openParents, feed: openFeed, declaration: openDeclaration };
  const head = h("div.log-head", { tabindex: "0", role: "group", "aria-label": "Key figures" });
  const title = heading(name, [h("span.beside.row")], []);
  title.prepend(back("tables", "", "All tables"));
  const code = codeBlock();
  const show = (table) => {
    replace(head, stats([
      ["Parents", count(table.parents)],
      ["Rows", count(table.rows)],
      ["Size", bytes(table.bytes)],
      ["Parents are", table.parent_is_table ? h("a", { href: address("table", table.parent) }, `rows of ${table.parent}`) : table.parent],
      ["Schema", `version ${table.version}`],
      ["Durability", table.durability],
      ["Last write", table.last_ts ? ago(table.last_ts) : "never"],
    ]));
    replace(title.querySelector(".beside"), optionChips(table));
  };
  code.set({
    curl: [curl({ path: `/tables/${encodeURIComponent(name)}/schema` }), curl({ path: "/tables/types.ts" })].join("\n"),
    python: python([`table = client.table(${literal(name)})`, 'table.append("lunch", {"…": 1})']),
  });
  return frame(root, {
    title, head, code, views, params,
    options: [["parents", "Parents"], ["feed", "All rows"], ["declaration", "Declaration"]],
    ask: async () => ({ table: await get(`/console/api/table/${encodeURIComponent(name)}`) }),
    show: ({ table }) => show(table),
    keep: (tab, more) => note("table", name, { tab: tab === "parents" ? "" : tab, ...more }),
    leave: () => go("tables"),
  });
}

function openParent(root, name, params) {
  const { parent } = params;
  const path = `/console/api/table/${encodeURIComponent(name)}`;
  const head = h("div.log-head", { tabindex: "0", role: "group", "aria-label": "Key figures" });
  const live = liveMark();
  const buttons = h("div.row");
  const title = heading(parent, [h("a.chip", { href: address("table", name), title: `All parents of the table ${name}` }, name), live.element], [buttons]);
  document.title = `${name}/${parent} · Strandline`;
  title.prepend(back("table", name, `All parents of ${name}`));
  const code = codeBlock();
  const views = { rows: openRows, trash: openTrash };
  let table = null;
  return frame(root, {
    title, head, code, views, params, buttons, live,
    options: [["rows", "Rows"], ["trash", "Trash"]],
    ask: async () => {
      table ??= await get(path);
      return { table, parent: await get(`${path}/parent`, { parent }) };
    },
    show: ({ parent: shown }) => replace(head, stats([
      ["Rows", count(shown.rows)],
      ["Size", bytes(shown.bytes)],
      ["Owner", shown.owner ?? (shown.found ? "none" : `the ${table.parent} does not exist`), shown.found ? undefined : "warn"],
      ["Schema", h("a", { href: address("table", name, { tab: "declaration" }) }, `version ${table.version}`)],
      ["Log", h("a", { href: address("log", shown.log), title: shown.log }, "records")],
      ["Changes", shown.changes_log ? h("a", { href: address("log", shown.changes_log), title: shown.changes_log }, "records") : "none"],
      ["Last row", shown.last_ts ? ago(shown.last_ts) : "never"],
    ])),
    keep: (tab, more) => note("table", name, { parent, tab: tab === "rows" ? "" : tab, ...more }),
    leave: () => go("table", name),
  });
}

/** Tabs over the answer of `ask`, which is refreshed. */
function frame(root, { title, head, code, views, params, options, ask, show, keep, leave, buttons = h("div.row"), live = null }) {
  const place = h("div.tab-panel", { id: "tab-panel", role: "tabpanel" }, loading());
  let tab = Object.hasOwn(views, params.tab ?? "") ? params.tab : options[0][0];
  let panel = null;
  let told = null;
  const openTab = (id, given = {}) => {
    tab = id;
    if (told === null) return;
    panel?.close();
    replace(place);
    replace(buttons);
    place.setAttribute("aria-labelledby", `tab-${id}`);
    keep(id, given === params ? { where: given.where, sort: given.sort, order: given.order, row: given.row, search: given.search } : {});
    panel = views[id](place, told, { code, buttons, options: given, keep: (more) => keep(id, more), reload: () => refresher.now() });
  };
  const bar = tabs("Views of the table", options, tab, (id) => openTab(id));
  const failed = (error) => {
    live?.set(error.status ? "refused" : "waiting");
    if (told !== null && error.status !== 404) return;
    panel?.close();
    panel = null;
    bar.element.hidden = true;
    replace(head);
    replace(buttons);
    replace(place, failure(error, () => location.reload()));
  };
  const refresher = repeat(REFRESH_MS, async (signal) => {
    const answer = await ask();
    if (signal.aborted) return;
    const first = told === null;
    told = answer;
    live?.set("live");
    show(answer);
    if (first) openTab(tab, params);
    else panel?.update?.(answer);
  }, failed);
  bind("u", "Go back", leave);
  options.forEach(([id, words], index) => bind(String(index + 1), words, () => bar.choose(id)));
  replace(root, title, head, bar.element, place, code.element);
  return () => {
    refresher.stop();
    panel?.close();
  };
}

function back(screen, name, words) {
  return h("a.back", { href: address(screen, name), "aria-label": words, title: `${words} (u)` }, icon("back"));
}
