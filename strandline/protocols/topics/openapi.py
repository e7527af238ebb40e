"""The protocol's routes, described for those who call them; one entry per route."""

from __future__ import annotations

from typing import Any

from strandline.engine.record import PLAIN_NAME
from strandline.protocols.topics import consumers, routers, wire
from strandline.protocols.topics.descriptions import DESCRIPTIONS
from strandline.protocols.topics.errors import PROBLEMS, RENAMED
from strandline.protocols.topics.list import DEFAULT_PAGE, MAX_PAGE
from strandline.service import log_config
from strandline.service.openapi import (
    EVENT_STREAM,
    EVENTS,
    JSON,
    TEXT,
    Answer,
    Described,
    Operation,
    Parameter,
    Schema,
    shown,
)
from strandline.service.problems import ErrorAnswer

_ONE = "/v0/topics/{topic}"
_CONSUMER = _ONE + "/consumers/{consumer}"
_ROUTER = "/v0/routers/{router}"


def _query(name: str, description: str, schema: Schema = TEXT, *, required: bool = False) -> Parameter:
    return Parameter(name, "query", description, schema, required)


def _flag(name: str, default: bool, description: str) -> Parameter:
    return _query(name, description + " Anything but true, 1, false and 0 is the default.", _boolean(default))


def _boolean(default: bool) -> dict[str, Any]:
    return {"type": "boolean", "default": default}


def _named(name: str, pattern: str, description: str) -> Parameter:
    return Parameter(name, "path", description, {"type": "string", "pattern": f"^{pattern}$"}, required=True)


_PATH = {
    "topic": _named("topic", PLAIN_NAME.pattern, "The topic's name."),
    "consumer": _named("consumer", consumers.NAME.pattern, "The consumer's name."),
    "router": _named("router", routers.NAME.pattern, "The router's name."),
    "wid": Parameter("wid", "path", "The session's id, as `POST /v0/watch` gave it.", TEXT, required=True),
}

