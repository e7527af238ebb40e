/**
 * The page: the rows of a declared table, from the log that it is written to. The last record of a minute and a source is
 * the row as it is now.
 *
 * @typedef {{minute: string, source: string, orders: number, cents: number}} Row
 */

const SERVER = new URLSearchParams(location.search).get("server") ?? `http://${location.hostname}:4000`;
const LOG = `${SERVER}/v1/stream/revenue`;
/** How many minutes are shown, the newest first. */
const SHOWN = 20;
/** How long to wait before the page connects again. */
const AGAIN_MS = 1_000;
const WORDS = { live: "Live", lost: "Waiting for the server…" };

/** The rows of each minute, by source. @type {Map<string, Map<string, Row>>} */
const minutes = new Map();
/** The sources in the order of their first row, which gives them their colours. @type {string[]} */
const sources = [];
/** Where to continue in the log. */
let offset = "-1";

/** Reads the log from the offset on. The server ends a stream after a while, and the next one continues. */
function follow() {
  const events = new EventSource(`${LOG}?live=sse&offset=${offset}`);
  events.addEventListener("data", ({ data }) => {
    const rows = JSON.parse(data);
    for (const row of rows) take(row);
    draw(new Set(rows.map((row) => row.minute)));
  });
  events.addEventListener("control", ({ data }) => {
    offset = JSON.parse(data).streamNextOffset;
    tell("live");
  });
  events.addEventListener("error", () => {
    events.close();
    tell("lost");
    setTimeout(follow, AGAIN_MS);
  });
}

/** @param {Row} row */
function take(row) {
  if (!minutes.has(row.minute)) minutes.set(row.minute, new Map());
  minutes.get(row.minute).set(row.source, row);
  if (!sources.includes(row.source)) sources.push(row.source);
}

/** @param {Set<string>} changed minutes that have changed */
function draw(changed) {
  const all = [...minutes].map(([minute, rows]) => ({ minute, rows, orders: sum(rows, "orders"), cents: sum(rows, "cents") }));
  byId("revenue").textContent = `${euros(all.reduce((total, each) => total + each.cents, 0))} EUR`;
  byId("orders").textContent = String(all.reduce((total, each) => total + each.orders, 0));
  byId("minutes").textContent = String(all.length);
  byId("legend").replaceChildren(...sources.map((source) => coloured(make("li", source), source)));
  const last = all.sort((a, b) => b.minute.localeCompare(a.minute)).slice(0, SHOWN);
  const highest = Math.max(...last.map((each) => each.cents));
  byId("rows").replaceChildren(...last.map((each) => line(each, highest, changed.has(each.minute))));
}

/** @param {{minute: string, rows: Map<string, Row>, orders: number, cents: number}} each @param {number} highest @param {boolean} isChanged */
function line({ minute, rows, orders, cents }, highest, isChanged) {
  const head = make("th", minute.slice(11, 16));
  head.scope = "row";
  const parts = sources.filter((source) => rows.has(source));
  const bar = make("div", "", "bar");
  for (const source of parts) {
    const part = coloured(make("i", ""), source);
    part.style.width = `${(100 * rows.get(source).cents) / highest}%`;
    bar.append(part);
  }
  bar.title = parts.map((source) => `${source}: ${euros(rows.get(source).cents)} EUR`).join(", ");
  const row = make("tr", "", isChanged ? "changed" : "");
  const cell = make("td", "", "bars");
  cell.append(bar);
  row.append(head, cell, make("td", String(orders), "number"), make("td", euros(cents), "number"));
  return row;
}

/** @param {HTMLElement} element @param {string} source */
function coloured(element, source) {
  element.style.setProperty("--source", `var(--source-${Math.min(sources.indexOf(source), 3)})`);
  return element;
}

/** @param {"live" | "lost"} state */
function tell(state) {
  byId("state").dataset.state = state;
  byId("state").textContent = WORDS[state];
}

/** @param {Map<string, Row>} rows @param {"orders" | "cents"} member */
const sum = (rows, member) => [...rows.values()].reduce((total, row) => total + row[member], 0);
/** @param {number} cents */
const euros = (cents) => (cents / 100).toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
/** @param {string} id @returns {any} */
const byId = (id) => document.getElementById(id);

/** @param {string} tag @param {string} text @param {string} [kind] @returns {any} */
function make(tag, text, kind = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  element.className = kind;
  return element;
}

follow();
