"""The OpenAPI descriptions of the topics protocol; one entry per route."""

from __future__ import annotations

from typing import Any

import msgspec

from strandline.engine.record import PLAIN_NAME
from strandline.protocols.topics import consumers, event_frames, groups, message_frames, routers, wire
from strandline.protocols.topics.descriptions import DESCRIPTIONS
from strandline.protocols.topics.errors import PROBLEMS, RENAMED
from strandline.protocols.topics.list import DEFAULT_PAGE, MAX_PAGE
from strandline.service import log_config
from strandline.service.openapi import (
    EVENT_STREAM,
    EVENTS,
    JSON,
    TEXT,
    AnswerShape,
    Described,
    Operation,
    Parameter,
    Schema,
    shown,
)
from strandline.service.problems import ErrorAnswer

_ONE = "/v0/topics/{topic}"
_CONSUMER = _ONE + "/consumers/{consumer}"
_GROUP = _ONE + "/groups/{group}"
_ROUTER = "/v0/routers/{router}"


def _query(name: str, description: str, schema: Schema = TEXT, *, required: bool = False) -> Parameter:
    return Parameter(name, "query", description, schema, required)


def _flag(name: str, default: bool, description: str) -> Parameter:
    return _query(name, description + " A value other than true, 1, false and 0 means the default.", _boolean(default))


def _boolean(default: bool) -> dict[str, Any]:
    return {"type": "boolean", "default": default}


def _named(name: str, pattern: str, description: str) -> Parameter:
    return Parameter(name, "path", description, {"type": "string", "pattern": f"^{pattern}$"}, required=True)


_PATH = {
    "topic": _named("topic", PLAIN_NAME.pattern, "The topic's name."),
    "consumer": _named("consumer", consumers.NAME.pattern, "The consumer's name."),
    "group": _named("group", groups.NAME.pattern, "The name of the consumer group."),
    "router": _named("router", routers.NAME.pattern, "The router's name."),
    "wid": Parameter("wid", "path", "The id of the session, from the answer of `POST /v0/watch`.", TEXT, required=True),
}

