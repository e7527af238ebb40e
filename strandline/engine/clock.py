"""Time as an argument: the engine never asks the system clock by itself."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> int:
        """Milliseconds since the Unix epoch. May jump; the engine makes it never go backwards."""
        ...


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that is turned by hand, for tests and simulations."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self._now = now

    def now(self) -> int:
        return self._now

    def advance(self, milliseconds: int) -> None:
        self._now += milliseconds

    def set(self, now: int) -> None:
        self._now = now
