/** The fields of rows: from the schema of a table to columns and to the fields of a form. */

import { h } from "../../shell/dom.js";
import { field } from "../../shell/dialogs.js";
import { jsonLine } from "../../parts/json.js";
import { parseJson } from "../log/appending.js";

/** The members of a row beside its payload. */
const OWN = new Set(["id", "parent", "seq", "userId", "createdAt", "updatedAt", "deletedAt", "deletedBy", "idempotencyKey", "author", "own"]);
/** Texts from this length on get a field of several lines. */
const LONG = 60;

/** The payload of a row. */
export function payloadOf(row) {
  return Object.fromEntries(Object.entries(row).filter(([name]) => !OWN.has(name)));
}

/**
 * The fields that a schema names. `kind` is text, number, boolean, choice or json.
 * @returns {{name: string, kind: string, options: any[], nullable: boolean, required: boolean, fallback: any, about: string}[]}
 */
export function fieldsOf(document) {
  const top = resolved(document, document);
  const required = new Set(top.required ?? []);
  return Object.entries(top.properties ?? {}).map(([name, schema]) => ({ name, required: required.has(name), ...shape(schema, document) }));
}

function shape(schema, document) {
  let own = resolved(schema, document);
  const { default: fallback, description: about = "" } = own;
  const branches = (own.anyOf ?? own.oneOf ?? []).map((each) => resolved(each, document));
  let nullable = branches.some((each) => each.type === "null");
  const others = branches.filter((each) => each.type !== "null");
  if (nullable && others.length === 1) [own] = others;
  let type = own.type;
  if (Array.isArray(type)) {
    nullable ||= type.includes("null");
    const named = type.filter((each) => each !== "null");
    type = named.length === 1 ? named[0] : "any";
  }
  const kind = own.enum ? "choice" : { string: "text", integer: "number", number: "number", boolean: "boolean" }[type] ?? "json";
  return { kind, options: own.enum ?? [], nullable, fallback, about };
}

function resolved(schema, document) {
  let found = schema ?? {};
  for (let step = 0; step < 16 && typeof found.$ref === "string" && found.$ref.startsWith("#/"); step += 1) {
    const target = found.$ref.slice(2).split("/").reduce((part, name) => part?.[name.replaceAll("~1", "/").replaceAll("~0", "~")], document) ?? {};
    found = { ...target, ...Object.fromEntries(Object.entries(found).filter(([name]) => name !== "$ref")) };
  }
  return found;
}

/** A value in a cell of a table. */
export function shownValue(value) {
  if (value === undefined || value === null) return h("span.none", {}, "–");
  if (typeof value === "boolean") return h("span.chip", { dataset: value ? { kind: "good" } : {} }, String(value));
  if (typeof value === "object") return jsonLine(value, null, 300);
  return h("span", { title: String(value).slice(0, 400) }, String(value).slice(0, 400));
}

/**
 * The fields of a form for a payload. `values` returns the payload as the user left it, or throws if it is not valid.
 * @returns {{elements: Node[], values: () => any, set: (payload: any) => void, mark: (problems: Record<string, string>) => void}}
 */
export function payloadForm(fields, payload) {
  if (!fields.length) return jsonForm(payload);
  const controls = fields.map((one) => control(one, payload[one.name]));
  const unknown = Object.fromEntries(Object.entries(payload).filter(([name]) => !fields.some((one) => one.name === name)));
  return {
    elements: controls.map((one) => one.element),
    values: () => ({ ...unknown, ...Object.fromEntries(fields.map((one, index) => [one.name, controls[index].value()]).filter(([, value]) => value !== undefined)) }),
    set: (next) => fields.forEach((one, index) => controls[index].set(next[one.name])),
    mark: (problems) => fields.forEach((one, index) => controls[index].mark(problems[one.name])),
  };
}

function jsonForm(payload) {
  const text = h("textarea", { rows: 12, spellcheck: "false", autofocus: true, required: true });
  const set = (next) => (text.value = JSON.stringify(next, null, 2));
  set(payload);
  return { elements: [field("Payload (JSON)", text)], values: () => parseJson("The payload", text.value), set, mark: () => {} };
}

function control(one, value) {
  const input = one.kind === "boolean" && !one.nullable ? h("input", { type: "checkbox" }) : one.kind === "choice" || one.kind === "boolean" ? choice(one) : one.kind === "number" ? h("input", { type: "number", step: "any" }) : one.kind === "text" && !isLong(value) ? h("input", { autocomplete: "off", spellcheck: "false" }) : h("textarea", { rows: one.kind === "text" ? 4 : 3, spellcheck: "false" });
  const problem = h("p.problem", { role: "alert", hidden: true });
  const hint = [one.about, one.nullable ? "Empty: null." : "", one.kind === "json" ? "JSON." : ""].filter(Boolean).join(" ");
  let before;
  const set = (next) => {
    before = next;
    if (input.type === "checkbox") input.checked = next === true;
    else if (one.kind === "choice" || one.kind === "boolean") input.value = next === undefined ? "" : JSON.stringify(next);
    else if (one.kind === "json") input.value = next === undefined ? "" : JSON.stringify(next, null, 2);
    else input.value = next ?? "";
  };
  const read = () => {
    if (input.type === "checkbox") return input.checked || before !== undefined ? input.checked : undefined;
    if (input.value === "" && (before === undefined || before === null)) return before;
    if (one.kind === "choice" || one.kind === "boolean") return input.value === "" ? null : JSON.parse(input.value);
    if (one.kind === "json") return input.value.trim() === "" ? null : parseJson(one.name, input.value);
    if (input.value === "" && (one.nullable || one.kind === "number")) return null;
    return one.kind === "number" ? Number(input.value) : input.value;
  };
  set(value);
  return {
    element: h("div.stack.of-payload", { dataset: { field: one.name } }, input.type === "checkbox" ? h("label.check", {}, input, h("span", {}, one.name), one.about ? h("span.hint", {}, one.about) : null) : field(one.name, input, hint), problem),
    value: read,
    set,
    mark: (told) => {
      problem.hidden = !told;
      problem.textContent = told ?? "";
    },
  };
}

function choice({ options, nullable, required, kind }) {
  const values = kind === "boolean" ? [true, false] : options;
  return h("select", {}, nullable || !required ? h("option", { value: "" }, "–") : null, values.map((value) => h("option", { value: JSON.stringify(value) }, String(value))));
}

function isLong(value) {
  return typeof value === "string" && (value.length > LONG || value.includes("\n"));
}
