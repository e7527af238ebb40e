/** Creates elements. Text is never parsed as markup, so the content of a log cannot inject any. */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element: `h("button.primary", {onclick, title}, "Text", child, …)`. Attributes that are null or false are omitted;
 * attributes that start with "on" are listeners; `dataset` and `style` are objects.
 * @param {string} what a tag and classes
 */
export function h(what, attributes, ...children) {
  const [tag, ...classes] = what.split(".");
  return fill(document.createElement(tag || "div"), classes, attributes, children);
}

/** Like `h`, for SVG elements. */
export function s(what, attributes, ...children) {
  const [tag, ...classes] = what.split(".");
  return fill(document.createElementNS(SVG, tag), classes, attributes, children);
}

/** Replaces the children of an element. */
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
