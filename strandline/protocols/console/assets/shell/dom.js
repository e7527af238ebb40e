/** Making elements. Text is always text: nothing that comes from a log is ever taken for markup. */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element: `h("button.primary", {onclick, title}, "Text", child, …)`. Attributes that are null or false are left
 * out; those that begin with "on" are listeners; `dataset` and `style` are objects.
 * @param {string} what a tag and classes
 */
export function h(what, attributes, ...children) {
  const [tag, ...classes] = what.split(".");
  return fill(document.createElement(tag || "div"), classes, attributes, children);
}

/** The same for SVG. */
export function s(what, attributes, ...children) {
  const [tag, ...classes] = what.split(".");
  return fill(document.createElementNS(SVG, tag), classes, attributes, children);
}

/** Puts these in the place of whatever is in the element. */
export function replace(element, ...children) {
  element.replaceChildren(...flat(children));
  return element;
}

function fill(element, classes, attributes, children) {
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [name, value] of Object.entries(attributes ?? {})) set(element, name, value);
  element.append(...flat(children));
  return element;
}

function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (name === "dataset") Object.assign(element.dataset, value);
  else if (name === "style") Object.entries(value).forEach(([property, to]) => element.style.setProperty(property, to));
  else if (name === "value" || name === "checked" || name === "selected") element[name] = value;
  else element.setAttribute(name, value === true ? "" : value);
}

function flat(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}
