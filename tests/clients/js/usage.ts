// How somebody with TypeScript uses the module. It is never run: it has to pass the type checker, and the lines that
// say that they are wrong have to be refused by it.

import { createLog, makeUseLog, StrandlineError, type Log, type Row } from "../../../clients/js/strandline.js";

interface Vote {
  optionIdx: number;
  voter?: string;
}

const log: Log<Vote> = createLog<Vote>("http://127.0.0.1:4000", { table: "vote", parent: "site:1", user: "ada" });
const stop: () => void = log.subscribe(() => log.getSnapshot().data.map((row) => row.optionIdx + row.createdAt));

export async function use(): Promise<void> {
  const { id, seq, created } = await log.append({ payload: { optionIdx: 0 } });
  const bulk = await log.appendBulk([{ payload: { optionIdx: 1 }, idempotencyKey: "k" }]);
  const row: Row<Vote> = await log.update(id, { optionIdx: 2 }, { expectedUpdatedAt: seq + bulk.count });
  const removed: boolean = (await log.rm(row.id, { hard: created })).deleted;
  const { restored } = await log.restore();
  const back: Row<Vote> = await log.restore(row.id);
  const counted: number | undefined = (await log.counts("optionIdx")).counts["0"];
  const before: number[] = (await log.history(back.id)).map((edit) => edit.previous.optionIdx);
  const found: Row<Vote> | null = await log.read("site:1:1");
  console.log(removed, restored, counted, before, found?.pending, (await log.purge({ hard: true })).soft);
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
