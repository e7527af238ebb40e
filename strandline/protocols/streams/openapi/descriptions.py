"""The descriptions of the members of bodies and answers, by struct and member."""

from __future__ import annotations

_COVERED = {
    "mode": "`complete`: no record is missing.",
    "visible_through_offset": "The last record that was considered.",
    "possible_missing_events_upper_bound": "The maximum number of records that were not considered.",
}
_PLACES = {
    "epoch": "The number of the stream: it differs from earlier streams of the same name.",
    "next_offset": "The number of the next record: how many records were ever appended.",
    "sealed_through": "The number of the last record in a segment; -1: none.",
    "uploaded_through": "The number of the last record in the cold tier; -1: none.",
}

DESCRIPTIONS: dict[str, dict[str, str]] = {
    # Schemas and profiles.
    "SchemaUpdate": {
        "schema": "A JSON schema, of the next version. It must not refer to other documents.",
        "lens": "Converts records of the current version to the new one. Required unless the schema is the first.",
        "routingKey": "Where records contain their routing key; null: nowhere.",
        "search": "Which fields can be searched, and how; null: none.",
    },
    "RegistryDocument": {
        "schema": "The name of the stream.",
        "boundaries": "The first record of each version.",
        "schemas": "The schemas, by version.",
        "lenses": "The lenses, by the version that they convert from.",
    },
    "SchemaBoundary": {"offset": "The number of the first record of the version; the first record has 0."},
    "RoutingKey": {"required": "Whether records without a key are refused."},
    "LensDocument": {
        "schema": "The name of the stream.",
        "from": "The current version.",
        "to": "The next version.",
    },
    "FieldDeclaration": {
        "bindings": "Where the field is, from a version on.",
        "exact": "The field can be compared with a value.",
        "prefix": "The field can be compared with the beginning of a value.",
        "column": "The field has an order, for ranges.",
        "exists": "Queries can test whether the field has a value.",
        "positions": "Positions of words are indexed, for phrases.",
    },
    "SearchDeclaration": {
        "primaryTimestampField": "The time by which hits with the same score are sorted.",
        "aliases": "Other names of fields.",
        "defaultFields": "The fields that are searched for words without a field.",
        "rollups": "The rollups of `_aggregate`, by name.",
    },
    "RollupDeclaration": {
        "include": "Only records that match this query.",
        "dimensions": "Fields to group by.",
        "intervals": "Such as `1m` or `1h`.",
    },
    "EvlogProfile": {"redactKeys": "Keys whose values are not stored, in addition to the default ones."},
    "Correlation": {
        "requestIdFields": "The fields that may hold the id of the request, as dotted paths.",
        "traceContextFields": "The fields with trace and span ids: dotted paths that end in `traceId` or `spanId`.",
        "parseTraceparent": "Whether to parse `traceparent`; default: yes.",
    },
    "EventsRequest": {"tracesStream": "The stream with the traces of its requests."},
    "SpansRequest": {"eventsStream": "The stream with the events of its requests."},
    "OtelTracesProfile": {
        "redactKeys": "Attributes whose values are not stored, in addition to the default ones.",
        "requestIdAttributes": "The attributes that may hold the id of the request.",
        "dbStatementMode": "Whether database statements are kept; they are dropped by default.",
        "urlMode": "Whether the queries of URLs are kept; they are dropped by default.",
    },
    "TouchSettings": {
        "enabled": "If false, the other members have no effect and are not stored.",
        "onMissingBefore": "How to handle an update without the old value.",
    },
    "MemorySettings": {"filterPow2": "The filter has 2 to this power positions of four bytes each."},
    # Search.
    "SearchCoverage": _COVERED,
    "AggregateCoverage": _COVERED,
    "SearchBody": {
        "q": 'For example `level:error service:"api" duration:>100`.',
        "sort": "For example `duration:desc`; also `_score` and `offset`, which is always the last key.",
        "search_after": "The `next_search_after` of the previous page.",
        "timeout_ms": "Maximum time of the search.",
    },
    "SearchTotal": {"value": "The number of hits on this page.", "relation": "`gte`: there may be more."},
    "SearchHit": {"sort": "The sort values.", "source": "The record, converted to the current version."},
    "SearchAnswer": {"next_search_after": "The `search_after` of the next page; null on the last page."},
    "AggregateBody": {
        "from": "A date, or milliseconds since 1970; digits in a string are nanoseconds.",
        "to": "The end, exclusive.",
        "interval": "One of the intervals of the rollup.",
        "group_by": "Dimensions of the rollup.",
        "measures": "The measures to return; default: all measures of the rollup.",
        "q": "Only records that match this query.",
    },
    "AggregateGroup": {"key": "The value of each dimension; null if records have none."},
    "AggregateMeasure": {"histogram": "The number of values in each bucket, by its lower bound."},
    # Traces.
    "PartialSuccess": {"rejectedSpans": "The number of spans that were rejected. The others were stored."},
    "PartialLogs": {"rejectedLogRecords": "The number of log records that were rejected. The others were stored."},
    "PartialMetrics": {"rejectedDataPoints": "The number of data points that were rejected. The others were stored."},
    "ObserveStreams": {
        "events": "A stream with the profile evlog. One of the two is required; its profile may name the other.",
        "traces": "A stream with the profile otel-traces.",
    },
    "ObserveLookup": {
        "requestId": "Send exactly one of the three.",
    },
    "ObserveTime": {
        "from": "A date, or milliseconds since 1970.",
        "paddingMs": "Extends the range by this time on both sides.",
    },
    "ObserveInclude": {"raw": "Include events and spans as they are stored."},
    "ObservedTrace": {
        "tree": "Depth first.",
        "criticalPath": "From the root, always the call that ended last.",
        "partial": "Whether spans are missing.",
    },
    # Live invalidation.
    "WaitBody": {
        "cursor": "`now`, or the cursor of an earlier answer.",
        "keys": "Touch keys, as text.",
        "keyIds": "Touch keys, as 32-bit numbers.",
        "interestMode": "`coarse`: wait for a change anywhere in the entity.",
        "exact": "Compare whole keys, so that there are no false positives. For up to 16 keys.",
        "templateIdsUsed": "The templates of the keys.",
        "declareTemplates": "Templates to activate first.",
        "inactivityTtlMs": "How long the declared templates stay active without being used.",
    },
    "ActivateBody": {"inactivityTtlMs": "How long the templates stay active without being used."},
    "TouchMeta": {
        "cursor": "The cursor for the next wait.",
        "settled": "Whether all appended records were processed.",
        "walScannedThrough": "The last record that was processed.",
    },
    "WaitAnswer": {
        "touched": "False: no key was touched in time.",
        "stale": "The given cursor is of another epoch: query again.",
        "cursor": "The cursor for the next wait.",
    },
    "DeniedTemplate": {"reason": "For example `rate_limited` or `invalid`."},
    # Subscriptions.
    "SubscriptionBody": {
        "type": "`webhook`: the server sends a request. `pull-wake`: it appends to `wake_stream`, and workers claim.",
        "pattern": "A pattern for names of streams: `*` is one segment, `**` any number of segments.",
        "streams": "Names of streams, in addition to those that match the pattern.",
        "lease_ttl_ms": "How long a worker holds a wake.",
    },
    "HolderBody": {
        "acks": "The last processed offset of each stream.",
        "done": "Whether everything is processed, which ends the wake.",
    },
    "AckWakeBody": {"path": "Same as `stream`; one of them is required."},
    "SubscriptionAnswer": {"status": "`failed`: the last webhook could not be delivered, and is retried."},
    "WakeClaimed": {"token": "Send it as a bearer token with `ack` and `release`."},
    "WakeAcknowledged": {"next_wake": "Whether another wake follows, because there are more records."},
    # Inspection.
    "StreamRow": _PLACES,
    "StreamFacts": {
        **_PLACES,
        "stream_seq": "The `Stream-Seq` of the last append that had one.",
        "pending_rows": "Records that are in the journal and not in a segment yet.",
    },
    "KeyIndexStatus": {"lag_ms": "The time between the last covered record and the last record."},
    "IndexStatus": {
        "desired_index_plan_generation": "The number of search configurations since the server started.",
    },
}
