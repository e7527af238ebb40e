/** The command palette: go to a screen or a log by typing part of its name. */

import { get } from "../api.js";
import { h, replace } from "./dom.js";
import { plural } from "./format.js";
import { address } from "./routes.js";
import { zone } from "./zone.js";

const SCREENS = ["Overview", "Logs", "Queues", "Tables", "Collections", "Routers", "Subscriptions", "Search", "SQL", "Pipeline", "Clients", "Backups", "Access"];
const SHOWN = 12;

export function openPalette() {
  if (document.querySelector("dialog[open]")) return;
  let chosen = 0;
  let options = [];
  let asked = 0;
  let hurried = false;
  let pending = false;
  const input = h("input", {
    type: "text", placeholder: "Log or screen…", role: "combobox", "aria-label": "Go to", "aria-expanded": "true",
    "aria-controls": "palette-list", "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false",
  });
  const list = h("ul", { id: "palette-list", role: "listbox", "aria-label": "Results" });
  const dialog = h("dialog.palette", { "aria-label": "Go to" }, input, list);

  const show = () => {
    replace(list, options.map((option, index) =>
      h("li", { id: `palette-${index}`, role: "option", "aria-selected": String(index === chosen), onclick: () => leave(option) }, h("span.name", {}, option.name), h("span.muted", {}, option.about)),
    ));
    if (options.length) input.setAttribute("aria-activedescendant", `palette-${chosen}`);
    else input.removeAttribute("aria-activedescendant");
    list.children[chosen]?.scrollIntoView({ block: "nearest" });
  };
  const leave = (option) => {
    dialog.close();
    if (option.run) option.run();
    else location.hash = option.to;
  };
  const ask = async () => {
    const number = (asked += 1);
    pending = true;
    hurried = false;
    const words = input.value.trim();
    const screens = SCREENS.filter((name) => name.toLowerCase().includes(words.toLowerCase())).map((name) => ({ name, about: "screen", to: address(name.toLowerCase()) }));
    // On a phone, there is no room for a button.
    const times = { name: `Times: ${zone() === "utc" ? "local" : "UTC"}`, about: "setting", run: () => document.querySelector(".zone-button").click() };
    const settings = times.name.toLowerCase().includes(words.toLowerCase()) ? [times] : [];
    let logs = [];
    try {
      logs = (await get("/console/api/logs", { search: words, limit: SHOWN })).logs;
    } catch {
      // Screens are available without the server.
    }
    if (number !== asked) return;
    pending = false;
    const found = logs.map((log) => ({ name: log.name, about: `${log.kind}, ${plural(log.records, "record")}`, to: address("log", log.name) }));
    options = words ? [...found, ...screens, ...settings] : [...screens, ...settings, ...found];
    chosen = 0;
    show();
    if (hurried && options.length) leave(options[0]);
  };
  input.addEventListener("input", ask);
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && options.length) {
      chosen = (chosen + step + options.length) % options.length;
      show();
      event.preventDefault();
    } else if (event.key === "Enter") {
      event.preventDefault();
      // Enter before the answer arrives opens the first result of that answer.
      if (pending) hurried = true;
      else if (options[chosen]) leave(options[chosen]);
    }
  });
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  ask();
}
