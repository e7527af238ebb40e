/** Lays out the logs and routers of a graph from left to right. Does not draw. */

const LETTER = 7;
const NODE_HEIGHT = 34;
const GAP_X = 150;
const GAP_Y = 22;
const WIDEST = 230;

/**
 * @param {{name: string, source: string, destination: string}[]} routers
 * @returns {{width: number, height: number, nodes: {name: string, x: number, y: number, width: number, height: number}[],
 *   edges: {router: any, from: any, to: any, back: boolean}[]}}
 */
export function layout(routers) {
  const edges = withoutCircles(routers);
  const layers = layersOf(edges);
  const nodes = new Map();
  let top = 0;
  let width = 0;
  for (const component of components(edges)) {
    const columns = order(component, layers, edges);
    const tallest = Math.max(...columns.map((column) => column.length));
    const height = tallest * (NODE_HEIGHT + GAP_Y);
    let x = 0;
    for (const column of columns) {
      const widest = Math.max(...column.map(widthOf));
      const free = (height - column.length * (NODE_HEIGHT + GAP_Y)) / 2;
      column.forEach((name, index) => nodes.set(name, { name, x, y: top + free + index * (NODE_HEIGHT + GAP_Y) + GAP_Y / 2, width: widthOf(name), height: NODE_HEIGHT }));
      x += widest + GAP_X;
    }
    width = Math.max(width, x - GAP_X);
    top += height;
  }
  const drawn = edges.map(({ router, back }) => ({ router, back, from: nodes.get(router.source), to: nodes.get(router.destination) }));
  return { width, height: top, nodes: [...nodes.values()], edges: drawn };
}

/** Shortens a name to the letters that fit into a node. */
export function fitting(name) {
  const most = Math.floor((WIDEST - 24) / LETTER);
  return name.length > most ? `${name.slice(0, most - 1)}…` : name;
}

function widthOf(name) {
  return Math.min(WIDEST, Math.max(70, name.length * LETTER + 24));
}

function withoutCircles(routers) {
  const out = new Map();
  for (const router of routers) out.set(router.source, [...(out.get(router.source) ?? []), router]);
  const state = new Map();
  const back = new Set();
  const visit = (start) => {
    const path = [[start, 0]];
    state.set(start, "open");
    while (path.length) {
      const top = path.at(-1);
      const router = (out.get(top[0]) ?? [])[top[1]];
      top[1] += 1;
      if (!router) {
        state.set(top[0], "done");
        path.pop();
      } else if (state.get(router.destination) === "open") back.add(router);
      else if (!state.has(router.destination)) {
        state.set(router.destination, "open");
        path.push([router.destination, 0]);
      }
    }
  };
  const fed = new Set(routers.map((router) => router.destination));
  for (const router of routers) if (!fed.has(router.source) && !state.has(router.source)) visit(router.source);
  for (const router of routers) if (!state.has(router.source)) visit(router.source);
  return routers.map((router) => ({ router, back: back.has(router) }));
}

function layersOf(edges) {
  const layers = new Map();
  for (const { router } of edges) layers.set(router.source, 0).set(router.destination, 0);
  for (let round = 0, moved = true; moved && round <= layers.size; round += 1) {
    moved = false;
    for (const { router, back } of edges) {
      if (back || layers.get(router.destination) > layers.get(router.source)) continue;
      layers.set(router.destination, layers.get(router.source) + 1);
      moved = true;
    }
  }
  return layers;
}

function components(edges) {
  const parent = new Map();
  const root = (name) => {
    let at = name;
    while (parent.get(at) !== at) at = parent.get(at);
    return at;
  };
  for (const { router } of edges) for (const name of [router.source, router.destination]) if (!parent.has(name)) parent.set(name, name);
  for (const { router } of edges) parent.set(root(router.source), root(router.destination));
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
      const places = edges.filter(({ router }) => router.destination === name && before.has(router.source)).map(({ router }) => before.get(router.source));
      return places.length ? places.reduce((sum, place) => sum + place, 0) / places.length : 0;
    };
    const weights = new Map(filled[index].map((name) => [name, weight(name)]));
    filled[index].sort((a, b) => weights.get(a) - weights.get(b) || a.localeCompare(b));
  }
  return filled;
}
