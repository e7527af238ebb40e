/** One poll: its answers as bars, the latest votes, and the actions. */

import { ago, byId, make, plural, show } from "./dom.js";
import { createLog } from "./server.js";

/**
 * @typedef {import("./tables.js").VotePayload} VotePayload
 * @typedef {import("./tables.js").VoteInput} VoteInput
 * @typedef {import("strandline").ShownRow<VotePayload, VoteInput>} Vote
 * @typedef {{ counts: Record<string, number>, total: number }} Tally
 * @typedef {{ isError?: boolean, undo?: (() => void) | null }} NoticeOptions
 * @typedef {{ notify: (text: string, options?: NoticeOptions) => void, changed: () => void }} Page
 */

/** The number of votes shown at first, and added with each "Show more". */
const SHOWN = 8;
/** How often relative times are updated. */
const CLOCK_MS = 20_000;

export class Ballot {
  /**
   * @param {import("strandline").TableReference<VotePayload, VoteInput>} table
   * @param {import("./poll.js").Poll} poll
   * @param {string} user
   * @param {Page} page
   */
  constructor(table, poll, user, page) {
    this.poll = poll;
    this.user = user;
    this.page = page;
    this.shown = SHOWN;
    /** The counts of the server, needed when not all votes are loaded. @type {Tally | null} */
    this.counted = null;
    this.isCounting = false;
    this.isOutdated = false;
    this.ending = new AbortController();
    this.votes = createLog(table, { parent: poll.id, public: poll.isPublic, pageSize: 50 });
    this.votes.subscribe(() => this.render());
    this.clock = setInterval(() => this.renderVotes(), CLOCK_MS);
    byId("options").replaceChildren();
    byId("votes").replaceChildren();
    this.listen("withdraw", () => this.withdraw());
    this.listen("purge", () => this.purge());
    this.listen("restore", () => this.restore());
    this.listen("more-votes", () => this.more());
    this.render();
  }

  close() {
    this.ending.abort();
    clearInterval(this.clock);
    this.votes.close();
  }

  /**
   * @param {string} id
   * @param {() => void} act
   */
  listen(id, act) {
    byId(id).addEventListener("click", act, { signal: this.ending.signal });
  }

  /** The user's vote. */
  get mine() {
    return this.votes.data.find((vote) => vote.userId === this.user);
  }

  /** Whether the user may not see the votes. */
  get isPrivate() {
    return !this.poll.isPublic && this.poll.userId !== this.user;
  }

  /* Rendering */

  render() {
    byId("question").textContent = this.poll.question;
    byId("owner").hidden = this.poll.userId !== this.user;
    this.count();
    this.renderCounts();
    this.renderMine();
    this.renderVotes();
    this.page.changed();
  }

  renderCounts() {
    const { poll, isPrivate } = this;
    const { counts, total } = this.tally() ?? { counts: {}, total: 0 };
    const isKnown = this.tally() !== null && !isPrivate;
    byId("about").textContent =
      `asked by ${poll.userId} ${ago(poll.createdAt)}` + (isKnown ? ` · ${plural(total, "vote")}` : "");
    const options = poll.options.map((text, index) => ({ text, index, count: counts[index] ?? 0 }));
    const chosen = this.mine?.optionIdx;
    show(
      byId("options"),
      options,
      (option) => String(option.index),
      (option) => this.createOption(option),
      (item, { index, count }) => {
        const share = total === 0 ? 0 : count / total;
        const button = item.firstElementChild;
        button.setAttribute("aria-pressed", String(index === chosen));
        button.style.setProperty("--share", String(share));
        const [percent, votes] = button.lastElementChild.children;
        percent.textContent = isKnown ? `${Math.round(share * 100)} %` : "";
        votes.textContent = isKnown ? plural(count, "vote") : "";
        button.disabled = isPrivate;
      },
    );
  }

  /** @param {{ text: string, index: number }} option */
  createOption({ text, index }) {
    const parts = ["bar", "tick", "text", "count"].map((className) => make("span", { className }));
    parts[2].textContent = text;
    parts[3].append(make("span"), " ", make("small"));
    const button = make("button", { type: "button", onclick: () => this.vote(index) }, ...parts);
    return make("li", {}, button);
  }

  renderMine() {
    const { mine, poll, votes, isPrivate } = this;
    byId("withdraw").hidden = mine === undefined;
    let text = votes.isLoading ? "" : "Choose an answer; you can change it later.";
    if (mine !== undefined) text = mine.pending ? "Sending your vote…" : `You voted for “${poll.options[mine.optionIdx]}”.`;
    else if (isPrivate) text = "This poll is private: only its owner can vote and see the votes.";
    byId("mine").textContent = text;
  }

  renderVotes() {
    const { data, hasMore, isLoading, error } = this.votes.getSnapshot();
    show(
      byId("votes"),
      data.slice(0, this.shown),
      (vote) => vote.idempotencyKey ?? vote.id,
      (vote) => this.createVote(vote),
      (item, vote) => this.updateVote(item, vote),
    );
    byId("more-votes").hidden = data.length <= this.shown && !hasMore;
    byId("no-votes").hidden = data.length > 0;
    let text = "No votes yet.";
    if (isLoading) text = error === null ? "Loading…" : "The votes cannot be loaded. Retrying…";
    else if (this.isPrivate) text = "The votes of this poll are private.";
    byId("no-votes").textContent = text;
  }

