"""The access log: one line on standard error per answered request, from both lanes.

A line has the path without the query string, because a query can contain an API key, and the id of the key, never its
secret. A live response has its line when it opens. The line of a request that is traced has the ids of its trace and
its span.
"""

from __future__ import annotations

import logging

from strandline.service.http import Head
from strandline.spans import current

log = logging.getLogger("strandline.access")


class AccessLog:
    def __init__(self) -> None:
        # The level of the other messages does not turn off what the settings turn on.
        log.setLevel(logging.INFO)

    def note(self, head: Head, status: int, peer: str, seconds: float, size: int = 0) -> None:
        key = "" if head.access is None else head.access.id
        span = current()
        fields = {
            "peer": peer,
            "api_key": key,
            "method": head.method,
            "path": head.path,
            "status": status,
            "seconds": round(seconds, 6),
            "bytes": size,
        }
        log.info(
            "%s %s %s %s %d %.6fs %dB%s",
            peer or "-",
            key or "-",
            head.method,
            head.path,
            status,
            seconds,
            size,
            "" if span is None else f" trace_id={span.trace} span_id={span.id}",
            extra={"fields": fields},
        )
