/** What a table is declared with: options, access, hooks, rate limit, and the versions of its schema. */

import { jsonBlock } from "../../parts/json.js";
import { plainTable } from "../../parts/table.js";
import { h, replace } from "../../shell/dom.js";
import { absolute, ago, count, duration, plural } from "../../shell/format.js";
import { address } from "../../shell/routes.js";
import { fieldsOf } from "./fields.js";

const HOOKS = {
  before_append: "before a row is appended; may change or refuse it",
  after_append: "with the append",
  before_update: "before a row is edited; may change or refuse the edit",
  after_update: "with the edit",
  before_rm: "before a row is removed; may refuse it",
  after_rm: "with the removal",
};

export function openDeclaration(place, { table }) {
  replace(place, h("div.stack.declared-table", {},
    h("div.columns", {},
      card("Options", h("dl.facts.pad", {}, options(table).map(([name, value]) => fact(name, value)))),
      card("Access", h("dl.facts.pad", {}, access(table).map(([name, value]) => fact(name, value))))),
    card("Fields", fields(table)),
    card("Hooks", hooks(table)),
    card("Schema", versions(table))));
  return { close: () => {} };
}

function options(table) {
  const limit = table.rate_limit;
  return [
    ["Removed rows", table.soft_delete ? "go to the trash and can be restored" : "are deleted"],
    ["Search", table.search.length ? `in ${table.search.join(", ")}` : "not declared"],
    ["Feed", table.feed ? "the rows of all parents can be read together" : "not declared"],
    ["Rate limit", limit ? `${plural(limit.max, "row")} per user within ${duration(limit.window)}` : "none"],
    ["Durability", table.durability],
  ];
}

function access(table) {
  const owner = table.parent_is_table ? `the author of the ${table.parent}` : "the owner of the parent, if it has one";
  const strong = table.moderators.length ? `${owner}, and users with the role ${table.moderators.join(" or ")}` : owner;
  return [
    ["Append", typeof table.public === "string" ? `every user, if ${table.public} of the ${table.parent} is true; otherwise ${strong}` : "every user"],
    ["Edit, remove a row", `its author, and ${strong}`],
    ["Remove all rows", strong],
    ["Read", `${strong}: all rows; other users: their own`],
    ["Read without a key", table.public === true ? "every caller, all rows" : table.public ? `every caller, if ${table.public} of the ${table.parent} is true` : "no one"],
    ["API keys", "A key with the scope admin does everything. The console shows all rows that the prefixes of your key allow."],
  ];
}

function fields(table) {
  const found = fieldsOf(table.schema);
  if (!found.length) return h("p.pad.muted", {}, "The schema names no fields: rows can have any.");
  return plainTable("Fields", [
    { title: "Field", width: "24%", cell: (one) => h("code", { title: one.name }, one.name) },
    { title: "Type", cell: (one) => (one.kind === "choice" ? one.options.map((each) => JSON.stringify(each)).join(" | ") : one.kind) + (one.nullable ? " or null" : "") },
    { title: "Default", class: "data", cell: (one) => (one.fallback === undefined ? h("span.none", {}, one.required ? "needed" : "–") : JSON.stringify(one.fallback)) },
    { title: "Description", class: "wide-only", cell: (one) => h("span.muted", { title: one.about }, one.about || "–") },
  ], found);
}

function hooks(table) {
  if (!table.hooks.length) return h("p.pad.muted", {}, "No function runs with writes.");
  return plainTable("Hooks", [
    { title: "Hook", width: "24%", cell: (one) => h("code", {}, one.hook) },
    { title: "Runs", cell: (one) => (one.after_commit ? `after the write, when it is durable; its failures are logged` : HOOKS[one.hook]) },
  ], table.hooks);
}

function versions(table) {
  return h("div.pad.stack", {}, [...table.versions].reverse().map((one) =>
    h("details", { open: one.version === table.version }, h("summary", {}, h("b", {}, `Version ${count(one.version)}`), " ", one.version === table.version ? h("span.chip", { dataset: { kind: "good" } }, "current") : null, " ", h("span.muted", { title: absolute(one.at) }, ago(one.at))),
      one.lens ? [h("h3", {}, `Lens from version ${count(one.version - 1)}`), jsonBlock(one.lens.ops ?? one.lens)] : null,
      h("h3", {}, "JSON Schema"), jsonBlock(one.schema))),
    table.parent_is_table ? h("p.muted", {}, "Parents are rows of ", h("a", { href: address("table", table.parent) }, table.parent), ".") : null);
}

function card(title, content) {
  return h("section.card", { "aria-label": title }, h("h2", {}, title), content);
}

function fact(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}
