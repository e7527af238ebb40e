"""Streams and their records: creating, appending, reading, deleting."""

from __future__ import annotations

from strandline.protocols.streams.openapi import parameters as p
from strandline.protocols.streams.openapi.parameters import BYTES, NAME, ONE, Operations
from strandline.service.openapi import EVENT_STREAM, EVENTS, JSON, TEXT, AnswerShape, Header, Operation

_GROUP = "streams"
_ANY = "*/*"
_ARRAY = {"type": "array"}

_EVENTS = """With `live=sse`, the answer is an event stream, which the server ends after a while: reconnect then. The
events are

- `data`: records; an array for a JSON stream, text for text, and base 64 for other content types (then the header
  `Stream-SSE-Data-Encoding` is set). An event may have several `data:` lines;
- `control`, after each data event and from time to time without data: `streamNextOffset`, the offset to continue from;
  `streamCursor`; `upToDate` at the end of the stream; `streamClosed` if no records will follow."""

_PAGE = f"""Records: one array for a JSON stream, the concatenated bytes for other streams, in the content type of the
stream.

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
    Header("Stream-SSE-Data-Encoding", "The encoding of bytes in events.", {"type": "string", "const": "base64"}),
)

_READ = Operation(
    group=_GROUP,
    summary="Read",
    description=(
        "The records after an offset: all of them, up to a maximum size, or with `live`, `filter` or `view` one page. "
        "Continue with `Stream-Next-Offset`; `Stream-Up-To-Date` says that the answer reaches the end of the "
        "stream. If the connection breaks before the end of the answer, repeat the request."
    ),
    answers=(
        AnswerShape(200, _PAGE, {JSON: _ARRAY, EVENT_STREAM: EVENTS, _ANY: BYTES}, _PAGE_HEADERS),
        AnswerShape(
            204,
            "The long-poll ended without new records.",
            headers=(p.NEXT_OFFSET, p.END_OFFSET, *p.LIFETIME, p.UP_TO_DATE, p.CLOSED, p.NO_STORE, p.CURSOR),
        ),
        AnswerShape(
            304,
            "Nothing has changed since the `ETag`.",
            headers=(p.NEXT_OFFSET, p.END_OFFSET, *p.LIFETIME, p.UP_TO_DATE, p.CLOSED, p.ETAG, p.CACHE),
        ),
    ),
    parameters=(NAME, *p.READING, p.IF_NONE_MATCH),
    errors=("bad_request", "not_found", "request_timeout", "gone"),
)

_MADE = (p.NEXT_OFFSET, *p.LIFETIME, p.COMPACTED, p.RETAINS, p.CLOSED)
_APPENDED = (p.NEXT_OFFSET, p.CLOSED, *p.PRODUCED)

RECORDS: Operations = {
    ("PUT", ONE): Operation(
        group=_GROUP,
        summary="Create a stream",
        description=(
            "With the content type of the request and the body as its first records, or as a fork of another stream. "
            "Creating a stream that exists with the same configuration has no effect and is not an error."
        ),
        body={JSON: {}, _ANY: BYTES},
        answers=(
            AnswerShape(200, "The stream already exists.", headers=_MADE),
            AnswerShape(
                201,
                "The stream was created.",
                headers=(*_MADE, Header("Location", "The URL of the stream.", TEXT, required=True)),
            ),
        ),
        parameters=(NAME, p.TTL, p.EXPIRES_AT, p.CLOSE, p.COMPACT, p.RETAIN, p.KEY, *p.FORK),
        errors=("not_found", "append_timeout", "conflict", "read_only", "disk_full"),
    ),
    ("POST", ONE): Operation(
        group=_GROUP,
        summary="Append, close, or both",
        description=(
            "The content type must be that of the stream. In a JSON stream, each element of an array becomes a record; "
            "any other body is one record. Either all records are appended, or none. A request without a body only "
            "closes the stream."
        ),
        body={JSON: {}, _ANY: BYTES},
        answers=(
            AnswerShape(200, "The append of a producer was made.", headers=_APPENDED),
            AnswerShape(204, "Appended or closed, now or by an earlier request of the producer.", headers=_APPENDED),
        ),
        parameters=(NAME, p.KEY, p.TIMESTAMP, p.SEQ, p.CLOSE, *p.PRODUCER),
        errors=("stale_epoch", "not_found", "append_timeout", "conflict", "gone", "read_only", "disk_full"),
        error_headers={403: (p.PRODUCED[0],), 409: p.REFUSED},
    ),
    ("GET", ONE): _READ,
    ("GET", ONE + "/pk/{key}"): Operation(
        group=_GROUP,
        summary="Read the records of one routing key",
        description="Same as reading with `key`.",
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
        summary="Get the end of a stream",
        answers=(
            AnswerShape(
                200,
                "The state of the stream. The content type is that of the stream.",
                headers=(p.NEXT_OFFSET, p.END_OFFSET, *p.LIFETIME, p.COMPACTED, p.RETAINS, p.CLOSED, p.NO_STORE),
            ),
        ),
        parameters=(NAME,),
        errors=("bad_request", "not_found", "gone"),
    ),
    ("DELETE", ONE): Operation(
        group=_GROUP,
        summary="Delete a stream",
        description="Forks of the stream stay. Deleting a stream again is not an error.",
        answers=(AnswerShape(204, "The stream is deleted.", headers=(p.NO_STORE,)),),
        parameters=(NAME,),
        errors=("bad_request", "not_found", "gone", "read_only", "disk_full"),
    ),
}
