/** The icons, drawn as lines. */

import { s } from "./dom.js";

const PATHS = {
  overview: "M3 13h4l2.500-7 4 12L16 9l1.500 4H21",
  logs: "M4 6h16M4 10h16M4 14h10M4 18h13",
  queues: "M4 5h16v4H4zM4 11h11v4H4zM4 17h6v3H4z",
  tables: "M4 5h16v14H4zM4 10h16M4 14.500h16M10 5v14",
  collections: "M7 3h8l4 4v10H7zM15 3v4h4M7 7H4v14h11v-4",
  routers: "M5 12h5m0 0 5-6h4m-9 6 5 6h4M17 4l2.500 2L17 8m0 8 2.500 2-2.500 2",
  subscriptions: "M6 16V11a6 6 0 0 1 12 0v5l2 2H4zM10 20h4",
  clients: "M4 5h7v6H4zM13 13h7v6h-7zM7.500 11v5.500H13M16.500 13V8H11",
  backups: "M4 5h16v5H4zM4 14h16v5H4zM7.500 7.500h.01M7.500 16.500h.01M11 7.500h6M11 16.500h6",
  search: "M10.500 17a6.500 6.500 0 1 1 0-13 6.500 6.500 0 0 1 0 13Zm4.700-1.800L20 20",
  sql: "M4 6c0-1.700 3.600-3 8-3s8 1.300 8 3-3.600 3-8 3-8-1.300-8-3Zm0 0v12c0 1.700 3.600 3 8 3s8-1.300 8-3V6M4 12c0 1.700 3.600 3 8 3s8-1.300 8-3",
  save: "M5 4h11l3 3v13H5zM8 4v5h7V4M8 20v-6h8v6",
  download: "M12 4v11m-4-4 4 4 4-4M5 20h14",
  pipeline: "M4 7h6l4 10h6M4 17h6l1.200-3M14 7h6M13 9.500 14 7m3.500-3L21 7l-3.500 3",
  access: "M12 3l7 3v5c0 4.500-3 8-7 10-4-2-7-5.500-7-10V6zM9 12l2 2 4-4",
  clock: "M12 4a8 8 0 1 1 0 16 8 8 0 0 1 0-16ZM12 8v4l3 2",
  plus: "M12 5v14M5 12h14",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  close: "M6 6l12 12M18 6 6 18",
  copy: "M9 9h10v11H9zM5 15V4h10",
  sun: "M12 8a4 4 0 1 1 0 8 4 4 0 0 1 0-8ZM12 3v2m0 14v2M3 12h2m14 0h2M5.600 5.600 7 7m10 10 1.400 1.400M5.600 18.400 7 17M17 7l1.400-1.400",
  moon: "M19 14.500A7.500 7.500 0 0 1 9.500 5a7.500 7.500 0 1 0 9.500 9.500Z",
  auto: "M12 4a8 8 0 1 0 0 16ZM12 4a8 8 0 0 1 0 16",
  keyboard: "M3 7h18v10H3zM6.500 10h.01M10 10h.01M14 10h.01M17.500 10h.01M8 14h8",
  out: "M14 4H5v16h9M10 12h11m-3-3 3 3-3 3",
  key: "M14.500 9.500a4 4 0 1 0-3 3.900L13 15h2v2h2v2h3v-3l-5.700-5.700",
  follow: "M12 4v13m-5-5 5 5 5-5M5 20h14",
  code: "m8 8-4 4 4 4m8-8 4 4-4 4M13.500 6l-3 12",
  back: "M14 6l-6 6 6 6",
  run: "M8 5v14l11-7z",
  redrive: "M4 12a8 8 0 0 1 14-5l2 2m0-5v5h-5M20 12a8 8 0 0 1-14 5l-2-2m0 5v-5h5",
};

/** @param {keyof typeof PATHS} name */
export function icon(name) {
  return s("svg.icon", { viewBox: "0 0 24 24", "aria-hidden": "true" }, s("path", { d: PATHS[name] }));
}
