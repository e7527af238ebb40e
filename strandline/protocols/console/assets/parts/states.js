/** The states of a part without content: loading, empty, failed, live. */

import { ApiError } from "../api.js";
import { h, replace } from "../shell/dom.js";

export function loading(text = "Loading…") {
  return h("div.state", { role: "status" }, h("span.spinner", { "aria-hidden": "true" }), text);
}

/** Nothing to show, and what the user can do about it. */
export function empty(title, text, ...actions) {
  return h("div.state.empty", {}, h("h2", {}, title), text ? h("p", {}, text) : null, actions.length ? h("div.row", {}, actions) : null);
}

/** A request failed. @param {Error & {status?: number}} error @param {() => void} [again] */
export function failure(error, again) {
  const title = { 0: "The server cannot be reached", 403: "Your API key does not have permission", 404: "Not found" }[error.status] ?? "The request failed";
  return h(
    "div.state.failure",
    { role: "alert" },
    h("h2", {}, title),
    h("p", {}, error.message),
    again ? h("div.row", {}, h("button", { type: "button", onclick: again }, "Try again")) : null,
  );
}

/** A mark that shows whether the data is live. */
export function liveMark() {
  const element = h("span.live", { role: "status" });
  const words = { live: "Live", waiting: "Reconnecting…", paused: "Paused", earlier: "Not following", refused: "Not live" };
  const set = (state) => {
    if (element.dataset.state === state) return;
    element.dataset.state = state;
    replace(element, h("i", { "aria-hidden": "true" }), words[state]);
  };
  set("waiting");
  return { element, set };
}

/**
 * Runs a function now and then periodically, never twice at a time, and only while the page is visible. Stops when the
 * server refuses the request.
 * @param {number} ms between the end of one run and the start of the next
 * @param {(signal: AbortSignal) => Promise<any>} run
 * @param {(error: ApiError) => void} failed called when a request fails; other errors are bugs and are not caught
 * @returns {{stop: () => void, now: () => void}}
 */
export function repeat(ms, run, failed) {
  const stop = new AbortController();
  let timer = 0;
  let busy = false;
  let again = false;
  const turn = async () => {
    clearTimeout(timer);
    if (busy) return void (again = true);
    busy = true;
    again = false;
    let refused = false;
    try {
      if (!document.hidden) await run(stop.signal);
    } catch (error) {
      // The screen was closed, and with it the request.
      if (stop.signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      // The request would be refused again.
      refused = error.status >= 400 && error.status < 500 && error.status !== 408 && error.status !== 429;
      failed(error);
    } finally {
      busy = false;
      if (!stop.signal.aborted && (!refused || again)) timer = setTimeout(turn, again ? 0 : ms);
    }
  };
  const seen = () => document.hidden || turn();
  document.addEventListener("visibilitychange", seen);
  turn();
  return {
    now: turn,
    stop: () => {
      stop.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    },
  };
}
