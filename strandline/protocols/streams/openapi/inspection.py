"""Looking at streams and at the server."""

from __future__ import annotations

from typing import Any

from strandline.protocols.streams.list import DEFAULT_LIMIT, MAX_LIMIT
from strandline.protocols.streams.openapi import parameters as p
from strandline.protocols.streams.openapi.parameters import NAME, ONE, Operations
from strandline.protocols.streams.openapi.server_answers import ServerDetailsAnswer, ServerMemory
from strandline.protocols.streams.openapi.stream_answers import IndexStatus, StreamDetails, StreamRow
from strandline.service.openapi import JSON, Answer, Operation

_GROUP = "inspection"
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
_ERRORS = ("bad_request", "not_found", "request_timeout", "gone")


def _document(form: Any) -> tuple[Answer, ...]:
    return (
        Answer(200, "The document.", {JSON: form}, (p.ETAG, p.NO_STORE)),
        Answer(304, "It is as it was.", headers=(p.ETAG, p.NO_STORE)),
    )


INSPECTING: Operations = {
    ("GET", "/v1/streams"): Operation(
        group=_GROUP,
        summary="List streams",
        description="In the order of their names, without the server's own.",
        answers=(Answer(200, "A page of streams.", {JSON: list[StreamRow]}, (p.NO_STORE,)),),
        parameters=(
            p.in_query("limit", "How many at the most.", p.whole(0, MAX_LIMIT, DEFAULT_LIMIT)),
            p.in_query("offset", "Leave out so many.", p.whole(0, 999_999_999_999_999, 0)),
            p.in_query("prefix", "Only names that begin like this."),
            p.in_query("after", "Only names behind this one: the last of the page before, whatever came or went."),
        ),
        errors=("bad_request",),
    ),
    ("GET", ONE + "/_details"): Operation(
        group=_GROUP,
        summary="Show everything about a stream",
        answers=_document(StreamDetails),
        parameters=_WAITING,
        errors=_ERRORS,
    ),
    ("GET", ONE + "/_index_status"): Operation(
        group=_GROUP,
        summary="Show what of a stream is indexed",
        answers=_document(IndexStatus),
        parameters=_WAITING,
        errors=_ERRORS,
    ),
    ("GET", "/v1/server/_details"): Operation(
        group=_GROUP,
        summary="Show how the server is set up, and how it is doing",
        answers=(Answer(200, "The document.", {JSON: ServerDetailsAnswer}, (p.NO_STORE,)),),
    ),
    ("GET", "/v1/server/_mem"): Operation(
        group=_GROUP,
        summary="Show what the server takes of the memory",
        answers=(Answer(200, "The document.", {JSON: ServerMemory}, (p.NO_STORE,)),),
    ),
}
