/** The theme (system, light or dark), and its colours for drawing on a canvas. */

const NAME = "strandline.theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set();

/** @returns {"system"|"light"|"dark"} the chosen theme */
export function theme() {
  return document.documentElement.dataset.theme ?? "system";
}

/** @param {"system"|"light"|"dark"} wanted */
export function setTheme(wanted) {
  if (wanted === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = wanted;
  try {
    if (wanted === "system") localStorage.removeItem(NAME);
    else localStorage.setItem(NAME, wanted);
  } catch {
    // Storage is not available: the theme lasts until the page is closed.
  }
  tell();
}

/** system → light → dark → system */
export function nextTheme() {
  const order = ["system", "light", "dark"];
  setTheme(order[(order.indexOf(theme()) + 1) % order.length]);
  return theme();
}

/** Calls the function whenever the colours change. @returns {() => void} removes the listener */
export function onTheme(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** A colour of the current theme. @param {string} name without the dashes */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function tell() {
  for (const listener of listeners) listener();
}

system.addEventListener("change", tell);