_PAGING = (
    _query("prefix", "Only names that begin like this."),
    _query("cursor", "`next_cursor` of the page before."),
    _query(
        "page_size",
        "How many at the most. What is out of range is brought into it, what is no number is the default.",
        {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": DEFAULT_PAGE},
    ),
)
_TOKEN = _query("token", "The API key, for clients that cannot send headers, such as a browser's EventSource.")
_IDEMPOTENCY = Parameter(
    "Idempotency-Key",
    "header",
    "The same as `idempotency_key` in the body, which comes first.",
    {"type": "string", "minLength": 1, "maxLength": 256},
)
_RETURN_SEQS = _flag("return_seqs", True, "Whether the answer lists every seq.")

#: What can be wrong with the name of a topic that has to exist.
_ABSENT = ("topic_not_found", "not_json")
_WRITE_ERRORS = (
    "batch_too_large", "record_too_large", *_ABSENT, "not_writable", "topic_full", "read_only", "disk_full",
)  # fmt: skip

_EVENTS = """An event stream. First comes a block with `retry: 2000`. Then, per topic in the order of their
names, what there is to catch up with, and from then on whatever is new:

- `record`: `topic`, `from_seq`, `to_seq`, `head_seq` and `records`, an array as in a diff;
- `caught-up`: `topic` and `head_seq`; once the reader has everything;
- `tombstone`: `topic`, `reason`, `gap_from`, `gap_to`, `earliest_seq`, `head_seq`; these records are gone. The
  first one of a topic on a connection has the reason `from_seq_too_old`;
- `topic-deleted`: `topic`, `head_seq`, `reason`; the stream ends when no watched topic is left;
- `error`: `code` and `message`; `server_shutting_down`, or why the stream is slowed down or ended.

The `id` of events is a cursor over all watched topics: send it as `Last-Event-ID`, as browsers do by
themselves, or as `cursor`. An idle stream gets comments, `: hb <milliseconds>`."""

_JOBS = """An event stream. First comes a block with `retry: 2000`, then an event `job` for every job that the
worker is given, with `topic` and the members of a claimed job; its `id` is the seq. The worker answers with
`POST …/ack`, `…/nack` or `…/extend` and never holds more than `max` jobs. When the connection ends, what it
still held is for others. An event `error` has `code` and `error`: 429 while the server is too busy, 409 when
the topic is no queue any more, `server_shutting_down`. An idle stream gets comments, `: hb <milliseconds>`."""

_TOPICS: dict[tuple[str, str], Operation] = {
    ("GET", "/v0/topics"): Operation(
        group="topics",
        summary="List topics",
        description="In the order of their names. `next_cursor` is there when there are more.",
        answers=shown(wire.TopicList),
        parameters=(*_PAGING, _flag("touch", False, "Whether this counts as reading the topics.")),
        errors=("invalid_request",),
    ),
    ("PUT", _ONE): Operation(
        group="topics",
        summary="Create or configure a topic",
        description="Replaces the whole configuration: what is left out gets its default. Only `type` stays as it is.",
        body={JSON: log_config.TopicConfig},
        answers=shown(wire.TopicPut, created="The topic was created."),
        parameters=(_PATH["topic"],),
        errors=("topic_exists_incompatible", "topic_has_forks", "not_json", "read_only", "disk_full"),
    ),
    ("GET", _ONE): Operation(
        group="topics",
        summary="Look at a topic",
        answers=shown(wire.TopicState),
        parameters=(_PATH["topic"], _flag("touch", True, "Whether this counts as reading the topic.")),
        errors=_ABSENT,
    ),
    ("DELETE", _ONE): Operation(
        group="topics",
        summary="Delete a topic",
        description="With its records and the routers from and to it. To delete what is not there is no error.",
        answers=shown(wire.TopicDeleted),
        parameters=(_PATH["topic"], _flag("if_empty", False, "Refuse if there are records.")),
        errors=("topic_not_empty", "topic_has_forks", "not_json", "read_only", "disk_full"),
    ),
}

_RECORDS: dict[tuple[str, str], Operation] = {
    ("POST", _ONE): Operation(
        group="records",
        summary="Write records",
        description="All of them or none. Makes the topic if there is none; a `config` for that needs the admin scope.",
        body={JSON: wire.WriteBody},
        answers=shown(wire.WriteAnswer, created="The records were written, and the topic was created for them."),
        parameters=(_PATH["topic"], _RETURN_SEQS, _IDEMPOTENCY),
        errors=_WRITE_ERRORS,
    ),
    ("POST", "/v0/write"): Operation(
        group="records",
        summary="Write records to several topics in one step",
        description="All of it happens or nothing, also in a crash.",
        body={JSON: wire.MultiWriteBody},
        answers=shown(
            wire.MultiWriteAnswer, created="The records were written, and at least one topic was created for them."
        ),
        parameters=(_RETURN_SEQS, _IDEMPOTENCY),
        errors=_WRITE_ERRORS,
    ),
    ("POST", _ONE + "/diff"): Operation(
        group="records",
        summary="Read what is new",
        description=(
            "The records behind `from_seq`. Go on with `next_from_seq`. With `wait_ms` the answer waits until there is "
            "something. A `tombstone` says which records are gone that nobody deleted."
        ),
        body={JSON: wire.DiffBody},
        answers=shown(wire.DiffAnswer),
        parameters=(_PATH["topic"],),
        errors=_ABSENT,
    ),
    ("POST", _ONE + "/delete"): Operation(
        group="records",
        summary="Delete records for good",
        description="Those before a seq, those whose tag matches, or those of which both is true.",
        body={JSON: wire.DeleteBody},
        answers=shown(wire.RecordsDeleted),
        parameters=(_PATH["topic"],),
        errors=(*_ABSENT, "read_only", "disk_full"),
    ),
}

_CONSUMERS: dict[tuple[str, str], Operation] = {
    ("GET", _ONE + "/consumers"): Operation(
        group="consumers",
        summary="List consumers and their lag",
        answers=shown(wire.ConsumerList),
        parameters=(_PATH["topic"],),
        errors=_ABSENT,
    ),
    ("GET", _CONSUMER): Operation(
        group="consumers",
        summary="Look at a consumer",
        answers=shown(wire.ConsumerAnswer),
        parameters=(_PATH["topic"], _PATH["consumer"]),
        errors=(*_ABSENT, "consumer_not_found"),
    ),
    ("PUT", _CONSUMER): Operation(
        group="consumers",
        summary="Commit how far a consumer has come",
        description="Makes the consumer if there is none. Going back is allowed.",
        body={JSON: wire.CommitBody},
        answers=shown(wire.ConsumerAnswer),
        parameters=(_PATH["topic"], _PATH["consumer"]),
        errors=(*_ABSENT, "read_only", "disk_full"),
    ),
    ("DELETE", _CONSUMER): Operation(
        group="consumers",
        summary="Forget a consumer",
        answers=shown(wire.ConsumerDeleted),
        parameters=(_PATH["topic"], _PATH["consumer"]),
        errors=(*_ABSENT, "read_only", "disk_full"),
    ),
}

_HELD = ("batch_too_large", *_ABSENT, "not_a_queue", "read_only", "disk_full")
_QUEUES: dict[tuple[str, str], Operation] = {
    ("POST", _ONE + "/claim"): Operation(
        group="queues",
        summary="Claim jobs",
        description="Each is this worker's until its deadline. The most urgent come first, then the oldest.",
        body={JSON: wire.ClaimBody},
        answers=shown(wire.ClaimAnswer),
        parameters=(_PATH["topic"],),
        errors=(*_ABSENT, "not_a_queue", "read_only", "disk_full"),
    ),
    ("POST", _ONE + "/ack"): Operation(
        group="queues",
        summary="Report jobs as done",
        description="They are deleted. Those that the worker does not hold are in `skipped`.",
        body={JSON: wire.AckBody},
        answers=shown(wire.AckAnswer),
        parameters=(_PATH["topic"],),
        errors=_HELD,
    ),
    ("POST", _ONE + "/nack"): Operation(
        group="queues",
        summary="Give jobs back",
        body={JSON: wire.NackBody},
        answers=shown(wire.NackAnswer),
        parameters=(_PATH["topic"],),
        errors=_HELD,
    ),
    ("POST", _ONE + "/extend"): Operation(
        group="queues",
        summary="Hold jobs for longer",
        description="`deadlines` are the new ones, by seq.",
        body={JSON: wire.ExtendBody},
        answers=shown(wire.ExtendAnswer),
        parameters=(_PATH["topic"],),
        errors=_HELD,
    ),
    ("GET", _ONE + "/work"): Operation(
        group="queues",
        summary="Be given jobs as they come",
        answers=(Answer(200, _JOBS, {EVENT_STREAM: EVENTS}),),
        parameters=(
            _PATH["topic"],
            _query("node", "Who the worker is.", {"type": "string", "minLength": 1}, required=True),
            _query("max", "How many jobs it holds at a time.", {"type": "integer", "minimum": 0, "default": 1}),
            _query("lease_ms", "For how long; by default what the topic says.", {"type": "integer", "minimum": 0}),
            _TOKEN,
        ),
        errors=("invalid_request", *_ABSENT, "not_a_queue"),
    ),
    ("POST", _ONE + "/redrive"): Operation(
        group="queues",
        summary="Move dead letters back",
        description="To the queues that they came from, or all to one topic. `to` counts them by where they went.",
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
        description="It copies what is written to `source` from now on to `dest`. The two cannot be changed later.",
        body={JSON: wire.RouterBody},
        answers=shown(wire.RouterPut, created="The router was created."),
        parameters=(_PATH["router"],),
        errors=(*_ABSENT, "not_writable", "topic_exists_incompatible", "router_cycle", "read_only", "disk_full"),
    ),
    ("GET", _ROUTER): Operation(
        group="routers",
        summary="Look at a router",
        answers=shown(wire.RouterState),
        parameters=(_PATH["router"],),
        errors=("router_not_found",),
    ),
    ("DELETE", _ROUTER): Operation(
        group="routers",
        summary="Delete a router",
        description="What it has copied stays. To delete what is not there is no error.",
        answers=shown(wire.RouterDeleted),
        parameters=(_PATH["router"],),
        errors=(
            "read_only",
            "disk_full",
        ),
    ),
}

_WATCHING: dict[tuple[str, str], Operation] = {
    ("POST", "/v0/watch"): Operation(
        group="watching",
        summary="Begin a watch session",
        description=(
            "`topics` has a member per topic, or per pattern: a name that ends in `*` stands for all topics that begin "
            "like it, those made later included. Then open the stream at `stream_url`."
        ),
        body={JSON: wire.WatchBody},
        answers=shown(wire.WatchAnswer),
        parameters=(_flag("lenient", False, "The same as `lenient` in the body."),),
        errors=_ABSENT,
    ),
    ("GET", "/v0/watch/{wid}"): Operation(
        group="watching",
        summary="Open the stream of a watch session",
        description="Needs the key that made the session.",
        answers=(Answer(200, _EVENTS, {EVENT_STREAM: EVENTS}),),
        parameters=(
            _PATH["wid"],
            _query("cursor", "The `id` of an event: go back to there. `Last-Event-ID` comes first."),
            _TOKEN,
            Parameter("Last-Event-ID", "header", "The `id` of the last event that the client has seen.", TEXT),
        ),
        errors=("unauthorized", "invalid_request", "not_found"),
    ),
}

_WEBSOCKET = """Subscribing and publishing on one connection. The key must be in the `Authorization` header of
the handshake. Every message, in both directions, is one JSON object in a text frame, told apart by `op`; a
`request_id` that a command has is repeated in its answer.

A client sends:

- `{"op":"subscribe","topic":"orders","from_seq":0}`, or with `topics` as in `POST /v0/watch`, and `tail`,
  `node`, `limit`, `max_batch_bytes`, `include_data`, `include_meta`, `include_tags`, `match`, `since_ts`,
  `consistency`, `lenient`: needs the read scope;
- `{"op":"unsubscribe","topic":"orders"}`, or with a list `topics`;
- `{"op":"publish","topic":"orders","records":[{"data":1}]}`, with everything that a write has, and
  `return_seqs`: needs the write scope, and with a `config` the admin scope;
- `{"op":"ping"}`.

The server sends `subscribed`, `unsubscribed`, `ack` (the answer to a write), `pong`, `record`, `caught_up`,
`tombstone`, `topic_deleted` (as on an event stream) and `error` with `code`, `message` and `detail`: any code
of the HTTP answers, and `invalid_json`, `unsupported_message` (a binary frame) and `server_shutting_down`. A
client that does not take what it is sent gets nothing more until it does, and is disconnected in the end."""

_SOCKET = Operation(
    group="watching",
    summary="Subscribe and publish over a WebSocket",
    description=_WEBSOCKET,
    answers=(Answer(101, "The connection speaks WebSocket from now on."),),
    errors=("unauthorized", "not_found", "throttled", "not_ready", "shutting_down"),
)

_GROUPS = {
    "topics": "Named, append-only sequences of records.",
    "records": "Writing, reading and deleting.",
    "consumers": "Named positions in a topic, kept by the server.",
    "queues": "Topics whose records are jobs: each is given to one worker at a time, until it is done.",
    "routers": "Records that go on into other topics by themselves.",
    "watching": "Being told of records as they come.",
}

TOPICS = Described(
    name="topics",
    groups=_GROUPS,
    operations={**_TOPICS, **_RECORDS, **_CONSUMERS, **_QUEUES, **_ROUTERS, **_WATCHING},
    problems=PROBLEMS,
    error=ErrorAnswer,
    renamed=RENAMED,
    descriptions=DESCRIPTIONS,
    sockets={"/v0/ws": _SOCKET},
)
