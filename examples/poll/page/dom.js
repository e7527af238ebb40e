/** Helpers for a page without a framework. */

export const byId = (id) => document.getElementById(id);

/** An element with properties and children: `make("p", { className: "x" }, "text")`. */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/**
 * Gives `list` one child per item, in order. An item that stays keeps its element, so that it keeps the focus and can
 * animate.
 */
export function show(list, items, keyOf, create, update) {
  const known = new Map(Array.from(list.children, (child) => [child.dataset.key, child]));
  let place = list.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let child = known.get(key);
    known.delete(key);
    if (child === undefined) {
      child = create(item);
      child.dataset.key = key;
    }
    update(child, item);
    if (child === place) place = place.nextElementSibling;
    else list.insertBefore(child, place);
  }
  for (const child of known.values()) child.remove();
}

const UNITS = [
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

/** The time since then, in words. */
export function ago(time) {
  const seconds = (Date.now() - time) / 1000;
  for (const [unit, length] of UNITS) if (seconds >= length) return relative.format(-Math.floor(seconds / length), unit);
  return "just now";
}

export const plural = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
