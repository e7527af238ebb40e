/** The curl command and the Python program for what the screen shows. */

import { h, replace } from "../shell/dom.js";
import { attempt } from "../shell/dialogs.js";
import { icon } from "../shell/icons.js";
import { current } from "../shell/session.js";

/** Returns a curl command for a request. @param {{method?: string, path: string, json?: any, headers?: Record<string, string>, follow?: boolean}} request */
export function curl({ method, path, json, headers = {}, follow = false }) {
  const words = ["curl", follow ? "-N" : "-s"];
  if (method && method !== "GET" && !(method === "POST" && json !== undefined)) words.push("-X", method);
  words.push(quote(location.origin + path));
  if (current()?.keys_required) words.push('-H "authorization: Bearer $STRANDLINE_KEY"');
  for (const [name, value] of Object.entries(headers)) words.push("-H", quote(`${name}: ${value}`));
  if (json !== undefined) words.push("--json", quote(JSON.stringify(json)));
  return words.join(" ");
}

/** Returns a Python program. @param {string[]} lines statements that use `client` @param {string[]} imports names besides Client */
export function python(lines, imports = []) {
  const key = current()?.keys_required ? ', key=os.environ["STRANDLINE_KEY"]' : "";
  return [
    ...(lines.some((line) => line.includes("json.")) ? ["import json"] : []),
    ...(key ? ["import os"] : []),
    ...(key || lines.some((line) => line.includes("json.")) ? [""] : []),
    `from strandline.client import ${["Client", ...imports].sort().join(", ")}`,
    "",
    `with Client("${location.origin}"${key}) as client:`,
    ...lines.map((line) => (line ? `    ${line}` : "")),
  ].join("\n");
}

/** Returns a value as a Python literal. */
export function literal(value) {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${literal(one)}`).join(", ")}}`;
  return JSON.stringify(value);
}

/**
 * The block at the bottom of a screen. `set` replaces its commands.
 * @returns {{element: HTMLDetailsElement, set: (code: {curl: string, python: string}) => void}}
 */
export function codeBlock() {
  const body = h("div.code-body");
  const element = h("details.code", {}, h("summary", {}, icon("code"), "curl and Python"), body);
  let shown = "";
  const set = (code) => {
    const text = JSON.stringify(code);
    if (text === shown) return;
    shown = text;
    replace(body, snippet("curl", code.curl), snippet("Python", code.python));
  };
  return { element, set };
}

/** A program with a button that copies it. */
export function snippet(title, text) {
  const button = h("button.quiet.only-icon", { type: "button", "aria-label": `Copy the ${title} code`, title: "Copy", onclick: () => attempt(() => navigator.clipboard.writeText(text), "Copied.") }, icon("copy"));
  return h("figure.snippet", {}, h("figcaption", {}, title, button), h("pre", { tabindex: "0", "aria-label": title }, h("code", {}, text)));
}

function quote(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
