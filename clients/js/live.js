/** The live connection: reconnects and resumes after its last event. */

import { StrandlineError } from "./errors.js";
import { Backoff, pause } from "./retrying.js";

/** Statuses that refuse a request with any cursor. A function may give another token than one that was refused. */
const REFUSED = [401, 403, 404];

/**
 * Listen until `signal` aborts or the server refuses permanently.
 *
 * @param {import("./wire.js").Wire} wire
 * @param {object} how
 * @param {import("./store.js").Source} how.source
 * @param {AbortSignal} how.signal
 * @param {typeof import("./retrying.js").RETRY} how.retry
 * @param {(isAnew: boolean) => void} how.stands the connection is up to date; `isAnew`: it started without a cursor
 * @param {(event: { type: string, data: any }) => void} how.told
 * @param {() => void} how.lost
 * @param {(error: StrandlineError) => void} how.refused the connection is only retried if it may get another token
 */
export async function listen(wire, { source, signal, retry, stands, told, lost, refused }) {
  const backoff = new Backoff(retry, wire.servers);
  /** @type {string | null} */
  let cursor = null;
  while (!signal.aborted) {
    /** @type {number | undefined} */
    let wait;
    try {
      const isAnew = cursor === null;
      for await (const { type, id, data } of wire.live(source, cursor ?? "now", signal)) {
        cursor = id ?? cursor;
        if (type === "ready") {
          backoff.reset();
          stands(isAnew);
        } else if (type !== "end") {
          // After "end", the answer to the next request says whether the refusal is permanent.
          told({ type, data });
        }
      }
    } catch (thrown) {
      if (signal.aborted) return;
      const error = thrown instanceof StrandlineError ? thrown : new StrandlineError("BAD_ANSWER", String(thrown));
      if (!error.isTemporary) {
        const isRefused = cursor === null || REFUSED.includes(error.status);
        if (isRefused) refused(error);
        if (isRefused && !(error.status === 401 && wire.asksForTokens)) return;
        // The cursor is too old, or belongs to another server: start again without one.
        if (!isRefused) cursor = null;
      }
      wait = backoff.after(error);
    }
    lost();
    wait ??= backoff.next();
    if (wait) await pause(wait, signal).catch(() => undefined);
  }
}
