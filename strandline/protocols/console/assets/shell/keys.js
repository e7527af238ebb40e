/** Keyboard shortcuts: single keys and chords such as "g l". Keys typed into fields are left to the fields. */

import { h } from "./dom.js";
import { openDialog } from "./dialogs.js";

const CHORD_MS = 1200;
const SIGNS = { ArrowDown: "↓", ArrowUp: "↑", Enter: "↵", Escape: "Esc" };
/** @type {{keys: string, label: string, run: (event: KeyboardEvent) => any}[]} */
const everywhere = [];
let onScreen = [];
let begun = "";
let begunAt = 0;

/** Binds a shortcut on all screens. */
export function bindEverywhere(keys, label, run) {
  everywhere.push({ keys, label, run });
}

/** Binds a shortcut on the current screen. The next screen removes it. */
export function bind(keys, label, run) {
  onScreen = onScreen.filter((one) => one.keys !== keys);
  onScreen.push({ keys, label, run });
}

export function forgetScreen() {
  onScreen = [];
}

/** Shows all shortcuts in a dialog. */
export function showKeys() {
  if (document.querySelector("dialog[open]")) return;
  const list = (title, bindings) => [
    h("h3", {}, title),
    h("dl.keys", {}, bindings.map(({ keys, label }) => h("div", {}, h("dt", {}, keys.split(" ").map((key) => h("kbd", {}, SIGNS[key] ?? key))), h("dd", {}, label)))),
  ];
  openDialog({
    title: "Keyboard shortcuts",
    body: [onScreen.length ? list("On this screen", onScreen) : [], list("On all screens", everywhere)],
  });
}

function inField(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && target.type !== "range");
}

document.addEventListener("keydown", (event) => {
  if (event.altKey || event.defaultPrevented || document.querySelector("dialog[open]")) return;
  const control = event.ctrlKey || event.metaKey;
  if (event.key === "Escape" && inField(event.target)) return event.target.blur();
  if (inField(event.target) && !control) return;
  const key = control ? `Ctrl+${event.key.toUpperCase()}` : event.key;
  const chord = begun && event.timeStamp - begunAt < CHORD_MS ? `${begun} ${key}` : "";
  const all = [...onScreen, ...everywhere];
  const found = (chord && all.find((one) => one.keys === chord)) || all.find((one) => one.keys === key);
  begun = "";
  if (found) {
    if (found.run(event) !== false) event.preventDefault();
  } else if (all.some((one) => one.keys.startsWith(`${key} `))) {
    begun = key;
    begunAt = event.timeStamp;
  }
});
