"""The routes of the console, described for those who call them."""

from __future__ import annotations

from typing import Any

from strandline.engine.record import MAX_SEQ, MAX_TIME
from strandline.protocols.console import keys, logs, queues, read, routes, wire
from strandline.protocols.console.assets import MEDIA_TYPES, TEXT
from strandline.protocols.console.catalogue import SORTS
from strandline.protocols.console.errors import PROBLEMS
from strandline.protocols.console.kinds import KINDS
from strandline.service.openapi import (
    EVENT_STREAM,
    EVENTS,
    Answer,
    Described,
    Header,
    Operation,
    Parameter,
    Schema,
    shown,
)
from strandline.service.openapi import TEXT as STRING
from strandline.service.problems import ErrorAnswer

_GROUP = "console"
_SEQ: Schema = {"type": "integer", "minimum": 0, "maximum": MAX_SEQ}
_MOMENT: Schema = {
    "oneOf": [{"type": "integer", "minimum": 0, "maximum": MAX_TIME}, {"type": "string", "format": "date-time"}]
}


def _query(name: str, description: str, schema: Schema = STRING) -> Parameter:
    return Parameter(name, "query", description, schema)


def _limit(most: int, default: int) -> Parameter:
    return _query("limit", "How many at the most.", _whole(1, most, default))


