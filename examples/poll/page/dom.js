/** Helpers for a page without a framework. */

/**
 * @param {string} id
 * @returns {any}
 */
export const byId = (id) => document.getElementById(id);

/**
 * An element with properties and children: `make("p", { className: "x" }, "text")`.
 * @param {string} tag
 * @param {object} properties
 * @param {(Node | string)[]} children
 * @returns {any}
 */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/**
 * Gives `list` one child per item, in order. An item that stays keeps its element, so that it keeps the focus and can
 * animate.
 * @template T
 * @param {any} list
 * @param {readonly T[]} items
 * @param {(item: T) => string} keyOf
 * @param {(item: T) => any} create
 * @param {(element: any, item: T) => void} update
 */
export function show(list, items, keyOf, create, update) {
  const known = new Map(Array.from(list.children, (/** @type {any} */ child) => [child.dataset.key, child]));
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

/** @type {[Intl.RelativeTimeFormatUnit, number][]} */
const UNITS = [
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

/**
 * The time since then, in words.
 * @param {number} time
 */
export function ago(time) {
  const seconds = (Date.now() - time) / 1000;
  for (const [unit, length] of UNITS) if (seconds >= length) return relative.format(-Math.floor(seconds / length), unit);
  return "just now";
}

/**
 * @param {number} count
 * @param {string} one
 */
export const plural = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
