"""Streams and their records: making, appending, reading, deleting."""

from __future__ import annotations

from strandline.protocols.streams.openapi import parameters as p
from strandline.protocols.streams.openapi.parameters import BYTES, NAME, ONE, Operations
from strandline.service.openapi import EVENT_STREAM, EVENTS, JSON, TEXT, Answer, Header, Operation

_GROUP = "streams"
_ANY = "*/*"
_ARRAY = {"type": "array"}

_EVENTS = """With `live=sse` an event stream, which the server ends after a while: come again then. Events are

- `data`: what follows; of a JSON stream an array, of text the text, of anything else base 64 (then the header
  `Stream-SSE-Data-Encoding` says so). One event may have several `data:` lines;
- `control`, behind each of them and when nothing has happened for long: `streamNextOffset`, where to go on;
  `streamCursor`; `upToDate` when this is all there is; `streamClosed` when nothing will ever follow."""

_PAGE = f"""Records: of a JSON stream one array, of any other their bytes one behind the other, in the stream's own
content type.

{_EVENTS}"""

_PAGE_HEADERS = (
    p.NEXT_OFFSET,
    p.END_OFFSET,
    *p.LIFETIME,
    p.UP_TO_DATE,
    p.CLOSED,
    p.CACHE,
    Header("ETag", "For `If-None-Match`; not if the read waits.", TEXT),
    p.CURSOR,
    *p.SCANNED,
    Header("Stream-SSE-Data-Encoding", "How events hold bytes.", {"type": "string", "const": "base64"}),
)

_READ = Operation(
    group=_GROUP,
    summary="Read",
    description=(
        "From an offset on: one page, at once, or as soon as there is something. Go on with `Stream-Next-Offset`; "
        "`Stream-Up-To-Date` says that there is no more by now."
    ),
    answers=(
        Answer(200, _PAGE, {JSON: _ARRAY, EVENT_STREAM: EVENTS, _ANY: BYTES}, _PAGE_HEADERS),
        Answer(
            204,
            "A long-poll has seen nothing new.",
            headers=(p.NEXT_OFFSET, p.END_OFFSET, *p.LIFETIME, p.UP_TO_DATE, p.CLOSED, p.NO_STORE, p.CURSOR),
        ),
        Answer(
            304,
            "Nothing has changed since the `ETag`.",
            headers=(p.NEXT_OFFSET, p.END_OFFSET, *p.LIFETIME, p.UP_TO_DATE, p.CLOSED, p.ETAG, p.CACHE),
        ),
    ),
    parameters=(NAME, *p.READING, p.IF_NONE_MATCH),
    errors=("bad_request", "not_found", "request_timeout", "gone"),
)

_MADE = (p.NEXT_OFFSET, *p.LIFETIME, p.COMPACTED, p.CLOSED)
_APPENDED = (p.NEXT_OFFSET, p.CLOSED, *p.PRODUCED)

RECORDS: Operations = {
    ("PUT", ONE): Operation(
        group=_GROUP,
        summary="Make a stream",
        description=(
            "Of the content type of the request, with the body as its first records, or as a fork of another stream. "
            "To make one that is there and is the same in all this is no error, and changes nothing."
        ),
        body={JSON: {}, _ANY: BYTES},
        answers=(
            Answer(200, "The stream was there.", headers=_MADE),
            Answer(
                201,
                "The stream was made.",
                headers=(*_MADE, Header("Location", "Where it is.", TEXT, required=True)),
            ),
        ),
        parameters=(NAME, p.TTL, p.EXPIRES_AT, p.CLOSE, p.COMPACT, p.KEY, *p.FORK),
        errors=("not_found", "append_timeout", "conflict", "read_only", "disk_full"),
    ),
    ("POST", ONE): Operation(
        group=_GROUP,
        summary="Append, close, or both",
        description=(
            "The content type must be that of the stream. An array that is appended to a JSON stream is as many "
            "records as it has elements; any other body is one record. All of it is appended, or nothing. Without a "
            "body the stream is only closed."
        ),
        body={JSON: {}, _ANY: BYTES},
        answers=(
            Answer(200, "A producer's append was made.", headers=_APPENDED),
            Answer(204, "It was appended, or closed; or the producer had done so before.", headers=_APPENDED),
        ),
        parameters=(NAME, p.KEY, p.TIMESTAMP, p.SEQ, p.CLOSE, *p.PRODUCER),
        errors=("stale_epoch", "not_found", "append_timeout", "conflict", "gone", "read_only", "disk_full"),
        error_headers={403: (p.PRODUCED[0],), 409: p.REFUSED},
    ),
    ("GET", ONE): _READ,
    ("GET", ONE + "/pk/{key}"): Operation(
        group=_GROUP,
        summary="Read the records of one routing key",
        description="The same as reading with `key`.",
        answers=_READ.answers,
        parameters=(
            NAME,
            p.in_path("key", "The routing key."),
            *(parameter for parameter in p.READING if parameter.name != "key"),
            p.IF_NONE_MATCH,
        ),
        errors=_READ.errors,
    ),
    ("HEAD", ONE): Operation(
        group=_GROUP,
        summary="Look where a stream ends",
        answers=(
            Answer(
                200,
                "What is known of the stream. The content type is the stream's own.",
                headers=(p.NEXT_OFFSET, p.END_OFFSET, *p.LIFETIME, p.COMPACTED, p.CLOSED, p.NO_STORE),
            ),
        ),
        parameters=(NAME,),
        errors=("bad_request", "not_found", "gone"),
    ),
    ("DELETE", ONE): Operation(
        group=_GROUP,
        summary="Delete a stream",
        description="For good; what was forked from it stays. To delete it again is no error.",
        answers=(Answer(204, "The stream is no longer there.", headers=(p.NO_STORE,)),),
        parameters=(NAME,),
        errors=("bad_request", "not_found", "gone", "read_only", "disk_full"),
    ),
}
