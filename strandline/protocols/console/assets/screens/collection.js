/** One collection: its documents, who may do what, and its configuration. */

import { get } from "../api.js";
import { codeBlock, curl, python } from "../parts/code.js";
import { heading, stats, tabs } from "../parts/heading.js";
import { jsonBlock } from "../parts/json.js";
import { Pages } from "../parts/pages.js";
import { empty, failure, loading, repeat } from "../parts/states.js";
import { plainTable, virtualTable } from "../parts/table.js";
import { h, replace } from "../shell/dom.js";
import { ago, bytes, count, duration, plural } from "../shell/format.js";
import { icon } from "../shell/icons.js";
import { bind } from "../shell/keys.js";
import { address, go, note } from "../shell/routes.js";
import { kindWords, meaning, roles } from "./collections.js";

const REFRESH_MS = 3000;
const TABS = [["documents", "Documents"], ["access", "Access and configuration"]];

export function open(root, params) {
  const { name, namespace = "" } = params;
  if (!name) return void go("collections");
  root.classList.add("fixed");
  const head = h("div.log-head", { tabindex: "0", role: "group", "aria-label": "Key figures" });
  const place = h("div.tab-panel", { id: "tab-panel", role: "tabpanel" }, loading());
  const code = codeBlock();
  const open = { documents: openDocuments, access: openAccess };
  let tab = params.tab === "access" ? "access" : "documents";
  let collection = null;
  let panel = null;
  const keep = (more = {}) => note("collection", name, { namespace, tab: tab === "documents" ? "" : tab, ...more });
  const openTab = (id, given = {}) => {
    tab = id;
    if (collection === null) return;
    panel?.close();
    replace(place);
    place.setAttribute("aria-labelledby", `tab-${id}`);
    keep(given);
    panel = open[id](place, collection, { prefix: given.prefix ?? "", keep });
  };
  const bar = tabs("Views of the collection", TABS, tab, (id) => openTab(id));
  const title = heading(name, [h("span.beside.row")]);
  title.prepend(h("a.back", { href: address("collections"), "aria-label": "All collections", title: "All collections (u)" }, icon("back")));
  const show = () => {
    const stored = collection.kind !== "events";
    replace(head, stats([
      ["Documents", stored ? count(collection.documents) : "not stored"],
      [collection.kind === "regular" ? "Versions" : "Elements", stored ? count(collection.records) : "not stored"],
      ["Size", bytes(collection.bytes)],
      ["Path", h("code", {}, collection.path)],
      ["Durability", collection.durability],
      ["Last write", collection.last_ts ? ago(collection.last_ts) : "never"],
    ]));
    replace(title.querySelector(".beside"),
      h("span.chip", {}, { "append-only": "append-only", regular: "regular documents", events: "events only" }[collection.kind]),
      namespace ? h("span.chip", { title: "Namespace" }, namespace) : null,
      collection.encryption === "delegated" ? h("span.chip", { dataset: { kind: "accent" }, title: "Clients encrypt the data; the server stores ciphertext" }, "encrypted by clients") : null);
  };
  const refresher = repeat(REFRESH_MS, async (signal) => {
    const answer = await get("/console/api/collection", { name, namespace });
    if (signal.aborted) return;
    const first = collection === null;
    const grew = !first && (answer.documents !== collection.documents || answer.records !== collection.records);
    collection = answer;
    show();
    if (first) openTab(tab, { prefix: params.prefix });
    else panel?.update?.(grew);
  }, (error) => {
    if (collection !== null && error.status !== 404) return;
    bar.element.hidden = true;
    replace(head);
    replace(place, failure(error, () => location.reload()));
  });
  const prefix = namespace ? `/${namespace}` : "";
  code.set({
    curl: [curl({ path: `${prefix}/pull/…?last=10` }), curl({ path: "/config" })].join("\n"),
    python: python(["me = OwnIdentity(Signer.generate(), KemKey.generate())  # from strandline.signing.keys", `document = client.collections(me).document("…")  # a path of ${name}`, "for element in document.cursor().pull():", "    print(element.ts, element.data)"], ["OwnIdentity"]),
  });
  bind("u", "All collections", () => go("collections"));
  TABS.forEach(([id, words], index) => bind(String(index + 1), words, () => bar.choose(id)));
  replace(root, title, head, bar.element, place, code.element);
  return () => {
    refresher.stop();
    panel?.close();
  };
}

