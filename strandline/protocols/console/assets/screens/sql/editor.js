/** The field for a statement, with completion of logs, columns, fields and keywords. */

import { get } from "../../api.js";
import { h, replace } from "../../shell/dom.js";

const SHOWN = 10;
const COLUMNS = [["seq", "sequence number"], ["ts", "time"], ["key", "key"], ["node", "node"], ["meta", "JSON"], ["data", "JSON"]];
const KEYWORDS = ["select", "from", "where", "group by", "order by", "limit", "having", "join", "left join", "on", "and", "or", "not", "in", "between", "like", "is null", "is not null", "case", "when", "then", "else", "end", "with", "distinct", "desc", "asc", "count(*)", "sum(", "avg(", "min(", "max(", "quantile_cont(", "date_trunc('minute', ts)", "date_trunc('hour', ts)", "date_trunc('day', ts)", "now() - interval 1 hour", "describe", "summarize"];
const PLAIN = /^[a-z_][a-z0-9_]*$/i;
/** Words after which a table is expected. */
const BEFORE_TABLE = /\b(?:from|join|describe|summarize)\s+$/i;
const MENTIONED = /\b(?:from|join|describe|summarize)\s+(?:"((?:[^"]|"")+)"|([a-z_][\w$]*))/gi;

/** @param {string} text @param {() => void} run called for Ctrl+Enter */
export function editor(text, run) {
  const input = h("textarea.sql-text", { rows: 6, "aria-label": "SQL statement", placeholder: 'select key, count(*) as records\nfrom "orders"\ngroup by key\norder by records desc', spellcheck: "false", autocomplete: "off", autocapitalize: "off", value: text, "aria-controls": "sql-completions", "aria-autocomplete": "list", dataset: { search: "" } });
  const list = h("ul.completions", { id: "sql-completions", role: "listbox", "aria-label": "Suggestions", hidden: true });
  const element = h("div.sql-editor", {}, input, list);
  const fields = new Map();
  let options = [];
  let chosen = 0;
  let asked = 0;
  let timer = 0;

  const close = () => {
    asked += 1;
    clearTimeout(timer);
    options = [];
    list.hidden = true;
    input.removeAttribute("aria-activedescendant");
  };
  const show = () => {
    if (!options.length) return close();
    list.hidden = false;
    input.setAttribute("aria-activedescendant", `sql-option-${chosen}`);
    replace(list, options.map((option, index) => h("li", { id: `sql-option-${index}`, role: "option", "aria-selected": String(index === chosen), onpointerdown: (event) => (event.preventDefault(), take(option)) }, h("span", {}, option.text), h("span.muted", {}, option.about))));
    return undefined;
  };
  const take = ({ text: words }) => {
    const { start, end } = tokenAt(input);
    input.setRangeText(words, start, end, "end");
    close();
    input.focus();
  };
  const offer = async () => {
    const number = (asked += 1);
    const { token, quoted, before } = tokenAt(input);
    const like = token.toLowerCase();
    if (!like && !quoted && !BEFORE_TABLE.test(before)) return close();
    const wantsTable = quoted || BEFORE_TABLE.test(before);
    const [logs, names] = await Promise.all([
      get("/console/api/logs", { search: token, limit: SHOWN }).then((answer) => answer.logs.map((log) => ({ text: `"${log.name.replaceAll('"', '""')}"`, about: log.kind })), () => []),
      wantsTable ? [] : fieldsOf(input.value),
    ]);
    if (number !== asked) return undefined;
    const columns = COLUMNS.map(([name, about]) => ({ text: name, about }));
    const words = KEYWORDS.map((word) => ({ text: word, about: "" }));
    const fitting = [...columns, ...names, ...words].filter((option) => option.text.toLowerCase().startsWith(like) || (option.name ?? "").toLowerCase().startsWith(like));
    options = (wantsTable ? logs : [...fitting.filter((option) => option.text !== token), ...logs]).slice(0, SHOWN);
    chosen = 0;
    return show();
  };
  /** The fields of the logs that the statement names, loaded once for each. */
  const fieldsOf = async (statement) => {
    const found = [];
    for (const [, quoted, plain] of statement.matchAll(MENTIONED)) {
      const log = quoted?.replaceAll('""', '"') ?? plain;
      if (!fields.has(log)) fields.set(log, get(`/console/api/fields/${encodeURIComponent(log)}`).then((answer) => answer.fields, () => []));
      for (const field of await fields.get(log)) found.push({ name: field.name, text: expression(field.name), about: field.type });
    }
    return found;
  };

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(offer, 120);
  });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      run();
    } else if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      offer();
    } else if (!options.length) return;
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      chosen = (chosen + (event.key === "ArrowDown" ? 1 : -1) + options.length) % options.length;
      show();
    } else if (event.key === "Tab" || event.key === "Enter") {
      event.preventDefault();
      take(options[chosen]);
    } else if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      close();
    }
  });
  return {
    element,
    value: () => input.value,
    set: (statement) => (input.value = statement),
    focus: () => input.focus(),
    closeList: close,
    close,
  };
}

/** The expression for a field of JSON data: `data->>'a'`, or `data->>'$.a.b'` for a nested one. */
export function expression(name) {
  if (PLAIN.test(name)) return `data->>'${name}'`;
  return `data->>'$.${name.split(".").map((part) => (PLAIN.test(part) ? part : `"${part}"`)).join(".").replaceAll("'", "''")}'`;
}

/** The name that is being written: a word, or what follows an open quotation mark. */
function tokenAt(input) {
  const caret = input.selectionStart ?? input.value.length;
  const upTo = input.value.slice(0, caret);
  const open = /"([^"\n]*)$/.exec(upTo.replace(/"[^"\n]*"/g, (whole) => " ".repeat(whole.length)));
  const token = open ? open[1] : /[\w$]*$/.exec(upTo)[0];
  const start = caret - token.length - (open ? 1 : 0);
  const end = open && input.value[caret] === '"' ? caret + 1 : caret;
  return { token, quoted: Boolean(open), start, end, before: upTo.slice(0, start) };
}
