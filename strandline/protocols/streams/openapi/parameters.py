"""Parameters and headers that several operations share."""

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

# --- requests ------------------------------------------------------------------------------------------------------


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
    f"The name of the stream: up to {MAX_NAME_BYTES} bytes of printable text, not starting with an underscore. It may "
    "contain slashes, which need not be escaped: `a/b` is one name of two segments. The path may begin with "
    "`/v1/streams/` instead of `/v1/stream/`.",
    {"type": "string", "minLength": 1, "pattern": "^[^_]"},
)
TIMEOUT = in_query(
    "timeout",
    "Maximum time to wait: milliseconds, or a number with `ms`, `s`, `m`, `h` or `d`.",
    {"type": "string", "pattern": _DURATION},
)
TIMEOUT_MS = in_query(
    "timeout_ms", "Same as `timeout`, which takes precedence.", {"type": "string", "pattern": _DURATION}
)
IF_NONE_MATCH = in_head("If-None-Match", "The `ETag` of an earlier answer: 304 if nothing has changed.")
TTL = in_head(
    "Stream-TTL",
    "The stream is deleted after it was neither read nor written for this time: seconds, or a number with a unit that "
    "is a whole number of seconds.",
    {"type": "string", "pattern": "^(0|[1-9][0-9]{0,14})(ms|s|m|h|d)?$"},
)
EXPIRES_AT = in_head(
    "Stream-Expires-At", "When the stream is deleted: RFC 3339, or nanoseconds since 1970. Not with `Stream-TTL`."
)
CLOSE = in_head("Stream-Closed", "`true` closes the stream: it accepts no further appends. Other values are ignored.")
COMPACT = in_head(
    "Stream-Compact",
    "`true`: a record is removed some time after a later one with the same routing key was appended, so that the last "
    "record of every key stays. A fork inherits this from its source unless it is set.",
    {"type": "string", "enum": ["true", "false"]},
)
RETAIN = in_head(
    "Stream-Retain-Until-In-Lake",
    "`true`: a record that `Stream-Compact` would remove stays until the lake has it. A fork inherits this from its "
    "source unless it is set.",
    {"type": "string", "enum": ["true", "false"]},
)
KEY = in_head(
    "Stream-Key",
    f"The routing key of the records, up to {MAX_KEY_BYTES} bytes. Not if the schema says where records contain it.",
)
FORK = (
    in_head("Stream-Forked-From", "The path of a stream, `/v1/stream/…`, whose records the new stream begins with."),
    in_head(
        "Stream-Fork-Offset",
        "The last record to share; default, and `now`: the end of the source.",
        {"type": "string", "pattern": f"^(-1|now|{_OFFSET}|[0-9]{{16}}_[0-9]{{16}})$"},
    ),
    in_head(
        "Stream-Fork-Sub-Offset",
        "How much of what follows to share: JSON messages, or bytes of the next append.",
        {"type": "string", "pattern": "^(0|[1-9][0-9]{0,14})$"},
    ),
)
PRODUCER = (
    in_head("Producer-Id", "The producer: repeating an append with the same numbers has no effect."),
    in_head("Producer-Epoch", "Increased when a producer restarts: lower epochs are refused.", whole(0)),
    in_head("Producer-Seq", "0, 1, 2 … in each epoch. Send all three headers together.", whole(0, MAX_PRODUCER_NUMBER)),
)
SEQ = in_head("Stream-Seq", "Must be greater, compared as text, than that of the last append that had one.")
TIMESTAMP = in_head("Stream-Timestamp", "The time of the records, which never decreases. Default: now.")

READING = (
    in_query(
        "offset",
        "Where to continue: the `Stream-Next-Offset` of an earlier answer, `-1` for the start, `now` for the end. "
        "Default: the start. At most once.",
        {"type": "string", "pattern": f"^(-1|now|{_OFFSET})$"},
    ),
    in_query("since", "Without an offset: start with records appended at this time (RFC 3339, or nanoseconds)."),
    in_query(
        "live",
        "Wait for new records: `long-poll` (or `true`, `1`) for one answer, `sse` for an event stream. "
        "Requires an offset.",
        {"type": "string", "enum": ["long-poll", "sse", "true", "1", "false", "0", ""]},
    ),
    TIMEOUT,
    TIMEOUT_MS,
    in_query("key", "Only records with this routing key."),
    in_query("filter", "Only records of a JSON stream that match this query. Not with `live=sse`."),
    in_query(
        "format",
        "`json`: one array of all records, the default of JSON streams. `raw`: the concatenated bytes of the records.",
        {"type": "string", "enum": ["raw", "json"]},
    ),
    in_query("cursor", "The `Stream-Cursor` of the previous wait, for caches between client and server."),
    in_query(
        "view",
        "`latest`: only the last record of every routing key, as of now. Read to the end, then continue without `view` "
        "from `Stream-Next-Offset`: you then have the last record of every key and all later appends. Not with `live`.",
        {"type": "string", "enum": ["latest"]},
    ),
)

# --- answers -------------------------------------------------------------------------------------------------------

NEXT_OFFSET = Header("Stream-Next-Offset", "The offset to continue from.", _OFFSET_SHOWN, required=True)
END_OFFSET = Header("Stream-End-Offset", "The current end of the stream.", _OFFSET_SHOWN, required=True)
LIFETIME = (
    Header("Stream-TTL", "After how many seconds without use the stream is deleted.", _COUNT),
    Header("Stream-Expires-At", "When the stream is deleted.", {"type": "string", "format": "date-time"}),
)
COMPACTED = Header("Stream-Compact", "Only the last record of every routing key is kept.", _TRUE)
RETAINS = Header("Stream-Retain-Until-In-Lake", "Records are kept until the lake has them.", _TRUE)
WARNING = Header("Stream-Warning", "What prevents the configuration from having the expected effect.", TEXT)
CLOSED = Header("Stream-Closed", "The stream is closed: no records will follow.", _TRUE)
UP_TO_DATE = Header("Stream-Up-To-Date", "The answer reaches the end of the stream.", _TRUE)
NO_STORE = Header("Cache-Control", "", {"type": "string", "const": "no-store"}, required=True)
CACHE = Header("Cache-Control", "How long the answer is valid.", TEXT, required=True)
ETAG = Header("ETag", "For `If-None-Match`.", TEXT, required=True)
CURSOR = Header("Stream-Cursor", "Send it as `cursor` with the next wait.", {"type": "string", "pattern": "^[0-9]+$"})
SCANNED = (
    Header("Stream-Filter-Scan-Limit-Reached", "The filter stopped at its scan limit.", _TRUE),
    Header("Stream-Filter-Scan-Limit-Bytes", "The maximum bytes that a filter scans.", _COUNT),
    Header("Stream-Filter-Scanned-Bytes", "The bytes that the filter scanned.", _COUNT),
)
PRODUCED = (
    Header("Producer-Epoch", "The epoch of the request.", _COUNT),
    Header("Producer-Seq", "The last seq of this producer.", _COUNT),
)
#: The headers of a refused append.
REFUSED = (
    Header("Stream-Next-Offset", "The end of the stream, if it is closed.", _OFFSET_SHOWN),
    CLOSED,
    Header("Producer-Expected-Seq", "The seq that the producer must send next.", _COUNT),
    Header("Producer-Received-Seq", "The seq of the request.", _COUNT),
    Header("Stream-Expected-Seq", "The value that `Stream-Seq` must exceed.", TEXT),
    Header("Stream-Received-Seq", "The `Stream-Seq` of the request.", TEXT),
)

Operations = dict[tuple[str, str], Operation]
