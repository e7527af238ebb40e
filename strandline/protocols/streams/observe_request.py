"""What may be asked about a request: which one, where, when, and how much of it."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from strandline.protocols.streams.errors import bad_request
from strandline.query.values import parse_date
from strandline.schema.profiles.profile import ProfileOptions

Lookup = Literal["requestId", "traceId", "spanId"]
LOOKUPS: tuple[Lookup, ...] = ("requestId", "traceId", "spanId")
MAX_PADDING_MS = 86_400_000
MAX_EVENTS, MAX_SPANS = 500, 10_000


class ObserveRequest(NamedTuple):
    """``first`` and ``last`` are milliseconds, padding included; None: any time."""

    events_stream: str | None
    traces_stream: str | None
    by: Lookup
    value: str
    first: int | None
    last: int | None
    with_events: bool
    with_trace: bool
    with_timeline: bool
    with_raw: bool
    max_events: int
    max_spans: int

    def in_time(self, start: int | None, end: int | None) -> bool:
        """Whether something between these times is asked for. What has no time cannot be told, and is."""
        if start is None or end is None:
            return True
        return (self.last is None or start <= self.last) and (self.first is None or end >= self.first)


def parse_observe_request(body: bytes) -> ObserveRequest:
    """Raises a refusal or SchemaError."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise bad_request("observe request must be valid JSON") from None
    if not isinstance(document, dict):
        raise bad_request("observe request must be a JSON object")
    request = ProfileOptions(document, "request")
    request.allow("streams", "lookup", "time", "include", "limits")
    streams = _section(request, "streams", "events", "traces")
    events_stream, traces_stream = streams.text("events"), streams.text("traces")
    if events_stream is None and traces_stream is None:
        raise bad_request("request.streams must have events, traces, or both")
    by, value = _lookup(_section(request, "lookup", *LOOKUPS))
    first, last = _time(document.get("time", {}))
    include = _section(request, "include", "events", "trace", "timeline", "raw")
    limits = _section(request, "limits", "events", "spans")
    return ObserveRequest(
        events_stream,
        traces_stream,
        by,
        value,
        first,
        last,
        include.flag("events", True),
        include.flag("trace", True),
        include.flag("timeline", True),
        include.flag("raw", False),
        limits.whole("events", 100, 1, MAX_EVENTS),
        limits.whole("spans", 5000, 1, MAX_SPANS),
    )


def _section(request: ProfileOptions, name: str, *allowed: str) -> ProfileOptions:
    section = request.section(name) or ProfileOptions({}, f"request.{name}")
    section.allow(*allowed)
    return section


def _lookup(lookup: ProfileOptions) -> tuple[Lookup, str]:
    given = [name for name in LOOKUPS if lookup.has(name)]
    if len(given) != 1:
        raise bad_request("request.lookup must have exactly one of requestId, traceId, spanId")
    value = lookup.text(given[0])
    assert value is not None
    return given[0], value


def _time(given: Any) -> tuple[int | None, int | None]:
    options = ProfileOptions(given, "request.time")
    options.allow("from", "to", "paddingMs")
    padding = options.whole("paddingMs", 0, 0, MAX_PADDING_MS)
    first, last = _moment(given, "from"), _moment(given, "to")
    if first is not None and last is not None and last < first:
        raise bad_request("request.time.to must be >= request.time.from")
    return None if first is None else first - padding, None if last is None else last + padding


def _moment(given: dict[str, Any], name: str) -> int | None:
    """Milliseconds: a number is that already, a string is a date."""
    value = given.get(name)
    if value is None:
        return None
    milliseconds = parse_date(value) if type(value) is str else value
    if type(milliseconds) is not int:
        raise bad_request(f"request.time.{name} must be a timestamp string or unix milliseconds")
    return milliseconds
