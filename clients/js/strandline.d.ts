/** Rows of a Strandline table in a web page: live, with optimistic changes. */

/** The members of a row besides its payload. */
export interface RowFields {
  /** `<parent>:<seq>`. */
  readonly id: string;
  readonly parent: string;
  /** 1, 2, 3 … per parent. A number is never used twice. */
  readonly seq: number;
  /** The user who appended the row; null for the program itself. */
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
  readonly author?: Readonly<Record<string, unknown>> | null;
}

/** A row as the server stores it. */
export type Row<Payload> = Readonly<Payload> & RowFields;

/** The members of an appended row that the server has not confirmed. */
export interface PendingFields extends Omit<RowFields, "seq"> {
  /** Null until the server assigns it. Until then, `id` starts with `pending:`. */
  readonly seq: number | null;
  readonly pending: true;
}

/**
 * A row in `data`: of the server, with `pending` while an edit of it is not confirmed, or an appended row that the
 * server has not confirmed, in which the defaults are not filled in yet.
 */
export type ShownRow<Payload, Input = Payload> =
  | (Row<Payload> & { readonly pending?: true })
  | (Readonly<Input> & PendingFields);

export interface Retry {
  /** The approximate wait after the first failure; it doubles after each further one. Default 250. */
  firstMs?: number;
  /** The longest wait. Default 10,000. */
  maxMs?: number;
  /** When to stop retrying. Default 60,000. Appends and the rows to show are retried while the log is open. */
  forMs?: number;
}

/**
 * A token, or a function that provides it: an API key, or whatever the server's `identify` expects. The function is
 * called for every request; keep the token yourself if asking for it is expensive. If the server refuses the token with
 * 401, the function is called again, and the request is repeated if it gives another token.
 */
export type TokenProvider = string | (() => string | null | undefined | Promise<string | null | undefined>);

export interface ConnectOptions {
  /** Sent as `Authorization: Bearer …` with every request. */
  token?: TokenProvider;
  /** The user on whose behalf the page acts: for a server without API keys, or a key that may act for others. */
  user?: string;
  /** The default of the logs. */
  retry?: Retry;
}

export interface StoreOptions {
  /** Read the rows that everyone may read (`pub`) instead of those that the user may read (`auth`). Default false. */
  public?: boolean;
  /** The number of rows of the first load and of `loadMore()`. Default 50. */
  pageSize?: number;
  /** Whether to follow changes. Default true. */
  live?: boolean;
  retry?: Retry;
}

export interface LogOptions extends StoreOptions {
  /** The parent of the rows. */
  parent: string;
}

/** The options of a feed that is opened with the URL of a server. */
export interface ServerStoreOptions extends StoreOptions, Omit<ConnectOptions, "retry"> {
  table: string;
}

/** The options of a log that is opened with the URL of a server. */
export interface ServerLogOptions extends LogOptions, ServerStoreOptions {}

declare const types: unique symbol;

/** One table of a server. */
export interface TableReference<Payload = Record<string, any>, Input = Payload> {
  readonly name: string;
  /** The address of the table, at the server that gets the requests now. */
  readonly url: string;
  readonly [types]?: { payload: Payload; input: Input };
}

/** The types of a table, as `strandline types --ts` writes them. */
export interface TableTypes {
  payload: object;
  input: object;
}

/** The tables of a server, by name. */
export type Api<Tables> = {
  readonly [Name in keyof Tables]: Tables[Name] extends TableTypes
    ? TableReference<Tables[Name]["payload"], Tables[Name]["input"]>
    : never;
};

/**
 * The URL of a server, or those of a server and its standbys: a list, or a text with commas in between. Requests go to one of
 * them until it cannot be reached or cannot write, and then to the next.
 */
export type ServerUrl = string | URL | readonly (string | URL)[];

/**
 * The tables of a server: `connect(url).vote` is the table `vote`. Nothing is requested until a log is opened. `Tables`
 * comes from `strandline types --ts`; without it, every table has untyped rows.
 */
