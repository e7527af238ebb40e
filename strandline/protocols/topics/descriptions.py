"""What the fields of bodies and answers mean, by the name of their struct; without those whose name says it."""

from __future__ import annotations

DESCRIPTIONS: dict[str, dict[str, str]] = {
    "TopicConfig": {
        "type": "`queue`: its records are jobs. Cannot be changed later.",
        "ttl_ms": "Records go when they are this old; 0: never.",
        "cap_records": "At most so many live records; 0: no bound.",
        "cap_bytes": "At most so many bytes of data and meta; 0: no bound.",
        "discard": "What a full topic does: `old` drops its oldest records, `reject` refuses writes.",
        "compact": "A record goes once a later one with its tag has been there for a while, so that the last one of "
        "every tag stays. Not for queues.",
        "durable": "Short for `durability`: true is `fsync`, false is `disk`.",
        "durability": "`ephemeral` (memory only), `memory` (flushed some time), `disk` (flushed within 50 ms), `fsync` "
        "(acknowledged after the flush). All but the first survive a killed process. The default is `disk`.",
        "priority": "How urgent the topic is under load, -1000 to 1000; null: by how recently it was read.",
        "auto_priority": "Whether being read makes the topic more urgent.",
        "auto_create": "In the `config` of a write: whether the topic may be made.",
        "idempotency_window_ms": "For how long an idempotency key is remembered.",
        "dedupe_node": "Whether readers that name their node do not get what it wrote.",
        "lease_ms": "For how long a claimed job is held, 100 ms to a day.",
        "claim_jitter_ms": "Claims that come within this time are dealt out in turn, at most 5000.",
        "max_deliveries": "After so many deliveries a job is a dead letter; 0: never.",
        "dead_letter": "The topic that dead letters go to.",
        "leases_durable": "Whether a claim is answered only when it would survive a power cut.",
    },
    "WriteBody": {
        "node": "Who writes, for records that do not say so themselves.",
        "idempotency_key": "A write that is repeated with the same key is answered as before, and not made again.",
        "create": "Whether to make the topic if there is none.",
        "config": "How to make it. Needs the admin scope; ignored when the topic exists.",
        "disable_backpressure": "When the server is busy, wait longer instead of getting 429.",
    },
    "WriteRecord": {
        "data": "Any JSON. Kept and given back byte for byte.",
        "tag": "For matching, deleting and routing.",
        "meta": "Any JSON beside the data.",
        "not_before_ts": "Queues only: the job cannot be claimed before this moment.",
        "priority": "Queues only: higher ones are claimed first.",
    },
    "OneWrite": {
        "create": "Of several writes to a topic the first one decides.",
        "config": "How to make the topic. Needs the admin scope; ignored when it exists.",
    },
    "MultiWriteBody": {"idempotency_key": "Holds for each of the topics."},
    "DiffBody": {
        "from_seq": "The last seq that the reader has; null: where `consumer` is, or the start.",
        "limit": "How many records at the most; 0: 256.",
        "node": "Leave out what these nodes wrote.",
        "wait_ms": "If there is nothing, wait for so long, at most 30000.",
        "max_batch_bytes": "How large the page may get; 0: 1 MiB; at most 8 MiB. One record always fits.",
        "match": 'Only these tags: `["tag","Eq","a"]`, `["tag","Glob","a*"]`, or just `"a"` or `"a*"`.',
        "since_ts": "Only records that are not older than this moment.",
        "consumer": "Start where this consumer has committed, unless `from_seq` is given.",
        "view": "`latest`: only the last record of every tag, as of now. Read so until `caught_up`, and go on without "
        "it from `next_from_seq`: then you have the last of every tag, whatever was written meanwhile. Not with "
        "`wait_ms`.",
    },
    "DeleteBody": {
        "before_seq": "Records below this seq.",
        "match": 'Records with these tags: `["tag","Eq","a"]`, `["tag","Glob","a*"]`, or just `"a"` or `"a*"`.',
    },
    "CommitBody": {"seq": "Everything up to and with this seq has been dealt with. Not beyond the head."},
    "ClaimBody": {
        "node": "Who the worker is.",
        "max": "How many jobs at the most; 0: one.",
        "lease_ms": "For how long; null: what the topic says.",
    },
    "AckBody": {"lease_ids": "One per seq: only if this very lease still holds. An empty one is not checked."},
    "NackBody": {
        "delay_ms": "Nobody gets the jobs before that, at most a day.",
        "lease_ids": "One per seq: only if this very lease still holds. An empty one is not checked.",
    },
    "ExtendBody": {
        "lease_ms": "From now on.",
        "lease_ids": "One per seq: only if this very lease still holds. An empty one is not checked.",
    },
    "RedriveBody": {
        "to": "The topic for all of them; null: each goes back to where it came from.",
        "limit": "How many at the most; 0: as many as one request may move.",
        "match": "Only those with these tags.",
    },
    "RouterBody": {
        "preserve_node": "Whether copies keep their node.",
        "preserve_tag": "Whether copies keep their tag.",
        "create_dest": "Whether to make `dest` if there is none.",
        "filter": "Only records with these tags.",
        "allow_cycle": "Let records go in circles, for 8 steps at the most.",
        "guarantee": "`exactly_once` marks every copy in `meta._topics_router`. No copy is made twice either way.",
    },
    "WatchBody": {
        "topics": "What to watch, by name or pattern.",
        "cursor": "The `id` of an event of an earlier session: where to go on.",
        "heartbeat_ms": "How long a stream may be silent, 1000 to 60000.",
        "max_batch_bytes": "How large an event may get.",
        "consistency": "`strong`: deliver nothing that a power cut could take back.",
        "node": "Leave out what these nodes wrote.",
        "lenient": "Leave out topics that do not exist, instead of refusing.",
    },
    "TopicOptions": {
        "from_seq": "The last seq that the reader has.",
        "tail": "Only what is written from now on.",
    },
    "TopicState": {
        "earliest_seq": "The first seq that is there.",
        "count": "Live records.",
        "bytes": "Of data and meta of the live records.",
        "effective_priority": "How urgent the topic is at this moment.",
    },
    "Written": {"seqs": "Left out when `return_seqs` is false."},
    "DiffAnswer": {
        "next_from_seq": "Where to go on.",
        "caught_up": "Whether there is nothing behind that.",
        "lag": "How many seqs there are behind that.",
    },
    "Job": {
        "deadline": "Until when it is held, in milliseconds since 1970.",
        "deliveries": "How often it was handed out, this time included.",
    },
    "ErrorBody": {"detail": "What it is about, for programs."},
}
