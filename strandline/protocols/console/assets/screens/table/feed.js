/** The rows of all parents of a table, newest first, if the table is declared with a feed. */

import { get } from "../../api.js";
import { jsonLine } from "../../parts/json.js";
import { Pages } from "../../parts/pages.js";
import { empty, failure, loading } from "../../parts/states.js";
import { virtualTable } from "../../parts/table.js";
import { h, replace } from "../../shell/dom.js";
import { ago } from "../../shell/format.js";
import { address, go } from "../../shell/routes.js";
import { payloadOf } from "./fields.js";

export function openFeed(place, first) {
  let { table } = first;
  if (!table.feed) {
    replace(place, empty("This table has no feed", "The rows of all parents are kept in one order if the table is declared with feed=True. The next start adds the rows that it has."));
    return { close: () => {} };
  }
  const list = h("div.list.place", {}, loading());
  const to = (row) => [table.name, { parent: row.parent, row: row.seq }];
  const view = virtualTable({
    label: "All rows",
    columns: [
      { title: "Row", width: "200px", cell: (row) => h("a.log-name", { href: address("table", ...to(row)), title: row.id }, row.id) },
      { title: "Payload", class: "data", cell: (row) => jsonLine(payloadOf(row)) },
      { title: "Author", class: "wide-only", width: "140px", cell: (row) => row.userId ?? h("span.none", { title: "The application itself" }, "–") },
      { title: "Written", class: "number.wide-only", width: "110px", cell: (row) => ago(row.createdAt) },
    ],
    onopen: (row) => go("table", ...to(row)),
  });
  view.element.classList.add("openable");
  view.bindKeys();
  const pages = new Pages((cursor, limit, signal) => get(`/console/api/table/${encodeURIComponent(table.name)}/feed`, { cursor, limit }, signal), draw);
  function draw() {
    if (pages.failed && !pages.items.length) return replace(list, failure(pages.failed, () => pages.reload({ fresh: true })));
    if (!pages.items.length && pages.next === null) return replace(list, empty("No rows yet", "The table has no rows that your API key may see."));
    if (!view.element.isConnected) replace(list, view.element);
    view.set(pages.source);
    return undefined;
  }
  replace(place, list);
  pages.reload({ fresh: true });
  return {
    update: (next) => {
      const grew = next.table.rows !== table.rows || next.table.last_ts !== table.last_ts;
      table = next.table;
      if (grew && pages.isQuick && !pages.loading) pages.reload();
    },
    close: () => {
      pages.close();
      view.close();
    },
  };
}
