"""Parameters and headers that several operations have."""

from __future__ import annotations

from typing import Any

from strandline.engine.record import MAX_KEY_BYTES
from strandline.protocols.streams.append import MAX_PRODUCER_NUMBER
from strandline.protocols.streams.streams import MAX_NAME_BYTES
from strandline.service.openapi import TEXT, Header, Operation, Parameter, Schema

ONE = "/v1/stream/{name}"
BYTES: Schema = {"type": "string", "format": "binary"}

_OFFSET = "[0-9A-Za-z]{26}"
_DURATION = "^[0-9]{1,15}(ms|s|m|h|d)?$"
_TRUE: Schema = {"type": "string", "const": "true"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_OFFSET_SHOWN: Schema = {"type": "string", "pattern": "^[0-9A-HJKMNP-TV-Z]{26}$"}

# --- what is asked -------------------------------------------------------------------------------------------------


def in_path(name: str, description: str, schema: Schema = TEXT) -> Parameter:
    return Parameter(name, "path", description, schema, required=True)


def in_query(name: str, description: str, schema: Schema = TEXT, *, required: bool = False) -> Parameter:
    return Parameter(name, "query", description, schema, required)


def in_head(name: str, description: str, schema: Schema = TEXT) -> Parameter:
    return Parameter(name, "header", description, schema)


def whole(low: int, high: int | None = None, default: int | None = None) -> Schema:
    bounds: dict[str, Any] = {"type": "integer", "minimum": low}
    if high is not None:
        bounds["maximum"] = high
    if default is not None:
        bounds["default"] = default
    return bounds


NAME = in_path(
    "name",
    f"The stream's name: up to {MAX_NAME_BYTES} bytes of printable text, not beginning with an underscore. It may "
    "contain slashes, which need not be escaped: `a/b` is one name of two segments.",
    {"type": "string", "minLength": 1, "pattern": "^[^_]"},
)
TIMEOUT = in_query(
    "timeout",
    "How long to wait: milliseconds, or a number with `ms`, `s`, `m`, `h` or `d`.",
    {"type": "string", "pattern": _DURATION},
)
TIMEOUT_MS = in_query(
    "timeout_ms", "Another word for `timeout`, which comes first.", {"type": "string", "pattern": _DURATION}
)
IF_NONE_MATCH = in_head("If-None-Match", "The `ETag` of an earlier answer: 304 if nothing has changed.")
TTL = in_head(
    "Stream-TTL",
    "The stream goes when it was neither read nor written for this long: seconds, or a number with a unit that comes "
    "to whole seconds.",
    {"type": "string", "pattern": "^(0|[1-9][0-9]{0,14})(ms|s|m|h|d)?$"},
)
EXPIRES_AT = in_head(
    "Stream-Expires-At", "When the stream goes: a time by RFC 3339, or nanoseconds since 1970. Not with `Stream-TTL`."
)
CLOSE = in_head("Stream-Closed", "`true` closes the stream: it takes no further append. Nothing else counts.")
COMPACT = in_head(
    "Stream-Compact",
    "`true`: a record goes once a later one with its routing key has been there for a while, so that the last one of "
    "every key stays. A fork that says nothing of it is as its source.",
    {"type": "string", "enum": ["true", "false"]},
)
KEY = in_head(
    "Stream-Key",
    f"The routing key of the records, up to {MAX_KEY_BYTES} bytes. Not where the schema says where the key is.",
)
FORK = (
    in_head("Stream-Forked-From", "The path of a stream, `/v1/stream/…`, with whose records this one begins."),
    in_head(
        "Stream-Fork-Offset",
        "Up to where; by default, and as `now`, up to its end.",
        {"type": "string", "pattern": f"^(-1|now|{_OFFSET}|[0-9]{{16}}_[0-9]{{16}})$"},
    ),
    in_head(
        "Stream-Fork-Sub-Offset",
        "And so much of what follows: messages of JSON, or bytes of the next append.",
        {"type": "string", "pattern": "^(0|[1-9][0-9]{0,14})$"},
    ),
)
PRODUCER = (
    in_head("Producer-Id", "Who appends: an append that is repeated with the same numbers is not made again."),
    in_head("Producer-Epoch", "Grows when a producer starts anew: those of before are locked out.", whole(0)),
    in_head(
        "Producer-Seq", "0, 1, 2 … for each epoch. The three headers come together.", whole(0, MAX_PRODUCER_NUMBER)
    ),
)
SEQ = in_head("Stream-Seq", "Must be greater, as text, than that of the last append that had one.")
TIMESTAMP = in_head("Stream-Timestamp", "The time of the records; it never goes back. By default, now.")

READING = (
    in_query(
        "offset",
        "Where to go on: `Stream-Next-Offset` of an earlier answer, `-1` for the start, `now` for the end. By default "
        "the start. At most once.",
        {"type": "string", "pattern": f"^(-1|now|{_OFFSET})$"},
    ),
    in_query("since", "Without an offset: begin with what was appended at this time (RFC 3339, or nanoseconds)."),
    in_query(
        "live",
        "Wait where there is nothing yet: `long-poll` (or `true`, `1`) for one answer, `sse` for an event stream. "
        "Needs an offset.",
        {"type": "string", "enum": ["long-poll", "sse", "true", "1", "false", "0", ""]},
    ),
    TIMEOUT,
    TIMEOUT_MS,
    in_query("key", "Only records with this routing key."),
    in_query("filter", "Only records of a JSON stream that match this query. Not with `live=sse`."),
    in_query(
        "format",
        "`json`: one array of all records, as JSON streams are read anyway. `raw`: their bytes one behind the other.",
        {"type": "string", "enum": ["raw", "json"]},
    ),
    in_query("cursor", "`Stream-Cursor` of the wait before, for caches in between."),
    in_query(
        "view",
        "`latest`: only the last record of every routing key, as of now. Read so to the end, and go on without it from "
        "`Stream-Next-Offset`: then you have the last of every key, whatever was appended meanwhile. Not with `live`.",
        {"type": "string", "enum": ["latest"]},
    ),
)

# --- what is answered ----------------------------------------------------------------------------------------------

NEXT_OFFSET = Header("Stream-Next-Offset", "Where to go on.", _OFFSET_SHOWN, required=True)
END_OFFSET = Header("Stream-End-Offset", "Where the stream ends now.", _OFFSET_SHOWN, required=True)
LIFETIME = (
    Header("Stream-TTL", "After how many seconds without use the stream goes.", _COUNT),
    Header("Stream-Expires-At", "When that is, as things are.", {"type": "string", "format": "date-time"}),
)
COMPACTED = Header("Stream-Compact", "Of every routing key, the last record stays; those before it go.", _TRUE)
CLOSED = Header("Stream-Closed", "Nothing will ever follow.", _TRUE)
UP_TO_DATE = Header("Stream-Up-To-Date", "This is all there is by now.", _TRUE)
NO_STORE = Header("Cache-Control", "", {"type": "string", "const": "no-store"}, required=True)
CACHE = Header("Cache-Control", "For how long the answer holds.", TEXT, required=True)
ETAG = Header("ETag", "For `If-None-Match`.", TEXT, required=True)
CURSOR = Header(
    "Stream-Cursor", "To be sent with the next wait, as `cursor`.", {"type": "string", "pattern": "^[0-9]+$"}
)
SCANNED = (
    Header("Stream-Filter-Scan-Limit-Reached", "The filter has looked at no more than this.", _TRUE),
    Header("Stream-Filter-Scan-Limit-Bytes", "How much it looks at, at the most.", _COUNT),
    Header("Stream-Filter-Scanned-Bytes", "How much it has looked at.", _COUNT),
)
PRODUCED = (
    Header("Producer-Epoch", "As it was given.", _COUNT),
    Header("Producer-Seq", "The last one of this producer.", _COUNT),
)
#: Of an append that is refused.
REFUSED = (
    Header("Stream-Next-Offset", "The end of the stream, if it is closed.", _OFFSET_SHOWN),
    CLOSED,
    Header("Producer-Expected-Seq", "What the producer has to send next.", _COUNT),
    Header("Producer-Received-Seq", "What it has sent.", _COUNT),
    Header("Stream-Expected-Seq", "What `Stream-Seq` has to be greater than.", TEXT),
    Header("Stream-Received-Seq", "What it was.", TEXT),
)

Operations = dict[tuple[str, str], Operation]
