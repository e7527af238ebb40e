"""Wake-ups: from the engine, on any thread, to the tasks that wait on the event loop; and periodic tasks."""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

from strandline.delivery.scheduler import DeliveryTask, Scheduler
from strandline.engine import Log
from strandline.engine.background import Health, Task
from strandline.engine.background import Task as BackgroundTask
from strandline.engine.commit import Commit


class Recurrence:
    """Repeats a task on the event loop. An error is logged and only puts the next attempt off."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, task: Task) -> None:
        self._loop = loop
        self._seconds = seconds
        self._task = task
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def start(self) -> None:
        """Do it for the first time after the interval."""
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

#: Deliveries go on for this long before the loop gets a chance to do something else.
SLICE_SECONDS = 0.002

T = TypeVar("T")
A = TypeVar("A")


class Hub:
    """One per server, made on the loop's thread. ``now`` gives milliseconds and follows elapsed time. ``wall`` is the
    system clock, for what must agree with the clocks of others. Tasks that the loop repeats report failures to
    ``health``. What has to be read from the disk is read on ``threads``; None: on those of the loop."""

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

    # --- commits -------------------------------------------------------------------------------------------

    def when_done(self, commit: Commit[T], make: Callable[[T], A]) -> asyncio.Future[A]:
        """A future of what ``make`` gives for the commit's value, made on the loop once the commit is done."""
        future: asyncio.Future[A] = self.loop.create_future()

        def settle() -> None:
            if not future.done():
                try:
                    future.set_result(make(commit.wait()))
                except Exception as error:
                    future.set_exception(error)

        self.on_done(commit, settle)
        return future

    def on_done(self, commit: Commit[Any], action: Callable[[], None]) -> None:
        """Have something done on the loop once the commit is done."""
        commit.add_done_callback(lambda _: self.post(action))

    def post(self, action: Callable[[], None]) -> None:
        """Have something done on the loop soon. Any thread may call this."""
        self._mail.append(action)
        if not self._mail_posted:
            self._mail_posted = True
            self.loop.call_soon_threadsafe(self._open_mail)

    def _open_mail(self) -> None:
        self._mail_posted = False
        mail = self._mail
        try:
            while mail:
                mail.popleft()()
        finally:
            # One that fails must not take the others' answers with it.
            if mail and not self._mail_posted:
                self._mail_posted = True
                self.loop.call_soon(self._open_mail)

    def in_thread(self, work: Callable[..., T], *arguments: Any, **named: Any) -> asyncio.Future[T]:
        """What the function returns, which takes too long for the loop."""
        return self.loop.run_in_executor(self._threads, partial(work, *arguments, **named))

    def every(self, seconds: float, name: str, act: Callable[[], object]) -> Recurrence:
        """Have something done on the loop every so many seconds, for the first time after the interval."""
        recurrence = Recurrence(self.loop, seconds, BackgroundTask(name, act, self.health))
        recurrence.start()
        return recurrence

    # --- changes of logs -----------------------------------------------------------------------------------

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
        """The logs that somebody waits for, and how many do."""
        return [(channel.log, len(channel.waiters)) for channel in self._channels.values()]

    def nudge(self, log: Log) -> None:
        """Wake those who wait for a log, though nothing has changed in it: something about it has."""
        channel = self._channels.get(log.epoch)
        if channel is not None:
            self.submit(channel)

    def changed(self, channel: Channel) -> None:
        """Called by the engine, with its lock held."""
        if threading.get_ident() == self._thread:
            self.submit(channel)
        else:
            self.post(lambda: self.submit(channel))

    # --- the scheduler's turn ------------------------------------------------------------------------------

    def submit(self, task: DeliveryTask) -> None:
        """Have a task done in its turn. On the loop's thread only."""
        self.scheduler.submit(task, self.now())
        if not self._draining:
            self._draining = True
            self.loop.call_soon(self._drain)

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
                self.loop.call_soon(self._drain)


class Waiter(ABC):
    """Somebody who waits for a log to change. ``wake`` is called on the loop and must not take long."""

    __slots__ = ()

    @abstractmethod
    def wake(self, log: Log) -> None:
        """Something may be new in the log."""

    def priority(self, now: int) -> int:
        """How urgent it is to wake this one; the most urgent waiter decides for the log."""
        return 0


class Channel:
    """A log that somebody waits for, and those who do. A task of the scheduler while there is something new."""

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
        """Wake everybody, or as many as a slice of time allows; the rest in the next turn."""
        todo = self._todo or list(self.waiters)
        self._todo = []
        until = perf_counter() + SLICE_SECONDS
        for at, waiter in enumerate(todo, 1):
            if waiter in self.waiters:
                try:
                    waiter.wake(self.log)
                except Exception:
                    log.exception("a waiter of the log %r failed", self.log.name)  # the others are woken all the same
            if at < len(todo) and perf_counter() > until:
                self._todo = todo[at:]
                self._hub.submit(self)
                return
