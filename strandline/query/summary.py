"""A summary: what is known of numbers that were added up, and what follows from it."""

from __future__ import annotations

import math
from typing import Any

from msgspec import Struct

from strandline.query.config import Measure

PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
#: Up to here JavaScript writes whole numbers in full.
_PLAIN = 10**21

Number = int | float


class Summary(Struct):
    """``histogram`` maps the names of buckets, which are their lower bounds, to how many are in each."""

    count: Number = 0
    total: Number = 0
    least: Number | None = None
    greatest: Number | None = None
    histogram: dict[str, Number] = {}

    def merge(self, count: Number, total: Number, least: Number | None, greatest: Number | None) -> None:
        self.count += count
        self.total += total
        if least is not None and (self.least is None or least < self.least):
            self.least = least
        if greatest is not None and (self.greatest is None or greatest > self.greatest):
            self.greatest = greatest

    def fill(self, bucket: str, count: Number) -> None:
        self.histogram[bucket] = self.histogram.get(bucket, 0) + count

    def measured(self, measure: Measure) -> dict[str, Any]:
        """What is shown of it."""
        if measure.kind == "count":
            return {"count": plain(self.count)}
        shown: dict[str, Any] = {
            "count": plain(self.count),
            "sum": plain(self.total),
            "min": plain(self.least),
            "max": plain(self.greatest),
            "avg": plain(self.total / self.count) if self.count else None,
        }
        if not measure.histogram and len(measure.pointers or ()) < 5:
            return {**shown, **dict.fromkeys(PERCENTILES)}
        buckets = sorted((bound, name) for name in self.histogram if (bound := bound_of(name)) is not None)
        for name, share in PERCENTILES.items():
            shown[name] = self._percentile(buckets, share)
        shown["histogram"] = {name: plain(self.histogram[name]) for _, name in buckets}
        return shown

    def _percentile(self, buckets: list[tuple[float, str]], share: float) -> Number | None:
        """The first bucket, from below, up to which at least this share of all is."""
        wanted = share * sum(self.histogram[name] for _, name in buckets)
        reached: Number = 0
        for bound, name in buckets:
            reached += self.histogram[name]
            if reached >= wanted:
                found: Number = plain(bound)
                return found
        return None


def plain(number: Any) -> Any:
    """Whole numbers without a fraction, as JavaScript writes them."""
    if isinstance(number, float) and number.is_integer() and abs(number) < _PLAIN:
        return int(number)
    return number


def bound_of(name: str) -> float | None:
    try:
        bound = float(name)
    except ValueError:
        return None
    return bound if math.isfinite(bound) else None


def power_name(exponent: int) -> str:
    """The name of the bucket of a log2_v1 histogram that begins at this power of two."""
    power = 1 << exponent
    return str(power) if power < _PLAIN else repr(float(power))
