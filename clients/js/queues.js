/** Queues: add, claim and complete jobs, and process them with a function. */

import { topicPath } from "./calls.js";
import { StrandlineError } from "./errors.js";
import { known, newKey } from "./options.js";
import { Backoff, pause, RETRY } from "./retrying.js";

/** Without `retry_delay_ms` of the queue, a failed job is delivered again after this time, doubled every time. */
const FIRST_DELAY_MS = 1000;
const LONGEST_DELAY_MS = 300_000;
const HEARTBEATS_PER_LEASE = 3;
/** The server keeps 4,096 bytes of a reason, as JSON, in which a character may need two. */
const MESSAGE_BYTES = 800;
const STACK_BYTES = 1000;

/** One queue. `node` identifies this program to the queue. */
export class Queue {
  /**
   * @param {import("./calls.js").Calls} calls
   * @param {import("./topics.js").Topic} topic
   * @param {string} [node]
   */
  constructor(calls, topic, node) {
    this._calls = calls;
    /** The queue as a topic, for reading and deleting. */
    this.topic = topic;
    this.name = topic.name;
    this._path = topicPath(topic.name);
    this.node = node ?? `js-${newKey()}`;
  }

  /** @param {object} config */
  configure(config = {}) {
    return this.topic.configure({ ...config, type: "queue" });
  }

  /**
   * Add one job. `delayMs` or `notBefore` delays its delivery.
   * @param {unknown} data
   * @param {import("./topics.js").EnqueueOptions} [options]
   */
  enqueue(data, options = {}) {
    const { idempotencyKey, delayMs, ...job } = known(options, [
      "tag",
      "meta",
      "priority",
      "delayMs",
      "notBefore",
      "idempotencyKey",
    ]);
    if (delayMs !== undefined) {
      if (job.notBefore !== undefined) throw new TypeError("give delayMs or notBefore, not both");
      if (!(delayMs >= 0)) throw new TypeError(`delayMs must be a number of milliseconds, 0 or more, not ${delayMs}`);
      job.notBefore = Math.round(Date.now() + delayMs);
    }
    return this.enqueueMany([{ ...job, data }], { idempotencyKey });
  }

  /**
   * Add jobs atomically. A missing queue is created.
   * @param {Iterable<import("./topics.js").Draft>} jobs
   * @param {{ idempotencyKey?: string }} [options]
   */
  enqueueMany(jobs, { idempotencyKey } = {}) {
    return this.topic.writeMany(jobs, { idempotencyKey, config: { type: "queue" } });
  }

  /**
   * Lease up to `max` jobs to this node. It is sent once: the jobs of a lost answer return when their leases expire.
   * @param {number} [max]
   * @param {{ leaseMs?: number, signal?: AbortSignal }} [options]
   */
  async claim(max = 1, { leaseMs, signal } = {}) {
    const body = { node: this.node, max, lease_ms: leaseMs };
    const answer = await this._calls.once("POST", `${this._path}/claim`, body, { signal });
    return answer.claimed.map(jobOf);
  }

  /** @param {...import("./topics.js").Job<any>} jobs they are done */
  ack(...jobs) {
    return this._held("ack", jobs);
  }

  /**
   * Return jobs to the queue, with the reason why they failed.
   * @param {import("./topics.js").Job<any> | import("./topics.js").Job<any>[]} jobs
   * @param {{ delayMs?: number, reason?: unknown }} [options]
   */
  nack(jobs, { delayMs, reason } = {}) {
    return this._held("nack", [jobs].flat(), { delay_ms: delayMs, reason: reasonOf(reason) });
  }

  /**
   * Extend leases to `leaseMs` from now.
   * @param {import("./topics.js").Job<any> | import("./topics.js").Job<any>[]} jobs
   * @param {{ leaseMs: number }} options
   */
  extend(jobs, { leaseMs }) {
    return this._held("extend", [jobs].flat(), { lease_ms: leaseMs });
  }

  /** The number of jobs in each state. */
  async counters() {
    return (await this.topic.state()).queue;
  }

  /**
   * A worker that processes jobs with a function.
   * @param {(job: import("./topics.js").Job<any>) => unknown} handler
   * @param {import("./topics.js").WorkerOptions} [options]
   */
  worker(handler, options = {}) {
    return new Worker(this, handler, known(options, ["concurrency", "leaseMs", "pollMs", "failed"]));
  }

  /**
   * @param {string} operation
   * @param {import("./topics.js").Job<any>[]} jobs
   * @param {object} [more]
   */
  _held(operation, jobs, more) {
    const held = { node: this.node, seqs: jobs.map(({ seq }) => seq), lease_ids: jobs.map(({ leaseId }) => leaseId) };
    return this._calls.repeat("POST", `${this._path}/${operation}`, { ...held, ...more });
  }
}

/**
 * Processes jobs, up to `concurrency` at a time. A job is acknowledged when the function returns, or its promise is
 * fulfilled; otherwise it returns to the queue with the error as its reason. Leases are extended meanwhile. A job can be
 * delivered twice.
 */
