"""Operations of streams other than reading and writing records: schemas, searches, traces, live invalidation,
inspection."""

from __future__ import annotations

from typing import Any

from strandline.delivery.invalidation.live import TouchMeta
from strandline.protocols.streams import list as list_module
from strandline.protocols.streams import routing_keys
from strandline.protocols.streams.openapi import parameters as p
from strandline.protocols.streams.openapi.parameters import BYTES, NAME, ONE, Operations
from strandline.protocols.streams.otlp import PROTOBUF
from strandline.protocols.streams.otlp_limits import ITEMS, SignalName
from strandline.protocols.streams.wire.inspection import IndexStatus, RoutingKeysAnswer, StreamDetails, StreamRow
from strandline.protocols.streams.wire.observe import (
    ExportedLogs,
    ExportedMetrics,
    ExportedTraces,
    ExportLogs,
    ExportMetrics,
    ExportTraces,
    ObserveAnswer,
    ObserveBody,
)
from strandline.protocols.streams.wire.search import SEARCH_COUNTERS, AggregateAnswer, SearchAnswer
from strandline.protocols.streams.wire.server import ServerDetailsAnswer, ServerMemory
from strandline.protocols.streams.wire.touch import (
    DEFAULT_TIMEOUT_MS,
    MAX_TIMEOUT_MS,
    ActivateAnswer,
    ActivateBody,
    WaitAnswer,
    WaitBody,
)
from strandline.query.requests import DEFAULT_SIZE, MAX_SIZE, AggregateBody, SearchBody
from strandline.schema.profiles import ProfileDocument, ProfileUpdate
from strandline.schema.registry import RegistryDocument
from strandline.schema.updates import SchemaUpdate
from strandline.service.openapi import JSON, TEXT, AnswerShape, Header, Operation, Schema

# --- schemas and profiles --------------------------------------------------------------------------------------------


def _whole_document(form: Any) -> tuple[AnswerShape, ...]:
    return (AnswerShape(200, "The whole document.", {JSON: form}, (p.NO_STORE,)),)


SHAPING: Operations = {
    ("GET", ONE + "/_schema"): Operation(
        group="schemas",
        summary="Get the schemas of a stream",
        description="All versions, the lenses between them, the routing key and the search configuration.",
        answers=_whole_document(RegistryDocument),
        parameters=(NAME,),
        errors=("bad_request", "not_found", "gone"),
    ),
    ("POST", ONE + "/_schema"): Operation(
        group="schemas",
        summary="Update the schema of a stream",
        description=(
            "A schema (with a lens, a routing key and a search configuration), or one of the latter two alone, at any "
            "time. The first schema needs an empty stream. A lens that could make records unreadable is refused."
        ),
        body={JSON: SchemaUpdate},
        needs_body=True,
        answers=_whole_document(RegistryDocument),
        parameters=(NAME,),
        errors=("not_found", "conflict", "gone", "read_only", "disk_full"),
    ),
    ("GET", ONE + "/_profile"): Operation(
        group="schemas",
        summary="Get the profile of a stream",
        answers=_whole_document(ProfileDocument),
        parameters=(NAME,),
        errors=("bad_request", "not_found", "gone"),
    ),
    ("POST", ONE + "/_profile"): Operation(
        group="schemas",
        summary="Set the profile of a stream",
        description="Also sets the schema and search configuration of the profile. Some profiles need an empty stream.",
        body={JSON: ProfileUpdate},
        answers=_whole_document(ProfileDocument),
        parameters=(NAME,),
        errors=("not_found", "gone", "read_only", "disk_full"),
    ),
}

# --- search ----------------------------------------------------------------------------------------------------------

_FLAG: Schema = {"type": "string", "enum": ["true", "false"]}
_COUNTERS = ("timeout_ms", "took_ms", *SEARCH_COUNTERS)
_SAME = "Same as in the body."
_SEARCH_HEADERS = (
    p.NO_STORE,
    Header("Search-Timed-Out", _SAME, _FLAG, required=True),
    Header("Search-Coverage-Complete", _SAME, _FLAG, required=True),
    Header("Search-Total-Relation", _SAME, {"type": "string", "enum": ["eq", "gte"]}, required=True),
    Header("Search-Index-Families-Used", _SAME, TEXT, required=True),
    *(
        Header(f"Search-{name.replace('_', '-').title()}", _SAME, {"type": "integer", "minimum": 0}, required=True)
        for name in _COUNTERS
    ),
)
_FOUND = (
    AnswerShape(200, "The hits.", {JSON: SearchAnswer}, _SEARCH_HEADERS),
    AnswerShape(408, "The time limit was reached: the hits so far.", {JSON: SearchAnswer}, _SEARCH_HEADERS),
)
_KEY_LIMIT = p.whole(1, routing_keys.MAX_LIMIT, routing_keys.DEFAULT_LIMIT)
_QUESTION_ERRORS = ("bad_request", "not_found", "request_timeout", "gone")
_QUERY = "The searchable fields are in the stream's `search` configuration; see `_schema`."

