/** The live connection: kept up for as long as it is wanted, gone on with where it broke off. */

import { StrandlineError } from "./errors.js";
import { Backoff, pause } from "./retrying.js";

/** Refused to whoever asks, whatever cursor comes with it. */
const REFUSED = [401, 403, 404];

/**
 * Listen until `signal` says otherwise or the server refuses for good.
 *
 * @param {import("./wire.js").Wire} wire
 * @param {object} how
 * @param {string} how.parent
 * @param {AbortSignal} how.signal
 * @param {typeof import("./retrying.js").RETRY} how.retry
 * @param {(isAnew: boolean) => void} how.stands everything before was told; `isAnew`: but nothing from before it stood
 * @param {(event: { type: string, data: any }) => void} how.told
 * @param {() => void} how.lost
 * @param {(error: StrandlineError) => void} how.refused it will not be tried again
 */
export async function listen(wire, { parent, signal, retry, stands, told, lost, refused }) {
  const backoff = new Backoff(retry);
  /** @type {string | null} */
  let cursor = null;
  while (!signal.aborted) {
    let wait = 0;
    try {
      const isAnew = cursor === null;
      for await (const { type, id, data } of wire.live(parent, cursor ?? "now", signal)) {
        cursor = id ?? cursor;
        if (type === "ready") {
          backoff.reset();
          stands(isAnew);
        } else if (type !== "end") {
          // Whoever was sent away comes again, and is told by the answer whether that was for good.
          told({ type, data });
        }
      }
    } catch (thrown) {
      if (signal.aborted) return;
      const error = thrown instanceof StrandlineError ? thrown : new StrandlineError("BAD_ANSWER", String(thrown));
      if (!error.isTemporary) {
        if (cursor === null || REFUSED.includes(error.status)) return refused(error);
        // The cursor is too old, or of another server: begin anew.
        cursor = null;
      }
      wait = error.retryAfterMs;
    }
    lost();
    await pause(backoff.next(wait), signal).catch(() => undefined);
  }
}
