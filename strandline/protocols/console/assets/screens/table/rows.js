/** The rows of a parent, with the fields of the schema as columns, and one row with its history. */

import { get } from "../../api.js";
import { curl, literal, python } from "../../parts/code.js";
import { Pages } from "../../parts/pages.js";
import { empty, failure, loading } from "../../parts/states.js";
import { virtualTable } from "../../parts/table.js";
import { notice, openDialog } from "../../shell/dialogs.js";
import { h, replace } from "../../shell/dom.js";
import { ago, count, plural } from "../../shell/format.js";
import { icon } from "../../shell/icons.js";
import { bind } from "../../shell/keys.js";
import { needs } from "../../shell/session.js";
import { jsonLine } from "../../parts/json.js";
import { actingField } from "./acting.js";
import { addRow, editRow, removeAll, removeRow } from "./changing.js";
import { fieldsOf, payloadOf, shownValue } from "./fields.js";
import { rowView } from "./row.js";

/** Further fields are shown with their row. */
const COLUMNS = 12;
const WIDTHS = { number: 104, boolean: 104, choice: 120, text: 190, json: 220 };
const NARROW = matchMedia("(max-width: 760px)");

export function openRows(place, first, { code, buttons, options, keep, reload }) {
  let told = first;
  const { table } = first;
  const { parent } = first.parent;
  const path = `/console/api/table/${encodeURIComponent(table.name)}`;
  const asked = { where: options.where ?? "", sort: options.sort ?? "seq", order: options.order === "asc" ? "asc" : "desc" };
  let shown = null;
  const fields = fieldsOf(table.schema);
  const columns = fields.slice(0, COLUMNS);

  const where = h("input.grow.mono", { type: "search", value: asked.where, placeholder: filterExample(columns), "aria-label": "Filter rows", title: "As in the tab Filter of a log: .field = value, a word, /an expression/, and, or, not", autocomplete: "off", spellcheck: "false", dataset: { search: "" } });
  const goTo = h("input.go-to.short", { placeholder: "Go to row", "aria-label": "Go to a row", title: "The number of the row", autocomplete: "off", spellcheck: "false", inputmode: "numeric" });
  const status = h("span.muted", { role: "status" });
  const stale = h("button", { type: "button", hidden: true, title: "Rows were added, changed or removed", onclick: () => pages.reload() }, icon("redrive"), "Show changes");
  const list = h("div.list.place", {}, loading());
  const panel = h("div.detail", { hidden: true });
  const add = h("button.primary", { type: "button", onclick: () => addRow(table, parent, changed), ...needs("write") }, icon("plus"), "New row");
  const clear = h("button", { type: "button", onclick: () => removeAll(table, parent, told.parent.owner, changed), ...needs("delete") }, icon("trash"), "Remove all…");

  const view = virtualTable({
    label: "Rows",
    columns: [
      { title: "Row", sort: "seq", class: "seq", width: "76px", cell: (row) => h("button.link", { type: "button", title: row.id }, count(row.seq)) },
      ...(columns.length
        ? columns.map((one, index) => ({ title: one.name, sort: one.name, class: [one.kind === "number" ? "number" : "", index > 1 ? "wide-only" : ""].filter(Boolean).join("."), width: index === widest(columns) ? undefined : `${WIDTHS[one.kind]}px`, cell: (row) => shownValue(row[one.name]) }))
        : [{ title: "Payload", class: "data", cell: (row) => jsonLine(payloadOf(row)) }]),
      { title: "Author", sort: "userId", class: "wide-only", width: "130px", cell: (row) => (row.userId === null ? h("span.none", { title: "The application itself" }, "–") : h("span", { title: row.userId }, row.userId)) },
      { title: "Written", class: "number.wide-only", width: "104px", cell: (row) => ago(row.createdAt) },
      { title: "Edited", class: "number.wide-only", width: "104px", cell: (row) => (row.updatedAt === row.createdAt ? h("span.none", {}, "–") : ago(row.updatedAt)) },
    ],
    onopen: (row, index) => show(row, index),
    onsort: (sort) => {
      Object.assign(asked, { sort, order: asked.sort === sort ? (asked.order === "asc" ? "desc" : "asc") : sort === "seq" ? "desc" : "asc" });
      restart();
    },
  });
  view.element.classList.add("openable");
  const width = columns.reduce((sum, one) => sum + WIDTHS[one.kind], 420);
  if (!NARROW.matches) view.element.querySelector("table").style.setProperty("min-width", `${width}px`);

  const pages = new Pages(
    async (cursor, limit, signal) => get(`${path}/rows`, { parent, ...asked, cursor, limit }, signal),
    draw,
  );

  function draw() {
    stale.hidden = true;
    if (pages.failed && !pages.items.length) {
      status.textContent = "";
      return replace(list, failure(pages.failed, () => restart()));
    }
    if (pages.failed) notice(pages.failed.message, "bad");
    tell();
    if (!pages.items.length && pages.next === null) {
      return replace(list, asked.where ? empty("No matches", "No row matches the filter.") : nothing());
    }
    if (!pages.items.length) {
      return replace(list, empty("No matches so far", "The rows that were examined do not match the filter.", h("button", { type: "button", onclick: () => pages.more() }, "Look further")));
    }
    if (!view.element.isConnected) replace(list, view.element);
    view.set(pages.source);
    if (shown) view.choose(pages.items.findIndex((row) => row.id === shown.id));
    view.sorted(asked.sort, asked.order);
    return undefined;
  }
  function nothing() {
    const { found } = told.parent;
    return empty("No rows", found ? "All rows were removed, or none was appended yet." : `The ${table.parent} ${parent} does not exist, so no one can append rows.`, found ? h("button", { type: "button", onclick: () => addRow(table, parent, changed), ...needs("write") }, icon("plus"), "New row") : null);
  }
  function tell() {
    const loaded = pages.items.length;
    status.textContent = asked.where ? `${plural(loaded, "match", "matches")}${pages.next === null ? "" : " so far"}` : pages.isFull ? `the first ${count(loaded)} are shown; filter to see others` : "";
    code.set({
      curl: [
        curl({ path: `/tables/${encodeURIComponent(table.name)}/auth/list?parent=${encodeURIComponent(parent)}` }),
        ...(asked.where ? [`# the filter\n${curl({ path: `${path}/rows?${new URLSearchParams({ parent, where: asked.where })}` })}`] : []),
        `# follow changes\n${curl({ path: `/tables/${encodeURIComponent(table.name)}/auth/live?parent=${encodeURIComponent(parent)}`, follow: true })}`,
      ].join("\n"),
      python: python([`table = client.table(${literal(table.name)})`, `for row in table.list(${literal(parent)}):`, "    print(row.id, row.user, row.payload)", ...(shown ? ["", `for edit in table.history(${literal(shown.id)}):`, "    print(edit.at, edit.user, edit.previous)"] : [])]),
    });
  }

  async function show(row, index = -1) {
    shown = row;
    view.choose(index);
    const answer = await get(`${path}/row`, { id: row.id }).catch((error) => ({ error }));
    if (shown !== row) return;
    if (answer.error) {
      notice(answer.error.message, "bad");
      return void hide();
    }
    const acts = {
      onedit: () => editRow(table, answer.row, told.parent.owner, changed),
      onremove: () => removeRow(table, answer.row, told.parent.owner, () => (hide(), changed())),
      log: told.parent.log,
    };
    keepState();
    tell();
    if (NARROW.matches) {
      if (document.querySelector("dialog[open]")) return;
      const leave = (act) => () => (dialog.close(), act());
      const { dialog, closed } = openDialog({ title: `Row ${row.id}`, body: [rowView(answer, { ...acts, onedit: leave(acts.onedit), onremove: leave(acts.onremove) })], wide: true });
      closed.then(() => shown === row && hide());
      return;
    }
    panel.hidden = false;
    const scrolled = panel.firstChild?.scrollTop ?? 0;
    replace(panel, rowView(answer, { ...acts, onclose: hide }));
    panel.firstChild.scrollTop = scrolled;
  }
  function hide() {
    shown = null;
    panel.hidden = true;
    replace(panel);
    view.choose(-1);
    keepState();
  }
  function keepState() {
    const plain = asked.sort === "seq" && asked.order === "desc";
    keep({ where: asked.where, sort: plain ? "" : asked.sort, order: plain ? "" : asked.order, row: shown ? shown.seq : "" });
  }
  function restart() {
    view.element.scrollTop = 0;
    view.choose(-1);
    if (!pages.items.length) replace(list, loading());
    keepState();
    pages.reload({ fresh: true });
  }
  /** A change by this page. */
  function changed(id) {
    reload();
    pages.reload();
    if (typeof id === "string" && (shown?.id === id || shown === null)) openById(id);
    else if (shown) openById(shown.id);
  }
  function openById(id) {
    const index = pages.items.findIndex((row) => row.id === id);
    return show(index < 0 ? { id, seq: Number(id.slice(id.lastIndexOf(":") + 1)) } : pages.items[index], index);
  }

  const form = h("form.row.toolbar", { role: "search" }, where, h("button.primary", { type: "submit" }, "Filter"), status, stale, goTo, actingField());
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const words = goTo.value.trim();
    if (document.activeElement === goTo && words) {
      const seq = words.slice(words.lastIndexOf(":") + 1).replace(/[\u202f\s,]/g, "");
      if (/^[1-9]\d*$/.test(seq)) openById(`${parent}:${seq}`);
      else notice("Enter the number of a row, for example 7.", "bad");
      return;
    }
    asked.where = where.value.trim();
    restart();
  });
  where.addEventListener("search", () => where.value === "" && asked.where && ((asked.where = ""), restart()));

  replace(buttons, clear, add);
  replace(place, form, h("div.with-detail", {}, list, panel));
  view.bindKeys();
  bind("n", "New row", () => add.disabled || add.click());
  bind("e", "Edit the row", () => panel.querySelector("[data-act=edit]")?.click());
  bind("d", "Remove the row", () => panel.querySelector("[data-act=remove]")?.click());
  bind("s", "Go to a row", () => goTo.focus());
  bind("Escape", "Close the row", () => hide());
  pages.reload({ fresh: true });
  if (/^\d+$/.test(options.row ?? "")) openById(`${parent}:${options.row}`);
  return {
    update: (next) => {
      const before = told.parent.revision;
      told = next;
      if (before === next.parent.revision) return;
      if (pages.isQuick && !pages.loading) pages.reload();
      else stale.hidden = false;
      if (shown && !panel.hidden) openById(shown.id);
    },
    close: () => {
      pages.close();
      view.close();
    },
  };
}

/** The column that takes the remaining width: the first text, or the last column. */
function widest(columns) {
  const text = columns.findLastIndex((one) => one.kind === "text" || one.kind === "json");
  return text < 0 ? columns.length - 1 : text;
}

function filterExample(columns) {
  const [one] = columns;
  if (!one) return ".userId = ann";
  return one.kind === "number" ? `.${one.name} > 1 and .userId = ann` : `.${one.name} = … and .userId = ann`;
}
