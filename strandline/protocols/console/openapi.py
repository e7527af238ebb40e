"""OpenAPI descriptions of the console's routes."""

from __future__ import annotations

from typing import Any

from strandline.engine.record import MAX_SEQ, MAX_TIME
from strandline.protocols.console import (
    dry_runs,
    keys,
    logs,
    matches,
    overview,
    queues,
    read,
    routes,
    sql,
    subscriptions,
    wire,
)
from strandline.protocols.console.catalogue import SORTS
from strandline.protocols.console.data_operations import DESCRIPTIONS, OPERATIONS
from strandline.protocols.console.errors import PROBLEMS
from strandline.protocols.console.kinds import KINDS
from strandline.query.content_language import MAX_LENGTH
from strandline.query.inference import SAMPLE_RECORDS
from strandline.schema.dry_run import MAX_EXAMPLES, MAX_REJECTIONS, DryRun
from strandline.schema.updates import SchemaUpdate
from strandline.service.openapi import (
    EVENT_STREAM,
    EVENTS,
    JSON,
    AnswerShape,
    Described,
    Operation,
    Parameter,
    Schema,
    shown,
)
from strandline.service.openapi import TEXT as STRING
from strandline.service.problems import ErrorAnswer
from strandline.service.static_files import FILE_ANSWERS, FILE_PARAMETERS, moved_answer

_GROUP = "console"
_SEQ: Schema = {"type": "integer", "minimum": 0, "maximum": MAX_SEQ}
_MOMENT: Schema = {
    "oneOf": [{"type": "integer", "minimum": 0, "maximum": MAX_TIME}, {"type": "string", "format": "date-time"}]
}


def _query(name: str, description: str, schema: Schema = STRING) -> Parameter:
    return Parameter(name, "query", description, schema)


def _limit(most: int, default: int) -> Parameter:
    return _query("limit", "Maximum number of results.", _whole(1, most, default))


