"""The logs with live invalidation, on the event loop: schedules their processing and reports their statistics.

docs/reference/live-invalidation.md explains the statistics.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from time import perf_counter
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Meta, field

from strandline.delivery.hub import SLICE_SECONDS, Hub, Waiter
from strandline.delivery.invalidation.runtime import Runtime, TouchMode
from strandline.delivery.watch.alarms import Alarms
from strandline.engine import Log
from strandline.engine.background import report
from strandline.engine.errors import EngineClosed, EngineError
from strandline.schema.profiles.touch_settings import TouchSettings

_Number = Annotated[int, Meta(ge=0)]
_Milliseconds = Annotated[float, Meta(ge=0)]


class TouchMeta(msgspec.Struct, rename="camel", kw_only=True):
    """The state of live invalidation of a log, as JSON. Totals count from its start."""

    mode: Literal["memory"]
    cursor: str
    epoch: str
    generation: _Number
    bucket_ms: _Number
    coalesce_ms: _Milliseconds
    filter_size: _Number
    k: _Number
    pending_keys: _Number
    overflow_buckets: _Number
    active_waiters: _Number
    bucket_max_source_offset_seq: str
    last_flush_at_ms: _Number
    flush_interval_ms_max_last_10s: _Milliseconds = field(name="flushIntervalMsMaxLast10s")
    flush_interval_ms_p95_last_10s: _Milliseconds = field(name="flushIntervalMsP95Last10s")
    settled: bool
    coarse_interval_ms: _Number
    touch_coalesce_window_ms: _Number
    active_templates: _Number
    lag_source_offsets: _Number
    touch_mode: TouchMode
    hot_fine_keys: _Number
    hot_templates: _Number
    hot_fine_keys_active: _Number
    hot_fine_keys_grace: _Number
    hot_templates_active: _Number
    hot_templates_grace: _Number
    fine_waiters_active: _Number
    coarse_waiters_active: _Number
    broad_fine_waiters_active: _Number
    hot_key_filtering_enabled: bool
    hot_template_filtering_enabled: bool
    scan_rows_total: _Number
    scan_batches_total: _Number
    scanned_but_emitted_0_batches_total: _Number = field(name="scannedButEmitted0BatchesTotal")
    processed_through_delta_total: _Number
    touches_emitted_total: _Number
    touches_table_total: _Number
    touches_template_total: _Number
    fine_touches_dropped_due_to_budget_total: _Number
    fine_touches_skipped_cold_template_total: _Number
    fine_touches_skipped_cold_key_total: _Number
    fine_touches_skipped_template_bucket_total: _Number
    wait_touched_total: _Number
    wait_timeout_total: _Number
    wait_stale_total: _Number
    journal_flushes_total: _Number
    journal_notify_wakeups_total: _Number
    journal_notify_wake_ms_total: _Milliseconds
    journal_timeouts_fired_total: _Number
    journal_timeout_sweep_ms_total: _Milliseconds
    journal_notify_wake_ms_max: _Milliseconds
    wal_scanned_through: str | None


#: The totals of a runtime. A tick reports their growth.
Totals = dict[str, Any]


def totals_of(runtime: Runtime) -> Totals:
    """All counters, by the fields of :class:`TouchMeta`."""
    processor, follower, telling = runtime.processor, runtime.follower, runtime.telling
    return {
        "scan_rows_total": follower.rows,
        "scan_batches_total": follower.batches,
        "scanned_but_emitted_0_batches_total": follower.empty_batches,
        "processed_through_delta_total": follower.advanced,
        "touches_emitted_total": processor.touches,
        "touches_table_total": processor.touches_table,
        "touches_template_total": processor.touches_template,
        "fine_touches_dropped_due_to_budget_total": processor.dropped_by_budget,
        "fine_touches_skipped_cold_template_total": processor.skipped_cold_template,
        "fine_touches_skipped_cold_key_total": processor.skipped_cold_key,
        "fine_touches_skipped_template_bucket_total": processor.skipped_template_bucket,
        "wait_touched_total": telling.counts["touched"],
        "wait_timeout_total": telling.counts["timeout"],
        "wait_stale_total": telling.counts["stale"],
        "journal_flushes_total": runtime.journal.flushes,
        "journal_notify_wakeups_total": telling.wakeups,
        "journal_notify_wake_ms_total": round(telling.wake_ms, 3),
        "journal_timeouts_fired_total": runtime.timeouts_fired,
        "journal_timeout_sweep_ms_total": round(runtime.sweep_ms, 3),
    }


def meta_of(runtime: Runtime, now: float, scanned_through: str | None) -> TouchMeta:
    """``scanned_through`` is the last processed record, in the protocol's notation."""
    journal, waiters, settings = runtime.journal, runtime.waiters, runtime.settings
    keys, templates = waiters.keys, waiters.templates
    longest, usual = journal.flush_intervals(now)
    return TouchMeta(
        mode="memory",
        cursor=f"{runtime.epoch}:{journal.generation}",
        epoch=runtime.epoch,
        generation=journal.generation,
        bucket_ms=settings.memory.bucket_ms,
        coalesce_ms=round(runtime.window_ms, 3),
        filter_size=journal.filter.size,
        k=journal.filter.k,
        pending_keys=len(journal.pending) + runtime.processor.owed,
        overflow_buckets=journal.overflow_buckets,
        active_waiters=len(waiters),
        bucket_max_source_offset_seq=str(journal.last.source_seq - 1),
        last_flush_at_ms=journal.last.flushed_at,
        flush_interval_ms_max_last_10s=round(longest, 3),
        flush_interval_ms_p95_last_10s=round(usual, 3),
        settled=runtime.settled,
        coarse_interval_ms=settings.coarse_interval_ms,
        touch_coalesce_window_ms=settings.coalesce_window_ms,
        active_templates=len(runtime.templates),
        lag_source_offsets=runtime.follower.lag,
        touch_mode=runtime.mode,
        hot_fine_keys=len(keys),
        hot_templates=len(templates),
        hot_fine_keys_active=keys.active,
        hot_fine_keys_grace=keys.in_grace,
        hot_templates_active=templates.active,
        hot_templates_grace=templates.in_grace,
        fine_waiters_active=waiters.fine,
        coarse_waiters_active=waiters.coarse,
        broad_fine_waiters_active=waiters.broad_fine,
        hot_key_filtering_enabled=runtime.processor.filters_keys,
        hot_template_filtering_enabled=runtime.processor.filters_templates,
        **totals_of(runtime),
        journal_notify_wake_ms_max=round(runtime.telling.wake_ms_max, 3),
        wal_scanned_through=scanned_through,
    )


