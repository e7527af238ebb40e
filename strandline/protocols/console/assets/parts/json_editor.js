/** A field for JSON with syntax colours: they are drawn behind the text, which the field itself does not show. */

import { h, replace } from "../shell/dom.js";
import { coloured } from "./json.js";

/** A longer text is not coloured, so that typing stays quick. */
const MOST = 40_000;

/**
 * @param {{label?: string, value?: string, rows?: number, oninput?: () => void}} options
 * @returns {{element: HTMLElement, input: HTMLTextAreaElement, set: (text: string) => void}}
 */
export function jsonEditor({ label, value = "", rows = 18, oninput = () => {} }) {
  const shade = h("pre", { "aria-hidden": "true" });
  const input = h("textarea", { rows, spellcheck: "false", autocomplete: "off", autocapitalize: "off", required: true, "aria-label": label });
  const element = h("div.json-editor", {}, shade, input);
  const draw = () => {
    const plain = input.value.length > MOST;
    element.classList.toggle("plain", plain);
    // The last line needs a character to have a height.
    replace(shade, plain ? [] : [...coloured(input.value), " "]);
    shade.scrollTop = input.scrollTop;
  };
  const set = (text) => {
    input.value = text;
    draw();
  };
  input.addEventListener("input", () => (draw(), oninput()));
  input.addEventListener("scroll", () => (shade.scrollTop = input.scrollTop), { passive: true });
  set(value);
  return { element, input, set };
}