QUESTIONS: Operations = {
    ("GET", ONE + "/_search"): Operation(
        group="questions",
        summary="Search",
        description=_QUERY,
        answers=_FOUND,
        parameters=(
            NAME,
            p.in_query("q", 'For example `level:error service:"api" duration:>100`.', required=True),
            p.in_query("size", "Maximum number of hits.", p.whole(1, MAX_SIZE, DEFAULT_SIZE)),
            p.in_query("sort", "For example `duration:desc,offset:asc`. Can be repeated."),
            p.in_query("search_after", "The `next_search_after` of the previous page, as JSON."),
            p.in_query("timeout_ms", "Maximum time of the search.", {"type": "number", "minimum": 0}),
        ),
        errors=_QUESTION_ERRORS,
    ),
    ("POST", ONE + "/_search"): Operation(
        group="questions",
        summary="Search",
        description=_QUERY,
        body={JSON: SearchBody},
        answers=_FOUND,
        parameters=(NAME,),
        errors=_QUESTION_ERRORS,
    ),
    ("POST", ONE + "/_aggregate"): Operation(
        group="questions",
        summary="Add up",
        description="Adds up a rollup of the stream's `search` configuration, per interval and group.",
        body={JSON: AggregateBody},
        answers=(AnswerShape(200, "The sums.", {JSON: AggregateAnswer}, (p.NO_STORE,)),),
        parameters=(NAME,),
        errors=_QUESTION_ERRORS,
    ),
    ("GET", ONE + "/_routing_keys"): Operation(
        group="questions",
        summary="List the routing keys of a stream",
        description="Each key once, in order. Only if the schema says where records contain their key.",
        answers=(AnswerShape(200, "A page of keys.", {JSON: RoutingKeysAnswer}, (p.NO_STORE,)),),
        parameters=(
            NAME,
            p.in_query("limit", "Maximum number of keys.", _KEY_LIMIT),
            p.in_query("after", "The `next_after` of the previous page."),
        ),
        errors=("bad_request", "not_found", "gone"),
    ),
}

# --- telemetry -------------------------------------------------------------------------------------------------------

_OTLP_ERRORS = ("forbidden", "not_found", "append_timeout", "conflict", "gone", "read_only", "disk_full")
#: The body, the answer and the profile of every signal.
_SIGNALS: dict[SignalName, tuple[Any, Any, str]] = {
    "traces": (ExportTraces, ExportedTraces, "otel-traces"),
    "logs": (ExportLogs, ExportedLogs, "evlog"),
    "metrics": (ExportMetrics, ExportedMetrics, "metrics"),
}


def _otlp(signal: SignalName, path: str, summary: str, description: str, **how: Any) -> Operations:
    body, answer, _ = _SIGNALS[signal]
    outcome = "The outcome, in the format of the request."
    operation = Operation(
        group="telemetry",
        summary=summary,
        description=description,
        body={PROTOBUF: BYTES, JSON: body},
        answers=(AnswerShape(200, outcome, {PROTOBUF: BYTES, JSON: answer}, (p.NO_STORE,)),),
        errors=_OTLP_ERRORS,
        error_headers={409: p.REFUSED[:2]},
        **how,
    )
    return {("POST", path): operation}


def _into_stream(signal: SignalName) -> Operations:
    description = (
        f"To a stream with the profile {_SIGNALS[signal][2]}. Invalid {ITEMS[signal]} are left out and counted."
    )
    return _otlp(signal, f"{ONE}/_otlp/v1/{signal}", f"Append {signal} sent by OTLP", description, parameters=(NAME,))


def _into_default(signal: SignalName) -> Operations:
    description = f"To the stream of the setting `otlp_{signal}_stream`, which `otlp_auto_create` can create."
    return _otlp(signal, f"/v1/{signal}", f"Append {signal} to the default stream", description)


TELEMETRY: Operations = {
    **_into_stream("traces"),
    **_into_default("traces"),
    **_into_stream("logs"),
    **_into_default("logs"),
    **_into_stream("metrics"),
    **_into_default("metrics"),
    ("POST", "/v1/observe/request"): Operation(
        group="telemetry",
        summary="Get everything about one request",
        description="Its events and its trace, from two streams.",
        body={JSON: ObserveBody},
        answers=(AnswerShape(200, "The events and the trace.", {JSON: ObserveAnswer}, (p.NO_STORE,)),),
        errors=("not_found", "request_timeout", "gone"),
    ),
}

