/** What an address that names no screen shows. */

import { heading } from "../parts/heading.js";
import { empty } from "../parts/states.js";
import { h, replace } from "../shell/dom.js";
import { address, route } from "../shell/routes.js";

export function open(root) {
  const { screen } = route();
  replace(root, heading("Page not found"), empty("This page does not exist", `The console has no screen named “${screen}”. The link may be from another version of the console.`, h("a.button", { href: address("overview") }, "Go to the overview")));
}