_PAGING = (
    _query("prefix", "Only names that start with this prefix."),
    _query("cursor", "The `next_cursor` of the previous page."),
    _query(
        "page_size",
        "Maximum number of rows. A number out of range is clamped; any other text means the default.",
        {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": DEFAULT_PAGE},
    ),
)
_TOKEN = _query("token", "The API key, for clients that cannot send headers, such as a browser's EventSource.")
_IDEMPOTENCY = Parameter(
    "Idempotency-Key",
    "header",
    "Same as `idempotency_key` in the body, which takes precedence.",
    {"type": "string", "minLength": 1, "maxLength": 256},
)
_RETURN_SEQS = _flag("return_seqs", True, "Whether the answer lists every seq.")

#: The errors of a route whose topic must exist.
_ABSENT = ("topic_not_found", "not_json")
_WRITE_ERRORS = (
    "batch_too_large", "record_too_large", *_ABSENT, "not_writable", "topic_full", "read_only", "disk_full",
)  # fmt: skip


def _members(shape: type[msgspec.Struct]) -> str:
    """The members of a struct, as a list in a text."""
    fields = msgspec.structs.fields(shape)
    always = [f"`{one.encode_name}`" for one in fields if one.required]
    optional = [f"`{one.encode_name}`" for one in fields if not one.required]
    return ", ".join(always + (["optionally " + optional[0], *optional[1:]] if optional else []))


_EVENTS = f"""An event stream. The first block is `retry: 2000`. Then the stream sends the backlog of each topic, in the
order of their names, and then new records as they are written:

- `record`: {_members(event_frames.RecordEvent)}; `records` is an array as in a diff;
- `caught-up`: {_members(event_frames.CaughtUpEvent)}; once the reader has every record;
- `tombstone`: {_members(event_frames.TombstoneEvent)}; these records are gone. The first one of a topic on a
  connection has the reason `from_seq_too_old`;
- `topic-deleted`: {_members(event_frames.TopicDeletedEvent)}; the stream ends when no watched topic is left;
- `error`: {_members(event_frames.ErrorEvent)}; the code is `server_shutting_down`, or a status that says
  why the stream is slowed down or ends.

The `id` of an event is a cursor over all watched topics: send it as `Last-Event-ID`, as browsers do by themselves, or
as `cursor`. An idle stream gets comments, `: hb <milliseconds>`."""

_JOBS = f"""An event stream. The first block is `retry: 2000`. Then the stream sends an event `job` for every job that
the worker gets: {_members(wire.Job)}. Its `id` is the seq. The worker answers with `POST …/ack`, `…/nack` or `…/extend`
and never holds more than `max` jobs. When the connection ends, other workers get the jobs that it still held. An event
`error` has {_members(event_frames.ErrorEvent)}; the code is 429 while the server is too busy, 409 when the topic is no
longer this queue, or `server_shutting_down`. An idle stream gets comments, `: hb <milliseconds>`."""

_TOPICS: dict[tuple[str, str], Operation] = {
    ("GET", "/v0/topics"): Operation(
        group="topics",
        summary="List topics",
        description="By name. The last page has no `next_cursor`.",
        answers=shown(wire.TopicList),
        parameters=(*_PAGING, _flag("touch", False, "Whether this request counts as reading the topics.")),
        errors=("invalid_request",),
    ),
    ("PUT", _ONE): Operation(
        group="topics",
        summary="Create or configure a topic",
        description="Replaces the configuration: a member that is left out gets its default. Only `type` is kept.",
        body={JSON: log_config.TopicConfig},
        answers=shown(wire.TopicPut, created="The topic was created."),
        parameters=(_PATH["topic"],),
        errors=("topic_exists_incompatible", "topic_has_forks", "not_json", "read_only", "disk_full"),
    ),
    ("GET", _ONE): Operation(
        group="topics",
        summary="Get a topic",
        answers=shown(wire.TopicState),
        parameters=(_PATH["topic"], _flag("touch", True, "Whether this request counts as reading the topic.")),
        errors=_ABSENT,
    ),
    ("DELETE", _ONE): Operation(
        group="topics",
        summary="Delete a topic",
        description="Deletes its records and its routers too. Deleting a topic that does not exist succeeds.",
        answers=shown(wire.TopicDeleted),
        parameters=(_PATH["topic"], _flag("if_empty", False, "Refuse if the topic has records.")),
        errors=("topic_not_empty", "topic_has_forks", "not_json", "read_only", "disk_full"),
    ),
}

_RECORDS: dict[tuple[str, str], Operation] = {
    ("POST", _ONE): Operation(
        group="records",
        summary="Write records",
        description="Writes all records or none. Creates the topic if needed; a `config` needs the admin scope.",
        body={JSON: wire.WriteBody},
        answers=shown(wire.WriteAnswer, created="The records were written, and the topic was created for them."),
        parameters=(_PATH["topic"], _RETURN_SEQS, _IDEMPOTENCY),
        errors=_WRITE_ERRORS,
    ),
    ("POST", "/v0/write"): Operation(
        group="records",
        summary="Write records to several topics in one step",
        description="Writes all records or none, also if the server crashes.",
        body={JSON: wire.MultiWriteBody},
        answers=shown(
            wire.MultiWriteAnswer, created="The records were written, and at least one topic was created for them."
        ),
        parameters=(_RETURN_SEQS, _IDEMPOTENCY),
        errors=_WRITE_ERRORS,
    ),
    ("POST", _ONE + "/diff"): Operation(
        group="records",
        summary="Read records",
        description=(
            "The records after `from_seq`. Continue with `next_from_seq`. Set `wait_ms` to long-poll. A `tombstone` "
            "says which records were lost to retention or damage."
        ),
        body={JSON: wire.DiffBody},
        answers=shown(wire.DiffAnswer),
        parameters=(_PATH["topic"],),
        errors=_ABSENT,
    ),
    ("POST", _ONE + "/delete"): Operation(
        group="records",
        summary="Delete records permanently",
        description="Deletes the records before a seq, those whose tag matches, or those that meet both conditions.",
        body={JSON: wire.DeleteBody},
        answers=shown(wire.RecordsDeleted),
        parameters=(_PATH["topic"],),
        errors=(*_ABSENT, "read_only", "disk_full"),
    ),
}

_CONSUMERS: dict[tuple[str, str], Operation] = {
    ("GET", "/v0/consumers"): Operation(
        group="consumers",
        summary="List the consumers of all topics",
        description="Sorted by topic and name. `prefix` applies to the names of topics.",
        answers=shown(wire.ConsumersList),
        parameters=_PAGING,
        errors=("invalid_request",),
    ),
    ("GET", _ONE + "/consumers"): Operation(
        group="consumers",
        summary="List consumers and their lag",
        answers=shown(wire.ConsumerList),
        parameters=(_PATH["topic"],),
        errors=_ABSENT,
    ),
    ("GET", _CONSUMER): Operation(
        group="consumers",
        summary="Get a consumer",
        answers=shown(wire.ConsumerAnswer),
        parameters=(_PATH["topic"], _PATH["consumer"]),
        errors=(*_ABSENT, "consumer_not_found"),
    ),
    ("PUT", _CONSUMER): Operation(
        group="consumers",
        summary="Commit the position of a consumer",
        description="Creates the consumer if it does not exist. The position may go back. Give exactly one of `seq`, "
        "`at` and `since_ts`.",
        body={JSON: wire.OneCommit},
        answers=shown(wire.ConsumerAnswer),
        parameters=(_PATH["topic"], _PATH["consumer"]),
        errors=(*_ABSENT, "read_only", "disk_full"),
    ),
    ("DELETE", _CONSUMER): Operation(
        group="consumers",
        summary="Delete a consumer",
        answers=shown(wire.ConsumerDeleted),
        parameters=(_PATH["topic"], _PATH["consumer"]),
        errors=(*_ABSENT, "read_only", "disk_full"),
    ),
}

_CONSUMER_GROUPS: dict[tuple[str, str], Operation] = {
    ("POST", _GROUP): Operation(
        group="groups",
        summary="Join a group, or report as a member",
        description="The first member creates the group. A member sends this request again before its leases end, "
        "with the shares that it has and their positions, which are committed. The answer has the shares that it has "
        "now. It finishes what it has begun of the shares in `give_back`, and then sends them with `release`. It no "
        "longer has the shares in `lost`, whose positions were not committed.",
        body={JSON: wire.GroupBody},
        answers=shown(wire.GroupAnswer),
        parameters=(_PATH["topic"], _PATH["group"]),
        errors=(*_ABSENT, "group_not_found", "read_only", "disk_full"),
    ),
    ("GET", _GROUP): Operation(
        group="groups",
        summary="Get a group with its members and shares",
        answers=shown(wire.GroupState),
        parameters=(_PATH["topic"], _PATH["group"]),
        errors=(*_ABSENT, "group_not_found"),
    ),
    ("DELETE", _GROUP): Operation(
        group="groups",
        summary="Delete a group that has no members",
        description="Deletes the consumers of its shares. Deleting a group that does not exist succeeds.",
        answers=shown(wire.GroupDeleted),
        parameters=(_PATH["topic"], _PATH["group"]),
        errors=(*_ABSENT, "group_has_members", "read_only", "disk_full"),
    ),
}

_HELD = ("batch_too_large", *_ABSENT, "not_a_queue", "read_only", "disk_full")
_QUEUES: dict[tuple[str, str], Operation] = {
    ("POST", _ONE + "/claim"): Operation(
        group="queues",
        summary="Claim jobs",
        description="The worker holds each job until its deadline. Jobs are claimed by priority, then by age.",
        body={JSON: wire.ClaimBody},
        answers=shown(wire.ClaimAnswer),
        parameters=(_PATH["topic"],),
        errors=(*_ABSENT, "not_a_queue", "read_only", "disk_full"),
    ),
    ("POST", _ONE + "/ack"): Operation(
        group="queues",
        summary="Acknowledge jobs",
        description="Deletes the jobs. `skipped` lists those that the worker does not hold. With `claim`, the "
        "worker also claims its next jobs, which needs the scope `read`; only then the answer has `claimed`.",
        body={JSON: wire.AckBody},
        answers=shown(wire.AckAnswer),
        parameters=(_PATH["topic"],),
        errors=_HELD,
    ),
    ("POST", _ONE + "/nack"): Operation(
        group="queues",
        summary="Release jobs",
        body={JSON: wire.NackBody},
        answers=shown(wire.NackAnswer),
        parameters=(_PATH["topic"],),
        errors=_HELD,
    ),
    ("POST", _ONE + "/extend"): Operation(
        group="queues",
        summary="Extend leases",
        description="`deadlines` are the new deadlines, by seq.",
        body={JSON: wire.ExtendBody},
        answers=shown(wire.ExtendAnswer),
        parameters=(_PATH["topic"],),
        errors=_HELD,
    ),
    ("GET", _ONE + "/work"): Operation(
        group="queues",
        summary="Stream jobs to a worker",
        answers=(AnswerShape(200, _JOBS, {EVENT_STREAM: EVENTS}),),
        parameters=(
            _PATH["topic"],
            _query("node", "The name of the worker.", {"type": "string", "minLength": 1}, required=True),
            _query(
                "max",
                "Maximum number of jobs that the worker holds at a time.",
                {"type": "integer", "minimum": 0, "default": 1},
            ),
            _query(
                "lease_ms",
                "How long the worker holds a job; by default as configured for the topic.",
                {"type": "integer", "minimum": 0},
            ),
            _TOKEN,
        ),
        errors=("invalid_request", *_ABSENT, "not_a_queue"),
    ),
    ("POST", _ONE + "/redrive"): Operation(
        group="queues",
        summary="Move dead letters back",
        description="Moves them to the queues that they came from, or all to one topic. `to` counts them by topic.",
        body={JSON: wire.RedriveBody},
        answers=shown(wire.RedriveAnswer),
        parameters=(_PATH["topic"],),
        errors=(*_ABSENT, "not_writable", "topic_full", "record_too_large", "read_only", "disk_full"),
    ),
}

_ROUTERS: dict[tuple[str, str], Operation] = {
    ("GET", "/v0/routers"): Operation(
        group="routers",
        summary="List routers",
        answers=shown(wire.RouterList),
        parameters=(
            *_PAGING,
            _query("source", "Only routers from this topic."),
            _query("dest", "Only routers to this topic."),
        ),
        errors=("invalid_request",),
    ),
    ("PUT", _ROUTER): Operation(
        group="routers",
        summary="Create or change a router",
        description="Copies records that are written to `source` from now on to `dest`. Neither can be changed later.",
        body={JSON: wire.RouterBody},
        answers=shown(wire.RouterPut, created="The router was created."),
        parameters=(_PATH["router"],),
        errors=(*_ABSENT, "not_writable", "topic_exists_incompatible", "router_cycle", "read_only", "disk_full"),
    ),
    ("GET", _ROUTER): Operation(
        group="routers",
        summary="Get a router",
        answers=shown(wire.RouterState),
        parameters=(_PATH["router"],),
        errors=("router_not_found",),
    ),
    ("DELETE", _ROUTER): Operation(
        group="routers",
        summary="Delete a router",
        description="Keeps the copies. Deleting a router that does not exist succeeds.",
        answers=shown(wire.RouterDeleted),
        parameters=(_PATH["router"],),
        errors=("read_only", "disk_full"),
    ),
}

_WATCHING: dict[tuple[str, str], Operation] = {
    ("POST", "/v0/watch"): Operation(
        group="watching",
        summary="Create a watch session",
        description=(
            "`topics` has a member per topic or pattern. A pattern is a prefix with `*` at its end; it includes topics "
            "that are created later. Then open the stream at `stream_url`."
        ),
        body={JSON: wire.WatchBody},
        answers=shown(wire.WatchAnswer),
        parameters=(_flag("lenient", False, "Same as `lenient` in the body."),),
        errors=_ABSENT,
    ),
    ("GET", "/v0/watch/{wid}"): Operation(
        group="watching",
        summary="Open the stream of a watch session",
        description="Needs the API key that created the session.",
        answers=(AnswerShape(200, _EVENTS, {EVENT_STREAM: EVENTS}),),
        parameters=(
            _PATH["wid"],
            _query("cursor", "The `id` of an event: resume after it. `Last-Event-ID` takes precedence."),
            _TOKEN,
            Parameter("Last-Event-ID", "header", "The `id` of the last event that the client got.", TEXT),
        ),
        errors=("unauthorized", "invalid_request", "not_found"),
    ),
}

_WEBSOCKET = f"""Subscribing and publishing on one connection. Send the API key in the `Authorization` header of the
handshake. Every message, in both directions, is one JSON object in a text frame; `op` names its kind. The answer to a
command repeats its `request_id`.

A client sends:

- `subscribe`: {_members(message_frames.Subscribe)}, with `topics` as in `POST /v0/watch`; needs the read scope;
- `unsubscribe`: {_members(message_frames.Unsubscribe)};
- `publish`: {_members(message_frames.Publish)}; needs the write scope, and with a `config` the admin scope;
- `ping`: {_members(message_frames.Ping)}.

The server sends:

- `subscribed`: {_members(message_frames.Subscribed)};
- `unsubscribed`: {_members(message_frames.Unsubscribed)};
- `ack`, the answer to `publish`: {_members(message_frames.PublishAck)};
- `pong`: {_members(message_frames.Pong)};
- `record`: {_members(message_frames.RecordMessage)};
- `caught_up`: {_members(message_frames.CaughtUp)};
- `tombstone`: {_members(message_frames.TombstoneMessage)};
- `topic_deleted`: {_members(message_frames.TopicDeletedMessage)};
- `error`: {_members(message_frames.ErrorMessage)}. The code is one of the HTTP answers, or `invalid_json`,
  `unsupported_message` (a binary frame) or `server_shutting_down`.

A client that does not read its messages gets no records until it does, and is disconnected in the end."""

_SOCKET = Operation(
    group="watching",
    summary="Subscribe and publish over a WebSocket",
    description=_WEBSOCKET,
    answers=(AnswerShape(101, "The connection becomes a WebSocket."),),
    errors=("unauthorized", "not_found", "throttled", "not_ready", "standby", "shutting_down"),
)

_GROUPS = {
    "topics": "Named, append-only sequences of records.",
    "records": "Writing, reading and deleting records.",
    "consumers": "Named positions in a topic, stored by the server.",
    "groups": "Members that share the records of a topic by key.",
    "queues": "Topics whose records are jobs. One worker at a time holds a job, until it is acknowledged.",
    "routers": "Routers copy records from one topic to another.",
    "watching": "Getting records as they are written.",
}

TOPICS = Described(
    name="topics",
    groups=_GROUPS,
    operations={**_TOPICS, **_RECORDS, **_CONSUMERS, **_CONSUMER_GROUPS, **_QUEUES, **_ROUTERS, **_WATCHING},
    problems=PROBLEMS,
    error=ErrorAnswer,
    renamed=RENAMED,
    descriptions=DESCRIPTIONS,
    sockets={"/v0/ws": _SOCKET},
)