def _whole(low: int, high: int, default: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": high, "default": default}


_NAME = Parameter(
    "name",
    "path",
    "The log's name, which may contain slashes: they need not be escaped.",
    {"type": "string", "minLength": 1},
    required=True,
)
_OFFSET = _query("offset", "How many to pass over.", {**_SEQ, "default": 0})
_SEARCH = _query("search", "Only names that contain this, in capitals or not.")
_KEY = _query("key", "Only records with this key.")
_PREFIX = _query("prefix", "Only records whose key starts with this.")

_LOGS = """Those that the key may touch, with what is true of each of them now. The order is that of a moment ago if
there are very many. What is not known, such as the lag of a log without consumers, comes last."""

_RECORDS = """Records behind `after` (by default from the start), the last ones before `before`, or those from the time
`at` on. Of any log, whatever it holds: `data` is JSON as it was written, `text` is text, and `base64` anything else.

`tombstone` is what was lost right before the first of these records. `first` is where to go on backwards from (as
`before`), `next_after` where to go on forwards (as `after`); `caught_up` says that there is nothing more in the
direction that was asked for."""

_TAIL = f"""Events are `record` (as in `{routes.RECORDS}`), `tombstone` (records that were lost on the way here),
`dropped` (the log is gone, and the stream ends) and `end` (the client does not keep up, and the stream ends). Their ids
say how far one has come: send the last one as `Last-Event-ID` to go on from there. Without that and without `after`
only new records are told."""

_QUEUE = """How many jobs there are of each kind; of those that workers hold, and those that wait for their time, the
ones first with which something happens next; and the jobs that are handed out next, in that order."""

_TAG = Header("ETag", "Which version of the file it is.", STRING, required=True)
_FILES = {media_type.decode().partition(";")[0]: STRING for media_type in (*MEDIA_TYPES.values(), TEXT)}

_OPERATIONS: dict[tuple[str, str], Operation] = {
    ("GET", routes.PAGE): Operation(
        group=_GROUP,
        summary="Go to the console",
        answers=(Answer(308, "It is at `/console/`.", {"text/plain": STRING}),),
    ),
    ("GET", routes.ASSET): Operation(
        group=_GROUP,
        summary="Get a file of the console",
        answers=(Answer(200, "The file.", _FILES, (_TAG,)), Answer(304, "It is the one in `If-None-Match`.")),
        parameters=(
            Parameter("path", "path", "Which file; none: the page.", STRING, required=True),
            Parameter("If-None-Match", "header", "The versions that one has.", STRING),
        ),
        errors=("not_found",),
    ),
    ("GET", routes.SESSION): Operation(
        group=_GROUP,
        summary="See who one is",
        description="Needs no key: without a valid one, `key` is null.",
        answers=shown(wire.SessionAnswer),
    ),
    ("GET", routes.OVERVIEW): Operation(
        group=_GROUP,
        summary="See how the server is doing",
        description="A sample a second, of ten minutes; totals and the busiest logs as far as the key may know.",
        answers=shown(wire.OverviewAnswer),
    ),
    ("GET", routes.LIVE): Operation(
        group=_GROUP,
        summary="See how the server goes on doing",
        description="An event `sample` every second, with the `busiest` logs in it.",
        answers=(Answer(200, "Events, until somebody ends it.", {EVENT_STREAM: EVENTS}),),
    ),
    ("GET", routes.LOGS): Operation(
        group=_GROUP,
        summary="List logs in any order",
        description=_LOGS,
        answers=shown(wire.ConsoleLogsAnswer),
        parameters=(
            _SEARCH,
            _query("kind", "Only logs of this kind.", {"enum": list(KINDS)}),
            _query("sort", "By what they are ordered.", {"enum": list(SORTS), "default": "name"}),
            _query("order", "Names ascend by default, everything else descends.", {"enum": ["asc", "desc"]}),
            _OFFSET,
            _limit(logs.MAX_LIMIT, logs.DEFAULT_LIMIT),
        ),
        errors=("invalid_request",),
    ),
    ("GET", routes.LOG): Operation(
        group=_GROUP,
        summary="Look at one log",
        answers=shown(wire.ConsoleLogAnswer),
        parameters=(_NAME,),
        errors=("invalid_request", "log_not_found"),
    ),
    ("GET", routes.RECORDS): Operation(
        group=_GROUP,
        summary="Browse the records of a log",
        description=_RECORDS,
        answers=shown(wire.RecordsAnswer),
        parameters=(
            _NAME,
            _query("after", "Only records behind this seq.", _SEQ),
            _query("before", "The last records before this seq.", _SEQ),
            _query("at", "Only records of this time or later: milliseconds since 1970, or by RFC 3339.", _MOMENT),
            _limit(read.MAX_LIMIT, read.DEFAULT_LIMIT),
            _KEY,
            _PREFIX,
        ),
        errors=("invalid_request", "log_not_found"),
    ),
    ("GET", routes.TAIL): Operation(
        group=_GROUP,
        summary="Be told of records as they come",
        description=_TAIL,
        answers=(Answer(200, "Events, until somebody ends it.", {EVENT_STREAM: EVENTS}),),
        parameters=(
            _NAME,
            _query("after", "Begin with the records behind this seq.", _SEQ),
            Parameter("Last-Event-ID", "header", "The id of the last event that one has seen.", STRING),
        ),
        errors=("invalid_request", "log_not_found"),
    ),
    ("GET", routes.KEYS): Operation(
        group=_GROUP,
        summary="List the keys of a log",
        description="In their order, those that a record has which readers see.",
        answers=shown(wire.KeysAnswer),
        parameters=(
            _NAME,
            _query("prefix", "Only keys that start with this."),
            _query("after", "Only keys behind this one."),
            _limit(keys.MAX_LIMIT, keys.DEFAULT_LIMIT),
        ),
        errors=("invalid_request", "log_not_found"),
    ),
    ("GET", routes.REMOVAL): Operation(
        group=_GROUP,
        summary="See what a delete would take",
        description="Those that fulfil every condition that is given, of which there must be one. Nothing is deleted.",
        answers=shown(wire.RemovalAnswer),
        parameters=(_NAME, _KEY, _PREFIX, _query("before", "Only records before this seq.", _SEQ)),
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
        summary="Look into a queue",
        description=_QUEUE,
        answers=shown(wire.QueueAnswer),
        parameters=(_NAME,),
        errors=("invalid_request", "log_not_found", "not_a_queue"),
    ),
    ("GET", routes.ROUTERS): Operation(
        group=_GROUP,
        summary="See what goes from where to where",
        description="The routers of which the key may touch the name and both ends, and the logs that they connect.",
        answers=shown(wire.ConsoleRoutersAnswer),
    ),
    ("GET", routes.FIELDS): Operation(
        group=_GROUP,
        summary="List the fields of a log",
        description="Those that its search configuration names, and those that its last records have.",
        answers=shown(wire.FieldsAnswer),
        parameters=(_NAME,),
        errors=("invalid_request", "log_not_found"),
    ),
}

_LOG_FIELDS = {
    "kind": "Which protocol it belongs to; a queue is a topic of jobs.",
    "head": "The highest seq that readers can see.",
    "earliest": "The first seq that is there.",
    "records": "How many there are; of a fork, its own.",
    "bytes": "Of data and meta.",
    "rate": "Appends per second, just now.",
    "lag": "How far the slowest consumer is behind; null if there is none.",
    "last_ts": "The time of the last record; null if there never was one.",
}

CONSOLE = Described(
    name="console",
    groups={_GROUP: "The console, and what it asks: for people who look on."},
    operations=_OPERATIONS,
    problems=PROBLEMS,
    error=ErrorAnswer,
    descriptions={
        "LogRow": _LOG_FIELDS,
        "ConsoleLogAnswer": {
            **_LOG_FIELDS,
            "epoch": "Which log of this name it is.",
            "floor": "Everything below was lost to a cap or to time.",
            "schema": "Whether what is appended is checked against one.",
            "closed": "Whether it is a stream that takes nothing more.",
            "expires_at": "When it goes, unless it is used before.",
            "forks": "How many logs were forked from it.",
            "note": "Where it belongs, in words.",
            "of": "The collection or the table that it belongs to.",
            "writable_by": "The protocols that can append to it.",
        },
        "SampleAnswer": {
            "appends": "Records per second.",
            "bytes": "Bytes of records per second.",
            "flush_p50_us": "What half of the journal's flushes took at the most; null if there was none.",
            "flush_p99_us": "What nearly all of them took at the most.",
            "pressure": "How busy the server is, 0 to 1.",
        },
        "QueueCounts": {
            "ready": "Can be claimed now.",
            "in_flight": "Held by workers.",
            "delayed": "Wait for their time.",
            "dead": "Went to the dead letters, ever since.",
        },
        "RemovalAnswer": {"sample": "The first of them."},
        "ShownRouter": {
            "rate": "Records per second, just now; null if that is not known.",
            "paused": "Whether it waits because its destination takes nothing.",
        },
    },
)
