/** The zone in which times are shown and typed: that of the browser, or UTC. */

const NAME = "strandline.zone";
let chosen = stored();
let onChange = () => {};

/** @returns {"local"|"utc"} */
export function zone() {
  return chosen;
}

/** local → UTC → local */
export function nextZone() {
  chosen = chosen === "utc" ? "local" : "utc";
  try {
    if (chosen === "local") localStorage.removeItem(NAME);
    else localStorage.setItem(NAME, chosen);
  } catch {
    // Storage is not available: the zone lasts until the page is closed.
  }
  onChange();
}

/** Sets the function to call when the user chooses another zone. */
export function whenZoneChanges(listener) {
  onChange = listener;
}

/** A date whose UTC parts are those of the moment in the chosen zone. */
export function shifted(ms) {
  const at = new Date(ms);
  return chosen === "utc" ? at : new Date(ms - at.getTimezoneOffset() * 60_000);
}

function stored() {
  try {
    return localStorage.getItem(NAME) === "utc" ? "utc" : "local";
  } catch {
    return "local";
  }
}
