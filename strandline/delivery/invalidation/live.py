"""The logs that are followed, on the event loop: when which of them has its turn, and until when."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from time import perf_counter
from typing import Any, Protocol

from strandline.delivery.hub import SLICE_SECONDS, Hub, Waiter
from strandline.delivery.invalidation.report import Totals, totals_of
from strandline.delivery.invalidation.runtime import Runtime
from strandline.delivery.invalidation.settings import TouchSettings
from strandline.delivery.watch.alarms import Alarms
from strandline.engine import Log
from strandline.engine.background import report
from strandline.engine.errors import EngineClosed, EngineError

log = logging.getLogger(__name__)

#: The note of a log that keeps its templates until the next start.
TEMPLATES_NOTE = "templates"
#: How often it is told what has happened.
TICK_SECONDS = 10.0


class Keeper(Protocol):
    """Whoever has all of them."""

    def get(self, log: Log) -> Live | None:
        """What follows the log now; None if nothing is to."""


class Live(Waiter):
    """One log that is followed. Whoever asks something of ``runtime`` calls ``go_on`` afterwards."""

    __slots__ = ("_alarms", "_fetching", "_hub", "_keeper", "_stopped", "log", "rings_at", "runtime", "told")

    def __init__(self, hub: Hub, alarms: Alarms, keeper: Keeper, log: Log, settings: TouchSettings) -> None:
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
        #: The totals as of the last tick.
        self.told: Totals = totals_of(self.runtime)
        hub.watch(log, self)
        self.go_on()

    def now(self) -> float:
        """Milliseconds that never go back."""
        return self._hub.loop.time() * 1000

    # --- whose turn it is ------------------------------------------------------------------------------------------

    def wake(self, log: Log) -> None:
        # What changes may also be that nobody wants the log to be followed any more, or in another way.
        if self._keeper.get(log) is self and not self.runtime.asleep:
            self.run()

    def run(self) -> None:
        """Go on for a slice of time, and in the next turn if there is more."""
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
        """See to it that what there is to do is done in its time."""
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

    # --- what is not in memory -------------------------------------------------------------------------------------

    def _fetch(self) -> None:
        if not self._fetching:
            self._fetching = True
            future = self._hub.loop.run_in_executor(None, self._read)
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
        """What cannot be read may have been about anything: everybody is told, and it goes on behind it."""
        if not self.log.dropped:
            report(f"{self.log!r} cannot be followed behind {self.runtime.follower.position}", error)
            self.runtime.follower.skip()

    def _persist(self, stored: object) -> None:
        try:
            self.log.note({TEMPLATES_NOTE: stored})
        except EngineError:
            pass  # they are declared again

    # --- the end ---------------------------------------------------------------------------------------------------

    def stop(self, *, shutting_down: bool = False) -> None:
        """Follow the log no longer, and answer everybody who waits."""
        if self._stopped:
            return
        self._stopped = True
        self._hub.unwatch(self.log, self)
        self._hub.scheduler.withdraw(self)
        self._alarms.cancel(self)
        self.runtime.end("timeout" if shutting_down else "ended")


class Lives:
    """All logs that are followed. ``settings_of`` says how a log is to be followed, None if it is not; ``publish``
    takes what is told about them every ten seconds, and is called with nothing when the first one begins."""

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
        self._lives: dict[int, Live] = {}
        self.rings_at: float | None = None

    def __len__(self) -> int:
        return len(self._lives)

    @property
    def waiting(self) -> int:
        """How many wait, on whatever log."""
        return sum(len(live.runtime.waiters) for live in self._lives.values())

    def filters(self) -> list[tuple[Log, int]]:
        """The logs that are followed, and the bytes of each one's filter."""
        return [(live.log, live.runtime.journal.filter.nbytes) for live in self._lives.values()]

    def get(self, log: Log) -> Live | None:
        """What follows the log now, begun if need be; None if it is not to be followed."""
        live = self._lives.get(log.epoch)
        settings = None if log.dropped else self._settings_of(log)
        if settings is None:
            if live is not None:
                self.drop(log)
                self._forget_templates(log)
            return None
        if live is None or live.runtime.settings != settings:
            before, live = live, Live(self._hub, self._alarms, self, log, settings)
            self._lives[log.epoch] = live
            if before is not None:
                before.stop()
            elif self.rings_at is None:
                self._publish([])
                self._alarms.set(self, self._hub.loop.time() + TICK_SECONDS)
        return live

    def drop(self, log: Log) -> None:
        """The log is not followed any more."""
        live = self._lives.pop(log.epoch, None)
        if live is not None:
            live.stop()

    def _forget_templates(self, log: Log) -> None:
        try:
            if not log.dropped and TEMPLATES_NOTE in log.notes:
                log.note({TEMPLATES_NOTE: None})
        except EngineError:
            pass  # they retire by themselves when they are not named again

    def stop(self) -> None:
        """The server stops: whoever waits is sent away with the cursor they have got to."""
        self._alarms.cancel(self)
        for live in list(self._lives.values()):
            live.stop(shutting_down=True)
        self._lives.clear()

    # --- telling what has happened ---------------------------------------------------------------------------------

    def ring(self, now: float) -> float | None:
        ticks = [tick for live in self._lives.values() if (tick := self._tick(live))]
        if ticks:
            self._publish(ticks)
        return now + TICK_SECONDS if self._lives else None

    def _tick(self, live: Live) -> dict[str, object] | None:
        """What has grown since the last tick; None if nothing has."""
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


def _growth_of(total: str) -> str:
    return total.removesuffix("Total")
