/** Rows of a Strandline table in a web page: live, with optimistic changes. */

/** The members that the server adds to the payload of a row, and that this module adds to a pending row. */
export interface RowFields {
  /** `<parent>:<seq>`; starts with `pending:` until the server confirms the row. */
  readonly id: string;
  readonly parent: string;
  /** 1, 2, 3 … per parent, never used twice; null until the server assigns it. */
  readonly seq: number | null;
  /** The user who appended the row. */
  readonly userId: string | null;
  /** Milliseconds since 1970. */
  readonly createdAt: number;
  /** Equal to `createdAt` until the row is edited. */
  readonly updatedAt: number;
  /** The same before and after the server confirms the row: a good `key` for list items. */
  readonly idempotencyKey?: string;
  /** Whether the reader appended the row; null if the reader is not known. */
  readonly own?: boolean | null;
  /** The author, as returned by the table's `with_author`. */
  readonly author?: Record<string, unknown> | null;
  /** The server has not confirmed the row or an edit of it. */
  readonly pending?: true;
}

export type Row<Payload> = Readonly<Payload> & RowFields;

export interface Retry {
  /** The approximate wait after the first failure; it doubles after each further one. Default 250. */
  firstMs?: number;
  /** The longest wait. Default 10,000. */
  maxMs?: number;
  /** When to stop retrying. Default 60,000. The rows to show are retried while the log is open. */
  forMs?: number;
}

export interface LogOptions {
  table: string;
  /** The parent of the rows. */
  parent: string;
  /** An API key, if the server requires one. */
  key?: string;
  /** The user on whose behalf the page acts: for a server without API keys, or a key that may act for others. */
  user?: string;
  /** Read the rows that everyone may read (`pub`) instead of those that the user may read (`auth`). Default false. */
  public?: boolean;
  /** The number of rows of the first load and of `loadMore()`. Default 50. */
  pageSize?: number;
  /** Whether to follow changes. Default true. */
  live?: boolean;
  retry?: Retry;
}

export interface Snapshot<Payload> {
  /** Newest first. Unconfirmed rows are the newest and have `pending: true`. */
  readonly data: readonly Row<Payload>[];
  /** The first rows, or those of `loadMore`, are being loaded. With `error`: loading failed and is retried. */
  readonly isLoading: boolean;
  readonly hasMore: boolean;
  /** Whether the live connection is open and up to date. */
  readonly isLive: boolean;
  /** Why the last change was refused, until the next change; or why loading fails, until it succeeds. */
  readonly error: StrandlineError | null;
}

export interface Item<Payload> {
  payload: Payload;
  /** Generated if missing. An append with a key that the parent already has is not applied again. */
  idempotencyKey?: string;
}

export interface Appended {
  id: string;
  seq: number;
  /** False: a row with this idempotency key existed already. */
  created: boolean;
}

export interface Removed {
  id: string;
  /** False: the row did not exist. */
  deleted: boolean;
  /** Whether the row can be restored. */
  soft?: boolean;
}

export interface Edit<Payload> {
  at: number;
  user: string | null;
  /** The payload before the edit. */
  previous: Payload;
}

/** The methods of a log. They also work without the object: `const { append } = log`. */
export interface LogMethods<Payload> {
  /** Resolves when the rows are in `data`. Does nothing when there are no more. */
  loadMore(count?: number): Promise<void>;
  /** One row, or null if it does not exist. */
  read(id: string): Promise<Row<Payload> | null>;
  /** Rows that contain the words, if the table is searchable. */
  search(query: string, options?: { limit?: number }): Promise<Row<Payload>[]>;
  /** The number of rows for each value of a field. */
  counts(by: keyof Payload & string): Promise<{ counts: Record<string, number>; total: number }>;
  /** The rows, grouped by the values of a field. */
  indexed(by: keyof Payload & string): Promise<Record<string, Row<Payload>[]>>;
  /** The earlier versions of a row. */
  history(id: string): Promise<Edit<Payload>[]>;

  /** Shown immediately, repeated until there is an answer, applied once. Reverted if the server refuses. */
  append(item: Item<Payload>): Promise<Appended>;
  /** Appends all items or none, at most 100. */
  appendBulk(items: Item<Payload>[]): Promise<{ count: number; results: Appended[] }>;
  /**
   * Shown immediately, sent once. With `expectedUpdatedAt`, fails with `CONFLICT` if the row has changed since. If the
   * server is unreachable, fails with `UNREACHABLE`, and the live connection shows the outcome.
   */
  update(id: string, patch: Partial<Payload>, options?: { expectedUpdatedAt?: number }): Promise<Row<Payload>>;
  /** Hidden immediately, sent once. `hard` removes the row permanently even if the table can restore rows. */
  rm(id: string, options?: { hard?: boolean }): Promise<Removed>;
  rmBulk(ids: string[], options?: { hard?: boolean }): Promise<{ count: number; results: Removed[] }>;
  /** Remove all rows of the parent. */
  purge(options?: { hard?: boolean }): Promise<{ deleted: number; soft: boolean }>;
  /** Restore all removed rows of the parent. */
  restore(): Promise<{ restored: number }>;
  /** Restore one row. */
  restore(id: string): Promise<Row<Payload>>;
}

export interface Log<Payload> extends LogMethods<Payload>, Snapshot<Payload> {
  /** Calls `listener` after every change, once for all changes of a moment. Returns a function that unsubscribes. */
  subscribe(listener: () => void): () => void;
  /** The same object until something changes. */
  getSnapshot(): Snapshot<Payload>;
  /** Ends events, requests and retries. A write that is in progress is not cancelled. */
  close(): void;
}

/** The rows of one parent of a table. `url` is the URL of the server, for example `http://127.0.0.1:4000`. */
export function createLog<Payload extends object = Record<string, any>>(url: string, options: LogOptions): Log<Payload>;

/** A log inside a component. */
export type UsedLog<Payload> = Snapshot<Payload> & LogMethods<Payload>;

/** Returns the hook for the given React. The log is open while a component shows it. */
export function makeUseLog(React: {
  useMemo<T>(make: () => T, on: any[]): T;
  useSyncExternalStore<T>(subscribe: (listener: () => void) => () => void, get: () => T, server?: () => T): T;
}): <Payload extends object = Record<string, any>>(url: string, options: LogOptions) => UsedLog<Payload>;

/**
 * The error of a failed call. `code` is the server's (`VALIDATION_FAILED`, `RATE_LIMITED`, `CONFLICT`, `FORBIDDEN`, …)
 * or one of `UNREACHABLE` (no answer: the outcome of a change is unknown), `BAD_ANSWER` and `CLOSED`.
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
  /** The other members of the server's error: `fields`, `fieldErrors`, `limit`, `table`, `op`, … */
  readonly detail: Record<string, any>;
  /** The server's retry hint in milliseconds; 0 if there is none. */
  readonly retryAfterMs: number;
  /** Whether the same request may succeed a little later. */
  readonly isTemporary: boolean;
}