export function connect<Tables = Record<string, { payload: Record<string, any>; input: Record<string, any> }>>(
  url: ServerUrl,
  options?: ConnectOptions,
): Api<Tables>;

export interface Snapshot<Payload, Input = Payload> {
  /** Newest first. Unconfirmed rows are the newest and have `pending: true`. */
  readonly data: readonly ShownRow<Payload, Input>[];
  /** The first rows, or those of `loadMore`, are being loaded. With `error`: loading failed and is retried. */
  readonly isLoading: boolean;
  readonly hasMore: boolean;
  /** Whether the live connection is open and up to date. */
  readonly isLive: boolean;
  /** Why the last change was refused, until the next change; or why loading fails, until it succeeds. */
  readonly error: StrandlineError | null;
}

export interface Item<Input> {
  payload: Input;
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

/** A removed row that can be restored. */
export type RemovedRow<Payload> = Row<Payload> & {
  /** Milliseconds since 1970. */
  readonly deletedAt: number;
  /** The user who removed the row; null for the program itself. */
  readonly deletedBy: string | null;
};

/** The methods of every store. They also work without the object: `const { update } = feed`. */
export interface StoreMethods<Payload, Input = Payload> {
  /** Resolves when the rows are in `data`. Does nothing when there are no more. */
  loadMore(count?: number): Promise<void>;
  /** One row, or null if it does not exist. */
  read(id: string): Promise<Row<Payload> | null>;
  /** The earlier versions of a row. */
  history(id: string): Promise<Edit<Payload>[]>;
  /**
   * Shown immediately, sent once. With `expectedUpdatedAt`, fails with `CONFLICT` if the row has changed since. If the
   * server is unreachable, fails with `UNREACHABLE`, and the live connection shows the outcome.
   */
  update(id: string, patch: Partial<Input>, options?: { expectedUpdatedAt?: number }): Promise<Row<Payload>>;
  /** Hidden immediately, sent once. `hard` removes the row permanently even if the table can restore rows. */
  rm(id: string, options?: { hard?: boolean }): Promise<Removed>;
  rmBulk(ids: string[], options?: { hard?: boolean }): Promise<{ count: number; results: Removed[] }>;
  /** Restore one row. */
  restore(id: string): Promise<Row<Payload>>;
}

/** The methods of a log. They also work without the object: `const { append } = log`. */
export interface LogMethods<Payload, Input = Payload> extends StoreMethods<Payload, Input> {
  /** Rows that contain the words, if the table is searchable. */
  search(query: string, options?: { limit?: number }): Promise<Row<Payload>[]>;
  /** The number of rows for each value of a field. */
  counts(by: keyof Payload & string): Promise<{ counts: Record<string, number>; total: number }>;
  /** The rows, grouped by the values of a field. */
  indexed(by: keyof Payload & string): Promise<Record<string, Row<Payload>[]>>;
  /** The removed rows that can be restored, the highest `seq` first. Continue with `continueCursor`. */
  trash(options?: {
    limit?: number;
    cursor?: string;
  }): Promise<{ page: RemovedRow<Payload>[]; isDone: boolean; continueCursor: string | null }>;

