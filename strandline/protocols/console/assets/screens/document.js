/** One document of a collection: its elements or versions, with their authors. */

import { get } from "../api.js";
import { codeBlock, curl, literal, python } from "../parts/code.js";
import { openComparison } from "../parts/compare.js";
import { heading, stats } from "../parts/heading.js";
import { jsonBlock, jsonLine } from "../parts/json.js";
import { Pages } from "../parts/pages.js";
import { empty, failure, liveMark, loading, repeat } from "../parts/states.js";
import { virtualTable } from "../parts/table.js";
import { attempt, openDialog } from "../shell/dialogs.js";
import { h, replace } from "../shell/dom.js";
import { absolute, ago, bytes, count } from "../shell/format.js";
import { icon } from "../shell/icons.js";
import { bind } from "../shell/keys.js";
import { address, go, note } from "../shell/routes.js";

const REFRESH_MS = 2000;
const NARROW = matchMedia("(max-width: 760px)");
const SIGNATURES = {
  valid: ["good", "signed", "The signature of the author fits the data and the path."],
  invalid: ["bad", "invalid signature", "The stored signature does not fit the data and the path: do not trust the author."],
  none: [null, "not signed", "The element has no signature of an author."],
};

export function open(root, params) {
  const { name } = params;
  if (!name) return void go("collections");
  root.classList.add("fixed");
  const path = `/console/api/document/${encodeURIComponent(name)}`;
  const live = liveMark();
  const head = h("div.log-head", { tabindex: "0", role: "group", "aria-label": "Key figures" });
  const list = h("div.list.place", {}, loading());
  const panel = h("div.detail", { hidden: true });
  const code = codeBlock();
  const back = h("a.back", { href: address("collections"), "aria-label": "All documents", title: "All documents (u)" }, icon("back"));
  const title = heading(name, [h("span.beside.row"), live.element], [h("a.button", { href: address("log", name) }, "Open as log")]);
  title.prepend(back);
  let told = null;
  let shown = null;
  const regular = () => told?.kind === "regular";
  const noun = () => (regular() ? "Version" : "Element");

  const view = virtualTable({
    label: "Elements",
    columns: [
      { title: "Seq", class: "seq", width: "76px", cell: (row) => h("button.link", { type: "button" }, count(row.seq)) },
      { title: "Time", class: "wide-only", width: "206px", cell: (row) => h("span.muted.mono", { title: String(row.ts) }, absolute(row.ts)) },
      { title: "Author", class: "wide-only", width: "260px", cell: (row) => authorCell(row) },
      { title: "Data", class: "data", cell: (row) => [row.seq === told.head && regular() ? h("span.chip.current-version", { dataset: { kind: "good" } }, "current") : null, row.encrypted_bytes === undefined ? jsonLine(row.data) : sealed(row)] },
    ],
    onopen: (row, index) => show(row, index),
  });
  view.element.classList.add("openable");
  view.bindKeys();
  const pages = new Pages(async (cursor, limit, signal) => {
    const { elements, next } = await get(`${path}/elements`, { before: cursor, limit: Math.min(limit, 200) }, signal);
    return { rows: elements, next };
  }, draw, 50);

  function draw() {
    if (pages.failed && !pages.items.length) return replace(list, failure(pages.failed, () => pages.reload({ fresh: true })));
    if (!pages.items.length) return replace(list, empty("Empty", "The document has no elements."));
    if (!view.element.isConnected) replace(list, view.element);
    view.set(pages.source);
    if (wanted) {
      const index = pages.items.findIndex((row) => row.seq === wanted);
      if (index >= 0) show(pages.items[index], index);
      wanted = 0;
    }
    return undefined;
  }
  let wanted = Number(params.seq) || 0;

  function show(row, index) {
    shown = row;
    view.choose(index);
    note("document", name, { seq: row.seq });
    const oncompare = () => attempt(() => openComparison(name, row));
    if (NARROW.matches) {
      const { dialog } = openDialog({ title: `${noun()} ${count(row.seq)}`, body: [elementView(row, { noun: noun(), name, oncompare: () => (dialog.close(), oncompare()) })], wide: true });
      return;
    }
    panel.hidden = false;
    replace(panel, elementView(row, { noun: noun(), name, oncompare, onclose: hide }));
  }
  function hide() {
    shown = null;
    panel.hidden = true;
    replace(panel);
    view.choose(-1);
    note("document", name, {});
  }
  const describe = () => {
    const [own] = told.served_by;
    const up = own ? [own.name, { namespace: own.namespace }] : null;
    back.href = up ? address("collection", ...up) : address("collections");
    document.title = `${name} · Strandline`;
    replace(title.querySelector(".beside"),
      told.served_by.map((one) => h("a.chip", { href: address("collection", one.name, { namespace: one.namespace }), title: "The collection of this document" }, one.namespace ? `${one.namespace}/${one.name}` : one.name)),
      told.served_by.length ? null : h("span.chip", { dataset: { kind: "warn" }, title: `No collection with this path is configured; it was created by ${told.collection}` }, "not served"),
      told.expired ? h("span.chip", { dataset: { kind: "warn" }, title: "The last write is older than ttl_ms: clients see an empty document" }, "expired") : null);
    replace(head, stats([
      [regular() ? "Versions" : "Elements", count(told.records)],
      ["Size", bytes(told.bytes)],
      ...(regular() ? [] : [["Checkpoint", told.checkpoint ? h("button.link", { type: "button", title: `${absolute(told.checkpoint)}: clients continue after this time. Copy it`, onclick: () => attempt(() => navigator.clipboard.writeText(String(told.checkpoint)), "Copied.") }, String(told.checkpoint)) : "none"]]),
      ["Hash", told.hash ? h("button.link.mono", { type: "button", title: `${told.hash}: identifies the state of the document. Copy it`, onclick: () => attempt(() => navigator.clipboard.writeText(told.hash), "Copied.") }, `${told.hash.slice(0, 12)}…`) : "none"],
      ["Last write", told.last_ts ? ago(told.last_ts) : "never"],
    ]));
    const at = `${own?.namespace ? `/${own.namespace}` : ""}`;
    code.set({
      curl: regular() ? [curl({ path: `${at}/pull/${name}` }), curl({ path: `${at}/live/${name}`, follow: true })].join("\n") : [curl({ path: `${at}/pull/${name}?last=10` }), curl({ path: `${at}/pull/${name}?checkpoint=${told.checkpoint ?? 0}` }), curl({ path: `${at}/live/${name}`, follow: true })].join("\n"),
      python: python(["me = OwnIdentity(Signer.generate(), KemKey.generate())  # from strandline.signing.keys", `document = client.collections(me).document(${literal(name)})`, "for element in document.cursor().pull():", "    print(element.ts, element.data)"], ["OwnIdentity"]),
    });
  };
  const refresher = repeat(REFRESH_MS, async (signal) => {
    const answer = await get(path);
    if (signal.aborted) return;
    const changed = told === null || answer.head !== told.head || answer.records !== told.records;
    told = answer;
    live.set("live");
    describe();
    if (changed) pages.reload();
  }, (error) => {
    live.set(error.status ? "refused" : "waiting");
    if (told !== null && error.status !== 404) return;
    replace(head);
    replace(list, failure(error.status === 404 ? { status: 404, message: `The document “${name}” does not exist.` } : error, () => location.reload()));
  });
  bind("u", "The collection", () => (location.hash = back.getAttribute("href")));
  bind("Escape", "Close the element", () => shown && hide());
  replace(root, title, head, h("div.with-detail", {}, list, panel), code.element);
  return () => {
    refresher.stop();
    pages.close();
    view.close();
  };
}

