"""Everything that can be asked of a stream and of the server beside its records: schemas, searches, traces, live
invalidation, inspection."""

from __future__ import annotations

from typing import Any

from strandline.delivery.invalidation.live import TouchMeta
from strandline.protocols.streams import list as list_module
from strandline.protocols.streams import routing_keys
from strandline.protocols.streams.openapi import parameters as p
from strandline.protocols.streams.openapi.parameters import BYTES, NAME, ONE, Operations
from strandline.protocols.streams.otlp import PROTOBUF
from strandline.protocols.streams.wire.inspection import IndexStatus, RoutingKeysAnswer, StreamDetails, StreamRow
from strandline.protocols.streams.wire.observe import ExportedTraces, ExportTraces, ObserveAnswer, ObserveBody
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
from strandline.service.openapi import JSON, TEXT, Answer, Header, Operation, Schema

# --- schemas and profiles --------------------------------------------------------------------------------------------


def _whole_document(form: Any) -> tuple[Answer, ...]:
    return (Answer(200, "The whole document.", {JSON: form}, (p.NO_STORE,)),)


SHAPING: Operations = {
    ("GET", ONE + "/_schema"): Operation(
        group="schemas",
        summary="Show the schemas of a stream",
        description="With all versions, the lenses between them, the routing key and what can be searched.",
        answers=_whole_document(RegistryDocument),
        parameters=(NAME,),
        errors=("bad_request", "not_found", "gone"),
    ),
    ("POST", ONE + "/_schema"): Operation(
        group="schemas",
        summary="Change the schema of a stream",
        description=(
            "A schema (with a lens, a routing key and a search configuration), or one of the latter two alone. The "
            "first schema needs an empty stream. What a lens could make unreadable is refused."
        ),
        body={JSON: SchemaUpdate},
        needs_body=True,
        answers=_whole_document(RegistryDocument),
        parameters=(NAME,),
        errors=("not_found", "conflict", "gone", "read_only", "disk_full"),
    ),
    ("GET", ONE + "/_profile"): Operation(
        group="schemas",
        summary="Show the profile of a stream",
        answers=_whole_document(ProfileDocument),
        parameters=(NAME,),
        errors=("bad_request", "not_found", "gone"),
    ),
    ("POST", ONE + "/_profile"): Operation(
        group="schemas",
        summary="Set the profile of a stream",
        description="And the schema and search configuration that come with it. Some need an empty stream.",
        body={JSON: ProfileUpdate},
        answers=_whole_document(ProfileDocument),
        parameters=(NAME,),
        errors=("not_found", "gone", "read_only", "disk_full"),
    ),
}

# --- search ----------------------------------------------------------------------------------------------------------

_FLAG: Schema = {"type": "string", "enum": ["true", "false"]}
_COUNTERS = ("timeout_ms", "took_ms", *SEARCH_COUNTERS)
_SAME = "As in the body."
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
    Answer(200, "The hits.", {JSON: SearchAnswer}, _SEARCH_HEADERS),
    Answer(408, "The time is up: these are the hits so far.", {JSON: SearchAnswer}, _SEARCH_HEADERS),
)
_KEY_LIMIT = p.whole(1, routing_keys.MAX_LIMIT, routing_keys.DEFAULT_LIMIT)
_QUESTION_ERRORS = ("bad_request", "not_found", "request_timeout", "gone")
_QUERY = "Fields that can be asked for are in the stream's `search` configuration; see `_schema`."

