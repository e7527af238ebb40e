/** Errors, and which of them are temporary. */

/**
 * The error of a failed call. `code` is the server's (`VALIDATION_FAILED`, `RATE_LIMITED`, `CONFLICT`, …) or one of
 * `UNREACHABLE` (no answer: the outcome of a change is unknown), `NO_TOKEN` (the function that provides the token
 * failed), `BAD_ANSWER` and `CLOSED`.
 */
export class StrandlineError extends Error {
  /**
   * @param {string} code
   * @param {string} message
   * @param {{ status?: number, detail?: Record<string, any>, retryAfterMs?: number, cause?: unknown }} [more]
   */
  constructor(code, message, { status = 0, detail = {}, retryAfterMs = 0, cause } = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "StrandlineError";
    this.code = code;
    /** The HTTP status; 0 if there was no answer. */
    this.status = status;
    /** The other members of the server's error: `fields`, `fieldErrors`, `limit`, … */
    this.detail = detail;
    /** The server's retry hint in milliseconds; 0 if there is none. */
    this.retryAfterMs = retryAfterMs;
    /**
     * The URL of the server that failed, if the next request goes to another one.
     * @type {string | null}
     */
    this.server = null;
  }

  /** Whether the same request may succeed a little later. A rate limit of the table does not count as temporary. */
  get isTemporary() {
    if (this.code === "UNREACHABLE" || this.code === "NO_TOKEN") return true;
    if (this.code === "RATE_LIMITED" || this.status === 501) return false;
    return this.status >= 500 || [408, 425, 429].includes(this.status);
  }
}

/**
 * Whether the server waits for its turn, so that it has not executed the request.
 * @param {unknown} error
 */
export const isStandby = (error) => error instanceof StrandlineError && error.code.toLowerCase() === "standby";

/**
 * Whether a server that can take the place of this one may answer.
 * @param {unknown} error
 */
export function mayAnswerElsewhere(error) {
  if (!(error instanceof StrandlineError)) return false;
  const { code, status } = error;
  // It waits for its turn, cannot write any more, or does not reach the replica, which another server may have taken over.
  const codes = ["standby", "read_only", "replica_away", "replica_behind"];
  if (status === 503 && codes.includes(code.toLowerCase())) return true;
  // A proxy does not reach its server.
  return code === "UNREACHABLE" || ([502, 503, 504].includes(status) && code === `HTTP_${status}`);
}

export const closed = () => new StrandlineError("CLOSED", "this log is closed");

/**
 * The server's error as a StrandlineError.
 * @param {Response} response
 */
export async function refusal(response) {
  const text = await response.text().catch(() => "");
  let told = null;
  try {
    told = JSON.parse(text)?.error;
  } catch {
    // The body is not JSON; it may come from a proxy.
  }
  const { code, message, ...detail } = typeof told === "object" && told !== null ? told : {};
  const seconds = Number(response.headers.get("retry-after"));
  return new StrandlineError(
    code ?? `HTTP_${response.status}`,
    message ?? `the server answered ${response.status} ${response.statusText}`.trim(),
    { status: response.status, detail, retryAfterMs: detail.retryAfter ?? (seconds > 0 ? seconds * 1000 : 0) },
  );
}

/**
 * @param {unknown} cause
 * @returns {never}
 */
export function unreachable(cause) {
  throw unreachableError(cause);
}

/** @param {unknown} cause */
export function unreachableError(cause) {
  // A browser does not say why a request failed. By default, servers refuse pages without an origin.
  const advice =
    globalThis.location?.origin === "null" ? "; this page has no origin: serve it over HTTP, not from a file" : "";
  return new StrandlineError("UNREACHABLE", `the server cannot be reached${advice}`, { cause });
}
