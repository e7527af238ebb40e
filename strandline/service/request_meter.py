"""The counters of a route: its answers by status, and how long the server took for them.

Every request adds to one meter, so ``add`` does no more than it must. There is one meter per declared route, so their
number does not depend on what clients send. Use this module only on the event loop's thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from math import inf
from typing import NamedTuple

from strandline.engine.stats import Histogram

#: The upper bounds of the buckets, in seconds. Most requests take less than a millisecond; a long poll takes seconds.
BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, inf)


class RequestTotals(NamedTuple):
    """The requests of all routes together. ``counts`` are those of a histogram of the durations, with ``BOUNDS``."""

    requests: int
    #: Answers with a status of 500 or more.
    errors: int
    counts: tuple[int, ...]


class RequestMeter:
    """``method`` and ``path`` are those of the route, and empty for requests that match no route."""

    __slots__ = ("_buckets", "_seconds", "audited", "method", "path", "protocol", "statuses")

    def __init__(self, protocol: str = "", method: str = "", path: str = "", *, audited: bool = False) -> None:
        self.protocol = protocol
        self.method = method
        self.path = path
        #: Whether the audit log records the requests.
        self.audited = audited
        #: The number of answers by status.
        self.statuses: dict[int, int] = {}
        self._buckets = [0] * len(BOUNDS)
        self._seconds = 0.0

    def count(self, status: int) -> None:
        """Count an answer whose duration says nothing: a refusal by the head alone, or the start of a live response."""
        self.statuses[status] = self.statuses.get(status, 0) + 1

    def add(self, status: int, seconds: float) -> None:
        """Count an answer and its duration."""
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self._buckets[bisect_left(BOUNDS, seconds)] += 1
        self._seconds += seconds

    def histogram(self) -> Histogram:
        """The durations in seconds."""
        counts = tuple(accumulate(self._buckets))
        return Histogram(BOUNDS, counts, self._seconds, counts[-1])

    @staticmethod
    def totals(meters: Iterable[RequestMeter]) -> RequestTotals:
        """The sum of several meters."""
        requests = errors = 0
        buckets = [0] * len(BOUNDS)
        for meter in meters:
            for status, number in meter.statuses.items():
                requests += number
                if status >= 500:
                    errors += number
            for index, number in enumerate(meter._buckets):
                buckets[index] += number
        return RequestTotals(requests, errors, tuple(accumulate(buckets)))
