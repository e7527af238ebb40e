"""The state of the server: one sample per second, kept for ten minutes, and averages for a week."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

import strandline
from strandline.engine import Engine
from strandline.engine.background import Task
from strandline.protocols.console import collections, tables
from strandline.protocols.console.catalogue import Catalogue
from strandline.protocols.console.context import ConsoleContext
from strandline.protocols.console.disk_usage import DiskUsage, disk_answer, measure_disk
from strandline.protocols.console.rates import Rates
from strandline.protocols.console.routers import ConsoleRouters
from strandline.protocols.console.sample_history import SampleHistory
from strandline.protocols.console.sample_log import TOGETHER, TOGETHER_IDLE, SampleLog
from strandline.protocols.console.sql import is_available
from strandline.protocols.console.tail import ConsoleStream
from strandline.protocols.console.wire import (
    BusyLog,
    DiskAnswer,
    HealthAnswer,
    KeyAnswer,
    OverviewAnswer,
    SampleAnswer,
    SampleHistoryAnswer,
    SessionAnswer,
    TotalsAnswer,
)
from strandline.service import sse
from strandline.service.access import SCOPES, Access
from strandline.service.admission import Pressure
from strandline.service.http import Call, Reply
from strandline.service.parameters import number
from strandline.service.request_meter import BOUNDS, RequestTotals

#: Ten minutes.
MAX_SAMPLES = 600
EVERY_SECONDS = 1.0
#: How often the disk is measured, at most: a slow disk is measured less often.
DISK_MS = 60_000
DISK_SHARE = 20
#: A week.
MAX_HOURS = 168
HOUR_MS = 3_600_000
LATENCY_BOUNDS_MS = [bound * 1000 for bound in BOUNDS]

#: The Linux file whose second number is the resident set size of the process in pages.
STATM = "/proc/self/statm"
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Sampler:
    """``take`` waits for the engine's lock, so call it from a thread other than the event loop's, one at a time."""

    def __init__(self, engine: Engine, pressure: Pressure, rates: Rates) -> None:
        self._engine = engine
        self._pressure = pressure
        self._rates = rates
        self._flushes: Sequence[int] = ()
        self._requests: RequestTotals | None = None
        self._taken_at = 0
        self.samples: deque[SampleAnswer] = deque(maxlen=MAX_SAMPLES)

    def take(self, now: int, connections: int, requests: RequestTotals, disk: DiskUsage | None = None) -> SampleAnswer:
        stats = self._engine.stats()
        self._rates.measure(now, stats.frames)
        flushes = _since(stats.flush_us.counts, self._flushes)
        self._flushes = stats.flush_us.counts
        before = self._requests or requests
        latencies = _since(requests.counts, before.counts)
        seconds = max(now - self._taken_at, 1) / 1000
        self._requests, self._taken_at = requests, now
        total = self._rates.total
        sample = SampleAnswer(
            at=now,
            appends=round(total.appends, 1),
            bytes=round(total.bytes, 1),
            requests=round((requests.requests - before.requests) / seconds, 1),
            errors=round((requests.errors - before.errors) / seconds, 1),
            latency_p50_ms=quantile(LATENCY_BOUNDS_MS, latencies, 0.5),
            latency_p99_ms=quantile(LATENCY_BOUNDS_MS, latencies, 0.99),
            flush_p50_us=quantile(stats.flush_us.bounds, flushes, 0.5),
            flush_p99_us=quantile(stats.flush_us.bounds, flushes, 0.99),
            rss_bytes=resident_bytes(),
            live_bytes=stats.size,
            connections=connections,
            pressure=self._pressure.level,
            disk_bytes=None if disk is None else disk.used,
            disk_free_bytes=None if disk is None else disk.free,
        )
        self.samples.append(sample)
        return sample


def _since(counts: Sequence[int], before: Sequence[int]) -> list[int]:
    if not before:
        return [0] * len(counts)
    return [count - earlier for count, earlier in zip(counts, before, strict=True)]


def quantile(bounds: Sequence[float], counts: Sequence[int], part: float) -> float | None:
    """The value below which this part of all values lies. Values are assumed to be spread evenly within a bucket. None
    if there are no values."""
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
    raise AssertionError("the last bucket of a histogram contains all values")


def resident_bytes() -> int:
    """The resident set size of the process in bytes; 0 where the system does not report it."""
    try:
        with open(STATM, "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except OSError:  # pragma: no cover - another system than Linux
        return 0


# --- The server as a whole ------------------------------------------------------------------------------------------


class Overview:
    def __init__(self, context: ConsoleContext, rates: Rates, catalogue: Catalogue, routing: ConsoleRouters) -> None:
        self._context = context
        self._rates = rates
        self._catalogue = catalogue
        self._routing = routing
        self._history = SampleHistory()
        self._log = SampleLog(context.engine)
        self._restored = False
        #: The time of the last minute that is in the log.
        self._logged = 0
        self._disk: DiskUsage | None = None
        self._disk_shown: DiskAnswer | None = None
        self._disk_due = 0
        self._sampler = Sampler(context.engine, context.kernel.pressure, rates)
        self._timer: asyncio.TimerHandle | None = None
        self._sampling = Task("console samples", self._again, context.hub.health)

    # --- answering -------------------------------------------------------------------------------------------------

    def session(self, call: Call) -> Reply:
        """GET /console/api/session. Works without an API key, so that the page learns that it needs one."""
        around, access = self._context.surroundings, call.access
        known = around.keys_required and bool(access.id)
        admitted, documents = known or not around.keys_required, self._context.collections
        key = KeyAnswer(
            id=access.id,
            scopes=[scope for scope in SCOPES if access.may(scope)],
            prefixes=list(access.prefixes),
        )
        return _reply(
            SessionAnswer(
                name="strandline",
                version=strandline.__version__,
                keys_required=around.keys_required,
                key=key if known else None,
                pipeline=around.has_pipeline(),
                sql=is_available(),
                tables=admitted and any(tables.may_see(table, access) for table in self._context.tables),
                collections=admitted
                and any(collections.may_see(each, access) for each in collections.bound_collections(documents)),
            )
        )

    async def overview(self, call: Call) -> Reply:
        """GET /console/api/overview"""
        context, access = self._context, call.access
        stats = await context.work(context.engine.stats)
        logs, records, size = await self._catalogue.totals(access)
        around = context.surroundings
        return _reply(
            OverviewAnswer(
                now=context.hub.now(),
                samples=list(self._sampler.samples),
                totals=TotalsAnswer(
                    logs=logs,
                    records=records,
                    bytes=size,
                    segments=stats.segments,
                    journal_bytes=stats.journal_bytes,
                ),
                health=HealthAnswer(ready=around.is_serving(), read_only=stats.read_only, uptime_ms=around.uptime_ms()),
                busiest=self._busiest(access),
                disk=self._disk_shown,
            )
        )

    def history(self, call: Call) -> Reply:
        """GET /console/api/history"""
        hours = number(call, "hours", 1, 1, MAX_HOURS) or 1
        now = self._context.hub.now()
        return _reply(SampleHistoryAnswer(now=now, samples=self._history.since(now - hours * HOUR_MS, now)))

    def live(self, call: Call) -> SampleStream:
        """GET /console/api/live"""
        self._context.live.check_room(call.access)
        return SampleStream(self._context.live, call.access)

    def _busiest(self, access: Access) -> list[BusyLog]:
        return [
            BusyLog(log=rate.log, appends=round(rate.appends, 1), bytes=round(rate.bytes, 1))
            for rate in self._rates.busiest(access)
        ]

    # --- sampling --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._wind(0.0)

    def _wind(self, seconds: float) -> None:
        self._timer = self._context.hub.loop.call_later(seconds, self._again)

    def _again(self) -> None:
        # The timer starts again after each sample: a slow sample delays the next one, and two never overlap.
        taking = asyncio.ensure_future(self.sample())
        taking.add_done_callback(self._sampled)

    def _sampled(self, taking: asyncio.Future[None]) -> None:
        if taking.cancelled():
            return
        # Ask for the error even when the server stops: asyncio logs an error that is not asked for.
        error = taking.exception()
        if self._timer is None:
            return
        if error is None:
            self._sampling.succeeded()
            self._wind(EVERY_SECONDS)
        else:
            self._wind(max(EVERY_SECONDS, self._sampling.failed(error)))

    async def sample(self) -> None:
        """Take a sample and send it to all live streams."""
        context = self._context
        if not self._restored:
            self._history = await context.workers.urgent.run(self._earlier)
            self._logged = max(context.hub.now() - 1, self._history.last)
            self._restored = True
        await self._measure_disk()
        now, connections = context.hub.now(), context.surroundings.connections()
        self._routing.measure(now)
        requests = context.surroundings.requests()
        sample = await context.workers.urgent.run(self._sampler.take, now, connections, requests, self._disk)
        self._history.add(sample)
        self._keep(TOGETHER)
        self._tell(sample)

    def _earlier(self) -> SampleHistory:
        """The history of earlier runs. Averaging a week takes 50 ms, so call it on a thread."""
        history = SampleHistory()
        history.restore(self._log.read())
        return history

    async def _measure_disk(self) -> None:
        """Measure the disk if it is time. A directory that cannot be read has no size: the journal reports why."""
        context, around = self._context, self._context.surroundings
        began = context.hub.now()
        if around.data_directory is None or began < self._disk_due:
            return
        try:
            self._disk = await context.workers.urgent.run(measure_disk, around.data_directory, around.lake_directory)
        except OSError:
            self._disk = None
        self._disk_shown = None if self._disk is None else disk_answer(self._disk, self._history.week())
        self._disk_due = began + max(DISK_MS, DISK_SHARE * (context.hub.now() - began))

    def _keep(self, least: int) -> None:
        """Append the minutes that the log lacks, if there are that many. They wait while the log cannot be written."""
        lacking = self._history.minutes_after(self._logged)
        if least > 1 and self._context.engine.replica is not None and not any(one.requests for one in lacking):
            # Each append is an upload, and an idle server should upload hardly anything.
            least = TOGETHER_IDLE
        if len(lacking) >= least and self._log.append(lacking):
            self._logged = lacking[-1].at

    def _tell(self, sample: SampleAnswer) -> None:
        """Streams with the same access get the same bytes. A stream that does not keep up misses samples."""
        shown: dict[tuple[str, ...], bytes] = {}
        for stream in self._context.live.of(SampleStream):
            if stream.keeps_up:
                told = shown.get(stream.access.prefixes)
                if told is None:
                    told = shown[stream.access.prefixes] = self._frame(sample, stream.access)
                stream.write(told)

    def _frame(self, sample: SampleAnswer, access: Access) -> bytes:
        told: dict[str, Any] = {**msgspec.structs.asdict(sample), "busiest": self._busiest(access)}
        return sse.frame(b"sample", msgspec.json.encode(told), b"%d" % sample.at)

    def stop(self) -> None:
        if self._restored:
            self._keep(1)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class SampleStream(ConsoleStream):
    """A stream that receives every sample."""

    __slots__ = ()

    def begin(self) -> None:
        pass

    def go_on(self) -> None:
        pass

    def leave(self) -> None:
        pass


def _reply(answer: msgspec.Struct) -> Reply:
    return Reply(msgspec.json.encode(answer))
