/** The frame around every screen: navigation, API key, theme. */

import { setKey } from "../api.js";
import { h, replace } from "./dom.js";
import { icon } from "./icons.js";
import { bindEverywhere, showKeys } from "./keys.js";
import { openPalette } from "./palette.js";
import { address, go } from "./routes.js";
import { current } from "./session.js";
import { nextTheme, onTheme, theme } from "./theme.js";
import { nextZone, zone } from "./zone.js";

/** @type {[string, string, string][]} screen, title, second key of its chord */
export const SCREENS = [
  ["overview", "Overview", "o"],
  ["logs", "Logs", "l"],
  ["queues", "Queues", "q"],
  ["tables", "Tables", "t"],
  ["collections", "Collections", "c"],
  ["routers", "Routers", "r"],
  ["subscriptions", "Subscriptions", "w"],
  ["search", "Search", "s"],
  ["sql", "SQL", "d"],
  ["pipeline", "Pipeline", "p"],
  ["clients", "Clients", "n"],
  ["backups", "Backups", "b"],
  ["access", "Access", "a"],
];

const PARENTS = { log: "logs", queue: "queues", subscription: "subscriptions", table: "tables", collection: "collections", document: "collections" };
/** Screens that the sidebar shows only if the server has something for them. */
const IF_USED = new Set(["tables", "collections"]);

/** Draws the frame. @returns {{main: HTMLElement, mark: (screen: string) => void}} */
export function openFrame(body) {
  const links = SCREENS.filter(([screen]) => !IF_USED.has(screen) || current()[screen]).map(([screen, title, key]) =>
    h("a", { href: address(screen), dataset: { screen }, title: `${title} (g ${key})` }, icon(screen), h("span", {}, title)),
  );
  const main = h("main", { id: "main", tabindex: "-1" });
  replace(
    body,
    h("a.skip", { href: "#main", onclick: (event) => (event.preventDefault(), main.focus()) }, "Skip to content"),
    h(current().key ? "div.frame.signed-in" : "div.frame", {}, h("nav.side", { "aria-label": "Screens" }, brand(), h("div.links", {}, links), foot()), main),
    h("div", { id: "notices", role: "status", "aria-live": "polite" }),
  );
  const mark = (screen) => {
    for (const link of links) {
      const here = link.dataset.screen === (PARENTS[screen] ?? screen);
      if (here) {
        link.setAttribute("aria-current", "page");
        link.scrollIntoView({ block: "nearest", inline: "nearest" });
      } else link.removeAttribute("aria-current");
    }
  };
  return { main, mark };
}

/** Binds the shortcuts that work on all screens. */
export function bindNavigation() {
  for (const [screen, title, key] of SCREENS) bindEverywhere(`g ${key}`, title, () => go(screen));
  bindEverywhere("/", "Search this screen", () => {
    const field = document.querySelector("main [data-search]");
    if (!field) return openPalette();
    field.focus();
    field.select?.();
    return true;
  });
  bindEverywhere("Ctrl+K", "Go to a log or screen", openPalette);
  bindEverywhere("t", "Switch theme: system, light, dark", () => nextTheme());
  bindEverywhere("z", "Switch times: local, UTC", () => document.querySelector(".zone-button").click());
  bindEverywhere("c", "Show curl and Python", () => {
    const code = document.querySelector("main details.code");
    if (!code) return;
    code.open = !code.open;
    code.querySelector("summary").focus();
  });
  bindEverywhere("?", "Keyboard shortcuts", showKeys);
}

function brand() {
  return h("a.brand", { href: address("overview"), title: "Strandline" }, h("img", { src: "/console/icon.svg", alt: "", width: 22, height: 22 }), h("span", {}, "Strandline"));
}

function foot() {
  const { version, key } = current();
  const button = h("button.quiet", { type: "button", onclick: () => nextTheme() });
  const show = () => {
    const [sign, word] = { system: ["auto", "System"], light: ["sun", "Light"], dark: ["moon", "Dark"] }[theme()];
    replace(button, icon(sign), h("span", {}, `Theme: ${word}`));
    button.setAttribute("aria-label", `Theme: ${word}`);
    button.title = "Switch theme: system, light, dark (t)";
  };
  show();
  onTheme(show);
  const clock = h("button.quiet.zone-button", { type: "button", title: "Switch times: local, UTC (z)", onclick: () => (nextZone(), tellZone()) });
  const tellZone = () => {
    const words = `Times: ${zone() === "utc" ? "UTC" : "Local"}`;
    replace(clock, icon("clock"), h("span", {}, words));
    clock.setAttribute("aria-label", words);
  };
  tellZone();
  const out = key
    ? h("button.quiet", { type: "button", title: `API key ${key.id}: ${key.scopes.join(", ")}${key.prefixes.length ? `; prefixes ${key.prefixes.join(", ")}` : ""}`, onclick: signOut }, icon("out"), h("span", {}, "Sign out"))
    : null;
  return h(
    "div.foot",
    {},
    h("button.quiet", { type: "button", title: "Go to a log or screen (Ctrl+K)", "aria-label": "Go to a log or screen", onclick: openPalette }, icon("search"), h("span", {}, "Go to…")),
    button,
    clock,
    h("button.quiet.keys-button", { type: "button", "aria-label": "Keyboard shortcuts", title: "Keyboard shortcuts (?)", onclick: showKeys }, icon("keyboard"), h("span", {}, "Shortcuts")),
    out,
    h("p.version", {}, `${version}`),
  );
}

function signOut() {
  setKey(null);
  location.reload();
}
