/** The query field. Completes fields, relations and known values. */

import { h, replace } from "../../shell/dom.js";

const SHOWN = 10;
const RELATIONS = { integer: [">=", "<=", ">", "<"], float: [">=", "<=", ">", "<"], number: [">=", "<=", ">", "<"], date: [">=", "<"] };

/**
 * @param {string} value @param {() => void} onrun
 * @returns {{element: HTMLElement, value: () => string, set: (q: string) => void, setFields: (fields: {name: string, type: string}[]) => void,
 *   learn: (values: Map<string, Set<string>>) => void, closeList: () => void}}
 */
export function queryField(value, onrun) {
  let fields = [];
  let known = new Map();
  let options = [];
  let chosen = -1;
  const list = h("ul.completions", { id: "completions", role: "listbox", "aria-label": "Completions", hidden: true });
  const input = h("input.query", {
    value, placeholder: 'level:error duration:>=100 "timed out"', "aria-label": "Query", role: "combobox", "aria-expanded": "false", "aria-controls": "completions",
    "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false", autocapitalize: "off", dataset: { search: "" },
  });
  const element = h("div.query-box.grow", {}, input, list);

  const show = () => {
    list.hidden = !options.length;
    input.setAttribute("aria-expanded", String(options.length > 0));
    if (chosen >= 0) input.setAttribute("aria-activedescendant", `completion-${chosen}`);
    else input.removeAttribute("aria-activedescendant");
    replace(list, options.map((option, index) => h("li", { id: `completion-${index}`, role: "option", "aria-selected": String(index === chosen), onpointerdown: (event) => (event.preventDefault(), accept(index)) }, h("span", {}, option.text), h("span.muted", {}, option.about))));
  };
  const close = () => {
    options = [];
    chosen = -1;
    show();
  };
  const offer = () => {
    const { token } = tokenAt(input);
    options = suggestions(token, fields, known).slice(0, SHOWN);
    if (options.length === 1 && options[0].text === token) options = [];
    chosen = -1;
    show();
  };
  const accept = (index) => {
    const { start, end } = tokenAt(input);
    const { text } = options[index];
    const space = text.endsWith(":") || /[<>=]$/.test(text) ? "" : " ";
    input.value = `${input.value.slice(0, start)}${text}${space}${input.value.slice(end).trimStart()}`;
    const caret = start + text.length + space.length;
    input.setSelectionRange(caret, caret);
    input.focus();
    offer();
  };
  input.addEventListener("input", offer);
  input.addEventListener("focus", offer);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && options.length) {
      chosen = (chosen + step + options.length) % options.length;
      show();
    } else if (event.key === "Tab" && options.length && !event.shiftKey && tokenAt(input).token) accept(Math.max(0, chosen));
    else if (event.key === "Enter" && chosen >= 0) accept(chosen);
    else if (event.key === "Enter") {
      close();
      onrun();
    } else if (event.key === "Escape" && options.length) {
      close();
      event.stopPropagation();
    } else return;
    event.preventDefault();
  });
  return {
    element,
    value: () => input.value.trim(),
    set: (q) => (input.value = q),
    setFields: (next) => {
      fields = next;
      known = new Map();
    },
    learn: (values) => (known = values),
    closeList: close,
  };
}

function tokenAt(input) {
  const caret = input.selectionStart ?? input.value.length;
  const start = Math.max(0, ...[...input.value.slice(0, caret).matchAll(/[\s()]/g)].map((found) => found.index + 1));
  const rest = input.value.slice(caret).search(/[\s()]/);
  return { start, end: rest < 0 ? input.value.length : caret + rest, token: input.value.slice(start, caret) };
}

function suggestions(token, fields, known) {
  const minus = token.startsWith("-") ? "-" : "";
  const words = token.slice(minus.length);
  const colon = words.indexOf(":");
  if (colon < 0) {
    const like = words.toLowerCase();
    const names = fields.filter((one) => one.name.toLowerCase().startsWith(like)).map((one) => ({ text: `${minus}${one.name}:`, about: one.type }));
    const other = fields.filter((one) => !one.name.toLowerCase().startsWith(like) && one.name.toLowerCase().includes(like)).map((one) => ({ text: `${minus}${one.name}:`, about: one.type }));
    const has = "has:".startsWith(like) && like ? [{ text: `${minus}has:`, about: "records with this field" }] : [];
    return [...names, ...other, ...has];
  }
  const name = words.slice(0, colon);
  const begun = words.slice(colon + 1);
  if (name === "has") return fields.filter((one) => one.name.startsWith(begun)).map((one) => ({ text: `${minus}has:${one.name}`, about: one.type }));
  const field = fields.find((one) => one.name === name);
  if (!field) return [];
  const relations = begun ? [] : (RELATIONS[field.type] ?? []).map((relation) => ({ text: `${minus}${name}:${relation}`, about: "" }));
  const values = [...(known.get(name) ?? [])].filter((value) => value.toLowerCase().startsWith(begun.toLowerCase())).map((value) => ({ text: `${minus}${name}:${/^[\w./@-]+$/.test(value) ? value : JSON.stringify(value)}`, about: "seen" }));
  return [...relations, ...values];
}
