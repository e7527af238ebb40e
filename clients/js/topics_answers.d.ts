// Written by tools/generate_js_types.py from the answers that /openapi.json declares. Do not edit.

export interface AckAnswer {
  readonly topic: string;
  readonly acked: number;
  readonly skipped: number[];
  readonly claimed?: Job[];
  readonly ready: number;
  readonly in_flight: number;
}

export interface BindingDeclaration {
  readonly version: number;
  readonly jsonPointer: string;
}

export interface ConfigShown {
  readonly type: "log" | "queue";
  readonly ttl_ms: number;
  readonly cap_records: number;
  readonly cap_bytes: number;
  readonly discard: "old" | "reject";
  readonly compact?: boolean;
  readonly retain_until_in_lake?: boolean;
  readonly durable: boolean;
  readonly durability: "disk" | "ephemeral" | "fsync" | "memory" | "replicated";
  readonly priority: number | null;
  readonly auto_priority: boolean;
  readonly auto_create: boolean;
  readonly idempotency_window_ms: number;
  readonly dedupe_node: boolean;
  readonly lease_ms: number;
  readonly claim_jitter_ms: number;
  readonly max_deliveries: number;
  readonly dead_letter: string | null;
  readonly leases_durable: boolean;
  readonly retry_delay_ms?: number;
  readonly retry_backoff?: number;
  readonly retry_max_ms?: number;
  readonly retry_jitter?: number;
  readonly search?: SearchDeclaration;
}

export interface ConsumerAnswer {
  readonly topic: string;
  readonly consumer: string;
  readonly seq: number;
  readonly head_seq: number;
  readonly lag: number;
  readonly committed_ts: number;
}

export interface ConsumerDeleted {
  readonly topic: string;
  readonly consumer: string;
  readonly deleted: boolean;
}

export interface ConsumerState {
  readonly seq: number;
  readonly lag: number;
  readonly committed_ts: number;
}

export interface CountMeasure {
  readonly kind: "count";
  readonly include?: string;
}

export interface DefaultFieldDeclaration {
  readonly field: string;
  readonly boost?: number;
}

export interface ExtendAnswer {
  readonly topic: string;
  readonly extended: number;
  readonly skipped: number[];
  readonly deadlines: Record<string, number>;
}

export interface FieldDeclaration {
  readonly kind: "bool" | "date" | "float" | "integer" | "keyword" | "text";
  readonly bindings: BindingDeclaration[];
  readonly normalizer?: "identity_v1" | "lowercase_v1";
  readonly analyzer?: "unicode_word_v1";
  readonly exact?: boolean;
  readonly prefix?: boolean;
  readonly column?: boolean;
  readonly exists?: boolean;
  readonly sortable?: boolean;
  readonly aggregatable?: boolean;
  readonly contains?: boolean;
  readonly positions?: boolean;
}

export interface Job {
  readonly topic?: string;
  readonly $seq: number;
  readonly lease_id: string;
  readonly deadline: number;
  readonly $ts: number;
  readonly $tag?: string;
  readonly deliveries: number;
  readonly priority?: number;
  readonly data: unknown;
  readonly meta?: unknown;
  readonly failures?: JobFailure[];
}

export interface JobFailure {
  readonly at: number;
  readonly delivery: number;
  readonly node: string;
  readonly reason: unknown;
}

export interface LostRange {
  readonly gap_from: number;
  readonly gap_to: number;
  readonly reason: "cap" | "lost" | "mixed" | "recreated" | "source_trim" | "ttl";
  readonly missed_estimate: number;
  readonly earliest_seq: number;
  readonly head_seq: number;
}

export interface NackAnswer {
  readonly topic: string;
  readonly nacked: number;
  readonly skipped: number[];
  readonly ready: number;
  readonly in_flight: number;
}

export interface QueueState {
  readonly ready: number;
  readonly in_flight: number;
  readonly delayed: number;
  readonly dead_lettered: number;
  readonly dropped: number;
  readonly oldest_ready_ms: number | null;
  readonly throughput: number;
  readonly failure_rate: number;
}

export interface RollupDeclaration {
  readonly timestampField?: string;
  readonly include?: string;
  readonly dimensions?: string[];
  readonly intervals: string[];
  readonly measures: Record<string, CountMeasure | SummaryMeasure | SummaryPartsMeasure>;
}

export interface SearchDeclaration {
  readonly profile?: string;
  readonly primaryTimestampField?: string;
  readonly aliases?: Record<string, string>;
  readonly defaultFields?: DefaultFieldDeclaration[];
  readonly containsDefaultFields?: string[];
  readonly fields: Record<string, FieldDeclaration>;
  readonly rollups?: Record<string, RollupDeclaration>;
}

export interface SummaryMeasure {
  readonly kind: "summary";
  readonly field: string;
  readonly histogram?: "log2_v1";
}

export interface SummaryPartsMeasure {
  readonly kind: "summary_parts";
  readonly countJsonPointer: string;
  readonly sumJsonPointer: string;
  readonly minJsonPointer: string;
  readonly maxJsonPointer: string;
  readonly histogramJsonPointer?: string;
}

export interface TopicDeleted {
  readonly topic: string;
  readonly deleted: boolean;
  readonly routers_removed: string[];
}

export interface TopicPut {
  readonly topic: string;
  readonly created: boolean;
  readonly config: ConfigShown;
  readonly warnings?: string[];
}

export interface TopicRow {
  readonly topic: string;
  readonly type: "log" | "queue";
  readonly head_seq: number;
  readonly earliest_seq: number;
  readonly count: number;
  readonly bytes: number;
  readonly durable: boolean;
  readonly effective_priority: number;
}

export interface TopicState {
  readonly topic: string;
  readonly type: "log" | "queue";
  readonly head_seq: number;
  readonly earliest_seq: number;
  readonly next_seq: number;
  readonly count: number;
  readonly bytes: number;
  readonly config: ConfigShown;
  readonly queue?: QueueState;
  readonly consumers?: Record<string, ConsumerState>;
  readonly effective_priority: number;
  readonly last_write_ts: number | null;
  readonly last_read_ts: number | null;
}

export interface WriteAnswer {
  readonly topic: string;
  readonly first_seq: number;
  readonly last_seq: number;
  readonly seqs?: number[];
  readonly head_seq: number;
  readonly count: number;
  readonly created: boolean;
  readonly deduped: boolean;
}
