"""How the server is doing: a sample a second, of which those of the last minutes are kept."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence

from strandline.delivery.pressure import Pressure
from strandline.engine import Engine, Histogram
from strandline.faces.console.answers import SampleAnswer
from strandline.faces.console.rates import Rates

#: Ten minutes.
MAX_SAMPLES = 600
EVERY_SECONDS = 1.0

#: Where Linux says how many pages a process has in memory: the second number.
STATM = "/proc/self/statm"
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Sampler:
    """``take`` waits for the engine's lock: it is not for the loop's thread. One thread at a time."""

    def __init__(self, engine: Engine, pressure: Pressure, rates: Rates) -> None:
        self._engine = engine
        self._pressure = pressure
        self._rates = rates
        self._flushes: Sequence[int] = ()
        self.samples: deque[SampleAnswer] = deque(maxlen=MAX_SAMPLES)

    def take(self, now: int, connections: int) -> SampleAnswer:
        stats = self._engine.stats()
        self._rates.measure(now, stats.frames)
        since = _since(stats.flush_us, self._flushes)
        self._flushes = stats.flush_us.counts
        total = self._rates.total
        sample = SampleAnswer(
            at=now,
            appends=round(total.appends, 1),
            bytes=round(total.bytes, 1),
            flush_p50_us=quantile(stats.flush_us.bounds, since, 0.5),
            flush_p99_us=quantile(stats.flush_us.bounds, since, 0.99),
            rss_bytes=resident_bytes(),
            connections=connections,
            pressure=self._pressure.level,
        )
        self.samples.append(sample)
        return sample


def _since(histogram: Histogram, before: Sequence[int]) -> list[int]:
    if not before:
        return [0] * len(histogram.counts)
    return [count - earlier for count, earlier in zip(histogram.counts, before, strict=True)]


def quantile(bounds: Sequence[float], counts: Sequence[int], part: float) -> float | None:
    """The value below which this part of all lie, as far as the buckets tell: within one, values are taken to be
    spread evenly. None if there are none."""
    total = counts[-1]
    if not total:
        return None
    wanted, below, low = part * total, 0, 0.0
    for bound, count in zip(bounds, counts, strict=True):
        if count >= wanted:
            if bound == float("inf"):
                return low
            return round(low + (bound - low) * (wanted - below) / (count - below), 1)
        below, low = count, bound
    raise AssertionError("the last bucket has them all")


def resident_bytes() -> int:
    """What the process has in memory; 0 where the system does not say."""
    try:
        with open(STATM, "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except OSError:  # pragma: no cover - another system than Linux
        return 0
