/** The console: starts, signs in, and switches between screens. */

import { whenUnauthorised } from "./api.js";
import { clearNotices } from "./shell/dialogs.js";
import { h, replace } from "./shell/dom.js";
import { forgetScreen } from "./shell/keys.js";
import { bindNavigation, openFrame } from "./shell/navigation.js";
import { route } from "./shell/routes.js";
import { current, loadSession } from "./shell/session.js";
import { signIn } from "./shell/signin.js";
import { whenZoneChanges } from "./shell/zone.js";

const SCREENS = {
  overview: () => import("./screens/overview.js"),
  logs: () => import("./screens/logs.js"),
  log: () => import("./screens/log.js"),
  queues: () => import("./screens/queues.js"),
  queue: () => import("./screens/queue.js"),
  tables: () => import("./screens/tables.js"),
  table: () => import("./screens/table.js"),
  collections: () => import("./screens/collections.js"),
  collection: () => import("./screens/collection.js"),
  document: () => import("./screens/document.js"),
  routers: () => import("./screens/routers.js"),
  subscriptions: () => import("./screens/subscriptions.js"),
  subscription: () => import("./screens/subscription.js"),
  search: () => import("./screens/search.js"),
  sql: () => import("./screens/sql.js"),
  pipeline: () => import("./screens/pipeline.js"),
  clients: () => import("./screens/clients.js"),
  backups: () => import("./screens/backups.js"),
  access: () => import("./screens/access.js"),
  missing: () => import("./screens/missing.js"),
};

let signingIn = null;
let frame = null;
let close = () => {};
let opened = 0;

async function start() {
  for (;;) {
    try {
      const session = await loadSession();
      if (!session.keys_required || session.key) break;
      await askForKey();
    } catch (error) {
      if (error.status === 401) await askForKey();
      else await waitForServer(error);
    }
  }
  frame = openFrame(document.body);
  await open();
}

function askForKey(told) {
  signingIn ??= signIn(document.body, told).finally(() => (signingIn = null));
  return signingIn;
}

async function waitForServer(error) {
  replace(document.body, h("main.sign-in", {}, h("div", {}, h("h1", {}, "Strandline"), h("p.problem", { role: "alert" }, error.message))));
  await new Promise((resolve) => setTimeout(resolve, 1000));
}

async function open() {
  const number = (opened += 1);
  const { screen, name, params } = route();
  const load = Object.hasOwn(SCREENS, screen) ? SCREENS[screen] : SCREENS.missing;
  close();
  close = () => {};
  forgetScreen();
  const { open: openScreen } = await load();
  if (number !== opened || !frame) return;
  const root = h("div.screen", { dataset: { screen } });
  replace(frame.main, root);
  frame.mark(screen);
  frame.main.scrollTop = 0;
  close = openScreen(root, { name, ...params }) ?? (() => {});
}

bindNavigation();
whenZoneChanges(() => frame && open());
whenUnauthorised(async () => {
  // The API key was revoked or expired while the console was open.
  if (!frame || signingIn || !current()?.keys_required) return;
  close();
  close = () => {};
  frame = null;
  await askForKey("Your API key is no longer valid.");
  await start();
});
addEventListener("hashchange", () => {
  clearNotices();
  if (frame) open();
});
start();
