"""Something that the event loop does every so many seconds, for as long as the server runs."""

from __future__ import annotations

import asyncio

from strandline.engine.background import Task


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
