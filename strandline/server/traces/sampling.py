"""Which requests are traced: what their caller decided, or a share of all traces.

The header `traceparent` names the trace and the span of the caller, and says whether the caller records the trace
(https://www.w3.org/TR/trace-context/).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from strandline.server.traces.settings import TracesSettings
from strandline.spans import Collect, Span, new_id

TRACEPARENT = b"traceparent"
TRACESTATE = b"tracestate"
#: The version, the ids of trace and parent, the flags, and what a later version may add.
_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
#: The flag of a trace that the caller records.
SAMPLED = 1
#: Longer values are dropped, as the specification allows.
MAX_STATE_BYTES = 512
#: The share of traces is decided by these bits of the trace's id, as all OpenTelemetry libraries do.
_RATIO_BITS = 64
_RATIO_MASK = (1 << _RATIO_BITS) - 1


class Caller(NamedTuple):
    """The span in which a request was sent."""

    trace_id: int
    span_id: int
    is_sampled: bool
    state: str = ""

    @classmethod
    def of(cls, headers: Mapping[bytes, bytes]) -> Caller | None:
        """None if the request has no valid `traceparent`."""
        value = headers.get(TRACEPARENT)
        found = None if value is None else _TRACEPARENT.fullmatch(value.strip())
        if found is None:
            return None
        version, trace, span, flags, further = found.groups()
        trace_id, span_id = int(trace, 16), int(span, 16)
        if version == b"ff" or not trace_id or not span_id or (version == b"00" and further is not None):
            return None
        state = headers.get(TRACESTATE, b"").strip()
        if len(state) > MAX_STATE_BYTES or not state.isascii():
            state = b""
        return cls(trace_id, span_id, bool(int(flags, 16) & SAMPLED), state.decode("ascii"))


class SampledTracer:
    """Begins the spans of what is traced."""

    def __init__(self, settings: TracesSettings, collect: Collect) -> None:
        name = settings.traces_sampler.removeprefix("parentbased_")
        self._follows_caller = name != settings.traces_sampler
        share = {"always_on": 1.0, "always_off": 0.0}.get(name, settings.traces_ratio)
        self._bound = round(share * (1 << _RATIO_BITS))
        self._collect = collect

    def request(self, headers: Mapping[bytes, bytes]) -> Span | None:
        """Begin the span of a request; None if it is not traced."""
        caller = Caller.of(headers) if TRACEPARENT in headers else None
        if caller is None:
            trace_id = new_id(128)
            if not self._is_in_share(trace_id):
                return None
            return Span("", trace_id, 0, self._collect, is_request=True)
        is_traced = caller.is_sampled if self._follows_caller else self._is_in_share(caller.trace_id)
        if not is_traced:
            return None
        return Span("", caller.trace_id, caller.span_id, self._collect, state=caller.state, is_request=True)

    def background(self, name: str) -> Span | None:
        trace_id = new_id(128)
        return Span(name, trace_id, 0, self._collect) if self._is_in_share(trace_id) else None

    def _is_in_share(self, trace_id: int) -> bool:
        return trace_id & _RATIO_MASK < self._bound
