"""What the members of bodies and answers mean, by struct and member."""

from __future__ import annotations

_COVERED = {
    "mode": "`complete`: nothing can be missing.",
    "visible_through_offset": "The last record that was taken into account.",
    "possible_missing_events_upper_bound": "How many records, at most, were not.",
}
_PLACES = {
    "epoch": "Which of all streams that ever had this name it is.",
    "next_offset": "How many records were ever appended: the number of the next one.",
    "sealed_through": "The number of the last record that is in a segment; -1: none.",
    "uploaded_through": "The same, of segments in the cold tier.",
}

DESCRIPTIONS: dict[str, dict[str, str]] = {
    # Schemas and profiles.
    "SchemaUpdate": {
        "schema": "A JSON schema, of the next version. It stands for itself: no references to elsewhere.",
        "lens": "How records of the current version become ones of the new one. Needed unless it is the first.",
        "routingKey": "Where records have their routing key; null: nowhere.",
        "search": "Which fields can be asked for, and how; null: none.",
    },
    "RegistryDocument": {
        "schema": "The name of what the schemas describe: the stream's.",
        "boundaries": "From which record on which version counts.",
        "schemas": "By version.",
        "lenses": "By the version that they lead from.",
    },
    "SchemaBoundary": {"offset": "The number of the first record of the version; 0 is that of the first record."},
    "RoutingKey": {"required": "Whether a record without a key is refused."},
    "LensDocument": {
        "schema": "The name of what the schemas describe: the stream's.",
        "from": "The current version.",
        "to": "The next one.",
    },
    "FieldDeclaration": {
        "bindings": "Where the field is in records of a version and of later ones.",
        "exact": "Can be compared with a value.",
        "prefix": "Can be compared with how a value begins.",
        "column": "Has an order, for ranges.",
        "exists": "Can be asked whether there is a value.",
        "positions": "Remembers where words are, for phrases.",
    },
    "SearchDeclaration": {
        "primaryTimestampField": "The time that hits are sorted by behind their score.",
        "aliases": "Other names of fields.",
        "defaultFields": "Where words without a field are looked for.",
        "rollups": "What `_aggregate` can add up, by name.",
    },
    "RollupDeclaration": {
        "include": "Only records that match this query.",
        "dimensions": "Fields to group by.",
        "intervals": "Such as `1m` or `1h`.",
    },
    "EvlogProfile": {"redactKeys": "Keys whose values are not stored, beside the usual ones."},
    "Correlation": {
        "requestIdFields": "Where the id of the request is looked for, as dotted paths.",
        "traceContextFields": "Where ids of trace and span are: dotted paths that end in `traceId` or `spanId`.",
        "parseTraceparent": "Whether to look into `traceparent`; by default, yes.",
    },
    "EventsRequest": {"tracesStream": "Where the traces of its requests are."},
    "SpansRequest": {"eventsStream": "Where the events of its requests are."},
    "OtelTracesProfile": {
        "redactKeys": "Attributes whose values are not stored, beside the usual ones.",
        "requestIdAttributes": "Where the id of the request is looked for.",
        "dbStatementMode": "Whether statements of databases are kept as they are; by default they are dropped.",
        "urlMode": "Whether queries of URLs are kept; by default they are dropped.",
    },
    "TouchSettings": {
        "enabled": "Without it nothing else has an effect, and nothing else is kept.",
        "onMissingBefore": "What becomes of an update that does not say what it changed.",
    },
    "MemorySettings": {"filterPow2": "The filter has 2 to this power positions of four bytes."},
    # Search.
    "SearchCoverage": _COVERED,
    "AggregateCoverage": _COVERED,
    "SearchBody": {
        "q": 'Such as `level:error service:"api" duration:>100`.',
        "sort": "Such as `duration:desc`; also `_score` and `offset`, which is always the last key.",
        "search_after": "`next_search_after` of the page before.",
        "timeout_ms": "How long to look, at the most.",
    },
    "SearchTotal": {"value": "How many hits there are on this page.", "relation": "`gte`: there may be more."},
    "SearchHit": {"sort": "What it was sorted by.", "source": "The record, as one of the current version."},
    "SearchAnswer": {"next_search_after": "Where to go on; null: nowhere."},
    "AggregateBody": {
        "from": "A date, or milliseconds since 1970; digits in a string are nanoseconds.",
        "to": "The end, which does not belong to it.",
        "interval": "One of those that the rollup declares.",
        "group_by": "Dimensions of the rollup.",
        "measures": "Those of the rollup to show; by default all.",
        "q": "Only records that match this query.",
    },
    "AggregateGroup": {"key": "The value per dimension; null where records have none."},
    "AggregateMeasure": {"histogram": "How many are in each bucket, by its lower bound."},
    # Traces.
    "PartialSuccess": {"rejectedSpans": "How many spans were not taken. The others were."},
    "ObserveStreams": {
        "events": "A stream of the profile evlog. One of the two is needed; it may know of the other.",
        "traces": "A stream of the profile otel-traces.",
    },
    "ObserveLookup": {
        "requestId": "Exactly one of the three is given.",
    },
    "ObserveTime": {
        "from": "A date, or milliseconds since 1970.",
        "paddingMs": "So much earlier and later, too.",
    },
    "ObserveInclude": {"raw": "Events and spans also as they are stored."},
    "ObservedTrace": {
        "tree": "Depth first.",
        "criticalPath": "From the root on, always to the call that ended last.",
        "partial": "Whether something is missing.",
    },
    # Live invalidation.
    "WaitBody": {
        "cursor": "`now`, or the cursor of an earlier answer.",
        "keys": "Touch keys, as text.",
        "keyIds": "The same, as their 32-bit numbers.",
        "interestMode": "`coarse`: it is enough to know that something of the entity was touched.",
        "exact": "Compare whole keys: nothing is told that did not happen. For up to 16 keys.",
        "templateIdsUsed": "The templates that the keys are of.",
        "declareTemplates": "Activate these first.",
        "inactivityTtlMs": "For how long the declared templates stay active without being used.",
    },
    "ActivateBody": {"inactivityTtlMs": "For how long they stay active without being used."},
    "TouchMeta": {
        "cursor": "Where a wait can go on.",
        "settled": "Whether everything that was appended has been looked at.",
        "walScannedThrough": "The last record that was looked at.",
    },
    "WaitAnswer": {
        "touched": "False: nothing happened in time.",
        "stale": "The cursor that was given is of another epoch: query anew.",
        "cursor": "Where to go on.",
    },
    "DeniedTemplate": {"reason": "Such as `rate_limited` or `invalid`."},
    # Subscriptions.
    "SubscriptionBody": {
        "type": "`webhook`: the server sends a request. `pull-wake`: it writes into `wake_stream`, and workers claim.",
        "pattern": "Names of streams: `*` is one segment, `**` any number of them.",
        "streams": "Names of streams, beside those of the pattern.",
        "lease_ttl_ms": "For how long a wake belongs to whoever has it.",
    },
    "HolderBody": {
        "acks": "How far each stream was dealt with.",
        "done": "Whether that was all: the wake is over then.",
    },
    "AckWakeBody": {"path": "Another word for `stream`; one of them is needed."},
    "SubscriptionAnswer": {"status": "`failed`: the last webhook could not be delivered, and is tried again."},
    "WakeClaimed": {"token": "To be shown as a bearer token with `ack` and `release`."},
    "WakeAcknowledged": {"next_wake": "Whether there is more to do: another wake follows."},
    # Inspection.
    "StreamRow": _PLACES,
    "StreamFacts": {
        **_PLACES,
        "stream_seq": "The `Stream-Seq` of the last append that had one.",
        "pending_rows": "Records that are in the journal and not in a segment yet.",
    },
    "KeyIndexStatus": {"lag_ms": "From the last record that is covered to the last there is."},
    "IndexStatus": {
        "desired_index_plan_generation": "How many search configurations there were since the server was started.",
    },
}
