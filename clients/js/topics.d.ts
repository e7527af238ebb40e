/** Topics and queues of a Strandline server, for browsers and Node. */

import type { ConnectOptions, ServerUrl } from "./strandline.js";
import type {
  AckAnswer,
  ConfigShown,
  ConsumerAnswer,
  ConsumerDeleted,
  ExtendAnswer,
  JobFailure,
  LostRange,
  NackAnswer,
  QueueState,
  TopicDeleted,
  TopicPut,
  TopicRow,
  TopicState,
  WriteAnswer,
} from "./topics_answers.js";

export { StrandlineError } from "./strandline.js";
export type * from "./topics_answers.js";

/** The members of a configuration that you set; the others get their defaults. */
export type Config = Partial<Omit<ConfigShown, "durable" | "type">> & { readonly type?: "log" | "queue" };

/** A record to write, or a job to add. `priority` and `notBefore` (milliseconds since 1970, or a Date) are for jobs. */
export interface Draft<T = unknown> {
  data: T;
  tag?: string;
  node?: string;
  meta?: unknown;
  priority?: number;
  notBefore?: number | Date;
}

export interface Record<T = any> {
  /** 1, 2, 3 … per topic. A number is never used twice. */
  readonly seq: number;
  /** Milliseconds since 1970. */
  readonly ts: number;
  readonly time: Date;
  readonly tag: string | null;
  readonly node: string | null;
  readonly data: T;
  readonly meta: unknown;
}

export interface Page<T = any> {
  readonly records: Record<T>[];
  /** Continue after this number. */
  readonly next: number;
  readonly head: number;
  /** There are no more records yet. */
  readonly caughtUp: boolean;
  /** The records that retention or a crash removed. */
  readonly tombstone: LostRange | null;
}

/** A filter by tag: a text, or `["tag", "Glob", "eu-*"]`. */
export type Match = string | readonly [string, string, string];

export interface SelectOptions {
  /** Start after this number; 0 is the beginning. */
  after?: number;
  match?: Match;
  /** Only records from this time on, in milliseconds. */
  sinceTs?: number;
  /** Without the records of these nodes. */
  withoutNodes?: string | readonly string[];
  /** The number of records of a page. Default 1000. */
  limit?: number;
  signal?: AbortSignal;
}

export interface DiffOptions extends SelectOptions {
  /** Wait for records if there are none. */
  waitMs?: number;
  /** Only the last record of each tag. */
  latest?: boolean;
}

export interface ReadOptions extends SelectOptions {
  latest?: boolean;
  /** Called for records that retention or a crash removed. Without it, they are an error. */
  onLoss?: (lost: LostRange) => void;
}

export interface EnqueueOptions {
  /** From -1000 to 1000; higher priorities are delivered first. */
  priority?: number;
  delayMs?: number;
  notBefore?: number | Date;
  tag?: string;
  meta?: unknown;
  idempotencyKey?: string;
}

export interface Job<T = any> {
  readonly seq: number;
  readonly leaseId: string;
  /** When the lease ends, in milliseconds. */
  readonly deadline: number;
  readonly ts: number;
  readonly time: Date;
  /** Including this delivery. */
  readonly deliveries: number;
  readonly data: T;
  readonly tag: string | null;
  readonly priority: number;
  readonly meta: unknown;
  /** The last failed deliveries, oldest first. */
  readonly failures: readonly JobFailure[];
}

export interface WorkerOptions {
  /** Default 1. */
  concurrency?: number;
  /** Default: that of the queue. */
  leaseMs?: number;
  /** How often an idle worker looks for delayed jobs. Default 1000. */
  pollMs?: number;
  /** Called when the function of the worker fails. */
  failed?: (job: Job, error: unknown) => void;
}

export class Client {
  constructor(url: ServerUrl, options?: ConnectOptions);
  topic<T = any>(name: string): Topic<T>;
  /** `node` identifies this program to the queue; the default is a unique name. */
  queue<T = any>(name: string, options?: { node?: string }): Queue<T>;
  topics(options?: { prefix?: string }): AsyncGenerator<TopicRow, void>;
}

/** One topic. Writes are repeated while `retry.forMs` lasts, at most 100 seconds, and each is applied once. */
export class Topic<T = any> {
  private constructor();
  readonly name: string;
  write(
    data: T,
    options?: { tag?: string; node?: string; meta?: unknown; idempotencyKey?: string },
  ): Promise<WriteAnswer>;
  /** Append records atomically, with consecutive numbers. `config` is that of a topic which this write creates. */
  writeMany(
    records: Iterable<Draft<T>>,
    options?: { node?: string; idempotencyKey?: string; config?: Config },
  ): Promise<WriteAnswer>;
  diff(options?: DiffOptions): Promise<Page<T>>;
  /** The records after a number, up to the end. */
  read(options?: ReadOptions): AsyncGenerator<Record<T>, void>;
  /** The records after a number, then new ones as they arrive, until `signal` aborts. Without `after`, only new ones. */
  tail(options?: Omit<ReadOptions, "latest">): AsyncGenerator<Record<T>, void>;
  consumer(name: string): Consumer<T>;
  /** Create the topic, or replace its whole configuration. */
  configure(config: Config): Promise<TopicPut>;
  state(options?: { signal?: AbortSignal }): Promise<TopicState>;
  delete(): Promise<TopicDeleted>;
}

/** A named reader, whose position the server stores. */
export class Consumer<T = any> {
  private constructor();
  readonly name: string;
  position(): Promise<ConsumerAnswer>;
  commit(seq: number): Promise<ConsumerAnswer>;
  /** Up to the end. A batch is committed when the next one is requested. */
  batches(options?: {
    size?: number;
    signal?: AbortSignal;
    onLoss?: (lost: LostRange) => void;
  }): AsyncGenerator<Record<T>[], void>;
  delete(): Promise<ConsumerDeleted>;
}

export class Queue<T = any> {
  private constructor();
  readonly name: string;
  readonly node: string;
  readonly topic: Topic<T>;
  configure(config?: Omit<Config, "type">): Promise<TopicPut>;
  enqueue(data: T, options?: EnqueueOptions): Promise<WriteAnswer>;
  /** Add jobs atomically. A missing queue is created. */
  enqueueMany(jobs: Iterable<Draft<T>>, options?: { idempotencyKey?: string }): Promise<WriteAnswer>;
  /** Sent once: the jobs of a lost answer return to the queue when their leases expire. */
  claim(max?: number, options?: { leaseMs?: number; signal?: AbortSignal }): Promise<Job<T>[]>;
  ack(...jobs: Job<T>[]): Promise<AckAnswer>;
  nack(jobs: Job<T> | Job<T>[], options?: { delayMs?: number; reason?: unknown }): Promise<NackAnswer>;
  extend(jobs: Job<T> | Job<T>[], options: { leaseMs: number }): Promise<ExtendAnswer>;
  counters(): Promise<QueueState>;
  worker(handler: (job: Job<T>) => unknown, options?: WorkerOptions): Worker;
}

/** Processes jobs with a function. A job is acknowledged when the function succeeds, and returns to the queue otherwise. */
export class Worker {
  private constructor();
  /** The number of jobs that succeeded. */
  readonly done: number;
  /** The number of deliveries that failed. */
  readonly failures: number;
  /** Until `signal` aborts, or until no job is left. Jobs in progress are finished. */
  run(options?: { signal?: AbortSignal; untilEmpty?: boolean }): Promise<void>;
}
