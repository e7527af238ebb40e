/** Requests to the server: JSON with the API key, event streams over fetch, and errors. */

const NAME = "strandline.key";

/** The server refused a request, or could not be reached (`status` 0). */
export class ApiError extends Error {
  constructor(status, code, message, detail, members = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.detail = detail;
    /** All members of the error, as the protocol names them. */
    this.members = members;
  }
}

let key = stored();
let onUnauthorised = () => {};

/** Sets the function to call when the server rejects the API key. */
export function whenUnauthorised(listener) {
  onUnauthorised = listener;
}

/** @returns {string|null} */
export function currentKey() {
  return key;
}

/** @param {string|null} wanted @param {boolean} remember whether to store it on this device, beyond this tab */
export function setKey(wanted, remember = false) {
  key = wanted;
  try {
    sessionStorage.removeItem(NAME);
    localStorage.removeItem(NAME);
    if (wanted) (remember ? localStorage : sessionStorage).setItem(NAME, wanted);
  } catch {
    // Storage is not available: the key is kept while the page is open.
  }
}

/** GET. Parameters that are null, undefined or empty are omitted. */
export function get(path, params = {}, signal) {
  const query = new URLSearchParams(
    Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== ""),
  );
  return call("GET", query.size ? `${path}?${query}` : path, undefined, { signal });
}

/** Any method with a JSON body. Returns the JSON of the answer, or null. */
export function send(method, path, body, headers = {}) {
  return call(method, path, body, { headers });
}

/** A POST whose answer is a file. @returns {Promise<Blob>} */
export async function file(path, body) {
  const answer = await reach(path, { method: "POST", headers: withKey({ "content-type": "application/json" }), body: JSON.stringify(body) });
  if (!answer.ok) throw await refusal(answer);
  return answer.blob();
}

async function call(method, path, body, { headers = {}, signal } = {}) {
  const asked = { method, headers: withKey(headers), signal };
  if (body !== undefined) {
    const raw = typeof body === "string" || body instanceof Uint8Array;
    asked.body = raw ? body : JSON.stringify(body);
    if (!asked.headers["content-type"]) asked.headers["content-type"] = "application/json";
  }
  const answer = await reach(path, asked);
  if (!answer.ok) throw await refusal(answer);
  const text = await answer.text();
  return text ? JSON.parse(text) : null;
}

/**
 * An event stream that reconnects after the last event, until it is closed.
 * @param {string} path
 * @param {{on: Record<string, (data: any, id: string) => void>, state?: (state: "live"|"waiting"|"refused", error?: ApiError) => void, lastId?: string}} options
 * @returns {() => void} closes the stream
 */
export function events(path, { on, state = () => {}, lastId = "" }) {
  const stop = new AbortController();
  let last = lastId;
  let pause = 500;
  const run = async () => {
    while (!stop.signal.aborted) {
      try {
        const headers = withKey(last ? { "last-event-id": last } : {});
        headers.accept = "text/event-stream";
        const answer = await reach(path, { headers, signal: stop.signal });
        if (!answer.ok) throw await refusal(answer);
        state("live");
        pause = 500;
        await listen(answer.body, (event) => {
          if (event.id) last = event.id;
          on[event.name]?.(event.data ? JSON.parse(event.data) : null, event.id);
        });
      } catch (error) {
        if (stop.signal.aborted) return;
        if (error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429) {
          state("refused", error);
          return;
        }
      }
      if (stop.signal.aborted) return;
      state("waiting");
      await new Promise((resolve) => setTimeout(resolve, pause));
      pause = Math.min(pause * 2, 8000);
    }
  };
  run();
  return () => stop.abort();
}

async function listen(body, tell) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split(/\r?\n\r?\n/);
    rest = blocks.pop();
    for (const block of blocks) {
      const event = parse(block);
      if (event) tell(event);
    }
  }
}

function parse(block) {
  const event = { name: "message", data: "", id: "" };
  const data = [];
  for (const line of block.split(/\r?\n/)) {
    const colon = line.indexOf(":");
    if (colon === 0) continue;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") event.name = value;
    else if (field === "data") data.push(value);
    else if (field === "id") event.id = value;
  }
  event.data = data.join("\n");
  return data.length ? event : null;
}

async function reach(path, asked) {
  try {
    return await fetch(path, { ...asked, cache: "no-store" });
  } catch (error) {
    if (asked.signal?.aborted) throw error;
    throw new ApiError(0, "unreachable", "The server cannot be reached. Retrying…");
  }
}

async function refusal(answer) {
  let told = {};
  try {
    told = (await answer.json()).error ?? {};
  } catch {
    // The body is not an error of Strandline; it may come from a proxy.
  }
  // The function `identify` of an application may refuse a user of its tables; that says nothing about the API key.
  if (answer.status === 401 && told.code !== "NOT_AUTHENTICATED") onUnauthorised();
  return new ApiError(answer.status, told.code ?? "error", told.message ?? `The server answered ${answer.status}.`, told.detail, told);
}

function withKey(headers) {
  return key ? { ...headers, authorization: `Bearer ${key}` } : { ...headers };
}

function stored() {
  try {
    return sessionStorage.getItem(NAME) ?? localStorage.getItem(NAME);
  } catch {
    return null;
  }
}