log = logging.getLogger(__name__)

#: The note of a log that stores its templates across restarts.
TEMPLATES_NOTE = "templates"
#: How often ticks are published.
TICK_SECONDS = 10.0


class InvalidationKeeper(Protocol):
    """The owner of all followed logs, as seen by one of them."""

    def get(self, log: Log) -> LiveInvalidation | None:
        """The current live invalidation of the log, or None if the log must not be followed."""


class LiveInvalidation(Waiter):
    """Live invalidation of one log on the event loop. Call ``go_on`` after every call of ``runtime``."""

    __slots__ = ("_alarms", "_fetching", "_hub", "_keeper", "_stopped", "log", "rings_at", "runtime", "told")

    def __init__(self, hub: Hub, alarms: Alarms, keeper: InvalidationKeeper, log: Log, settings: TouchSettings) -> None:
        self._hub = hub
        self._alarms = alarms
        self._keeper = keeper
        self.log = log
        self.rings_at: float | None = None
        self._fetching = False
        self._stopped = False
        self.runtime = Runtime(
            log,
            settings,
            epoch=secrets.randbits(64),
            clock=self.now,
            wall=hub.now,
            stored=log.notes.get(TEMPLATES_NOTE),
            persist=self._persist,
        )
        #: The totals at the last tick.
        self.told: Totals = totals_of(self.runtime)
        hub.watch(log, self)
        self.go_on()

    def now(self) -> float:
        """Monotonic time in milliseconds."""
        return self._hub.loop.time() * 1000

    # --- scheduling ------------------------------------------------------------------------------------------------

    def wake(self, log: Log) -> None:
        # The configuration may have changed as well: the log may have to be followed differently, or not at all.
        if self._keeper.get(log) is self and not self.runtime.asleep:
            self.run()

    def run(self) -> None:
        """Process records for one time slice, and schedule another turn if there are more."""
        if self._stopped:
            return
        try:
            there = self.runtime.step(perf_counter() + SLICE_SECONDS)
        except EngineClosed:
            return
        except Exception as error:
            self._skip(error)
            there = True
        if not there:
            self._fetch()
        self.go_on()

    def go_on(self) -> None:
        """Schedule the next turn or timer."""
        if self._stopped:
            return
        if self.runtime.busy and not (self._fetching and not self.runtime.telling.busy):
            self._hub.submit(self)
        due = self.runtime.next_due()
        if due is not None and (self.rings_at is None or due / 1000 < self.rings_at):
            self._alarms.set(self, due / 1000)

    def ring(self, now: float) -> float | None:
        if self._stopped:
            return None
        self.runtime.tick()
        self.go_on()
        due = self.runtime.next_due()
        return None if due is None else due / 1000

    # --- records that are not in memory ----------------------------------------------------------------------------

    def _fetch(self) -> None:
        if not self._fetching:
            self._fetching = True
            future = self._hub.in_thread(self._read)
            future.add_done_callback(self._fetched)

    def _read(self) -> Any:
        follower = self.runtime.follower
        return self.log.read(follower.position, **follower.bounds)

    def _fetched(self, future: asyncio.Future[Any]) -> None:
        self._fetching = False
        if self._stopped or future.cancelled():
            return
        error = future.exception()
        if error is None:
            try:
                self.runtime.follower.give(future.result())
            except Exception as unexpected:
                error = unexpected
        if isinstance(error, EngineClosed) or self.log.dropped:
            return
        if error is not None:
            self._skip(error)
        self.go_on()

    def _skip(self, error: BaseException) -> None:
        """Skip records that cannot be read. They may have changed anything, so all clients are notified."""
        if not self.log.dropped:
            report(
                f"{self.log!r}: live invalidation cannot read the records after seq {self.runtime.follower.position}",
                error,
            )
            self.runtime.follower.skip()

    def _persist(self, stored: object) -> None:
        try:
            self.log.note({TEMPLATES_NOTE: stored})
        except EngineError:
            pass  # clients declare them again

    # --- shutdown --------------------------------------------------------------------------------------------------

    def stop(self, *, shutting_down: bool = False) -> None:
        """Stop following the log, and answer all waiting clients."""
        if self._stopped:
            return
        self._stopped = True
        self._hub.unwatch(self.log, self)
        self._hub.scheduler.withdraw(self)
        self._alarms.cancel(self)
        self.runtime.end("timeout" if shutting_down else "ended")


