"""The server's own metrics: a stream of intervals that all clients can read and only the server writes.

It has no series per stream: a million streams would be a million series.

An interval has only the series that changed: counters that increased, and gauges with another value than the last one
written. If there was no request and no other log changed, nothing is written, and the interval continues. So the
stream's own appends and those of the console's history, and the journal's frames for them, are not a reason for the
next ones. All gauges are written once per hour.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from strandline.delivery.hub import Recurrence
from strandline.engine import Batch, Config, Engine
from strandline.engine.errors import EngineError
from strandline.engine.ownership import PROFILE, REGISTRY
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.stream import StreamTraits
from strandline.schema.profiles import METRICS
from strandline.schema.profiles.metrics import SCHEMA
from strandline.schema.registry import Registry
from strandline.service.catalog import MEASUREMENTS, METRICS_STREAM
from strandline.service.meters import Measured

log = logging.getLogger(__name__)

#: How long the metrics are kept.
KEPT_MS = 7 * 24 * 3_600_000
#: The maximum length of an interval: a reader learns within this time that the server is running, and the values of all
#: gauges.
IDLE_MS = 3_600_000
#: Gauges that change by themselves, or with every append of this stream. Their changes alone are not a reason to write,
#: and small ones are not written.
RESTLESS = frozenset({"journal.pending", "journal.unsealed", "memory.rss", "pressure"})
#: The smallest change of a restless gauge, as a part of its value.
RESTLESS_CHANGE = 0.05
#: Memory peaks that are shorter than this may be missed.
STEP_SECONDS = 1.0


class Series(NamedTuple):
    """One series in one interval. ``kind``: "summary" of values, "counter" (the increase during the interval), or
    "gauge" (the value at the end of the interval)."""

    name: str
    unit: str
    kind: str
    measured: Measured
    attributes: Mapping[str, str] = {}


class OwnMetrics:
    """``answered`` counts the server's replies by path and status. Times are milliseconds."""

    def __init__(self, context: StreamsContext, answered: Callable[[], Mapping[tuple[str, int], int]]) -> None:
        self._context = context
        self._answered = answered
        self._counted: dict[tuple[str, int], int] = dict(answered())
        self._journal = _journal_counters(context.engine)
        #: The values of the gauges as they were last written, and when all of them were.
        self._gauges: dict[tuple[str, str], int] = {}
        self._complete_at: int | None = None
        self._since = context.hub.now()
        self._known: set[tuple[str, tuple[tuple[str, str], ...]]] = set()

    @property
    def series(self) -> int:
        """The number of series."""
        return len(self._known)

    def install(self) -> None:
        """Create the stream if it does not exist, and make sure that it has the current schema."""
        registry = Registry.installed(METRICS_STREAM, SCHEMA).stored()
        notes: dict[str, Any] = {REGISTRY: registry, PROFILE: METRICS.stored()}
        engine = self._context.engine
        try:
            stream = self._context.streams.find(METRICS_STREAM)
            if stream is None:
                config = Config(durability="disk", ttl_ms=KEPT_MS, attributes=StreamTraits().attributes)
                engine.create(METRICS_STREAM, config, notes=notes)
            elif any(stream.log.notes.get(name) != value for name, value in notes.items()):
                stream.log.note(notes)
        except EngineError as error:
            log.error("cannot create the stream of the server's own metrics: %s", error)

    def flush(self, now: int) -> None:
        """Append the interval since the last one, if something changed. It does not wait, and no limit refuses it."""
        try:
            self._flush(now)
        except EngineError as error:
            log.error("cannot write an interval of the server's own metrics: %s", error)

    def _flush(self, now: int) -> None:
        start, end = self._since, max(now, self._since)
        complete = self._complete_at is None or not 0 <= now - self._complete_at < IDLE_MS
        found = self._measure(complete)
        if not found:
            return
        self._since = end
        if complete:
            self._complete_at = now
        records = [_record(series, start, end) for series in found]
        instance = self._context.engine.maintenance.manifest.id
        for record in records:
            record["instance"] = instance
        data = [msgspec.json.encode(record) for record in METRICS.normalise(records, now)]
        if self._context.engine.journal.failure is not None:
            return  # the failure was logged when it happened
        stream = self._context.streams.find(METRICS_STREAM)
        if stream is not None:
            stream.log.append(Batch(data))

    # --- measuring -----------------------------------------------------------------------------------------------

    def _measure(self, complete: bool) -> list[Series]:
        """The series that changed and, if ``complete``, all gauges. Empty if there is no reason to write."""
        found = [*self._summaries(), *self._requests()]
        gauges = self._read_gauges()
        changed = {each for each, value in gauges.items() if self._differs(each, value)}
        if not (found or complete or any(name not in RESTLESS for name, _ in changed)):
            return []
        found += self._counters()
        for name, unit in gauges if complete else [each for each in gauges if each in changed]:
            value = self._gauges[name, unit] = gauges[name, unit]
            found.append(Series(name, unit, "gauge", Measured.once(value)))
        self._known.update((series.name, tuple(series.attributes.items())) for series in found)
        return found

    def _differs(self, gauge: tuple[str, str], value: int) -> bool:
        written = self._gauges.get(gauge)
        if written is None or gauge[0] not in RESTLESS:
            return value != written
        return abs(value - written) > written * RESTLESS_CHANGE

    def _summaries(self) -> Iterator[Series]:
        for name, (unit, meter) in self._context.meters.by_name.items():
            measured = meter.take()
            if measured.number:
                yield Series(name, unit, "summary", measured)

    def _requests(self) -> Iterator[Series]:
        """The requests of all protocols in the interval, by path and status."""
        answered = dict(self._answered())
        for (route, status), count in answered.items():
            more = count - self._counted.get((route, status), 0)
            if more:
                attributes = {"route": route or "none", "status": str(status)}
                yield Series("requests", "requests", "counter", Measured.once(more), attributes)
        self._counted = answered

    def _counters(self) -> Iterator[Series]:
        before, self._journal = self._journal, _journal_counters(self._context.engine)
        for (name, unit), value in self._journal.items():
            if value != before[name, unit]:
                yield Series(name, unit, "counter", Measured.once(value - before[name, unit]))

    def _read_gauges(self) -> dict[tuple[str, str], int]:
        context = self._context
        stats = context.engine.stats()
        own = [found.book for name in MEASUREMENTS if (found := context.engine.find(name)) is not None]
        return {
            ("logs", "logs"): stats.logs,
            ("records", "records"): stats.records - sum(book.count for book in own),
            ("bytes", "bytes"): stats.size - sum(book.size for book in own),
            ("journal.unsealed", "bytes"): stats.journal_bytes,
            ("journal.pending", "commits"): stats.pending,
            ("segments", "segments"): stats.segments,
            ("blocks.cached", "bytes"): stats.cached_bytes,
            ("index.size", "bytes"): context.searcher.indexes.nbytes,
            ("append.waiting", "appends"): context.appends.count,
            ("connections.events", "connections"): context.live.slots.used,
            ("logs.watched", "logs"): len(context.hub.watched()),
            ("memory.rss", "bytes"): context.memory.rss,
            ("pressure", "percent"): round(context.admission.pressure.level * 100),
        }


