/** The header of a screen: title, facts and actions. Also sets the title of the window. */

import { h } from "../shell/dom.js";

/** @param {string} title @param {any[]} beside next to the title @param {any[]} end at the right */
export function heading(title, beside = [], end = []) {
  document.title = `${title} · Strandline`;
  return h("header", {}, h("h1", {}, title), beside, h("div.end", {}, end));
}

/** Figures in a row. @param {[string, any, string?][]} figures label, value, class of the value */
export function stats(figures) {
  return h("dl.stats", {}, figures.map(([label, value, kind]) => h("div", {}, h("dt", {}, label), h(kind ? `dd.${kind}` : "dd", {}, value))));
}

/** A choice between a few options. @param {[string, string][]} options value and label */
export function segments(label, options, chosen, onchange) {
  const name = `segments-${Math.random().toString(36).slice(2, 9)}`;
  return h(
    "div.segments",
    { role: "radiogroup", "aria-label": label },
    options.map(([value, text]) => h("label", {}, h("input", { type: "radio", name, value, checked: value === chosen, onchange: () => onchange(value) }), h("span", {}, text))),
  );
}

/** Tabs. @param {[string, string][]} options id and title @param {(id: string) => void} onchange */
export function tabs(label, options, chosen, onchange) {
  const buttons = options.map(([id, title]) => h("button", { type: "button", role: "tab", id: `tab-${id}`, "aria-controls": "tab-panel", dataset: { id }, onclick: () => choose(id) }, title));
  const element = h("div.tabs", { role: "tablist", "aria-label": label }, buttons);
  const mark = (id) => {
    for (const button of buttons) {
      const here = button.dataset.id === id;
      button.setAttribute("aria-selected", String(here));
      button.tabIndex = here ? 0 : -1;
      // On a phone, not all tabs fit. A new tab bar is in the page in the next frame.
      if (here) requestAnimationFrame(() => button.scrollIntoView({ block: "nearest", inline: "nearest" }));
    }
  };
  const choose = (id) => {
    mark(id);
    onchange(id);
  };
  element.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = buttons[(buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length];
    next.focus();
    choose(next.dataset.id);
    event.preventDefault();
    event.stopPropagation();
  });
  mark(chosen);
  return { element, choose };
}