class Lives:
    """All followed logs. ``settings_of`` returns the settings of a log, or None if it must not be followed. ``publish``
    gets the ticks every ten seconds, and an empty list when the first log is followed."""

    def __init__(
        self,
        hub: Hub,
        alarms: Alarms,
        settings_of: Callable[[Log], TouchSettings | None],
        publish: Callable[[list[dict[str, object]]], None],
    ) -> None:
        self._hub = hub
        self._alarms = alarms
        self._settings_of = settings_of
        self._publish = publish
        self._lives: dict[int, LiveInvalidation] = {}
        self.rings_at: float | None = None

    def __len__(self) -> int:
        return len(self._lives)

    @property
    def waiting(self) -> int:
        """The number of waiting clients of all logs."""
        return sum(len(live.runtime.waiters) for live in self._lives.values())

    def filters(self) -> list[tuple[Log, int]]:
        """The followed logs, each with the size of its filter in bytes."""
        return [(live.log, live.runtime.journal.filter.nbytes) for live in self._lives.values()]

    def get(self, log: Log) -> LiveInvalidation | None:
        """The live invalidation of the log, started if necessary; None if the log must not be followed."""
        live = self._lives.get(log.epoch)
        settings = None if log.dropped else self._settings_of(log)
        if settings is None:
            if live is not None:
                self.drop(log)
                self._forget_templates(log)
            return None
        if live is None or live.runtime.settings != settings:
            before, live = live, LiveInvalidation(self._hub, self._alarms, self, log, settings)
            self._lives[log.epoch] = live
            if before is not None:
                before.stop()
            elif self.rings_at is None:
                self._publish([])
                self._alarms.set(self, self._hub.loop.time() + TICK_SECONDS)
        return live

    def drop(self, log: Log) -> None:
        """Stop following the log."""
        live = self._lives.pop(log.epoch, None)
        if live is not None:
            live.stop()

    def _forget_templates(self, log: Log) -> None:
        try:
            if not log.dropped and TEMPLATES_NOTE in log.notes:
                log.note({TEMPLATES_NOTE: None})
        except EngineError:
            pass  # templates that clients no longer name expire

    def stop(self) -> None:
        """Stop following all logs. Waiting clients get a timeout with their current cursor."""
        self._alarms.cancel(self)
        for live in list(self._lives.values()):
            live.stop(shutting_down=True)
        self._lives.clear()

    # --- ticks -----------------------------------------------------------------------------------------------------

    def ring(self, now: float) -> float | None:
        ticks = [tick for live in self._lives.values() if (tick := self._tick(live))]
        if ticks:
            self._publish(ticks)
        return now + TICK_SECONDS if self._lives else None

    def _tick(self, live: LiveInvalidation) -> dict[str, object] | None:
        """The counters that grew since the last tick, or None if none did."""
        totals, before = totals_of(live.runtime), live.told
        grown = {name: round(value - before[name], 3) for name, value in totals.items() if value != before[name]}
        live.told = totals
        if not grown:
            return None
        return {
            "type": "live.tick",
            "stream": live.log.name,
            "ts": self._hub.now(),
            "touchMode": live.runtime.mode,
            "activeWaiters": len(live.runtime.waiters),
            "activeTemplates": len(live.runtime.templates),
            "lagSourceOffsets": live.runtime.follower.lag,
            **{_growth_of(name): value for name, value in grown.items()},
        }


_MEMBERS = {field.name: field.encode_name for field in msgspec.structs.fields(TouchMeta)}


def _growth_of(total: str) -> str:
    return _MEMBERS[total].removesuffix("Total")
