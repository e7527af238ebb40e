/** Collections: what is configured, with the number of documents of each. */

import { get } from "../api.js";
import { codeBlock, curl, python, snippet } from "../parts/code.js";
import { heading } from "../parts/heading.js";
import { empty, failure, loading, repeat } from "../parts/states.js";
import { virtualTable } from "../parts/table.js";
import { h, replace } from "../shell/dom.js";
import { ago, bytes, count, plural } from "../shell/format.js";
import { address, go } from "../shell/routes.js";

const REFRESH_MS = 3000;
const DECLARE = `[[collections.collection]]
name = "events"
storage_path = "events/{date}"
read_roles = ["public"]
write_roles = ["cap:write:events"]
append_only = true`;

export function open(root) {
  root.classList.add("fixed");
  const found = h("span.muted", { role: "status" });
  const place = h("div.place", {}, loading());
  const code = codeBlock();
  code.set({
    curl: [curl({ path: "/pull/events/2026-11-15?last=10" }), curl({ path: "/push/events/2026-11-15", method: "POST", json: { data: { type: "click" } } })].join("\n"),
    python: python(["me = OwnIdentity(Signer.generate(), KemKey.generate())  # from strandline.signing.keys", 'events = client.collections(me).document("events/2026-11-15")', 'events.append({"type": "click"})'], ["OwnIdentity"]),
  });
  const to = (row) => address("collection", row.name, { namespace: row.namespace });
  const table = virtualTable({
    label: "Collections",
    columns: [
      { title: "Collection", cell: (row) => [h("a.log-name", { href: to(row), title: row.name }, row.name), row.namespace ? h("span.chip", { title: "Namespace" }, row.namespace) : null, row.encryption === "delegated" ? h("span.chip", { title: "Clients encrypt the data; the server stores ciphertext", dataset: { kind: "accent" } }, "encrypted") : null] },
      { title: "Documents hold", class: "wide-only", width: "130px", cell: (row) => kindWords(row.kind) },
      { title: "Path", class: "wide-only", width: "22%", cell: (row) => h("code", { title: row.path }, row.path) },
      { title: "Documents", class: "number", width: "104px", cell: (row) => (row.kind === "events" ? h("span.none", { title: "Elements are not stored" }, "–") : count(row.documents)) },
      { title: "Elements", class: "number", width: "104px", cell: (row) => (row.kind === "events" ? h("span.none", {}, "–") : h("span", { title: row.kind === "regular" ? "Stored versions" : "" }, count(row.records))) },
      { title: "Size", class: "number.wide-only", width: "92px", cell: (row) => bytes(row.bytes) },
      { title: "Write", class: "wide-only", width: "16%", cell: (row) => roles(row.write_roles) },
      { title: "Last write", class: "number.wide-only", width: "104px", cell: (row) => (row.last_ts ? ago(row.last_ts) : h("span.none", {}, "–")) },
    ],
    onopen: (row) => go("collection", row.name, { namespace: row.namespace }),
  });
  table.element.classList.add("openable");
  table.bindKeys();
  let collections = null;
  const ask = async () => {
    ({ collections } = await get("/console/api/collections"));
    found.textContent = plural(collections.length, "collection");
    if (!collections.length) return void replace(place, nothing());
    if (!table.element.isConnected) replace(place, table.element);
    table.set(collections);
    return undefined;
  };
  const failed = (error) => collections === null && replace(place, failure(error, () => refresher.now()));
  const refresher = repeat(REFRESH_MS, ask, failed);
  replace(root, heading("Collections", [found]), place, code.element);
  return () => {
    refresher.stop();
    table.close();
  };
}

function nothing() {
  const state = empty("No collections are configured", "A collection groups documents that their authors can sign and encrypt. Declare it in the settings file, and start the server with the file:", h("a.button", { href: address("logs", "", { kind: "collection" }) }, "Logs of earlier documents"));
  state.querySelector("p").after(h("div.declaring", {}, snippet("strandline.toml", DECLARE), snippet("Shell", "strandline serve --data data --config strandline.toml")));
  return state;
}

/** What the documents of a collection hold. */
export function kindWords(kind) {
  return { "append-only": "elements", regular: "versions", events: "nothing: events" }[kind];
}

/** Roles as chips, each with its meaning. @param {string[]} names */
export function roles(names) {
  if (!names.length) return h("span.none", { title: "No caller" }, "no one");
  return names.flatMap((name) => [h("span.chip", { title: meaning(name), dataset: name === "public" ? { kind: "warn" } : {} }, name), " "]);
}

/** What a role means, in words. */
export function meaning(role) {
  if (role === "public") return "every caller";
  if (role === "self") return "the caller whose identity is the {identity} in the path";
  if (role === "device:root") return "a device whose certificate is signed by its own key";
  const [, op, of] = /^cap:(\w+):(.+)$/.exec(role) ?? [];
  if (op) return `callers with a certificate that allows to ${op} in ${of}`;
  const [, user, collection] = /^delegated:([^:]+):(.+)$/.exec(role) ?? [];
  if (user) return `callers with a certificate of ${user} for ${collection}`;
  return "callers to whom a program gives this role";
}