def _journal_counters(engine: Engine) -> dict[tuple[str, str], int]:
    stats = engine.stats()
    return {
        ("journal.frames", "frames"): stats.frames,
        ("journal.bytes", "bytes"): stats.bytes_written,
        ("journal.flushes", "flushes"): stats.flushes,
        ("journal.flush.time", "us"): round(stats.flush_us.sum),
        ("journal.rotations", "files"): stats.rotations,
    }


def _record(series: Series, start: int, end: int) -> dict[str, Any]:
    measured = series.measured
    return {
        "metric": f"strandline.{series.name}",
        "unit": series.unit,
        "metricKind": series.kind,
        "temporality": "instant" if series.kind == "gauge" else "delta",
        "windowStart": start,
        "windowEnd": end,
        "attributes": series.attributes,
        "count": measured.number,
        "sum": measured.total,
        "min": measured.least,
        "max": measured.greatest,
        "buckets": measured.buckets,
    }


class MetricsSampler:
    """Sums up meters, measures memory, and writes the metrics at intervals."""

    def __init__(self, context: StreamsContext, metrics: OwnMetrics) -> None:
        self._context = context
        self._metrics = metrics
        self._every_ms = context.settings.metrics_flush_ms
        self._flushed_at = context.hub.now()
        self._recurrence: Recurrence | None = None

    def begin(self) -> None:
        if self._every_ms:
            self._metrics.install()
        hub = self._context.hub
        self.step(hub.now())
        seconds = min(STEP_SECONDS, self._every_ms / 1000) if self._every_ms else STEP_SECONDS
        self._recurrence = hub.every(seconds, "measurement of the metrics", lambda: self.step(hub.now()))

    def step(self, now: int) -> None:
        """``now`` is in milliseconds."""
        self._context.meters.fold()
        self._context.memory.sample(now)
        if self._every_ms and now - self._flushed_at >= self._every_ms:
            self._flushed_at = now
            self._metrics.flush(now)

    def stop(self) -> None:
        if self._recurrence is not None:
            self._recurrence.stop()