export class Worker {
  /**
   * @param {Queue} queue
   * @param {(job: import("./topics.js").Job<any>) => unknown} handler
   * @param {import("./topics.js").WorkerOptions} options
   */
  constructor(queue, handler, { concurrency = 1, leaseMs, pollMs = 1000, failed }) {
    if (typeof handler !== "function") throw new TypeError("the handler of a worker must be a function");
    if (!Number.isInteger(concurrency) || concurrency < 1) {
      throw new TypeError("concurrency must be an integer of at least 1");
    }
    this._queue = queue;
    this._handler = handler;
    this._concurrency = concurrency;
    this._leaseMs = leaseMs;
    this._pollMs = pollMs;
    this._failed = failed;
    /** @type {Map<string, import("./topics.js").Job<any>>} */
    this._running = new Map();
    this._queueDelays = false;
    this.done = 0;
    this.failures = 0;
  }

  /**
   * Process jobs until `signal` aborts, or until no job is left. Jobs in progress are finished. Rejects if the server
   * refuses permanently.
   * @param {{ signal?: AbortSignal, untilEmpty?: boolean }} [options]
   */
  async run({ signal = new AbortController().signal, untilEmpty = false } = {}) {
    const { config, head_seq: head } = await this._queue.topic.state();
    const leaseMs = this._leaseMs ?? config.lease_ms;
    this._queueDelays = (config.retry_delay_ms ?? 0) > 0;
    const heart = setInterval(() => this._beat(leaseMs), leaseMs / HEARTBEATS_PER_LEASE);
    /** @type {Set<Promise<void>>} */
    const working = new Set();
    const backoff = new Backoff(RETRY, this._queue._calls.servers);
    let seen = head;
    try {
      while (!signal.aborted) {
        const room = this._concurrency - working.size;
        if (room === 0) {
          await Promise.race(working);
          continue;
        }
        let wait = 0;
        try {
          const jobs = await this._queue.claim(room, { leaseMs });
          for (const job of jobs) {
            const work = this._work(job).finally(() => working.delete(work));
            working.add(work);
          }
          if (jobs.length === 0) {
            if (untilEmpty && (await this._queue.topic.state({ signal })).count === 0) break;
            const news = this._queue.topic.diff({ after: seen, limit: 1, waitMs: this._pollMs, signal });
            seen = (await news).head;
          }
          backoff.reset();
        } catch (error) {
          if (signal.aborted) break;
          if (!(error instanceof StrandlineError) || !error.isTemporary) throw error;
          wait = backoff.after(error);
        }
        if (wait) await pause(wait, signal).catch(() => undefined);
      }
    } finally {
      await Promise.all(working);
      clearInterval(heart);
    }
  }

  /** @param {import("./topics.js").Job<any>} job */
  async _work(job) {
    this._running.set(job.leaseId, job);
    try {
      try {
        await this._handler(job);
      } catch (error) {
        this.failures++;
        this._failed?.(job, error);
        const delay = Math.min(LONGEST_DELAY_MS, FIRST_DELAY_MS * 2 ** Math.min(job.deliveries - 1, 20));
        const delayMs = this._queueDelays ? undefined : Math.round(delay * (1 - Math.random() / 2));
        await this._queue.nack(job, { delayMs, reason: error });
        return;
      }
      await this._queue.ack(job);
      this.done++;
    } catch (error) {
      // The job is not lost: its lease expires, and the queue delivers it again.
      console.error(`the outcome of job ${job.seq} could not be reported:`, error);
    } finally {
      this._running.delete(job.leaseId);
    }
  }

  /** @param {number} leaseMs */
  _beat(leaseMs) {
    const held = [...this._running.values()];
    if (held.length === 0) return;
    this._queue.extend(held, { leaseMs }).catch((error) => console.warn("could not extend leases:", error));
  }
}

/** @param {any} job */
const jobOf = (job) => ({
  seq: job.$seq,
  leaseId: job.lease_id,
  deadline: job.deadline,
  ts: job.$ts,
  time: new Date(job.$ts),
  deliveries: job.deliveries,
  data: job.data,
  tag: job.$tag ?? null,
  priority: job.priority ?? 0,
  meta: job.meta ?? null,
  failures: job.failures ?? [],
});

/**
 * An error as the server keeps it; other reasons as they are.
 * @param {unknown} reason
 */
function reasonOf(reason) {
  if (!(reason instanceof Error)) return reason;
  const { name, message, stack = "" } = reason;
  return { type: cut(name, 100), message: cut(message, MESSAGE_BYTES), traceback: cut(stack, STACK_BYTES) };
}

/**
 * The beginning of a text, in UTF-8.
 * @param {string} text
 * @param {number} bytes
 */
function cut(text, bytes) {
  const encoded = new TextEncoder().encode(String(text));
  if (encoded.length <= bytes) return String(text);
  return `${new TextDecoder().decode(encoded.subarray(0, bytes)).replace(/\uFFFD+$/, "")}…`;
}