function openDocuments(place, collection, { prefix, keep }) {
  if (collection.kind === "events") {
    replace(place, empty("This collection stores no documents", "Every append becomes a record of a topic instead.", h("a.button", { href: address("log", collection.events) }, `Open ${collection.events}`)));
    return { close: () => {} };
  }
  const { name, namespace } = collection;
  let asked = prefix;
  const start = collection.path.split("{")[0];
  const field = h("input.grow.mono", { type: "search", value: asked, placeholder: `${start}…`, "aria-label": "Documents whose path starts with", autocomplete: "off", spellcheck: "false", dataset: { search: "" } });
  const list = h("div.list.place", {}, loading());
  const status = h("span.muted", { role: "status" });
  const regular = collection.kind === "regular";
  const view = virtualTable({
    label: "Documents",
    columns: [
      { title: "Document", cell: (row) => h("a.log-name", { href: address("document", row.path), title: row.path }, row.path) },
      { title: regular ? "Versions" : "Elements", class: "number", width: "104px", cell: (row) => count(row.records) },
      { title: "Size", class: "number.wide-only", width: "100px", cell: (row) => bytes(row.bytes) },
      { title: "Log", class: "wide-only", width: "90px", cell: (row) => h("a.muted", { href: address("log", row.path) }, "records", h("span.unseen", {}, ` of ${row.path}`)) },
      { title: "Last write", class: "number", width: "110px", cell: (row) => (row.last_ts ? ago(row.last_ts) : h("span.none", {}, "–")) },
    ],
    onopen: (row) => go("document", row.path),
  });
  view.element.classList.add("openable");
  view.bindKeys();
  const pages = new Pages(async (cursor, limit, signal) => {
    const { documents, next } = await get("/console/api/documents", { name, namespace, prefix: asked, after: cursor, limit }, signal);
    return { rows: documents, next };
  }, draw);
  function draw() {
    if (pages.failed && !pages.items.length) return replace(list, failure(pages.failed, () => pages.reload({ fresh: true })));
    status.textContent = asked ? `${plural(pages.items.length, "document")}${pages.next === null ? "" : " so far"}` : "";
    if (!pages.items.length) {
      return replace(list, pages.next !== null ? empty("No document so far", "Other collections have documents with the same beginning.", h("button", { type: "button", onclick: () => pages.more() }, "Look further")) : asked ? empty("No matches", `No document starts with ${asked}. Documents of this collection start with ${start || "any name"}.`) : empty("No documents yet", `A document is created by its first push to /push/${collection.path}.`));
    }
    if (!view.element.isConnected) replace(list, view.element);
    view.set(pages.source);
    return undefined;
  }
  let typing = 0;
  field.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => {
      asked = field.value.trim();
      keep({ prefix: asked });
      view.element.scrollTop = 0;
      pages.reload({ fresh: true });
    }, 150);
  });
  replace(place, h("div.row.toolbar", {}, field, status), list);
  pages.reload({ fresh: true });
  return {
    update: (grew) => grew && pages.reload(),
    close: () => {
      clearTimeout(typing);
      pages.close();
      view.close();
    },
  };
}

function openAccess(place, collection) {
  const { config } = collection;
  const rules = [
    ["Pull and list", collection.read_roles, config.pushOnly ? "Pulls are disabled (push_only)." : config.listable ? "" : "Listing is not enabled (listable)."],
    ["Push", collection.write_roles, config.pullOnly ? "Pushes are disabled (pull_only)." : ""],
  ];
  replace(place, h("div.stack.declared-table", {},
    card("Who may do what", h("div.stack.pad", {},
      config.rootOnly ? h("p.problem", {}, "Only devices whose certificate is signed by their own key have access, whatever the roles.") : null,
      h("dl.facts.rules", {}, rules.map(([action, names, more]) => h("div", {}, h("dt", {}, action), h("dd", {}, roles(names), " ", h("span.muted", {}, [names.map(meaning).join("; "), more].filter(Boolean).join(". ")))))),
      collection.permissions.length ? [h("h3", {}, "Fields"), plainTable("Field permissions", [
        { title: "Field", width: "24%", cell: (one) => h("code", {}, one.field) },
        { title: "Who sees it", cell: (one) => (one.read_roles.length ? roles(one.read_roles) : h("span.muted", {}, "all who may pull")) },
        { title: "Who may send it", cell: (one) => (one.write_roles.length ? roles(one.write_roles) : h("span.muted", {}, "all who may push")) },
      ], collection.permissions)] : null,
      h("p.muted", {}, "Roles apply to the routes of collections. Other protocols and this console show every document that the prefixes of an API key allow."))),
    h("div.columns", {},
      card("Options", h("dl.facts.pad", {}, options(collection).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))))),
      card("Configuration", h("div.pad", {}, jsonBlock(config))))));
  return { close: () => {} };
}

function options({ config, events, kind }) {
  const rules = config.appendOnly ?? {};
  const limit = config.rateLimit;
  const elements = kind === "regular" ? [["Versions kept", count(config.maxVersions ?? 100)]] : [
    ["Author's signature", (rules.requireAuthorSignature ?? true) ? "needed for every element" : "not needed"],
    ["Elements per document", rules.maxItems ? `at most ${count(rules.maxItems)}` : "unlimited"],
    ["Pull", `${(rules.allowFull ?? true) ? "all at once allowed" : "page by page"}${rules.maxPullLimit ? `, at most ${plural(rules.maxPullLimit, "element")}` : ""}`],
  ];
  return [
    ["Documents hold", kindWords(kind)],
    ...elements,
    ["Encryption", config.encryption === "delegated" ? "by the clients" : "none"],
    ["Size of a push", `at most ${bytes(config.maxBodyBytes ?? 65536)}`],
    ["Expires", config.ttlMs ? `${duration(config.ttlMs)} after the last write` : "never"],
    ["Schema", config.objectSchema ? "JSON Schema, see the configuration" : "none"],
    ["Search", config.search?.length ? config.search.join(", ") : "not configured"],
    ["Rate limit", limit ? limited(limit) : "none"],
    ["Queue events", events ? h("a", { href: address("log", events) }, events) : "none"],
    ["Bundle", config.bundle ?? "none"],
    ["Strict", (config.strict ?? true) ? "yes" : "no: as the published servers"],
  ];
}

function limited(limit) {
  const words = (rule) => (rule.maxRequests ? `${count(rule.maxRequests)}${rule.windowMs ? ` per ${duration(rule.windowMs)}` : ""}` : "see the configuration");
  const rules = ["push", "pull", "list"].filter((name) => limit[name]).map((name) => `${name}: ${words(limit[name])}`);
  return rules.length ? rules.join("; ") : `push: ${words(limit)}`;
}

function card(title, content) {
  return h("section.card", { "aria-label": title }, h("h2", {}, title), content);
}
