// How somebody with TypeScript uses the module. It is never run: it has to pass the type checker, and the lines that
// say that they are wrong have to be refused by it.

import { connect, createFeed, createLog, makeUseFeed, makeUseLog, StrandlineError, type Log, type Row } from "../../../clients/js/strandline.js";
import type { Tables, VoteInput, VoteRow } from "../../../examples/poll/page/tables.js";

interface Vote {
  optionIdx: number;
  voter?: string;
}

const log: Log<Vote> = createLog<Vote>("http://127.0.0.1:4000", { table: "vote", parent: "site:1", user: "ada" });
const stop: () => void = log.subscribe(() => log.getSnapshot().data.map((row) => row.optionIdx + row.createdAt));

export async function use(): Promise<void> {
  const { id, seq, created } = await log.append({ payload: { optionIdx: 0 } });
  const bulk = await log.appendBulk([{ optionIdx: 1, idempotencyKey: "k" }, { optionIdx: 2 }]);
  const row: Row<Vote> = await log.update(id, { optionIdx: 2 }, { expectedUpdatedAt: seq + bulk.count });
  const removed: boolean = (await log.rm(row.id, { hard: created })).deleted;
  const { restored } = await log.restore();
  const back: Row<Vote> = await log.restore(row.id);
  const counted: number | undefined = (await log.counts("optionIdx")).counts["0"];
  const before: number[] = (await log.history(back.id)).map((edit) => edit.previous.optionIdx);
  const found: Row<Vote> | null = await log.read("site:1:1");
  console.log(removed, restored, counted, before, found?.seq, log.data[0]?.pending, (await log.purge({ hard: true })).soft);
  // @ts-expect-error a field that votes do not have
  await log.append({ payload: { option: 0 } });
  // @ts-expect-error a payload is said to be one
  await log.append({ optionIdx: 0 });
  // @ts-expect-error no field of votes
  await log.counts("userId");
  stop();
  log.close();
}

export function why(error: unknown): string {
  return error instanceof StrandlineError ? `${error.code} ${error.status} ${error.detail.fields}` : "";
}

declare const React: Parameters<typeof makeUseLog>[0];
const useLog = makeUseLog(React);

export function Votes(): string {
  const { data, append, isLoading, error } = useLog<Vote>("", { table: "vote", parent: "site:1", pageSize: 10 });
  append({ payload: { optionIdx: data.length } });
  return isLoading ? "…" : (error?.message ?? data[0]?.voter ?? "");
}

// @ts-expect-error without a parent there are no rows
createLog("", { table: "vote" });

// With the types that `strandline types --ts` writes, a table says what its rows are.

const api = connect<Tables>("http://127.0.0.1:4000", { token: async () => "fresh" });

export function TypedVotes(): string {
  const { data, append, appendBulk, update } = useLog(api.vote, { parent: "site:1" });
  const input: VoteInput = { optionIdx: 0 };
  append({ payload: input, idempotencyKey: "k" });
  appendBulk([input, { optionIdx: 1, voter: "ada" }]);
  update("site:1:1", { optionIdx: 1 }).then((row: VoteRow) => row.voter.length + row.seq);
  // @ts-expect-error a vote has a number
  append({ payload: { optionIdx: "first" } });
  // @ts-expect-error the server fills in what is missing; until then it is not there
  data.map((row) => row.voter.length);
  return data.map((row) => (row.pending ? (row.voter ?? "") : row.voter)).join();
}

const polls = createLog(api.poll, { parent: "main", public: true });
export const questions: string[] = polls.data.map((row) => row.question);
// @ts-expect-error there is no such table
createLog(api.pole, { parent: "main" });
// @ts-expect-error the table is said already
createLog(api.poll, { table: "vote", parent: "main" });
// @ts-expect-error what is read cannot be changed
polls.data[0]!.question = "";
const untyped = createLog(connect("http://127.0.0.1:4000")["vote"]!, { parent: "site:1" });
export const anything: string = untyped.data[0]?.["whatever"];

const feed = createFeed(api.vote, { public: true });
export const options: number[] = feed.data.map((row) => row.optionIdx);
// @ts-expect-error a row is appended to a parent
feed.append({ payload: { optionIdx: 0 } });
export const Newest = (): string | undefined => makeUseFeed(React)(api.poll).data[0]?.question;
export const removed = async (): Promise<number[]> =>
  (await createLog(api.vote, { parent: "site:1" }).trash({ limit: 5 })).page.map((row) => row.deletedAt + row.optionIdx);
