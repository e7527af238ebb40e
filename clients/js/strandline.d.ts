/** Rows of a Strandline table in a page: live, with optimistic changes. */

/** What the server adds to the payload of a row, and what this module adds to one that is on its way. */
export interface RowFields {
  /** `<parent>:<seq>`; of a row that is on its way, something that begins with `pending:`. */
  readonly id: string;
  readonly parent: string;
  /** 1, 2, 3 … per parent, never used twice; null while the server has not said. */
  readonly seq: number | null;
  /** Who appended it. */
  readonly userId: string | null;
  /** Milliseconds since 1970. */
  readonly createdAt: number;
  /** The same as `createdAt` until the row is edited. */
  readonly updatedAt: number;
  /** The same before and after the server has confirmed the row: a good `key` for lists. */
  readonly idempotencyKey?: string;
  /** Whether the reader appended it; null if it is not known who reads. */
  readonly own?: boolean | null;
  /** What the table's `with_author` knows of the author. */
  readonly author?: Record<string, unknown> | null;
  /** The row, or an edit of it, has not been confirmed by the server. */
  readonly pending?: true;
}

export type Row<Payload> = Readonly<Payload> & RowFields;

export interface Retry {
  /** About how long to wait after the first failure; twice as long after each further one. Default 250. */
  firstMs?: number;
  /** The longest wait. Default 10,000. */
  maxMs?: number;
  /** When to give up. Default 60,000. What is shown is loaded for as long as the log is open. */
  forMs?: number;
}

export interface LogOptions {
  table: string;
  /** Whose rows. */
  parent: string;
  /** An API key, where the server wants one. */
  key?: string;
  /** For whom: where the server has no API keys, or with a key that may act for others. */
  user?: string;
  /** Read what everybody may read (`pub`) instead of what the user may read (`auth`). Default false. */
  public?: boolean;
  /** How many rows are loaded first, and by `loadMore()`. Default 50. */
  pageSize?: number;
  /** Whether to be told of changes. Default true. */
  live?: boolean;
  retry?: Retry;
}

export interface Snapshot<Payload> {
  /** Newest first. Rows that are on their way are the newest, with `pending: true`. */
  readonly data: readonly Row<Payload>[];
  /** The first rows, or those of `loadMore`, are being loaded. With `error`: it is being tried again. */
  readonly isLoading: boolean;
  readonly hasMore: boolean;
  /** Whether the live connection stands and has told everything. */
  readonly isLive: boolean;
  /** Why the last change was refused, until the next one is made; or why nothing can be loaded, until it can. */
  readonly error: StrandlineError | null;
}

export interface Item<Payload> {
  payload: Payload;
  /** Made up if there is none. An append with a key that the parent has seen is not made again. */
  idempotencyKey?: string;
}

export interface Appended {
  id: string;
  seq: number;
  /** False: there was a row with this idempotency key already. */
  created: boolean;
}

export interface Removed {
  id: string;
  /** False: there was no such row. */
  deleted: boolean;
  /** Whether it can be restored. */
  soft?: boolean;
}

export interface Edit<Payload> {
  at: number;
  user: string | null;
  /** The payload before the edit. */
  previous: Payload;
}

/** What can be done with a log. All of it works without the object too: `const { append } = log`. */
export interface LogMethods<Payload> {
  /** Resolves when the rows are in `data`. Does nothing when there are no more. */
  loadMore(count?: number): Promise<void>;
  /** One row, or null if there is none. */
  read(id: string): Promise<Row<Payload> | null>;
  /** Rows that have the words, if the table can be searched. */
  search(query: string, options?: { limit?: number }): Promise<Row<Payload>[]>;
  /** How many rows have which value of a field. */
  counts(by: keyof Payload & string): Promise<{ counts: Record<string, number>; total: number }>;
  /** The rows by the values of a field. */
  indexed(by: keyof Payload & string): Promise<Record<string, Row<Payload>[]>>;
  /** What a row was before its edits. */
  history(id: string): Promise<Edit<Payload>[]>;

  /** Shown at once, sent until there is an answer, made once. Fails if the server refuses; then it is not shown. */
  append(item: Item<Payload>): Promise<Appended>;
  /** All or none, up to 100. */
  appendBulk(items: Item<Payload>[]): Promise<{ count: number; results: Appended[] }>;
  /**
   * Shown at once, sent once. With `expectedUpdatedAt` it fails with `CONFLICT` if somebody was faster. When the server
   * cannot be reached it fails with `UNREACHABLE`, and the live connection shows what became of it.
   */
  update(id: string, patch: Partial<Payload>, options?: { expectedUpdatedAt?: number }): Promise<Row<Payload>>;
  /** Hidden at once, sent once. `hard`: for good, also where rows can be restored. */
  rm(id: string, options?: { hard?: boolean }): Promise<Removed>;
  rmBulk(ids: string[], options?: { hard?: boolean }): Promise<{ count: number; results: Removed[] }>;
  /** Remove all rows of the parent. */
  purge(options?: { hard?: boolean }): Promise<{ deleted: number; soft: boolean }>;
  /** Bring back all rows of the parent that can be restored. */
  restore(): Promise<{ restored: number }>;
  /** Bring back one. */
  restore(id: string): Promise<Row<Payload>>;
}

export interface Log<Payload> extends LogMethods<Payload>, Snapshot<Payload> {
  /** Call `listener` after every change, once for everything that happens at the same moment. Returns how to stop. */
  subscribe(listener: () => void): () => void;
  /** The same object until something changes. */
  getSnapshot(): Snapshot<Payload>;
  /** No more events, requests or attempts. A write that is on its way is not called back. */
  close(): void;
}

/** The rows of one parent of a table. `url` is where the server is, for instance `http://127.0.0.1:4000`. */
export function createLog<Payload extends object = Record<string, any>>(url: string, options: LogOptions): Log<Payload>;

/** A log as a component sees it. */
export type UsedLog<Payload> = Snapshot<Payload> & LogMethods<Payload>;

/** The hook, for the React that is handed over. The log is open for as long as the component is shown. */
export function makeUseLog(React: {
  useMemo<T>(make: () => T, on: any[]): T;
  useSyncExternalStore<T>(subscribe: (listener: () => void) => () => void, get: () => T, server?: () => T): T;
}): <Payload extends object = Record<string, any>>(url: string, options: LogOptions) => UsedLog<Payload>;

/**
 * Whatever goes wrong. `code` is the server's (`VALIDATION_FAILED`, `RATE_LIMITED`, `CONFLICT`, `FORBIDDEN`, …) or one of
 * `UNREACHABLE` (there was no answer: whether a change was made is not known), `BAD_ANSWER` and `CLOSED`.
 */
export class StrandlineError extends Error {
  constructor(
    code: string,
    message: string,
    more?: { status?: number; detail?: Record<string, any>; retryAfterMs?: number; cause?: unknown },
  );
  readonly code: string;
  /** The HTTP status; 0 if there was no answer. */
  readonly status: number;
  /** What else the server said: `fields`, `fieldErrors`, `limit`, `table`, `op`, … */
  readonly detail: Record<string, any>;
  /** How long the server asks to wait; 0 if it does not say. */
  readonly retryAfterMs: number;
  /** Whether the same request may be answered otherwise a little later. */
  readonly isTemporary: boolean;
}