def _whole(low: int, high: int, default: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": high, "default": default}


_NAME = Parameter(
    "name",
    "path",
    "The name of the log. It may contain slashes, which need not be escaped.",
    {"type": "string", "minLength": 1},
    required=True,
)
_OFFSET = _query("offset", "Number of results to skip.", {**_SEQ, "default": 0})
_SEARCH = _query("search", "Only names that contain this text (after `under`), ignoring case.")
_UNDER = _query("under", "Only names that start with this.")
_KEY = _query("key", "Only records with this key.")
_PREFIX = _query("prefix", "Only records whose key starts with this text.")

_LOGS = """The logs that the API key may access, with their current values. If there are very many logs, the order can
be a few seconds old. Logs without a value, such as the lag of a log without consumers, come last."""

_RECORDS = """Returns the records after `after` (by default from the start), the last records before `before`, or the
records from the time `at`. Works for every log: `data` is JSON as it was written, `text` is text, and `base64` is
anything else.

`tombstone` describes records that were lost immediately before the first record. To continue backwards, send `first` as
`before`. To continue forwards, send `next_after` as `after`. `caught_up` is true if there are no more records in the
requested direction."""

_WHERE = _query("where", "Only records whose content matches this filter.", {"type": "string", "maxLength": MAX_LENGTH})

_MATCHES = f"""Scans a log backwards, newest records first, without a schema or an index. A filter consists of
conditions: `.status = failed`, `.user.name ~ /^A/`, `.amount >= 100`, `.user` (there is a value), `"card declined"`
(text, ignoring case), `/E[0-9]+/` (a regular expression of RE2); with `and`, `or`, `not` and parentheses.

A request scans about {matches.MAX_SECONDS:.0f} s or {matches.MAX_SCANNED:,} records, so an answer may have few or no
records. To continue, send `next` as `before`, until it is null. `counts` has the start and the number of records of
each interval. With `limit=0`, records are only counted."""

_TAIL = f"""Events are `record` (as in `{routes.RECORDS}`), `tombstone` (records that were lost before they could be
sent), `dropped` (the log was deleted; the stream ends) and `end` (the client reads too slowly; the stream ends).
To continue after a disconnect, send the id of the last event as `Last-Event-ID`. Without `Last-Event-ID` and `after`,
the stream starts with the next new record."""

_QUEUE = """Returns the number of jobs in each state; the jobs that workers hold and the delayed jobs, each ordered by
when their state changes next; and the next jobs to be delivered, in order. Jobs that failed before have their last
failures."""

_SQL = f"""Runs one statement in DuckDB's dialect that reads: SELECT, FROM, WITH, VALUES, DESCRIBE, SUMMARIZE or SHOW.
Every log that the API key may read is a table with the columns `seq`, `ts`, `key`, `node`, `meta` and `data`; tables,
collections and declared tables have columns of their own. The statement cannot reach files or the network.

A query may take {sql.TABLE.seconds} seconds and {sql.TABLE.memory_bytes >> 20} MB of memory. The format `table` returns
the first {sql.TABLE.rows:,} rows, at most {sql.TABLE.result_bytes >> 20} MB; `truncated` says whether there are more.
The other formats are files with all rows, at most {sql.DOWNLOAD.rows:,} rows or {sql.DOWNLOAD.result_bytes >> 20} MB,
in {sql.DOWNLOAD.seconds} seconds. {sql.MAX_QUERIES} queries may run and wait at a time."""

_DRY_RUN = f"""Takes the body of `POST /v1/stream/{{name}}/_schema` and installs nothing. Returns the configuration
before and after, why the server would refuse the update, which of the last records a writer could not append any more,
and what the searchable fields find in them. Examines the newest records first, for {dry_runs.MAX_SECONDS:.0f} s and
{dry_runs.MAX_BYTES >> 20} MB at most; `complete` says whether the time was enough."""

_OPERATIONS: dict[tuple[str, str], Operation] = {
    **OPERATIONS,
    ("GET", routes.PAGE): Operation(
        group=_GROUP,
        summary="Redirect to the console",
        answers=moved_answer("`/console/`"),
    ),
    ("GET", routes.ASSET): Operation(
        group=_GROUP,
        summary="Get a file of the console",
        answers=FILE_ANSWERS,
        parameters=FILE_PARAMETERS,
        errors=("not_found",),
    ),
    ("GET", routes.SESSION): Operation(
        group=_GROUP,
        summary="Get the caller's API key",
        description="Works without an API key. `key` is null unless the request has a valid one.",
        answers=shown(wire.SessionAnswer),
    ),
    ("GET", routes.OVERVIEW): Operation(
        group=_GROUP,
        summary="Get the state of the server",
        description="One sample per second for ten minutes; totals and busiest logs of those the API key may access.",
        answers=shown(wire.OverviewAnswer),
    ),
    ("GET", routes.HISTORY): Operation(
        group=_GROUP,
        summary="Get the state of the server over hours or days",
        description="Averages: one sample per minute for a day, then one per ten minutes for a week. They survive a "
        "restart; there is no sample of a time when the server did not run. A longer time has fewer samples: at most "
        "360.",
        answers=shown(wire.SampleHistoryAnswer),
        parameters=(_query("hours", "The last hours.", _whole(1, overview.MAX_HOURS, 1)),),
        errors=("invalid_request",),
    ),
    ("GET", routes.LIVE): Operation(
        group=_GROUP,
        summary="Follow the state of the server",
        description="Sends a `sample` event every second, which includes the `busiest` logs.",
        answers=(AnswerShape(200, "Events, until the client disconnects.", {EVENT_STREAM: EVENTS}),),
    ),
    ("GET", routes.LOGS): Operation(
        group=_GROUP,
        summary="List logs in any order",
        description=_LOGS,
        answers=shown(wire.ConsoleLogsAnswer),
        parameters=(
            _SEARCH,
            _UNDER,
            _query("kind", "Only logs of this kind.", {"enum": list(KINDS)}),
            _query("sort", "The value to sort by.", {"enum": list(SORTS), "default": "name"}),
            _query("order", "Names ascend by default; all other values descend.", {"enum": ["asc", "desc"]}),
            _OFFSET,
            _limit(logs.MAX_LIMIT, logs.DEFAULT_LIMIT),
        ),
        errors=("invalid_request",),
    ),
    ("GET", routes.PREFIXES): Operation(
        group=_GROUP,
        summary="List the common prefixes of names",
        description="Returns the prefixes that several names share after `under`, up to the next colon or slash, with "
        "the number of logs of each. If there are very many logs, the answer can be a few seconds old.",
        answers=shown(wire.LogPrefixesAnswer),
        parameters=(_UNDER,),
    ),
    ("GET", routes.LOG): Operation(
        group=_GROUP,
        summary="Get a log",
        answers=shown(wire.ConsoleLogAnswer),
        parameters=(_NAME,),
        errors=("invalid_request", "log_not_found"),
    ),
    ("GET", routes.RECORDS): Operation(
        group=_GROUP,
        summary="Read the records of a log",
        description=_RECORDS,
        answers=shown(wire.RecordsAnswer),
        parameters=(
            _NAME,
            _query("after", "Only records after this sequence number.", _SEQ),
            _query("before", "The last records before this sequence number.", _SEQ),
            _query("at", "Only records from this time: milliseconds since 1970, or RFC 3339.", _MOMENT),
            _limit(read.MAX_LIMIT, read.DEFAULT_LIMIT),
            _KEY,
            _PREFIX,
        ),
        errors=("invalid_request", "log_not_found"),
    ),
    ("GET", routes.MATCHES): Operation(
        group=_GROUP,
        summary="Find records by their content",
        description=_MATCHES,
        answers=shown(wire.MatchesAnswer),
        parameters=(
            _NAME,
            _WHERE,
            _query("before", "Only records before this sequence number.", _SEQ),
            _query("since", "Only records from this time: milliseconds since 1970, or RFC 3339.", _MOMENT),
            _query("until", "Only records before this time.", _MOMENT),
            _query(
                "limit",
                "Maximum number of records; 0 only counts.",
                _whole(0, matches.MAX_LIMIT, matches.DEFAULT_LIMIT),
            ),
            _query("bucket_ms", "Count the records per interval of this length.", {**_SEQ, "minimum": 1}),
            _KEY,
            _PREFIX,
        ),
        errors=("invalid_request", "log_not_found"),
    ),
    ("GET", routes.TAIL): Operation(
        group=_GROUP,
        summary="Follow the records of a log",
        description=_TAIL,
        answers=(AnswerShape(200, "Events, until the client disconnects.", {EVENT_STREAM: EVENTS}),),
        parameters=(
            _NAME,
            _query("after", "Start with the records after this sequence number.", _SEQ),
            _WHERE,
            Parameter("Last-Event-ID", "header", "The id of the last event that the client received.", STRING),
        ),
        errors=("invalid_request", "log_not_found"),
    ),
    ("GET", routes.KEYS): Operation(
        group=_GROUP,
        summary="List the keys of a log",
        description="Returns the keys of visible records, in order.",
        answers=shown(wire.KeysAnswer),
        parameters=(
            _NAME,
            _query("prefix", "Only keys that start with this text."),
            _query("after", "Only keys after this one."),
            _limit(keys.MAX_LIMIT, keys.DEFAULT_LIMIT),
        ),
        errors=("invalid_request", "log_not_found"),
    ),
    ("GET", routes.REMOVAL): Operation(
        group=_GROUP,
        summary="Preview a delete",
        description="Returns the records that meet all given conditions; at least one is required. Deletes nothing.",
        answers=shown(wire.RemovalAnswer),
        parameters=(_NAME, _KEY, _PREFIX, _query("before", "Only records before this sequence number.", _SEQ)),
        errors=("invalid_request", "log_not_found"),
    ),
    ("GET", routes.QUEUES): Operation(
        group=_GROUP,
        summary="List queues",
        answers=shown(wire.QueuesAnswer),
        parameters=(_SEARCH, _OFFSET, _limit(queues.MAX_LIMIT, queues.DEFAULT_LIMIT)),
        errors=("invalid_request",),
    ),
    ("GET", routes.QUEUE): Operation(
        group=_GROUP,
        summary="Get a queue",
        description=_QUEUE,
        answers=shown(wire.QueueAnswer),
        parameters=(_NAME,),
        errors=("invalid_request", "log_not_found", "not_a_queue"),
    ),
    ("GET", routes.ROUTERS): Operation(
        group=_GROUP,
        summary="List routers",
        description="Returns the routers whose name, source and destination the API key may access, and their logs.",
        answers=shown(wire.ConsoleRoutersAnswer),
    ),
    ("GET", routes.SUBSCRIPTIONS): Operation(
        group=_GROUP,
        summary="List subscriptions",
        description="Returns the subscriptions of which the API key may access every stream, those that fail first.",
        answers=shown(wire.ConsoleSubscriptionsAnswer),
        parameters=(
            _query("search", "Only subscriptions whose id, pattern, streams, target or description contain this text."),
            _OFFSET,
            _limit(subscriptions.MAX_LIMIT, subscriptions.DEFAULT_LIMIT),
        ),
        errors=("invalid_request",),
    ),
    ("GET", routes.SUBSCRIPTION): Operation(
        group=_GROUP,
        summary="Get a subscription",
        description=f"Includes at most {subscriptions.MAX_SHOWN} of its streams, those with unacknowledged records "
        "first.",
        answers=shown(wire.ConsoleSubscriptionAnswer),
        parameters=(Parameter("id", "path", "The id of the subscription.", STRING, required=True),),
        errors=("not_found",),
    ),
    ("GET", routes.FIELDS): Operation(
        group=_GROUP,
        summary="List the fields of a log",
        description="Returns the fields of the search configuration, and the fields of the last records.",
        answers=shown(wire.FieldsAnswer),
        parameters=(_NAME,),
        errors=("invalid_request", "log_not_found"),
    ),
    ("POST", routes.SQL): Operation(
        group=_GROUP,
        summary="Run a query in SQL",
        description=_SQL,
        answers=(
            AnswerShape(
                200,
                "The rows, in the requested format.",
                {
                    JSON: wire.SqlAnswer,
                    "text/csv": STRING,
                    "application/vnd.apache.parquet": {"type": "string", "format": "binary"},
                },
            ),
        ),
        body={JSON: wire.SqlQuery},
        needs_body=True,
        errors=(
            "invalid_request",
            "query_cancelled",
            "payload_too_large",
            "unsupported_media_type",
            "query_limit",
            "throttled",
            "not_installed",
        ),
    ),
    ("POST", routes.SQL_CANCEL): Operation(
        group=_GROUP,
        summary="Cancel a query",
        description="Cancels the queries that the same API key has started with this `id`.",
        answers=shown(wire.SqlCancelAnswer),
        parameters=(Parameter("id", "path", "The `id` of the query.", STRING, required=True),),
    ),
    ("GET", routes.INFERENCE): Operation(
        group=_GROUP,
        summary="Propose a search configuration",
        description=f"Infers searchable fields from the last {SAMPLE_RECORDS:,} records of a log, in addition to those "
        "of its search configuration. The proposal is valid as it is. Install it with `_schema` of streams or the "
        "configuration of a topic.",
        answers=shown(wire.InferenceAnswer),
        parameters=(_NAME,),
        errors=("invalid_request", "log_not_found"),
    ),
    ("POST", routes.DRY_RUN): Operation(
        group=_GROUP,
        summary="Try a change of the schema or the searchable fields",
        description=_DRY_RUN,
        answers=shown(DryRun),
        parameters=(
            _NAME,
            _query("limit", "Number of records.", _whole(1, dry_runs.MAX_LIMIT, dry_runs.DEFAULT_LIMIT)),
        ),
        body={JSON: SchemaUpdate},
        needs_body=True,
        errors=("invalid_request", "log_not_found", "payload_too_large", "unsupported_media_type"),
    ),
}

_LOG_FIELDS = {
    "kind": "The kind of log. A queue is a topic whose records are jobs.",
    "head": "The highest sequence number that readers can see.",
    "earliest": "The first sequence number that still exists.",
    "records": "Number of records; for a fork, without the records of its source.",
    "bytes": "Bytes of data and meta.",
    "rate": "Appends per second at the moment.",
    "recent": "Appends per second in the last two minutes, every five seconds, oldest first; empty if there were none.",
    "lag": "Number of records that the slowest consumer has not committed; null without consumers.",
    "last_ts": "The time of the last record; null if there never was one.",
}

_SUBSCRIPTION = {
    "named": "The streams that the creator named, at most 500.",
    "target": "The URL of the webhook, or the stream that receives the wakes.",
    "state": "`idle`: no wake has begun. `sending`: the webhook is being sent. `waiting`: a worker can claim the wake. "
    "`leased`: the webhook was delivered, or a worker has claimed the wake, and has not ended it. `retrying`: the last "
    "attempt failed.",
    "logs": "Number of streams.",
    "pending": "Number of streams with unacknowledged records.",
    "lag": "Number of unacknowledged records in up to 1,000 streams.",
    "lag_is_least": "Whether more streams have unacknowledged records, so that the lag is larger.",
    "generation": "Number of wakes so far.",
    "holder": "The worker that holds the wake; empty if none does.",
    "leased_until": "When the lease of the wake ends; null if it is not leased.",
    "retry_at": "When the next attempt begins; null if none is due.",
    "failures": "Consecutive failures of the webhook.",
    "last_failure": "The last failure since the start of the server.",
    "delivered_at": "When the webhook was last delivered, or a wake last claimed, since the start of the server.",
    "lease_ms": "How long a lease lasts.",
}

CONSOLE = Described(
    name="console",
    groups={_GROUP: "The console and its API."},
    operations=_OPERATIONS,
    problems=PROBLEMS,
    error=ErrorAnswer,
    descriptions={
        **DESCRIPTIONS,
        "LogRow": _LOG_FIELDS,
        "ConsoleLogAnswer": {
            **_LOG_FIELDS,
            "epoch": "Increases when a log of this name is deleted and created again.",
            "floor": "Retention removed all records below this sequence number.",
            "schema": "Whether a schema validates appended records.",
            "closed": "Whether the stream is closed for appends.",
            "expires_at": "When the log expires, unless it is used before.",
            "forks": "Number of forks of this log.",
            "note": "What the log belongs to, in words.",
            "of": "The collection or table that the log belongs to.",
            "writable_by": "The protocols that can append to the log.",
        },
        "InferenceAnswer": {
            "records": "Number of records in the sample that are JSON objects.",
            "fields": "The new fields.",
            "search": "The search configuration of the log with the new fields; null if there are none.",
        },
        "DryRun": {
            "refused": "Why the server would refuse the update; null if it would install it.",
            "installed": "The installed schema, routing key and searchable fields.",
            "proposed": "The same after the update, with its lens.",
            "records": "Number of records that were examined.",
            "complete": "Whether all of the wanted records were examined.",
            "rejected": "Number of records that could not be appended any more; null if the update changes neither the "
            "schema nor the routing key.",
            "rejections": f"The newest of them, at most {MAX_REJECTIONS}.",
            "fields": "The searchable fields after the update.",
        },
        "FieldDryRun": {
            "records": "Number of records that have a value.",
            "values": "Number of these values.",
            "unfit": "Number of records that have the member, but no value of this kind.",
            "examples": f"Different values, at most {MAX_EXAMPLES}; a long text is cut.",
            "unfit_examples": "Different values that are not of this kind.",
        },
        "InferredField": {
            "records": "Number of records in the sample that have the member.",
            "example": "A value of the field. A long text is cut.",
        },
        "SampleAnswer": {
            "appends": "Records per second.",
            "bytes": "Bytes of records per second.",
            "flush_p50_us": "Median time of a journal flush in microseconds; null without flushes.",
            "flush_p99_us": "99th percentile of the time of a journal flush in microseconds.",
            "pressure": "How busy the server is, from 0 to 1.",
            "disk_bytes": "Bytes of the data directory and the lake on the disk; null before they are measured.",
            "disk_free_bytes": "Free bytes of the disk; null before they are measured.",
        },
        "OverviewAnswer": {"disk": "Measured every minute; null before that, and if the directory cannot be read."},
        "DiskAnswer": {
            "lake_bytes": "Bytes of the lake; null if it is in an object store.",
            "other_bytes": "Caches, damaged files and other files of the data directory.",
            "used_bytes": "The sum of all of these.",
            "complete": "Whether all files were counted. A directory with very many files has more bytes than shown.",
            "free_bytes": "Bytes of the disk that the server may use.",
            "total_bytes": "The size of the disk.",
            "growth_bytes_per_day": "The trend of the used bytes in the history of up to a week; null if it is shorter "
            "than an hour.",
            "full_in_ms": "When the disk is full if this trend continues; null if the size does not grow.",
        },
        "QueueCounts": {
            "ready": "Jobs that can be claimed now.",
            "in_flight": "Jobs leased to workers.",
            "delayed": "Jobs that become ready later.",
            "dead": "Records in the dead-letter log now, including those of other queues that share the log; 0 if the "
            "queue has no such log, or the API key may not access it.",
            "dead_lettered": "Jobs that became dead letters since the queue was created.",
            "dropped": "Jobs that were dropped after their last delivery failed, because there is no dead-letter log.",
        },
        "SubscriptionRow": _SUBSCRIPTION,
        "ConsoleSubscriptionsAnswer": {"failing": "The number of those whose webhook fails."},
        "ConsoleSubscriptionAnswer": {**_SUBSCRIPTION, "shown": "Streams with their positions."},
        "LinkedLog": {
            "named": "Whether the subscription names the stream.",
            "matched": "Whether the pattern matches it.",
            "acked": "The sequence number of the last acknowledged record.",
            "lag": "Number of unacknowledged records.",
        },
        "QueueAnswer": {
            "oldest_ready_ms": "The age of the oldest ready job, since it became ready; null if no job is ready.",
            "throughput": "Completed jobs per second in the last minute.",
            "failure_rate": "Of the deliveries that ended in the last minute, the fraction that failed, 0 to 1.",
        },
        "FailureRow": {
            "delivery": "Which delivery failed, counted from 1.",
            "reason": "What the worker gave as the reason, or a text if no worker reported the failure.",
        },
        "RemovalAnswer": {"sample": "The first records that would be deleted."},
        "MatchesAnswer": {
            "records": "The matching records, newest first.",
            "counts": "The start of each interval with matching records, in milliseconds, and their number.",
            "matched": "Number of matching records, in `records` or only counted.",
            "scanned": "Number of records that were examined.",
            "next": "Where to continue; null if the whole range was scanned.",
        },
        "SqlQuery": {
            "statement": "One statement that reads.",
            "format": "The format of the result. `json` is an array of objects.",
            "id": "A name for the query, with which it can be cancelled.",
        },
        "SqlColumn": {"type": "The type in DuckDB."},
        "SqlAnswer": {
            "rows": "The values of each row. A whole number that JavaScript would round is a string.",
            "truncated": "Whether the result has more rows.",
            "warnings": "What the result may lack, for example because the lake cannot be read.",
        },
        "SqlCancelAnswer": {"cancelled": "Whether there was such a query."},
        "ShownRouter": {
            "rate": "Records per second at the moment; null if unknown.",
            "paused": "Whether the router waits because its destination refuses records.",
        },
    },
)
