"""The descriptions of the members of bodies and answers, by struct; members whose name says it all are left out."""

from __future__ import annotations

from strandline.delivery.queues.jobs import MAX_REASON_BYTES

_MATCH = 'Only records with these tags: `["tag","Eq","a"]`, `["tag","Glob","a*"]`, or just `"a"` or `"a*"`.'
_SINCE = "Only records that are not older than this time."
_NODES = "Leave out records that these nodes wrote."
_MAX_JOBS = "Maximum number of jobs; 0: one."
_CLAIM_LEASE_MS = "How long the worker holds the jobs; null: as configured for the topic."
_LEASE_IDS = "One per seq: the seq is skipped if this lease no longer holds. An empty id is not checked."

DESCRIPTIONS: dict[str, dict[str, str]] = {
    "TopicConfig": {
        "type": "`queue`: its records are jobs. Cannot be changed later.",
        "ttl_ms": "Maximum age of a record; 0: unlimited.",
        "cap_records": "Maximum number of live records; 0: unlimited.",
        "cap_bytes": "Maximum bytes of data and meta of the live records; 0: unlimited.",
        "discard": "What a full topic does: `old` drops its oldest records, `reject` refuses writes.",
        "compact": "Remove a record some time after a later one with the same tag is written, so that the last record "
        "of every tag stays. Not for queues.",
        "retain_until_in_lake": "Keep a record until the lake has it, whatever `ttl_ms`, `cap_records`, `cap_bytes` "
        "and `compact` would remove. Deletion by a client and the acknowledgement of a job do not wait. Not with the "
        "durability `ephemeral`.",
        "durable": "Short for `durability`: true is `fsync`, false is `disk`. In answers also true for `replicated`.",
        "durability": "`ephemeral` (memory only), `memory` (flushed some time), `disk` (flushed within 50 ms), `fsync` "
        "(acknowledged after the flush), `replicated` (acknowledged when the replica has it too, so that it survives "
        "the loss of the machine). All but the first survive a killed process. The default is `disk`.",
        "priority": "How urgent the topic is under load, -1000 to 1000; null: by how recently it was read.",
        "auto_priority": "Whether reading the topic makes it more urgent.",
        "auto_create": "In the `config` of a write: whether the write may create the topic.",
        "idempotency_window_ms": "How long an idempotency key is remembered.",
        "dedupe_node": "Whether readers that name their node do not get the records that it wrote.",
        "lease_ms": "How long a worker holds a claimed job, 100 ms to a day.",
        "claim_jitter_ms": "Claims that arrive within this time get jobs in turn, at most 5000.",
        "max_deliveries": "Maximum number of deliveries. A job that fails on the last one becomes a dead letter; 0: no "
        "limit.",
        "dead_letter": "The topic that dead letters are moved to; null: jobs that reach `max_deliveries` are dropped.",
        "leases_durable": "Whether leases survive the end of the server's process, and a claim is answered only when "
        "it would survive a power cut. If false, all leases end with the process.",
        "retry_delay_ms": "The delay after the first failure of a job that is returned without `delay_ms`, at most a "
        "day; 0: none.",
        "retry_backoff": "The delay is multiplied by this after each further failure, 1 to 1000.",
        "retry_max_ms": "The longest delay, at most a day and not less than `retry_delay_ms`.",
        "retry_jitter": "Delays are shortened at random by up to this fraction, 0 to 1.",
        "search": "The searchable fields; null removes them. Without this member, a topic keeps those it has.",
    },
    "WriteBody": {
        "node": "The node of records that do not name their own.",
        "idempotency_key": "Repeating a write with the same key has no effect and gets the same answer.",
        "create": "Whether to create the topic if it does not exist.",
        "config": "The configuration of a topic that this write creates. Needs the admin scope; ignored when the topic "
        "exists.",
        "disable_backpressure": "When the server is busy, wait longer instead of getting 429.",
    },
    "WriteRecord": {
        "data": "Any JSON. Stored and returned byte for byte.",
        "tag": "For matching, deleting and routing.",
        "meta": "Any JSON beside the data.",
        "not_before_ts": "Queues only: the job cannot be claimed before this time.",
        "priority": "Queues only: jobs with a higher priority are claimed first.",
    },
    "OneWrite": {
        "create": "If several writes are for the same topic, the first one decides.",
        "config": "The configuration of a topic that this write creates. Needs the admin scope; ignored when the topic "
        "exists.",
    },
    "MultiWriteBody": {"idempotency_key": "Applies to each of the topics."},
    "DiffBody": {
        "from_seq": "The last seq that the reader has; null: the position of `consumer`, or the start.",
        "limit": "Maximum number of records; 0: 256.",
        "node": _NODES,
        "wait_ms": "If no record is found, wait for one, at most 30000.",
        "max_batch_bytes": "Maximum size of the page; 0: 1 MiB; at most 8 MiB. One record always fits.",
        "match": _MATCH,
        "since_ts": _SINCE,
        "consumer": "Start at the position that this consumer committed, unless `from_seq` is given.",
        "view": "`latest`: only the last record of every tag. Read pages until `caught_up`, then continue from "
        "`next_from_seq` without it: then you have the last record of every tag, including those written meanwhile. "
        "Cannot be combined with `wait_ms`.",
        "shares": "Only the records of these shares of the tags.",
    },
    "ShareFilter": {
        "of": "The number of shares that the keys are divided into. The share of a record is the CRC-32 of its tag, or "
        "its seq if it has no tag, modulo this number.",
        "only": "The shares to read, from 0.",
    },
    "GroupBody": {
        "node": "The name of the member, different for each.",
        "held": "The shares that the member has.",
        "leave": "Give back all shares and leave the group.",
        "lease_ms": "How long the member has its shares without another request, 100 ms to a day; null: 10 s.",
        "of": "The number of shares, if this request creates the group; null: 16. Any other number than that of the "
        "group is refused.",
        "at": "Where the group begins, if this request creates it: before the first record that is there, or after the "
        "last one.",
    },
    "HeldShare": {
        "lease": "The lease under which the member got the share.",
        "seq": "The member has processed every record of the share up to and including this seq.",
        "release": "Give the share back.",
    },
    "GroupAnswer": {
        "of": "The number of shares.",
        "shares": "All shares that the member has now.",
        "give_back": "Those of them that another member should have.",
        "lost": "The shares of the request that the member does not have, or no longer under that lease.",
    },
    "GrantedShare": {"seq": "The committed position: continue with the first record of the share after it."},
    "MemberState": {"deadline": "The end of its leases, in milliseconds since 1970."},
    "ShareState": {"consumer": "The consumer that has the position.", "node": "The member that has the share."},
    "DeleteBody": {"before_seq": "Only records below this seq.", "match": _MATCH},
    "CommitBody": {
        "seq": "The consumer has processed every record up to and including this seq, at most the head.",
        "at": "`start`: before the first record that is there; `end`: after the last one.",
        "since_ts": "Before the first record of this time or later, in milliseconds since 1970; at the end if there is "
        "none.",
    },
    "ClaimBody": {
        "node": "The name of the worker.",
        "max": _MAX_JOBS,
        "lease_ms": _CLAIM_LEASE_MS,
    },
    "AckBody": {"lease_ids": _LEASE_IDS, "claim": "Also claim jobs, after the acknowledgement; null: claim none."},
    "NextClaim": {"max": _MAX_JOBS, "lease_ms": _CLAIM_LEASE_MS},
    "NackBody": {
        "delay_ms": "The jobs cannot be claimed for this time, at most a day; null: the delay that is configured for "
        "the queue (`retry_delay_ms`).",
        "reason": f"Why the jobs failed: any JSON of at most {MAX_REASON_BYTES} bytes. A longer text is shortened "
        "and ends with an ellipsis; any other value that is larger or nested too deeply is refused. The reason is "
        "shown with the next deliveries of the jobs, and in their dead letters.",
        "lease_ids": _LEASE_IDS,
    },
    "ExtendBody": {"lease_ms": "How long the worker holds the jobs from now.", "lease_ids": _LEASE_IDS},
    "RedriveBody": {
        "to": "The topic to move all of them to; null: each to the queue that it came from.",
        "limit": "Maximum number of dead letters; 0: as many as one request may move.",
        "match": _MATCH,
        "seq": "Only the dead letter with this seq.",
        "data": "The job gets this data instead of that of the dead letter. Needs `seq`.",
    },
    "RouterBody": {
        "preserve_node": "Whether copies keep their node.",
        "preserve_tag": "Whether copies keep their tag.",
        "create_dest": "Whether to create `dest` if it does not exist.",
        "filter": _MATCH,
        "allow_cycle": "Allow routers that form a circle. A record is copied at most 8 times.",
        "guarantee": "`exactly_once` marks every copy in `meta._topics_router`. Either way no copy is made twice.",
    },
    "WatchBody": {
        "topics": "The topics to watch, by name or pattern.",
        "cursor": "The `id` of an event of an earlier session: resume after it.",
        "heartbeat_ms": "How long a stream may be silent, 1000 to 60000.",
        "max_batch_bytes": "Maximum size of an event.",
        "consistency": "`strong`: deliver only records that would survive a power cut.",
        "node": _NODES,
        "match": _MATCH,
        "since_ts": _SINCE,
        "lenient": "Leave out topics that do not exist, instead of refusing the request.",
    },
    "TopicOptions": {
        "from_seq": "The last seq that the reader has.",
        "tail": "Only records that are written from now on.",
        "match": "For this topic, in place of `match` of the session.",
        "since_ts": "For this topic, in place of `since_ts` of the session.",
    },
    "TopicState": {
        "earliest_seq": "The first seq that is not deleted.",
        "count": "Live records.",
        "bytes": "Data and meta of the live records.",
        "effective_priority": "How urgent the topic is at this moment.",
    },
    "Written": {"seqs": "Left out when `return_seqs` is false."},
    "DiffAnswer": {
        "next_from_seq": "The `from_seq` of the next page.",
        "caught_up": "Whether this page reaches the head.",
        "lag": "The number of seqs between `next_from_seq` and the head.",
    },
    "Job": {
        "topic": "Only on the stream of a worker.",
        "deadline": "The end of the lease, in milliseconds since 1970.",
        "deliveries": "The number of deliveries, including this one.",
        "failures": "The last failures of the job whose reasons are known, oldest first; left out if there are none.",
    },
    "JobFailure": {
        "at": "When the delivery failed, in milliseconds since 1970.",
        "delivery": "Which delivery failed, counted from 1.",
        "node": "The worker that had the job.",
        "reason": "What the worker gave as the reason, or a text if the lease expired or the worker disconnected.",
    },
    "QueueState": {
        "ready": "Jobs that can be claimed now.",
        "in_flight": "Jobs that workers hold.",
        "delayed": "Jobs that wait for the end of their delay.",
        "dead_lettered": "Jobs that became dead letters since the queue was created.",
        "dropped": "Jobs that were dropped after `max_deliveries` since the queue was created, because it has no "
        "`dead_letter`.",
        "oldest_ready_ms": "The age of the oldest ready job, since it became ready; null if no job is ready.",
        "throughput": "Completed jobs per second in the last minute.",
        "failure_rate": "Of the deliveries that ended in the last minute, the fraction that failed, 0 to 1.",
    },
    "ErrorBody": {"detail": "Details of the error, for programs."},
}