function authorCell(row) {
  const [kind, word, title] = SIGNATURES[row.signature];
  return [h("span.chip", { title, dataset: kind ? { kind } : {} }, word), row.author ? [" ", h("code", { title: row.author }, `${row.author.slice(0, 16)}…`)] : null];
}

function sealed(row) {
  return h("span.muted", {}, icon("key"), ` encrypted, ${bytes(row.encrypted_bytes)}${row.epoch === undefined ? "" : `, epoch ${count(row.epoch)}`}`);
}

function elementView(row, { noun, name, oncompare, onclose }) {
  const [kind, word, title] = SIGNATURES[row.signature];
  const copy = () => attempt(() => navigator.clipboard.writeText(JSON.stringify(row.data, null, 2)), "Copied.");
  return h(
    "section.record",
    { "aria-label": `${noun} ${row.seq}` },
    h("header", {},
      h("h2", {}, `${noun} ${count(row.seq)}`),
      h("button.quiet.in-row", { type: "button", title: "Compare with another one", onclick: oncompare }, "Compare…"),
      h("button.quiet.only-icon", { type: "button", "aria-label": "Copy the data", title: "Copy the data", onclick: copy }, icon("copy")),
      onclose ? h("button.quiet.only-icon", { type: "button", "aria-label": "Close", title: "Close (Esc)", onclick: onclose }, icon("close")) : null),
    h("dl.facts", {},
      fact("Written", [absolute(row.ts), " ", h("span.muted", {}, "(", ago(row.ts), ")")]),
      fact("Checkpoint", h("code", {}, String(row.ts))),
      fact("Signature", [h("span.chip", { dataset: kind ? { kind } : {} }, word), " ", h("span.muted", {}, title)]),
      row.author ? fact("Author", h("code", {}, row.author)) : null,
      row.encrypted_bytes === undefined ? null : fact("Encrypted", `${bytes(row.encrypted_bytes)} of ciphertext${row.epoch === undefined ? "" : `, with the key of epoch ${count(row.epoch)}`}. Only clients with the key can read it.`),
      fact("Log", h("a", { href: address("log", name, { seq: row.seq }) }, `record ${count(row.seq)}`))),
    row.encrypted_bytes === undefined ? jsonBlock(row.data) : h("details", {}, h("summary", {}, "Ciphertext"), jsonBlock(row.data)));
}

function fact(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}
