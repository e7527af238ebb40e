/** The server in the address of the page, and the browser module, which it serves. */

import { byId } from "./dom.js";

export const asked = new URLSearchParams(location.search);
export const SERVER = asked.get("server") ?? `http://${location.hostname}:4000`;

/** How long to wait before the module is loaded again. */
const AGAIN_MS = 2_000;

/** @returns {Promise<typeof import("strandline")>} */
async function load() {
  for (let attempt = 1; ; attempt++) {
    try {
      // A browser remembers an address that failed.
      return await import(`${SERVER}/js/strandline.js${attempt === 1 ? "" : `?attempt=${attempt}`}`);
    } catch {
      byId("nothing-yet").hidden = false;
      byId("nothing-title").textContent = "The server cannot be reached";
      byId("nothing-text").textContent = `${SERVER} does not answer. Retrying…`;
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }
}

export const { connect, createLog } = await load();
