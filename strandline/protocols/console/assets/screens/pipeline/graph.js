/** The graph of declared tables, from left to right: logs, tables, and the logs that tables are written to. */

import { fitting, layout, widthFor } from "../../parts/graph.js";
import { h, s } from "../../shell/dom.js";
import { count, plural } from "../../shell/format.js";
import { address } from "../../shell/routes.js";
import { MODES } from "./modes.js";

/** The maximum number of tables in the graph; more would not be readable. */
const DRAWN = 100;
const MARGIN = 12;
const HEIGHT = 44;
const GAP = 72;
/** Edges that go backwards run below the nodes. */
const BELOW = 24;

/** Draws the tables. `select` is called with the name of a table that the user chooses. */
export function drawGraph(tables, select) {
  const { nodes: known, edges: given } = connected(tables.slice(0, DRAWN));
  const widths = new Map([...known].map(([id, node]) => [id, Math.max(widthFor(node.name), widthFor(node.caption) - 12)]));
  const { width, height, nodes, edges } = layout(given, { widths, height: HEIGHT, gap: GAP });
  const below = edges.some((edge) => edge.back) ? BELOW : 0;
  const size = [width + 2 * MARGIN, height + 2 * MARGIN + below];
  const logs = [...known.values()].filter((node) => !node.table).length;
  return [
    s(
      "svg",
      { width: size[0], height: size[1], viewBox: `${-MARGIN} ${-MARGIN} ${size[0]} ${size[1]}`, role: "group", "aria-label": `${plural(known.size - logs, "table")} and ${plural(logs, "log")}` },
      s("defs", {}, s("marker", { id: "table-arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" }, s("path.arrow", { d: "M0 0.500 8 4 0 7.500z" }))),
      edges.map(drawEdge),
      nodes.map((place) => drawNode(place, known.get(place.name), select)),
    ),
    tables.length > DRAWN ? h("p.pad.muted", {}, `The graph shows the first ${DRAWN} of ${count(tables.length)} tables.`) : null,
  ];
}

/** The logs and tables by id, and the edges between ids. A log and a table may have the same name. */
function connected(tables) {
  const nodes = new Map();
  const edges = [];
  // Views are part of the queries that read them.
  const stored = tables.filter((table) => table.kind !== "temporary_view");
  for (const table of stored) nodes.set(`table ${table.name}`, { name: table.name, table, caption: MODES[table.mode]?.[0] ?? table.state });
  const log = (name) => {
    const id = `log ${name}`;
    if (!nodes.has(id)) nodes.set(id, { name, table: null, caption: "log" });
    return id;
  };
  const source = (name) => (nodes.get(`table ${name}`) ? `table ${name}` : log(name));
  for (const table of stored) {
    const here = `table ${table.name}`;
    const state = table.error ? "paused" : table.lag ? "lagging" : table.state === "running" ? "moving" : "still";
    for (const name of table.inputs ?? []) edges.push({ source: source(name), destination: here, state });
    if (table.log) edges.push({ source: here, destination: log(table.log), state: table.error ? "paused" : state === "lagging" ? "still" : state });
    if (table.dead_letter_log) edges.push({ source: here, destination: log(table.dead_letter_log), state: "letters" });
  }
  return { nodes, edges };
}

function drawEdge({ edge, from, to, back }) {
  const [x1, y1] = back ? [from.x + from.width / 2, from.y + from.height] : [from.x + from.width, from.y + from.height / 2];
  const [x2, y2] = back ? [to.x + to.width / 2, to.y + to.height] : [to.x, to.y + to.height / 2];
  const bend = Math.max(36, (x2 - x1) / 2);
  const low = Math.max(y1, y2) + 34;
  const path = back ? `M${x1} ${y1} C${x1} ${low} ${x2} ${low} ${x2} ${y2 + 2}` : `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2 - 2} ${y2}`;
  return s("g.edge", { "data-state": edge.state, "aria-hidden": "true" }, s("path", { d: path, "stroke-width": 1.500, "marker-end": "url(#table-arrow)" }));
}

function drawNode({ x, y, width, height }, { name, table, caption }, select) {
  const choose = (event) => {
    event.preventDefault();
    select(name);
  };
  const state = table?.state ?? "";
  // Begins with the text that is visible.
  const label = [`${name} ${caption}`, ...(table && caption !== state ? [state] : [])].join(", ");
  return s(
    table ? "a.node.table-node" : "a.node.log-node",
    { href: table ? address("pipeline", "", { table: name }) : address("log", name), "data-key": `graph ${label}`, "data-state": state, onclick: table ? choose : null },
    s("title", {}, label),
    s("rect", { x, y, width, height, rx: table ? 7 : height / 2 }),
    s("text", { x: x + width / 2, y: y + 19, "text-anchor": "middle" }, fitting(name)),
    " ",
    s("text.caption", { x: x + width / 2, y: y + 34, "text-anchor": "middle" }, caption),
  );
}