  /**
   * Shown immediately, repeated until there is an answer or the log is closed, applied once. Reverted if the server
   * refuses.
   */
  append(item: Item<Input>): Promise<Appended>;
  /**
   * Appends all payloads or none, at most 100. A payload may have an `idempotencyKey` beside its fields. `count` is the
   * number of created rows.
   */
  appendBulk(
    payloads: readonly (Input & { idempotencyKey?: string })[],
  ): Promise<{ count: number; results: Appended[] }>;
  /** Remove all rows of the parent. */
  purge(options?: { hard?: boolean }): Promise<{ deleted: number; soft: boolean }>;
  /** Restore all removed rows of the parent. */
  restore(): Promise<{ restored: number }>;
  /** Restore one row. */
  restore(id: string): Promise<Row<Payload>>;
}

/** Something to observe. */
export interface Observable<State> {
  /** Calls `listener` after every change, once for all changes of a moment. Returns a function that unsubscribes. */
  subscribe(listener: () => void): () => void;
  /** The same object until something changes. */
  getSnapshot(): State;
  /** Ends events, requests and retries. A write that is in progress is not cancelled. */
  close(): void;
}

/** The rows of one parent. */
export interface Log<Payload, Input = Payload>
  extends LogMethods<Payload, Input>,
    Snapshot<Payload, Input>,
    Observable<Snapshot<Payload, Input>> {}

/** The rows of all parents, newest first. */
export interface Feed<Payload, Input = Payload>
  extends StoreMethods<Payload, Input>,
    Snapshot<Payload, Input>,
    Observable<Snapshot<Payload, Input>> {}

/** The rows of one parent of a table. */
export function createLog<Payload extends object, Input extends object>(
  table: TableReference<Payload, Input>,
  options: LogOptions,
): Log<Payload, Input>;
/** The rows of one parent of a table. `url` is the URL of the server, for example `http://127.0.0.1:4000`. */
export function createLog<Payload extends object = Record<string, any>>(
  url: string | URL,
  options: ServerLogOptions,
): Log<Payload>;

/** The rows of all parents of a table that is declared with a feed. */
export function createFeed<Payload extends object, Input extends object>(
  table: TableReference<Payload, Input>,
  options?: StoreOptions,
): Feed<Payload, Input>;
export function createFeed<Payload extends object = Record<string, any>>(
  url: string | URL,
  options: ServerStoreOptions,
): Feed<Payload>;

/** A log inside a component. */
export type UsedLog<Payload, Input = Payload> = Snapshot<Payload, Input> & LogMethods<Payload, Input>;

/** The hook. Its arguments are those of `createLog`. The log is open while a component shows it. */
export interface UseLog {
  <Payload extends object, Input extends object>(
    table: TableReference<Payload, Input>,
    options: LogOptions,
  ): UsedLog<Payload, Input>;
  <Payload extends object = Record<string, any>>(url: string | URL, options: ServerLogOptions): UsedLog<Payload>;
}

/** A feed inside a component. */
export type UsedFeed<Payload, Input = Payload> = Snapshot<Payload, Input> & StoreMethods<Payload, Input>;

/** The hook. Its arguments are those of `createFeed`. The feed is open while a component shows it. */
export interface UseFeed {
  <Payload extends object, Input extends object>(
    table: TableReference<Payload, Input>,
    options?: StoreOptions,
  ): UsedFeed<Payload, Input>;
  <Payload extends object = Record<string, any>>(url: string | URL, options: ServerStoreOptions): UsedFeed<Payload>;
}

/** The functions of React that the hooks use. */
export interface ReactFunctions {
  useMemo<T>(make: () => T, on: any[]): T;
  useSyncExternalStore<T>(subscribe: (listener: () => void) => () => void, get: () => T, server?: () => T): T;
}

/** Returns the hook for the given React. */
export function makeUseLog(React: ReactFunctions): UseLog;
/** Returns the hook for the given React. */
export function makeUseFeed(React: ReactFunctions): UseFeed;

/**
 * The error of a failed call. `code` is the server's (`VALIDATION_FAILED`, `RATE_LIMITED`, `CONFLICT`, `FORBIDDEN`, …)
 * or one of `UNREACHABLE` (no answer: the outcome of a change is unknown), `NO_TOKEN` (the function that provides the
 * token failed), `BAD_ANSWER` and `CLOSED`.
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
  /** The URL of the server that failed, if the next request goes to another one. */
  readonly server: string | null;
  /** Whether the same request may succeed a little later. */
  readonly isTemporary: boolean;
}
