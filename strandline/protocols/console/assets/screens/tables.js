/** Tables: what is declared, with the number of parents and rows of each. */

import { get } from "../api.js";
import { codeBlock, curl, python, snippet } from "../parts/code.js";
import { heading } from "../parts/heading.js";
import { empty, failure, loading, repeat } from "../parts/states.js";
import { virtualTable } from "../parts/table.js";
import { h, replace } from "../shell/dom.js";
import { ago, bytes, count, duration, plural } from "../shell/format.js";
import { address, go } from "../shell/routes.js";

const REFRESH_MS = 3000;
const DECLARE = `import msgspec
from strandline.tables import make_log

class Vote(msgspec.Struct):
    optionIdx: int
    comment: str = ""

vote = make_log("vote", parent="poll", schema=Vote, soft_delete=True)`;

export function open(root) {
  root.classList.add("fixed");
  const found = h("span.muted", { role: "status" });
  const place = h("div.place", {}, loading());
  const code = codeBlock();
  code.set({
    curl: curl({ path: "/tables" }),
    python: python(['vote = client.table("vote")', 'vote.append("lunch", {"optionIdx": 1})', 'for row in vote.list("lunch"):', "    print(row.id, row.payload)"]),
  });
  const table = virtualTable({
    label: "Tables",
    columns: [
      { title: "Table", width: "20%", cell: (row) => h("a.log-name", { href: address("table", row.name), title: row.name }, row.name) },
      { title: "Rows of", width: "150px", class: "wide-only", cell: (row) => (row.parent_is_table ? h("a", { href: address("table", row.parent), title: `Rows of the table ${row.parent}` }, `each ${row.parent}`) : h("span.muted", {}, `each ${row.parent}`)) },
      { title: "Parents", class: "number", width: "92px", cell: (row) => count(row.parents) },
      { title: "Rows", class: "number", width: "104px", cell: (row) => count(row.rows) },
      { title: "Size", class: "number.wide-only", width: "96px", cell: (row) => bytes(row.bytes) },
      { title: "Schema", class: "number.wide-only", width: "80px", cell: (row) => h("span", { title: `Version ${row.version} of the schema` }, `v${row.version}`) },
      { title: "Options", class: "wide-only", cell: (row) => optionChips(row) },
      { title: "Last write", class: "number", width: "104px", cell: (row) => (row.last_ts ? ago(row.last_ts) : h("span.none", {}, "–")) },
    ],
    onopen: (row) => go("table", row.name),
  });
  table.element.classList.add("openable");
  table.bindKeys();
  let tables = null;
  const ask = async () => {
    ({ tables } = await get("/console/api/tables"));
    found.textContent = plural(tables.length, "table");
    if (!tables.length) return void replace(place, nothing());
    if (!table.element.isConnected) replace(place, table.element);
    table.set(tables);
    return undefined;
  };
  const failed = (error) => tables === null && replace(place, failure(error, () => refresher.now()));
  const refresher = repeat(REFRESH_MS, ask, failed);
  replace(root, heading("Tables", [found]), place, code.element);
  return () => {
    refresher.stop();
    table.close();
  };
}

function nothing() {
  const state = empty("No tables are declared", "A table has typed rows under parents, such as the votes of a poll. Declare it in a Python file, and start the server with the file:", h("a.button", { href: address("logs", "", { kind: "table" }) }, "Logs of earlier tables"));
  state.querySelector("p").after(h("div.declaring", {}, snippet("polls.py", DECLARE), snippet("Shell", "strandline serve --data data --declare polls.py")));
  return state;
}

/** What a table is declared with. */
export function optionChips(table) {
  const limit = table.rate_limit;
  return [
    table.public ? chip(table.public === true ? "public" : `public if ${table.public}`, table.public === true ? "Every caller may read" : `Every caller may read the rows of parents with true in ${table.public}`, "warn") : null,
    table.soft_delete ? chip("trash", "Removed rows can be restored") : null,
    table.feed ? chip("feed", "The rows of all parents can be read together") : null,
    table.search.length ? chip("search", `Searchable: ${table.search.join(", ")}`) : null,
    limit ? chip(`limit ${count(limit.max)} / ${duration(limit.window)}`, `A user may append ${plural(limit.max, "row")} within ${duration(limit.window)}`) : null,
    table.hooks.length ? chip(plural(table.hooks.length, "hook"), table.hooks.map((one) => one.hook).join(", ")) : null,
  ].filter(Boolean).flatMap((one) => [one, " "]);
}

function chip(text, title, kind) {
  return h("span.chip", { title, dataset: kind ? { kind } : {} }, text);
}
