/** The records of a log: live at its end, or browsed from any sequence number or time. */

import { get } from "../../api.js";
import { curl, literal, python } from "../../parts/code.js";
import { openComparison } from "../../parts/compare.js";
import { isTopicName, streamPath, topicPath } from "../../parts/kinds.js";
import { preview, recordView } from "../../parts/record.js";
import { empty, failure, liveMark, loading } from "../../parts/states.js";
import { virtualTable } from "../../parts/table.js";
import { attempt, notice, openDialog } from "../../shell/dialogs.js";
import { h, replace } from "../../shell/dom.js";
import { absolute, clock, count, parseMoment, plural } from "../../shell/format.js";
import { icon } from "../../shell/icons.js";
import { bind } from "../../shell/keys.js";
import { note } from "../../shell/routes.js";
import { needs } from "../../shell/session.js";
import { appendByHand } from "./appending.js";
import { deleteRecords } from "./deleting.js";
import { Window } from "./window.js";

/** How long a new record is highlighted. */
const GLOW_MS = 1600;
/** Keys that scroll away from the end. */
const SCROLLING = new Set(["ArrowUp", "PageUp", "Home", "k"]);
const NARROW = matchMedia("(max-width: 760px)");

export function openRecords(place, log, { code, buttons, options, reload, toTab }) {
  let current = log;
  let following = true;
  let shown = null;
  const filter = { key: options.key ?? "", prefix: "" };
  const live = liveMark();
  const goTo = h("input.go-to", { placeholder: "Seq or time", "aria-label": "Go to a sequence number or time", title: "123456, 2026-11-15 10:30, 10:30:15, -15m", autocomplete: "off", spellcheck: "false" });
  const keyField = h("input.key-filter", { type: "search", placeholder: "Key or prefix*", "aria-label": "Filter by key", autocomplete: "off", spellcheck: "false", value: filter.key, dataset: { search: "" } });
  const slider = h("input.slider", { type: "range", "aria-label": "Position in the log", min: 1, max: 1, value: 1 });
  const pause = h("button", { type: "button", "aria-label": "Pause" });
  const followButton = h("button", { type: "button", title: "Go to the end and follow new records (f)", hidden: true, onclick: () => toEnd() }, icon("follow"), "Follow");
  const waiting = h("button.arrived", { type: "button", hidden: true, onclick: () => toEnd() });
  const window = new Window(log.name, filter, {
    changed,
    lost,
    state: (state) => {
      live.set(state);
      followButton.hidden = state !== "earlier";
      pause.hidden = state === "earlier";
    },
  });
  const canDelete = isTopicName(log.name) && log.media_type === "application/json" && !["collection", "table"].includes(log.kind);
  const writable = log.writable_by.some((one) => one === "topics" || one === "streams");
  const appendButton = h("button.primary", { type: "button", onclick: append, ...(writable ? needs("write") : { disabled: true, title: log.note }) }, icon("plus"), "Append");
  const deleteButton = h("button", { type: "button", onclick: remove, ...(canDelete ? needs("delete") : { disabled: true, title: `Records of this log cannot be deleted here: ${log.note}` }) }, icon("trash"), "Delete…");

  const table = virtualTable({
    label: "Records",
    columns: [
      { title: "Seq", class: "seq", width: "92px", cell: (record) => h("button.link", { type: "button" }, count(record.seq)) },
      { title: "Time", class: "wide-only", width: "122px", cell: (record) => h("span.muted.mono", { title: absolute(record.ts) }, clock(record.ts)) },
      { title: "Key", class: "wide-only", width: "140px", cell: (record) => (record.key === undefined || record.key === null ? h("span.none", {}, "–") : h("span", { title: record.key }, record.key)) },
      { title: "Data", class: "data", cell: (record) => preview(record) },
    ],
    onopen: (record, index) => !record.tombstone && show(record, index),
    // A row that is drawn again continues its highlight.
    rowClass: (record) => (record.fresh > Date.now() - GLOW_MS ? `new.glow-${Math.floor((Date.now() - record.fresh) / 200)}` : ""),
    special: (record) => (record.tombstone ? tombstone(record.tombstone) : null),
    onscroll: scrolled,
  });
  table.element.classList.add("openable");
  const panel = h("div.detail", { hidden: true });
  const body = h("div.with-detail", {}, h("div.list", {}, loading()), panel);
  const list = body.firstChild;

  function changed({ before = 0, added = 0 } = {}) {
    if (window.failed) return replace(list, failure(window.failed, () => window.openEnd()));
    if (!window.items.length) {
      const narrowed = filter.key || filter.prefix;
      const text = narrowed ? "No record has this key." : log.head ? "All records were deleted or have expired." : "Nothing has been written to this log yet.";
      replace(list, window.loading ? loading() : empty(narrowed ? "No matches" : "No records", text, narrowed || !writable ? null : h("button", { type: "button", onclick: append, ...needs("write") }, icon("plus"), "Append a record")));
      return setCode();
    }
    if (!table.element.isConnected) replace(list, table.element, waiting);
    table.set(window.items);
    if (before) table.shifted(before);
    if (following && window.atEnd) table.scrollTo(window.items.length - 1, "end");
    else if (added) {
      unseen += added;
      waiting.hidden = false;
      replace(waiting, icon("follow"), `${count(unseen)} new`);
    }
    setCode();
    return undefined;
  }
  let unseen = 0;

  function lost(why) {
    notice(why, "bad");
  }

  let byHand = 0;
  const scrolls = (event) => event.type !== "keydown" || SCROLLING.has(event.key);
  for (const kind of ["wheel", "touchmove", "pointerdown", "keydown"]) table.element.addEventListener(kind, (event) => scrolls(event) && (byHand = Date.now()), { passive: true });

  function scrolled(first, last) {
    window.reach(first, last);
    if (window.atEnd && table.atEnd()) {
      unseen = 0;
      waiting.hidden = true;
      following = true;
    } else if (Date.now() - byHand < 1500) following = false;
    const record = window.items[Math.min(first + 1, window.items.length - 1)];
    // The limits come first: a value outside of them would be cut.
    slider.min = String(Math.max(1, window.earliest));
    slider.max = String(Math.max(1, window.head));
    const seq = window.atEnd && table.atEnd() ? window.head : record?.seq;
    if (seq && !sliding && !held) slider.value = String(seq);
  }

  function toEnd() {
    following = true;
    byHand = 0;
    unseen = 0;
    waiting.hidden = true;
    if (window.atEnd && window.items.length) table.scrollTo(window.items.length - 1, "end");
    else window.openEnd();
  }

  async function jump(where, choose) {
    table.choose(-1);
    if (!(await window.openAt(where)) || !window.items.length) return;
    // The rows exist in the next frame. Until then, scrolling to the end could turn following on again.
    requestAnimationFrame(() => {
      following = false;
      const index = choose === undefined ? 0 : Math.max(0, window.items.findIndex((item) => item.seq >= choose));
      table.scrollTo(index, choose === undefined ? "start" : "center");
      table.choose(index);
      const record = window.items[index];
      if (choose !== undefined && record?.seq === choose) show(record, index);
      else if (choose !== undefined) notice(`Record ${count(choose)} no longer exists.`, "bad");
    });
  }

  function show(record, index) {
    shown = record;
    table.choose(index);
    const onkey = (key) => {
      keyField.value = key;
      setFilter();
    };
    const onfilter = (where) => toTab("filter", { where });
    const oncompare = () => attempt(() => openComparison(log.name, record));
    if (NARROW.matches) {
      const leave = (act) => (value) => (dialog.close(), act(value));
      const { dialog } = openDialog({ title: `Record ${count(record.seq)}`, body: [recordView(record, { onkey: leave(onkey), onfilter: leave(onfilter), oncompare: leave(oncompare) })], wide: true });
      return;
    }
    panel.hidden = false;
    replace(panel, recordView(record, { onclose: hide, onkey, onfilter, oncompare }));
    note("log", log.name, { seq: record.seq });
  }

  function hide() {
    shown = null;
    panel.hidden = true;
    replace(panel);
    table.choose(-1);
    note("log", log.name, {});
  }

  function setFilter() {
    const words = keyField.value.trim();
    const isPrefix = words.endsWith("*");
    Object.assign(filter, { key: isPrefix ? "" : words, prefix: isPrefix ? words.slice(0, -1) : "" });
    following = true;
    window.openEnd();
  }

  function append() {
    appendByHand(current, filter.key, () => {
      reload();
      if (window.paused) return;
      toEnd();
    });
  }

  function remove() {
    deleteRecords(current, shown ? { key: shown.key, before: shown.seq } : { key: filter.key }, () => {
      hide();
      reload();
      toEnd();
      window.openEnd();
    });
  }

  function setCode() {
    const first = window.items.find((item) => !item.tombstone)?.seq ?? 1;
    const match = filter.key || (filter.prefix ? `${filter.prefix}*` : "");
    if (isTopicName(log.name) && log.media_type === "application/json") {
      const request = { from_seq: first - 1, include_tags: true, ...(match ? { match } : {}) };
      code.set({
        curl: [curl({ path: `${topicPath(log.name)}/diff`, method: "POST", json: request }), `# follow new records\n${curl({ path: `${streamPath(log.name)}?offset=now&live=sse`, follow: true })}`].join("\n"),
        python: python([`topic = client.topic(${literal(log.name)})`, `for record in topic.read(after=${first - 1}${match ? `, match=${literal(match)}` : ""}):`, "    print(record.seq, record.tag, record.data)", "", `with topic.tail(after=${window.head}) as tail:  # follow new records`, "    for record in tail:", "        print(record.seq, record.data)"]),
      });
    } else {
      code.set({
        curl: [curl({ path: streamPath(log.name) }), `# follow new records\n${curl({ path: `${streamPath(log.name)}?offset=now&live=sse`, follow: true })}`].join("\n"),
        python: python([`stream = client.stream(${literal(log.name)}${log.media_type === "application/json" ? "" : `, content_type=${literal(log.media_type)}`})`, log.media_type === "application/json" ? "for value in stream.read():" : "print(stream.read_bytes())", ...(log.media_type === "application/json" ? ["    print(value)"] : [])]),
      });
    }
  }

  const showPause = () => replace(pause, window.paused ? [icon("run"), "Resume"] : [h("span.pause-sign", { "aria-hidden": "true" }), "Pause"]);
  pause.removeAttribute("aria-label");
  pause.addEventListener("click", () => {
    window.setPaused(!window.paused);
    if (!window.paused) toEnd();
    showPause();
  });
  showPause();

  const goForm = h("form.row", {}, goTo);
  goForm.addEventListener("submit", (event) => {
    event.preventDefault();
    table.element.focus();
    const words = goTo.value.trim().replace(/[\u202f\s,]+(?=\d{3}\b)/g, "");
    if (!words) return void toEnd();
    if (/^\d+$/.test(words)) return void jump({ after: Math.max(0, Number(words) - 1) });
    const moment = parseMoment(goTo.value);
    if (moment === null) return void notice("Enter a sequence number or a time, for example 123456, 10:30, 2026-11-15 10:30 or -15m.", "bad");
    return void jump({ at: Math.round(moment) });
  });
  let sliding = 0;
  let held = false;
  slider.addEventListener("pointerdown", () => (held = true));
  for (const kind of ["pointerup", "pointercancel", "change"]) slider.addEventListener(kind, () => (held = false));
  slider.addEventListener("input", () => {
    clearTimeout(sliding);
    sliding = setTimeout(() => {
      sliding = 0;
      jump({ after: Number(slider.value) - 1 });
    }, 120);
  });
  let typing = 0;
  keyField.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(setFilter, 250);
  });

  replace(buttons, deleteButton, appendButton);
  replace(place, h("div.row.toolbar", {}, goForm, keyField, slider, h("div.row.nowrap", {}, live.element, followButton, pause)), body);
  table.bindKeys();
  bind("f", "Follow new records", () => (window.paused ? pause.click() : toEnd()));
  bind("p", "Pause or resume", () => pause.click());
  bind("s", "Go to a sequence number or time", () => goTo.focus());
  bind("a", "Append a record", () => appendButton.disabled || append());
  bind("d", "Delete records", () => deleteButton.disabled || remove());
  bind("Escape", "Close the record", () => hide());
  const seq = Number(options.seq);
  const before = options.at ? jump({ at: Number(options.at) }) : seq ? jump({ around: seq }, seq) : window.openEnd();
  attempt(() => before);
  return {
    update: (next) => {
      current = next;
      window.told(next);
    },
    close: () => {
      clearTimeout(typing);
      clearTimeout(sliding);
      window.close();
      table.close();
    },
  };
}

const REASONS = {
  cap: "removed by max records or max bytes", ttl: "removed by max age", mixed: "removed by retention", source_trim: "the source of a router lost them first",
  lost: "lost in a power failure or damaged", recreated: "the log was deleted and created again",
};

function tombstone({ gap_from: from, gap_to: to, reason, missed }) {
  return h("div.tombstone", { title: `Reason: ${reason}` }, h("b", {}, from === to ? `Record ${count(from)} is lost` : `Records ${count(from)} to ${count(to)} are lost`), h("span", {}, `${REASONS[reason] ?? reason}${missed && missed !== to - from + 1 ? ` (about ${plural(missed, "record")})` : ""}`));
}
