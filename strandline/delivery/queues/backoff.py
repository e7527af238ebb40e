"""Backoff: how long a job that failed waits before its next delivery."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

#: No job waits longer than a day.
MAX_DELAY_MS = 86_400_000


def clamp_delay(delay_ms: int) -> int:
    return min(delay_ms, MAX_DELAY_MS)


class Backoff(msgspec.Struct, frozen=True):
    """The delay grows by ``factor`` with each failure of the job, up to ``max_ms``, and is then shortened at random by
    up to the fraction ``jitter``."""

    #: The delay after the first failure; 0: no delay at all.
    delay_ms: int = 0
    factor: float = 2.0
    max_ms: int = 300_000
    jitter: float = 0.0

    def after(self, deliveries: int, random: Callable[[], float]) -> int:
        """The delay in milliseconds after this many deliveries. ``random`` returns a number from 0 to 1."""
        if not self.delay_ms or deliveries < 1:
            return 0
        try:
            delay = min(self.max_ms, self.delay_ms * self.factor ** (deliveries - 1))
        except OverflowError:
            delay = self.max_ms
        return int(delay * (1.0 - self.jitter * random()) if self.jitter else delay)


#: The backoff of a queue that is not configured with one. Its other values are the defaults of the options.
NO_BACKOFF = Backoff()