QUESTIONS: Operations = {
    ("GET", ONE + "/_search"): Operation(
        group="questions",
        summary="Search",
        description=_QUERY,
        answers=_FOUND,
        parameters=(
            NAME,
            p.in_query("q", 'Such as `level:error service:"api" duration:>100`.', required=True),
            p.in_query("size", "How many hits at the most.", p.whole(1, MAX_SIZE, DEFAULT_SIZE)),
            p.in_query("sort", "Such as `duration:desc,offset:asc`. May be there several times."),
            p.in_query("search_after", "`next_search_after` of the page before, as JSON."),
            p.in_query("timeout_ms", "How long to look, at the most.", {"type": "number", "minimum": 0}),
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
        description="What a rollup of the stream's `search` configuration declares, per interval and group.",
        body={JSON: AggregateBody},
        answers=(Answer(200, "The sums.", {JSON: AggregateAnswer}, (p.NO_STORE,)),),
        parameters=(NAME,),
        errors=_QUESTION_ERRORS,
    ),
    ("GET", ONE + "/_routing_keys"): Operation(
        group="questions",
        summary="List the routing keys of a stream",
        description="Each once, in order. Only where the schema says where records have their key.",
        answers=(Answer(200, "A page of keys.", {JSON: RoutingKeysAnswer}, (p.NO_STORE,)),),
        parameters=(
            NAME,
            p.in_query("limit", "How many at the most.", _KEY_LIMIT),
            p.in_query("after", "`next_after` of the page before."),
        ),
        errors=("bad_request", "not_found", "gone"),
    ),
}

# --- traces ----------------------------------------------------------------------------------------------------------

_OTLP = Answer(
    200, "What was taken, in the form of the request.", {PROTOBUF: BYTES, JSON: ExportedTraces}, (p.NO_STORE,)
)
_TRACES = {PROTOBUF: BYTES, JSON: ExportTraces}
_TRACE_ERRORS = ("forbidden", "not_found", "append_timeout", "conflict", "gone", "read_only", "disk_full")

TRACES: Operations = {
    ("POST", ONE + "/_otlp/v1/traces"): Operation(
        group="traces",
        summary="Append traces that come by OTLP",
        description="To a stream of the profile otel-traces. Spans that make no sense are left out and counted.",
        body=_TRACES,
        answers=(_OTLP,),
        parameters=(NAME,),
        errors=_TRACE_ERRORS,
        error_headers={409: p.REFUSED[:2]},
    ),
    ("POST", "/v1/traces"): Operation(
        group="traces",
        summary="Append traces to the stream for them",
        description="To the one that the server was told, which is made if it was told so.",
        body=_TRACES,
        answers=(_OTLP,),
        errors=_TRACE_ERRORS,
        error_headers={409: p.REFUSED[:2]},
    ),
    ("POST", "/v1/observe/request"): Operation(
        group="traces",
        summary="Show everything about one request",
        description="Its events and its trace, out of two streams.",
        body={JSON: ObserveBody},
        answers=(Answer(200, "What is known.", {JSON: ObserveAnswer}, (p.NO_STORE,)),),
        errors=("not_found", "request_timeout", "gone"),
    ),
}

# --- live invalidation -----------------------------------------------------------------------------------------------

_TOUCH_ERRORS = ("bad_request", "not_found", "gone")

TOUCH: Operations = {
    ("GET", ONE + "/touch/meta"): Operation(
        group="touch",
        summary="Show how live invalidation stands",
        answers=(Answer(200, "The figures.", {JSON: TouchMeta}, (p.NO_STORE,)),),
        parameters=(
            NAME,
            p.in_query("settle", "`flush`: wait until `settled`.", {"type": "string", "enum": ["flush"]}),
            p.in_query("timeoutMs", "For how long.", p.whole(0, MAX_TIMEOUT_MS, DEFAULT_TIMEOUT_MS)),
        ),
        errors=_TOUCH_ERRORS,
    ),
    ("POST", ONE + "/touch/wait"): Operation(
        group="touch",
        summary="Wait until a key is touched",
        description="Of a stream whose profile is state-protocol with `touch` enabled.",
        body={JSON: WaitBody},
        answers=(Answer(200, "What has happened.", {JSON: WaitAnswer}, (p.NO_STORE,)),),
        parameters=(NAME,),
        errors=_TOUCH_ERRORS,
    ),
    ("POST", ONE + "/touch/templates/activate"): Operation(
        group="touch",
        summary="Activate templates",
        description="From then on changes touch the keys of these templates.",
        body={JSON: ActivateBody},
        answers=(Answer(200, "What has become of each.", {JSON: ActivateAnswer}, (p.NO_STORE,)),),
        parameters=(NAME,),
        errors=_TOUCH_ERRORS,
    ),
}

# --- inspection ------------------------------------------------------------------------------------------------------

_WAITING = (
    NAME,
    p.in_query(
        "live",
        "Together with `If-None-Match`: wait until something has changed.",
        {"type": "string", "enum": ["long-poll", "true", "1", "false", "0", ""]},
    ),
    p.TIMEOUT,
    p.TIMEOUT_MS,
    p.IF_NONE_MATCH,
)
_INSPECTION_ERRORS = ("bad_request", "not_found", "request_timeout", "gone")


def _document(form: Any) -> tuple[Answer, ...]:
    return (
        Answer(200, "The document.", {JSON: form}, (p.ETAG, p.NO_STORE)),
        Answer(304, "It is as it was.", headers=(p.ETAG, p.NO_STORE)),
    )


INSPECTING: Operations = {
    ("GET", "/v1/streams"): Operation(
        group="inspection",
        summary="List streams",
        description="In the order of their names, without the server's own.",
        answers=(Answer(200, "A page of streams.", {JSON: list[StreamRow]}, (p.NO_STORE,)),),
        parameters=(
            p.in_query("limit", "How many at the most.", p.whole(0, list_module.MAX_LIMIT, list_module.DEFAULT_LIMIT)),
            p.in_query("offset", "Leave out so many.", p.whole(0, 999_999_999_999_999, 0)),
            p.in_query("prefix", "Only names that begin like this."),
            p.in_query("after", "Only names behind this one: the last of the page before, whatever came or went."),
        ),
        errors=("bad_request",),
    ),
    ("GET", ONE + "/_details"): Operation(
        group="inspection",
        summary="Show everything about a stream",
        answers=_document(StreamDetails),
        parameters=_WAITING,
        errors=_INSPECTION_ERRORS,
    ),
    ("GET", ONE + "/_index_status"): Operation(
        group="inspection",
        summary="Show what of a stream is indexed",
        answers=_document(IndexStatus),
        parameters=_WAITING,
        errors=_INSPECTION_ERRORS,
    ),
    ("GET", "/v1/server/_details"): Operation(
        group="inspection",
        summary="Show how the server is set up, and how it is doing",
        answers=(Answer(200, "The document.", {JSON: ServerDetailsAnswer}, (p.NO_STORE,)),),
    ),
    ("GET", "/v1/server/_mem"): Operation(
        group="inspection",
        summary="Show what the server takes of the memory",
        answers=(Answer(200, "The document.", {JSON: ServerMemory}, (p.NO_STORE,)),),
    ),
}
