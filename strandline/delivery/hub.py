"""The hub: wakes tasks on the event loop when the engine changes a log on any thread, and runs periodic tasks."""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import Context
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

from strandline.delivery.scheduler import DeliveryTask, Scheduler
from strandline.engine import Log
from strandline.engine.background import Health, Task
from strandline.engine.background import Task as BackgroundTask
from strandline.engine.commit import Commit
from strandline.spans import COMMIT, begin


class Recurrence:
    """Repeats a task on the event loop. An error is logged and delays the next attempt."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, task: Task) -> None:
        self._loop = loop
        self._seconds = seconds
        self._task = task
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def start(self) -> None:
        """Start the timer. The task first runs after one interval."""
        self._wind(self._seconds)

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _due(self) -> None:
        self._wind(max(self._seconds, self._task.attempt()))

    def _wind(self, seconds: float) -> None:
        if not self._stopped:
            self._timer = self._loop.call_later(seconds, self._due)


log = logging.getLogger(__name__)

#: How long deliveries run before the event loop gets its turn.
SLICE_SECONDS = 0.002

T = TypeVar("T")
A = TypeVar("A")


class Hub:
    """Connects one server's engine to its event loop. Create it on the loop's thread.

    ``now`` returns milliseconds and follows elapsed time. ``wall`` returns the system clock, for times that must agree
    with other machines. Periodic tasks report their failures to ``health``. Blocking reads run on ``threads``, or on
    the loop's default executor if that is None.
    """

    def __init__(
        self,
        now: Callable[[], int],
        loop: asyncio.AbstractEventLoop | None = None,
        health: Health | None = None,
        wall: Callable[[], int] | None = None,
        threads: Executor | None = None,
    ) -> None:
        self.now = now
        self._threads = threads
        self.wall = wall or now
        self.health = health or Health()
        self.loop = loop or asyncio.get_running_loop()
        self.scheduler = Scheduler()
        self._thread = threading.get_ident()
        self._mail: deque[Callable[[], None]] = deque()
        self._mail_posted = False
        self._draining = False
        self._channels: dict[int, Channel] = {}
        #: Deliveries belong to no request, whichever one caused them.
        self._context = Context()

    # --- commits -------------------------------------------------------------------------------------------

    def when_done(self, commit: Commit[T], make: Callable[[T], A]) -> asyncio.Future[A]:
        """Return a future that resolves on the loop to ``make(value)`` once the commit is done."""
        future: asyncio.Future[A] = self.loop.create_future()
        waiting = None if commit.done else begin(COMMIT)

        def settle() -> None:
            if waiting is not None:
                waiting.end()
            if not future.done():
                try:
                    future.set_result(make(commit.wait()))
                except Exception as error:
                    future.set_exception(error)

        self.on_done(commit, settle)
        return future

    def on_done(self, commit: Commit[Any], action: Callable[[], None]) -> None:
        """Run ``action`` on the loop once the commit is done."""
        commit.add_done_callback(lambda _: self.post(action))

    def post(self, action: Callable[[], None]) -> None:
        """Run ``action`` on the loop soon. Can be called from any thread."""
        self._mail.append(action)
        if not self._mail_posted:
            self._mail_posted = True
            self.loop.call_soon_threadsafe(self._open_mail, context=self._context)

    def _open_mail(self) -> None:
        self._mail_posted = False
        mail = self._mail
        try:
            while mail:
                mail.popleft()()
        finally:
            # If one action raises, the remaining actions still run.
            if mail and not self._mail_posted:
                self._mail_posted = True
                self.loop.call_soon(self._open_mail, context=self._context)

    def in_thread(self, work: Callable[..., T], *arguments: Any, **named: Any) -> asyncio.Future[T]:
        """Run a function that would block the loop on another thread."""
        return self.loop.run_in_executor(self._threads, partial(work, *arguments, **named))

    def every(self, seconds: float, name: str, act: Callable[[], object]) -> Recurrence:
        """Run ``act`` on the loop every ``seconds`` seconds, first after one interval."""
        recurrence = Recurrence(self.loop, seconds, BackgroundTask(name, act, self.health))
        recurrence.start()
        return recurrence

    # --- log changes ---------------------------------------------------------------------------------------

    def watch(self, log: Log, waiter: Waiter) -> None:
        """Wake the waiter whenever readers of the log may find something new, until ``unwatch``."""
        channel = self._channels.get(log.epoch)
        if channel is None:
            channel = self._channels[log.epoch] = Channel(self, log)
        channel.waiters[waiter] = None

    def unwatch(self, log: Log, waiter: Waiter) -> None:
        channel = self._channels.get(log.epoch)
        if channel is not None and channel.waiters.pop(waiter, self) is None and not channel.waiters:
            channel.stop()
            del self._channels[log.epoch]

    def watched(self) -> list[tuple[Log, int]]:
        """The watched logs, each with its number of waiters."""
        return [(channel.log, len(channel.waiters)) for channel in self._channels.values()]

    def nudge(self, log: Log) -> None:
        """Wake the waiters of a log whose records have not changed, because something else about the log has."""
        channel = self._channels.get(log.epoch)
        if channel is not None:
            self.submit(channel)

    def changed(self, channel: Channel) -> None:
        """Called by the engine while it holds its lock."""
        if threading.get_ident() == self._thread:
            self.submit(channel)
        else:
            self.post(lambda: self.submit(channel))

    # --- scheduling ----------------------------------------------------------------------------------------

    def submit(self, task: DeliveryTask) -> None:
        """Queue a task with the scheduler. Must be called on the loop's thread."""
        self.scheduler.submit(task, self.now())
        if not self._draining:
            self._draining = True
            self.loop.call_soon(self._drain, context=self._context)

    def _drain(self) -> None:
        scheduler, until = self.scheduler, perf_counter() + SLICE_SECONDS
        try:
            while (task := scheduler.take(self.now())) is not None:
                task.run()
                if perf_counter() > until:
                    break
        finally:
            self._draining = len(scheduler) > 0
            if self._draining:
                self.loop.call_soon(self._drain, context=self._context)


class Waiter(ABC):
    """An object that waits for a log to change. ``wake`` is called on the loop and must return quickly."""

    __slots__ = ()

    @abstractmethod
    def wake(self, log: Log) -> None:
        """Called when the log may have new records."""

    def priority(self, now: int) -> int:
        """The waiter's priority. The highest priority among the waiters of a log is used for the log."""
        return 0


class Channel:
    """A watched log and its waiters. The scheduler runs it when the log has changed."""

    __slots__ = ("_hub", "_todo", "log", "stop", "waiters")

    def __init__(self, hub: Hub, log: Log) -> None:
        self._hub = hub
        self.log = log
        self.waiters: dict[Waiter, Any] = {}
        self._todo: list[Waiter] = []
        self.stop: Callable[[], None] = log.listen(lambda _: hub.changed(self))

    def priority(self, now: int) -> int:
        return max((waiter.priority(now) for waiter in self.waiters), default=0)

    def run(self) -> None:
        """Wake the waiters until the time slice ends. The next turn wakes the rest."""
        todo = self._todo or list(self.waiters)
        self._todo = []
        until = perf_counter() + SLICE_SECONDS
        for at, waiter in enumerate(todo, 1):
            if waiter in self.waiters:
                try:
                    waiter.wake(self.log)
                except Exception:
                    log.exception("log %r: a waiter failed", self.log.name)  # the other waiters are still woken
            if at < len(todo) and perf_counter() > until:
                self._todo = todo[at:]
                self._hub.submit(self)
                return