# --- live invalidation -----------------------------------------------------------------------------------------------

_TOUCH_ERRORS = ("bad_request", "not_found", "gone")

TOUCH: Operations = {
    ("GET", ONE + "/touch/meta"): Operation(
        group="touch",
        summary="Get the state of live invalidation",
        answers=(AnswerShape(200, "The state.", {JSON: TouchMeta}, (p.NO_STORE,)),),
        parameters=(
            NAME,
            p.in_query("settle", "`flush`: wait until `settled`.", {"type": "string", "enum": ["flush"]}),
            p.in_query("timeoutMs", "Maximum time to wait.", p.whole(0, MAX_TIMEOUT_MS, DEFAULT_TIMEOUT_MS)),
        ),
        errors=_TOUCH_ERRORS,
    ),
    ("POST", ONE + "/touch/wait"): Operation(
        group="touch",
        summary="Wait until a key is touched",
        description="For a stream whose profile is state-protocol with `touch` enabled.",
        body={JSON: WaitBody},
        answers=(AnswerShape(200, "The outcome.", {JSON: WaitAnswer}, (p.NO_STORE,)),),
        parameters=(NAME,),
        errors=_TOUCH_ERRORS,
    ),
    ("POST", ONE + "/touch/templates/activate"): Operation(
        group="touch",
        summary="Activate templates",
        description="Changes touch the keys of active templates.",
        body={JSON: ActivateBody},
        answers=(AnswerShape(200, "The outcome of each template.", {JSON: ActivateAnswer}, (p.NO_STORE,)),),
        parameters=(NAME,),
        errors=_TOUCH_ERRORS,
    ),
}

# --- inspection ------------------------------------------------------------------------------------------------------

_WAITING = (
    NAME,
    p.in_query(
        "live",
        "With `If-None-Match`: wait until the document changes.",
        {"type": "string", "enum": ["long-poll", "true", "1", "false", "0", ""]},
    ),
    p.TIMEOUT,
    p.TIMEOUT_MS,
    p.IF_NONE_MATCH,
)
_INSPECTION_ERRORS = ("bad_request", "not_found", "request_timeout", "gone")


def _document(form: Any) -> tuple[AnswerShape, ...]:
    return (
        AnswerShape(200, "The document.", {JSON: form}, (p.ETAG, p.NO_STORE)),
        AnswerShape(304, "The document has not changed.", headers=(p.ETAG, p.NO_STORE)),
    )


INSPECTING: Operations = {
    ("GET", "/v1/streams"): Operation(
        group="inspection",
        summary="List streams",
        description="By name, without internal streams.",
        answers=(AnswerShape(200, "A page of streams.", {JSON: list[StreamRow]}, (p.NO_STORE,)),),
        parameters=(
            p.in_query(
                "limit",
                f"Maximum number of streams. A value above {list_module.MAX_LIMIT} counts as {list_module.MAX_LIMIT}, "
                "a negative one as 0.",
                {"type": "integer", "default": list_module.DEFAULT_LIMIT},
            ),
            p.in_query(
                "offset",
                "Number of streams to skip. A negative value counts as 0.",
                {"type": "integer", "default": 0},
            ),
            p.in_query("prefix", "Only names that start with this prefix."),
            p.in_query("after", "Only names after this one: the last name of the previous page."),
        ),
        errors=("bad_request",),
    ),
    ("GET", ONE + "/_details"): Operation(
        group="inspection",
        summary="Get all details of a stream",
        answers=_document(StreamDetails),
        parameters=_WAITING,
        errors=_INSPECTION_ERRORS,
    ),
    ("GET", ONE + "/_index_status"): Operation(
        group="inspection",
        summary="Get the state of a stream's indexes",
        answers=_document(IndexStatus),
        parameters=_WAITING,
        errors=_INSPECTION_ERRORS,
    ),
    ("GET", "/v1/server/_details"): Operation(
        group="inspection",
        summary="Get the configuration and the state of the server",
        answers=(AnswerShape(200, "The document.", {JSON: ServerDetailsAnswer}, (p.NO_STORE,)),),
    ),
    ("GET", "/v1/server/_mem"): Operation(
        group="inspection",
        summary="Get the memory usage of the server",
        answers=(AnswerShape(200, "The document.", {JSON: ServerMemory}, (p.NO_STORE,)),),
    ),
}
