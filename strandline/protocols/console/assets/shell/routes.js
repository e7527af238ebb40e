/** Hash routes: `#/log/<name>?tab=keys` → {screen: "log", name, params}. */

/** Parses the hash of the current URL. */
export function route(hash = location.hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [screen, ...rest] = path.split("/");
  return {
    screen: screen || "overview",
    name: decode(rest.join("/")),
    params: Object.fromEntries(new URLSearchParams(query)),
  };
}

/** Returns the hash for a screen. @param {string} screen @param {string} [name] @param {Record<string, string|number|null|undefined>} [params] */
export function address(screen, name = "", params = {}) {
  const given = Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const query = new URLSearchParams(given).toString();
  return `#/${screen}${name ? `/${encodeURIComponent(name)}` : ""}${query ? `?${query}` : ""}`;
}

/** Opens a screen, like a link. */
export function go(screen, name, params) {
  location.hash = address(screen, name, params);
}

/** Stores the current state in the URL without opening the screen again. */
export function note(screen, name, params) {
  history.replaceState(null, "", `${location.pathname}${location.search}${address(screen, name, params)}`);
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
