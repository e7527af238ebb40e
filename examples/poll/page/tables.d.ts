// The types of the tables of a Strandline server, written by `strandline types --ts`. Do not edit.

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
  /** Milliseconds since 1970; equal to `createdAt` until the row is edited. */
  readonly updatedAt: number;
  readonly idempotencyKey?: string;
  /** Whether the reader appended the row. */
  readonly own?: boolean | null;
  /** The author, as returned by the table's `with_author`. */
  readonly author?: Readonly<Record<string, unknown>> | null;
}

/** The payload of a row of `poll`, as the server stores it. */
export interface PollPayload {
  readonly question: string;
  readonly options: readonly string[];
  readonly isPublic: boolean;
}

/** A row of `poll`. */
export type PollRow = PollPayload & RowFields;

/** What you append to `poll`. The server fills in members that have a default. */
export interface PollInput {
  question: string;
  options: readonly string[];
  /** @default true */
  isPublic?: boolean;
}

/** The payload of a row of `vote`, as the server stores it. */
export interface VotePayload {
  readonly optionIdx: number;
  readonly voter: string;
}

/** A row of `vote`. */
export type VoteRow = VotePayload & RowFields;

/** What you append to `vote`. The server fills in members that have a default. */
export interface VoteInput {
  optionIdx: number;
  /** @default "" */
  voter?: string;
}

/** All tables: `connect<Tables>(url)` types the rows and the inputs of each. */
export interface Tables {
  poll: { payload: PollPayload; input: PollInput };
  vote: { payload: VotePayload; input: VoteInput };
}