  /** @param {Vote} vote */
  createVote({ userId }) {
    const name = userId ?? "anonymous";
    const hue = Array.from(name).reduce((sum, letter) => (sum * 31 + (letter.codePointAt(0) ?? 0)) % 360, 7);
    const face = make("span", { className: "face", textContent: Array.from(name)[0].toUpperCase(), ariaHidden: "true" });
    face.style.setProperty("--hue", String(hue));
    const when = make("time", { className: "when" });
    return make("li", {}, face, make("span", { className: "name", textContent: name }), when, make("span", { className: "chosen" }));
  }

  /**
   * @param {any} item
   * @param {Vote} vote
   */
  updateVote(item, vote) {
    const [, , when, chosen] = item.children;
    item.classList.toggle("pending", vote.pending === true);
    when.dateTime = new Date(vote.updatedAt).toISOString();
    when.textContent = vote.pending ? "sending…" : ago(vote.updatedAt);
    chosen.firstChild?.remove();
    chosen.prepend(this.poll.options[vote.optionIdx] ?? "unknown answer");
    const isEdited = vote.updatedAt > vote.createdAt && !vote.pending;
    if (isEdited && chosen.dataset.edited !== String(vote.updatedAt)) {
      const ask = make("button", { type: "button", className: "quiet", textContent: "edited" });
      ask.addEventListener("click", () => this.tellHistory(vote.id, ask));
      chosen.replaceChildren(chosen.firstChild, " ", ask);
    }
    chosen.dataset.edited = isEdited ? String(vote.updatedAt) : "";
  }

  /**
   * @param {string} id
   * @param {HTMLElement} button
   */
  async tellHistory(id, button) {
    try {
      const edits = await this.votes.history(id);
      const before = edits.map((edit) => this.poll.options[edit.previous.optionIdx]).join(", then ");
      button.replaceWith(make("span", { textContent: `· before: ${before}` }));
    } catch (/** @type {any} */ error) {
      this.page.notify(error.message, { isError: true });
    }
  }

  /* Counting: loaded votes are counted here, the others by the server. */

  /** The votes of each answer and in total; null while unknown. @returns {Tally | null} */
  tally() {
    const { data, hasMore } = this.votes.getSnapshot();
    if (hasMore) return this.counted;
    /** @type {Record<string, number>} */
    const counts = {};
    for (const vote of data) counts[vote.optionIdx] = (counts[vote.optionIdx] ?? 0) + 1;
    return { counts, total: data.length };
  }

  async count() {
    this.isOutdated = this.votes.hasMore;
    if (this.isCounting) return;
    this.isCounting = true;
    try {
      while (this.isOutdated) {
        this.isOutdated = false;
        this.counted = await this.votes.counts("optionIdx");
        if (!this.ending.signal.aborted) this.renderCounts();
      }
    } catch {
      // The log reports when the server is unreachable; the next change counts again.
    }
    this.isCounting = false;
  }

  /* Actions */

  /**
   * One vote per user: the key contains the user, so a second vote finds the first, even if that was withdrawn.
   * @param {number} optionIdx
   */
  vote(optionIdx) {
    return this.attempt(async () => {
      const { mine, votes, user } = this;
      if (mine !== undefined) {
        if (mine.optionIdx !== optionIdx) await votes.update(mine.id, { optionIdx });
        return;
      }
      const { id, created } = await votes.append({ payload: { optionIdx }, idempotencyKey: `vote of ${user}` });
      if (created) return;
      if ((await votes.read(id)) === null) await votes.restore(id);
      await votes.update(id, { optionIdx });
    });
  }

  withdraw() {
    return this.attempt(async () => {
      const { mine, votes } = this;
      if (mine === undefined) return;
      const { id } = await votes.rm(mine.id);
      this.page.notify("Your vote was withdrawn.", { undo: () => this.attempt(() => votes.restore(id)) });
    });
  }

  purge() {
    return this.attempt(async () => {
      const { deleted } = await this.votes.purge();
      this.page.notify(`${plural(deleted, "vote")} cleared.`, { undo: deleted > 0 ? () => this.restore() : null });
    });
  }

  restore() {
    return this.attempt(async () => {
      const { restored } = await this.votes.restore();
      this.page.notify(restored === 0 ? "There were no votes to restore." : `${plural(restored, "vote")} restored.`);
    });
  }

  async more() {
    this.shown += SHOWN;
    if (this.shown > this.votes.data.length && this.votes.hasMore) await this.attempt(() => this.votes.loadMore());
    this.renderVotes();
  }

  /** @param {() => Promise<unknown>} act */
  async attempt(act) {
    try {
      await act();
    } catch (/** @type {any} */ error) {
      const seconds = Math.ceil(error.retryAfterMs / 1000);
      const isLimit = error.code === "RATE_LIMITED";
      this.page.notify(isLimit ? `Too many votes. Try again in ${seconds} s.` : error.message, { isError: true });
    }
  }
}
