"""The trace of the calling program: its requests to the server become part of the trace.

If the program traces itself with OpenTelemetry, requests carry the context of its active span as `traceparent`
(https://www.w3.org/TR/trace-context/). The client does not import OpenTelemetry, because a program that has not
imported it has no active span.
"""

from __future__ import annotations

import sys

#: The module of the OpenTelemetry API that knows the active span.
API = "opentelemetry.trace"


def headers_of_trace() -> list[tuple[bytes, bytes]]:
    """The headers that name the active span; empty if there is none."""
    api = sys.modules.get(API)
    if api is None:
        return []
    try:
        context = api.get_current_span().get_span_context()
    except AttributeError:  # another thread is importing it
        return []
    if not context.is_valid:
        return []
    value = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    headers = [(b"traceparent", value.encode())]
    if context.trace_state:
        headers.append((b"tracestate", context.trace_state.to_header().encode()))
    return headers
