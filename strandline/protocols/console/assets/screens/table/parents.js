/** The parents of a table: searched, sorted and paged by the server. */

import { get } from "../../api.js";
import { empty, failure, loading } from "../../parts/states.js";
import { virtualTable } from "../../parts/table.js";
import { notice } from "../../shell/dialogs.js";
import { h, replace } from "../../shell/dom.js";
import { ago, bytes, count, plural } from "../../shell/format.js";
import { address, go } from "../../shell/routes.js";

const PAGE = 100;
const FIRST = { name: "asc", records: "desc", bytes: "desc", last: "desc" };

export function openParents(place, { table }, { options, keep }) {
  const path = `/console/api/table/${encodeURIComponent(table.name)}/parents`;
  const asked = { search: options.search ?? "", sort: Object.hasOwn(FIRST, options.sort ?? "") ? options.sort : "name", order: options.order === "desc" ? "desc" : "asc" };
  const noun = table.parent_is_table ? `row of ${table.parent}` : table.parent;
  let pages = new Map();
  let wanted = new Set([0]);
  let total = null;
  let generation = 0;
  let closed = false;
  const search = h("input.grow", { type: "search", placeholder: `Search by ${noun}`, "aria-label": "Search parents", value: asked.search, dataset: { search: "" }, spellcheck: "false", autocomplete: "off" });
  const goTo = h("input.go-to", { placeholder: "Parent or row", "aria-label": "Go to a parent or a row", title: "main:1, or the id of a row: main:1:7", spellcheck: "false", autocomplete: "off" });
  const found = h("span.muted", { role: "status" });
  const list = h("div.list.place", {}, loading());
  const to = (parent) => address("table", table.name, { parent });
  const shown = virtualTable({
    label: "Parents",
    columns: [
      { title: "Parent", sort: "name", cell: (row) => h("a.log-name", { href: to(row.parent), title: row.parent }, row.parent) },
      { title: "Rows", sort: "records", class: "number", width: "118px", cell: (row) => count(row.rows) },
      { title: "Size", sort: "bytes", class: "number.wide-only", width: "110px", cell: (row) => bytes(row.bytes) },
      { title: "Log", class: "wide-only", width: "34%", cell: (row) => h("a.muted", { href: address("log", row.log), title: row.log }, row.log) },
      { title: "Last row", sort: "last", class: "number", width: "110px", cell: (row) => (row.last_ts ? ago(row.last_ts) : h("span.none", {}, "–")) },
    ],
    onopen: (row) => go("table", table.name, { parent: row.parent }),
    onsort: (sort) => {
      asked.order = asked.sort === sort ? (asked.order === "asc" ? "desc" : "asc") : FIRST[sort];
      asked.sort = sort;
      restart();
    },
  });
  shown.element.classList.add("openable");
  shown.bindKeys();

  const load = async (page) => {
    const number = generation;
    const answer = await get(path, { ...asked, offset: page * PAGE, limit: PAGE });
    if (number !== generation || closed) return;
    pages.set(page, answer.parents);
    total = answer.total;
    found.textContent = plural(total, "parent");
    if (!total) {
      replace(list, asked.search ? empty("No matches", "No parent matches this search.") : empty("No rows yet", `A parent appears here with its first row. Append one with POST /tables/${table.name}/append.`));
      return;
    }
    if (!shown.element.isConnected) replace(list, shown.element);
    shown.set({ length: total, row: (index) => pages.get(Math.floor(index / PAGE))?.[index % PAGE], need });
  };
  const need = (first, last) => {
    wanted = new Set();
    for (let page = Math.floor(first / PAGE); page <= Math.floor(Math.max(first, last - 1) / PAGE); page += 1) {
      wanted.add(page);
      if (pages.has(page)) continue;
      pages.set(page, undefined);
      load(page).catch(() => pages.delete(page));
    }
  };
  const refresh = async () => {
    try {
      for (const page of wanted) await load(page);
    } catch (error) {
      if (error.status === undefined) throw error;
      if (total === null && !closed) replace(list, failure(error, refresh));
    }
  };
  const restart = () => {
    generation += 1;
    pages = new Map();
    wanted = new Set([0]);
    shown.sorted(asked.sort, asked.order);
    shown.choose(-1);
    shown.element.scrollTop = 0;
    keep(asked.sort === "name" && asked.order === "asc" ? { search: asked.search } : asked);
    refresh();
  };
  let typing = 0;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => {
      asked.search = search.value.trim();
      restart();
    }, 150);
  });
  const form = h("form.row", {}, goTo);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const words = goTo.value.trim();
    if (!words) return;
    const row = /^(.+):([1-9][0-9]*)$/.exec(words);
    // "main:1" is a parent, or the first row of "main".
    const { rows } = await get(`/console/api/table/${encodeURIComponent(table.name)}/parent`, { parent: words }).catch(() => ({ rows: 0 }));
    if (rows || !row) {
      if (rows) go("table", table.name, { parent: words });
      else notice(`“${words}” has no rows.`, "bad");
    } else go("table", table.name, { parent: row[1], row: row[2] });
  });
  replace(place, h("div.row.toolbar", {}, search, form, found), list);
  shown.sorted(asked.sort, asked.order);
  refresh();
  return {
    update: refresh,
    close: () => {
      closed = true;
      clearTimeout(typing);
      shown.close();
    },
  };
}
