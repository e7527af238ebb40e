"""The body of ``/v1/observe/request``: which request, which streams, which time, and how much of it."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec
from msgspec import UNSET

from strandline.protocols.streams.errors import bad_request
from strandline.protocols.streams.wire.observe import ObserveBody, ObserveLookup, ObserveTime
from strandline.query.values import parse_date
from strandline.schema.options import read_options

Lookup = Literal["requestId", "traceId", "spanId"]


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
        """Whether something between these times is requested. Records without a time are included."""
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
    asked, _ = read_options(ObserveBody, document, "request")
    streams, include = asked.streams, asked.include
    if streams.events is UNSET and streams.traces is UNSET:
        raise bad_request("request.streams must have events, traces, or both")
    by, value = _lookup(asked.lookup)
    first, last = _time(asked.time)
    return ObserveRequest(
        None if streams.events is UNSET else streams.events,
        None if streams.traces is UNSET else streams.traces,
        by,
        value,
        first,
        last,
        include.events,
        include.trace,
        include.timeline,
        include.raw,
        asked.limits.events,
        asked.limits.spans,
    )


def _lookup(lookup: ObserveLookup) -> tuple[Lookup, str]:
    given: dict[Lookup, str] = msgspec.to_builtins(lookup)
    if len(given) != 1:
        raise bad_request("request.lookup must have exactly one of requestId, traceId, spanId")
    return given.popitem()


def _time(time: ObserveTime) -> tuple[int | None, int | None]:
    first, last = _moment(time.first, "from"), _moment(time.last, "to")
    if first is not None and last is not None and last < first:
        raise bad_request("request.time.to must be >= request.time.from")
    return None if first is None else first - time.padding_ms, None if last is None else last + time.padding_ms


def _moment(value: str | int | None, name: str) -> int | None:
    """Milliseconds: numbers are milliseconds already, strings are dates."""
    if value is None:
        return None
    milliseconds = parse_date(value) if type(value) is str else value
    if type(milliseconds) is not int:
        raise bad_request(f"request.time.{name} must be a timestamp string or unix milliseconds")
    return milliseconds
