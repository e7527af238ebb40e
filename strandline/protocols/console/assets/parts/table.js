/**
 * A table of any length that renders only the visible rows. All rows have the same height.
 *
 * Browsers limit the scroll height to about ten million pixels. In taller tables one step of the scroll bar stands for
 * more than one row.
 */

import { h, replace } from "../shell/dom.js";
import { bind } from "../shell/keys.js";

const TALLEST = 8_000_000;
const SPARE = 8;
/** Hides columns with the class "wide-only". */
const NARROW = matchMedia("(max-width: 760px)");

/**
 * @typedef {{title: string, unseen?: boolean, class?: string, width?: string, sort?: string, cell: (row: any, index: number) => any}} Column
 * @typedef {{length: number, row: (index: number) => any, need?: (first: number, last: number) => void}} Source
 * @param {{label: string, columns: Column[], onopen?: (row: any, index: number) => void, rowClass?: (row: any) => string,
 *   onsort?: (sort: string) => void, onscroll?: (first: number, last: number) => void, special?: (row: any) => Node|null}} options
 */
export function virtualTable({ label, columns, onopen, rowClass, onsort, onscroll, special }) {
  const above = h("tr.spacer", { "aria-hidden": "true" }, h("td"));
  const below = h("tr.spacer", { "aria-hidden": "true" }, h("td"));
  const headers = columns.map((column) => heading(column, onsort));
  const body = h("tbody");
  const table = h("table.rows", { "aria-label": label }, h("colgroup", {}, columns.map((column) => h(`col${column.class ? `.${column.class}` : ""}`, { style: column.width ? { width: column.width } : {} }))), h("thead", {}, h("tr", {}, headers)), body);
  const element = h("div.table", { tabindex: "0", role: "group", "aria-label": label }, table);
  /** @type {Source} */
  let source = { length: 0, row: () => undefined };
  let chosen = -1;
  let height = 30;
  let frame = 0;

  const rowsInSight = () => Math.max(1, Math.floor((element.clientHeight - height) / height));
  const total = () => source.length * height;
  const factor = () => {
    const inside = Math.max(1, element.clientHeight - height);
    return total() > TALLEST ? (total() - inside) / (TALLEST - inside) : 1;
  };

  const draw = () => {
    frame = 0;
    height = Number.parseFloat(getComputedStyle(element).getPropertyValue("--row")) || 30;
    const scale = factor();
    const top = element.scrollTop;
    const first = Math.max(0, Math.min(source.length - 1, Math.floor((top * scale) / height)));
    const last = Math.min(source.length, first + rowsInSight() + 2);
    const from = Math.max(0, first - SPARE);
    const to = Math.min(source.length, last + SPARE);
    const shown = Math.min(total(), TALLEST);
    // With a scale, the rows are placed at the scroll position; otherwise at their own position.
    const before = scale === 1 ? from * height : Math.max(0, top - (first - from) * height - ((top * scale) % height));
    above.firstChild.style.height = `${before}px`;
    below.firstChild.style.height = `${Math.max(0, shown - before - (to - from) * height)}px`;
    source.need?.(from, to);
    const rows = [];
    for (let index = from; index < to; index += 1) rows.push(row(index));
    const focused = element.contains(document.activeElement) ? document.activeElement.closest("tr")?.dataset.index : undefined;
    replace(body, above, rows, below);
    if (focused !== undefined) body.querySelector(`tr[data-index="${focused}"] :is(a, button)`)?.focus({ preventScroll: true });
    table.setAttribute("aria-rowcount", String(source.length + 1));
    onscroll?.(first, last);
  };
  /** Makes room for new rows that are not drawn yet, so that the user can scroll to them. */
  const stretch = () => {
    height = Number.parseFloat(getComputedStyle(element).getPropertyValue("--row")) || 30;
    if (!below.isConnected) replace(body, above, below);
    const drawn = body.children.length - 2;
    const before = Number.parseFloat(above.firstChild.style.height) || 0;
    below.firstChild.style.height = `${Math.max(0, Math.min(total(), TALLEST) - before - drawn * height)}px`;
  };
  const schedule = () => {
    frame ||= requestAnimationFrame(draw);
  };

  const row = (index) => {
    const data = source.row(index);
    const attributes = { "aria-rowindex": index + 2, dataset: { index } };
    if (index === chosen) attributes["aria-current"] = "true";
    if (data === undefined) return h("tr.waiting", attributes, columns.map((column) => h(`td${column.class ? `.${column.class}` : ""}`, {}, h("span.bone", {}))));
    const whole = special?.(data);
    if (whole) return h("tr.special", attributes, h("td", { colspan: columns.filter((column) => !NARROW.matches || !column.class?.includes("wide-only")).length }, whole));
    const kind = rowClass?.(data);
    return h(kind ? `tr.${kind}` : "tr", attributes, columns.map((column) => h(`td${column.class ? `.${column.class}` : ""}`, {}, column.cell(data, index))));
  };

  const scrollTo = (index, align = "nearest") => {
    stretch();
    const scale = factor();
    const inside = element.clientHeight - height;
    const at = (index * height) / scale;
    const end = at - inside + height + 1;
    if (align === "end") element.scrollTop = end;
    else if (align === "start") element.scrollTop = at;
    else if (align === "center") element.scrollTop = at - inside / 2;
    else if (element.scrollTop > at) element.scrollTop = at;
    else if (element.scrollTop < end) element.scrollTop = end;
    schedule();
  };
  const choose = (index) => {
    chosen = index;
    schedule();
  };
  const goTo = (index) => {
    if (!source.length) return;
    choose(Math.max(0, Math.min(source.length - 1, index)));
    scrollTo(chosen);
  };
  const move = (step) => goTo(chosen < 0 ? (step > 0 ? 0 : source.length - 1) : chosen + step);
  const openChosen = () => {
    const data = chosen >= 0 ? source.row(chosen) : undefined;
    if (data !== undefined && onopen) onopen(data, chosen);
  };

  body.addEventListener("click", (event) => {
    const found = event.target.closest("tr[data-index]");
    if (!found || !onopen || getSelection()?.toString()) return;
    const link = event.target.closest("a, input, [data-own]");
    if (link) return;
    const index = Number(found.dataset.index);
    const data = source.row(index);
    if (data === undefined) return;
    choose(index);
    onopen(data, index);
  });
  element.addEventListener("scroll", schedule, { passive: true });
  const watch = new ResizeObserver(schedule);
  watch.observe(element);

  return {
    element,
    /** Replaces the rows. */
    set(next) {
      source = Array.isArray(next) ? { length: next.length, row: (index) => next[index] } : next;
      if (chosen >= source.length) chosen = -1;
      schedule();
    },
    refresh: schedule,
    /** Rows were added at the front, or removed (a negative number). Keeps the visible rows in place. */
    shifted(rows) {
      stretch();
      element.scrollTop += (rows * height) / factor();
      if (chosen >= 0) chosen = Math.max(-1, chosen + rows);
    },
    scrollTo,
    choose,
    move,
    get chosen() {
      return chosen;
    },
    atEnd: () => element.scrollTop + element.clientHeight >= element.scrollHeight - height,
    /** Marks the column that the table is sorted by. */
    sorted(sort, order) {
      columns.forEach((column, index) => {
        if (!column.sort) return;
        if (column.sort === sort) headers[index].setAttribute("aria-sort", order === "asc" ? "ascending" : "descending");
        else headers[index].removeAttribute("aria-sort");
      });
    },
    /** Binds j, k, Enter and similar keys to this table. */
    bindKeys() {
      bind("j", "Next row", () => move(1));
      bind("k", "Previous row", () => move(-1));
      bind("ArrowDown", "Next row", () => move(1));
      bind("ArrowUp", "Previous row", () => move(-1));
      bind("Home", "First row", () => goTo(0));
      bind("End", "Last row", () => goTo(source.length - 1));
      if (onopen) bind("Enter", "Open the row", (event) => (event.target.closest("a, button, summary") ? false : openChosen()));
    },
    close() {
      watch.disconnect();
      cancelAnimationFrame(frame);
    },
  };
}

function heading(column, onsort) {
  const what = `th${column.class ? `.${column.class}` : ""}`;
  if (!column.sort) return h(what, { scope: "col" }, column.unseen ? h("span.unseen", {}, column.title) : column.title);
  return h(what, { scope: "col" }, h("button.sort", { type: "button", onclick: () => onsort(column.sort) }, column.title));
}

/** A small table that renders all rows. */
export function plainTable(label, columns, rows, { rowClass } = {}) {
  return h(
    "div.table.short",
    { tabindex: "0", role: "group", "aria-label": label },
    h("table.rows", { "aria-label": label }, h("colgroup", {}, columns.map((column) => h(`col${column.class ? `.${column.class}` : ""}`, { style: column.width ? { width: column.width } : {} }))),
      h("thead", {}, h("tr", {}, columns.map((column) => heading(column)))),
      h("tbody", {}, rows.map((row, index) => {
        const kind = rowClass?.(row);
        return h(kind ? `tr.${kind}` : "tr", {}, columns.map((column) => h(`td${column.class ? `.${column.class}` : ""}`, {}, column.cell(row, index))));
      }))),
  );
}
