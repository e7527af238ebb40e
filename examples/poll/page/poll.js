/** The page: the list of polls, and the selected poll. All its data comes from two logs. */

import { Ballot } from "./ballot.js";
import { byId, make, show } from "./dom.js";
import { openForm } from "./form.js";
import { asked, connect, createLog, SERVER } from "./server.js";

/**
 * @typedef {import("./tables.js").Tables} Tables
 * @typedef {import("./tables.js").PollPayload} PollPayload
 * @typedef {import("./tables.js").PollInput} PollInput
 * @typedef {import("strandline").ShownRow<PollPayload, PollInput>} Poll
 */

/** The parent of the polls; each name is a separate site. */
const SITE = asked.get("site") ?? "main";

let user = localStorage.getItem("who") ?? `guest-${1000 + Math.floor(Math.random() * 9000)}`;
/** The tables, on behalf of the user. @type {import("strandline").Api<Tables>} */
let api;
/** @type {import("strandline").Log<PollPayload, PollInput>} */
let polls;
/** @type {Ballot | null} */
let ballot = null;
/**
 * The poll in the URL, read separately if it is older than the loaded polls.
 * @type {{ id: string, isDone: boolean, row: Poll | null }}
 */
let lookedUp = { id: "", isDone: true, row: null };

const chosenId = () => decodeURIComponent(location.hash.slice(1));

/** Starts again with the current user, who determines what the page may show and do. */
function begin() {
  localStorage.setItem("who", user);
  byId("who").value = user;
  polls?.close();
  api = connect(SERVER, { user });
  polls = createLog(api.poll, { parent: SITE, public: true, pageSize: 20 });
  polls.subscribe(render);
  ballot?.close();
  ballot = null;
  render();
}

function render() {
  const { data, hasMore } = polls.getSnapshot();
  const chosen = findChosen();
  show(byId("polls"), data, (poll) => poll.idempotencyKey ?? poll.id, createLink, (item, poll) => {
    const link = item.firstElementChild;
    link.href = `#${encodeURIComponent(poll.id)}`;
    link.firstElementChild.textContent = poll.question;
    link.lastElementChild.textContent = `by ${poll.userId}${poll.isPublic ? "" : " · private"}`;
    if (poll === chosen) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  });
  byId("more-polls").hidden = !hasMore;
  choose(chosen);
  renderState();
  renderNothing(chosen);
}

/** The poll in the URL, or else the newest one, which stays selected when a newer one arrives. */
function findChosen() {
  const { data, isLoading, hasMore } = polls.getSnapshot();
  const id = chosenId();
  const found = data.find((poll) => poll.id === id) ?? (lookedUp.id === id ? lookedUp.row : null);
  if (found !== null || isLoading) return found;
  if (id !== "" && hasMore && lookedUp.id !== id) lookUp(id);
  if (!lookedUp.isDone) return null;
  const newest = data.find((poll) => !poll.pending) ?? null;
  if (newest !== null) history.replaceState(null, "", `#${encodeURIComponent(newest.id)}`);
  return newest;
}

/** @param {string} id */
async function lookUp(id) {
  lookedUp = { id, isDone: false, row: null };
  const row = await polls.read(id).catch(() => null);
  if (lookedUp.id === id) lookedUp = { id, isDone: true, row };
  render();
}

const createLink = () => make("li", {}, make("a", {}, make("span"), make("small")));

/** @param {Poll | null} poll the poll to show */
function choose(poll) {
  byId("poll").hidden = poll === null;
  if (ballot?.poll.id !== poll?.id) {
    ballot?.close();
    ballot = poll === null ? null : new Ballot(api.vote, poll, user, { notify, changed: renderState });
  }
  document.title = poll === null ? "Polls" : `${poll.question} · Polls`;
}

function renderState() {
  const logs = ballot === null ? [polls] : [polls, ballot.votes];
  const isLive = logs.every((log) => log.isLive);
  const isNew = logs.some((log) => log.isLoading && log.error === null);
  const state = isLive ? "live" : isNew ? "connecting" : "lost";
  const words = { live: "Live", connecting: "Connecting…", lost: "Disconnected, reconnecting…" };
  const refused = logs.map((log) => log.error).find((error) => error && !error.isTemporary && error.status);
  byId("state").dataset.state = refused && !isLive ? "lost" : state;
  byId("state").textContent = refused && !isLive ? "Refused by the server" : words[state];
}

/**
 * The text in place of a poll.
 * @param {Poll | null} chosen
 */
function renderNothing(chosen) {
  const { isLoading, error } = polls.getSnapshot();
  byId("nothing-yet").hidden = chosen !== null;
  let title = "No polls yet";
  let text = "Create a poll. Everyone with this page open can vote and sees new votes live.";
  if (error !== null && isLoading) {
    title = "The server cannot be reached";
    text = `${SERVER} does not answer. Retrying…`;
  } else if (error !== null) {
    title = "The polls cannot be shown";
    text = error.message;
  } else if (isLoading) {
    title = "Loading polls…";
    text = "";
  }
  byId("nothing-title").textContent = title;
  byId("nothing-text").textContent = text;
}

/* Messages: errors, and actions that can be undone. */

/** How long a message about an action stays. An error stays until it is closed. */
const TOLD_MS = 12_000;

/** @type {(() => void) | null} */
let undo = null;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let closing;

/**
 * @param {string} text
 * @param {import("./ballot.js").NoticeOptions} [options]
 */
function notify(text, { isError = false, undo: revert = null } = {}) {
  undo = revert;
  byId("notice-text").textContent = text;
  byId("notice").dataset.kind = isError ? "error" : "done";
  byId("notice-undo").hidden = revert === null;
  byId("notice").hidden = false;
  clearTimeout(closing);
  if (!isError) closing = setTimeout(closeNotice, TOLD_MS);
}

function closeNotice() {
  byId("notice").hidden = true;
}

byId("notice-close").addEventListener("click", closeNotice);
byId("notice-undo").addEventListener("click", () => {
  closeNotice();
  undo?.();
});

/* Events */

byId("who").addEventListener("change", (/** @type {any} */ event) => {
  const name = event.target.value.trim();
  if (name === "" || name === user) event.target.value = user;
  else {
    user = name;
    closeNotice();
    begin();
  }
});

byId("new").addEventListener("click", () =>
  openForm(async (/** @type {PollInput} */ payload) => {
    const { id } = await polls.append({ payload });
    location.hash = encodeURIComponent(id);
    closeNotice();
  }),
);
byId("more-polls").addEventListener("click", () => polls.loadMore().catch(() => undefined));
addEventListener("hashchange", render);
addEventListener("pagehide", () => {
  polls.close();
  ballot?.close();
});
addEventListener("pageshow", (event) => event.persisted && begin());

begin();
