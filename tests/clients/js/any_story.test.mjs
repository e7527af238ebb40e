// Whatever happens, in whatever order it is told: in the end a reader sees what the server has, and never a row twice.

import assert from "node:assert/strict";
import { test } from "node:test";
import { createLog } from "../../../clients/js/strandline.js";
import { HandServer } from "./hand_server.mjs";

const STORIES = 30;
const STEPS = 60;

/** Numbers that look like chance and are the same every time (mulberry32). */
function chances(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

class Story {
  constructor(server, seed) {
    this.server = server;
    this.chance = chances(seed);
    this.retry = { firstMs: 1, maxMs: 3, forMs: 60_000 };
    this.log = createLog(server.url, { table: "vote", parent: "p", user: "me", pageSize: 4, retry: this.retry });
    this.log.subscribe(() => this.look());
    this.steps = [
      ...[this.otherAppends, this.otherAppends, this.otherUpdates, this.otherRemoves, this.otherRestores],
      ...[this.append, this.append, this.update, this.remove, this.more, this.breathe, this.breathe],
      ...[this.cut, this.loseAnswer, this.losePage, this.refuse, this.forget, this.purge, this.restoreAll],
    ];
    this.calls = [];
  }

  /** Nobody sees a row twice, or two rows in the wrong order. */
  look() {
    const { data } = this.log.getSnapshot();
    const keys = data.map((row) => row.idempotencyKey ?? row.id);
    assert.equal(new Set(keys).size, keys.length, `twice: ${keys}`);
    const seqs = data.map((row) => row.seq ?? Infinity);
    assert.deepEqual(seqs, [...seqs].sort((one, other) => (one === other ? 0 : other - one)));
  }

  pick(things) {
    return things[Math.floor(this.chance() * things.length)];
  }

  call(promise) {
    this.calls.push(promise.catch((error) => assert.notEqual(error.code, undefined, error)));
  }

  otherAppends = () => this.server.append("p", { text: `other ${this.chance()}` }, this.pick([undefined, `k${this.chance()}`]));
  otherUpdates = () => this.withRow((row) => this.server.update(row.id, { text: `edited ${this.chance()}` }));
  otherRemoves = () => this.withRow((row) => this.server.rm(row.id));
  otherRestores = () => {
    const gone = this.pick(this.server.rows.filter((each) => each.isDeleted));
    if (gone) this.server.restore(gone.row.id);
  };
  append = () => this.call(this.log.append({ payload: { text: `mine ${this.chance()}` } }));
  update = () => this.withShown((row) => this.call(this.log.update(row.id, { text: `mine ${this.chance()}` })));
  remove = () => this.withShown((row) => this.call(this.log.rm(row.id)));
  more = () => this.call(this.log.loadMore(2));
  breathe = () => new Promise((resolve) => setTimeout(resolve, 1 + this.chance() * 4));
  cut = () => this.server.cut();
  loseAnswer = () =>
    this.server.next("append", (serve, response, body) => {
      this.server.append("p", body.payload, body.idempotencyKey);
      response.destroy();
    });
  losePage = () => this.server.next("list", (serve, response) => response.destroy());
  refuse = () => this.server.refuse(this.pick(["append", "update", "rm"]), 400, { code: "NO", message: "no" });
  forget = () => {
    this.server.cut();
    this.server.forgotten = this.server.story.length;
  };
  purge = () => this.server.purge("p");
  restoreAll = () => this.server.restoreAll("p");

  withRow(use) {
    const row = this.pick(this.server.alive());
    if (row) use(row);
  }

  withShown(use) {
    const row = this.pick(this.log.data);
    if (row) use(row);
  }

  async tell() {
    for (let step = 0; step < STEPS; step++) await this.pick(this.steps)();
    this.server.behaviours.clear();
    await Promise.all(this.calls);
    for (let look = 0; look < 3000 && !(await this.agrees()); look++) await this.breathe();
    assert.deepEqual(this.log.data, this.server.alive().reverse());
  }

  async agrees() {
    if (this.log.isLive && !this.log.isLoading && this.log.hasMore) await this.log.loadMore(100);
    return JSON.stringify(this.log.data) === JSON.stringify(this.server.alive().reverse());
  }
}

for (let seed = 1; seed <= STORIES; seed++) {
  test(`story ${seed} ends with what the server has`, async () => {
    const server = await HandServer.start();
    const story = new Story(server, seed);
    try {
      await story.tell();
    } finally {
      story.log.close();
      await server.stop();
    }
  });
}
