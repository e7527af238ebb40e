/** Lays out a graph of logs, and of what copies records between them, from left to right. Does not draw. */

const LETTER = 7;
const NODE_HEIGHT = 34;
const GAP_X = 150;
const GAP_Y = 22;
const WIDEST = 230;

/**
 * @typedef {{source: string, destination: string}} Edge
 * @param {Edge[]} given
 * @param {{widths?: Map<string, number>, height?: number, gap?: number}} [sizes] the widths of nodes, by name (also of nodes
 *   without edges); otherwise they fit the names. The height of nodes, and the space between two columns.
 * @returns {{width: number, height: number, nodes: {name: string, x: number, y: number, width: number, height: number}[],
 *   edges: {edge: any, from: any, to: any, back: boolean}[]}}
 */
export function layout(given, { widths = new Map(), height: nodeHeight = NODE_HEIGHT, gap = GAP_X } = {}) {
  const edges = withoutCircles(given);
  const layers = layersOf(edges, widths.keys());
  const nodes = new Map();
  const widthOf = (name) => widths.get(name) ?? widthFor(name);
  let top = 0;
  let width = 0;
  for (const component of components(edges, widths.keys())) {
    const columns = order(component, layers, edges);
    const tallest = Math.max(...columns.map((column) => column.length));
    const height = tallest * (nodeHeight + GAP_Y);
    let x = 0;
    for (const column of columns) {
      const widest = Math.max(...column.map(widthOf));
      const free = (height - column.length * (nodeHeight + GAP_Y)) / 2;
      column.forEach((name, index) => nodes.set(name, { name, x, y: top + free + index * (nodeHeight + GAP_Y) + GAP_Y / 2, width: widthOf(name), height: nodeHeight }));
      x += widest + gap;
    }
    width = Math.max(width, x - gap);
    top += height;
  }
  const drawn = edges.map(({ edge, back }) => ({ edge, back, from: nodes.get(edge.source), to: nodes.get(edge.destination) }));
  return { width, height: top, nodes: [...nodes.values()], edges: drawn };
}

/** Shortens a name to the letters that fit into a node. */
export function fitting(name) {
  const most = Math.floor((WIDEST - 24) / LETTER);
  return name.length > most ? `${name.slice(0, most - 1)}…` : name;
}

/** The width of a node with this text. */
export function widthFor(name) {
  return Math.min(WIDEST, Math.max(70, name.length * LETTER + 24));
}

function withoutCircles(edges) {
  const out = new Map();
  for (const edge of edges) out.set(edge.source, [...(out.get(edge.source) ?? []), edge]);
  const state = new Map();
  const back = new Set();
  const visit = (start) => {
    const path = [[start, 0]];
    state.set(start, "open");
    while (path.length) {
      const top = path.at(-1);
      const edge = (out.get(top[0]) ?? [])[top[1]];
      top[1] += 1;
      if (!edge) {
        state.set(top[0], "done");
        path.pop();
      } else if (state.get(edge.destination) === "open") back.add(edge);
      else if (!state.has(edge.destination)) {
        state.set(edge.destination, "open");
        path.push([edge.destination, 0]);
      }
    }
  };
  const fed = new Set(edges.map((edge) => edge.destination));
  for (const edge of edges) if (!fed.has(edge.source) && !state.has(edge.source)) visit(edge.source);
  for (const edge of edges) if (!state.has(edge.source)) visit(edge.source);
  return edges.map((edge) => ({ edge, back: back.has(edge) }));
}

function layersOf(edges, names) {
  const layers = new Map([...names].map((name) => [name, 0]));
  for (const { edge } of edges) layers.set(edge.source, 0).set(edge.destination, 0);
  for (let round = 0, moved = true; moved && round <= layers.size; round += 1) {
    moved = false;
    for (const { edge, back } of edges) {
      if (back || layers.get(edge.destination) > layers.get(edge.source)) continue;
      layers.set(edge.destination, layers.get(edge.source) + 1);
      moved = true;
    }
  }
  return layers;
}

function components(edges, names) {
  const parent = new Map([...names].map((name) => [name, name]));
  const root = (name) => {
    let at = name;
    while (parent.get(at) !== at) at = parent.get(at);
    return at;
  };
  for (const { edge } of edges) for (const name of [edge.source, edge.destination]) if (!parent.has(name)) parent.set(name, name);
  for (const { edge } of edges) parent.set(root(edge.source), root(edge.destination));
  const found = new Map();
  for (const name of parent.keys()) found.set(root(name), [...(found.get(root(name)) ?? []), name]);
  return [...found.values()].sort((a, b) => b.length - a.length);
}

function order(names, layers, edges) {
  const columns = [];
  for (const name of names) (columns[layers.get(name)] ??= []).push(name);
  const filled = columns.filter(Boolean);
  for (let index = 1; index < filled.length; index += 1) {
    const before = new Map(filled[index - 1].map((name, place) => [name, place]));
    const weight = (name) => {
      const places = edges.filter(({ edge }) => edge.destination === name && before.has(edge.source)).map(({ edge }) => before.get(edge.source));
      return places.length ? places.reduce((sum, place) => sum + place, 0) / places.length : 0;
    };
    const weights = new Map(filled[index].map((name) => [name, weight(name)]));
    filled[index].sort((a, b) => weights.get(a) - weights.get(b) || a.localeCompare(b));
  }
  return filled;
}
