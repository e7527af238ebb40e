"""A machine whose system clock can be set, for tests of a server's time."""

from __future__ import annotations

from strandline.engine import SteadyClock

NOW = 1_700_000_000_000


class Machine:
    """A system clock that can be set, and the time that passes whether or not it is."""

    def __init__(self, now: int = NOW) -> None:
        self.wall = now
        self.elapsed = 5 * 86_400_000
        self.clock = self.start()

    def start(self) -> SteadyClock:
        self.clock = SteadyClock(lambda: self.wall * 1_000_000, lambda: self.elapsed * 1_000_000)
        return self.clock

    def pass_time(self, milliseconds: int) -> None:
        self.wall += milliseconds
        self.elapsed += milliseconds
        self.clock.now()
