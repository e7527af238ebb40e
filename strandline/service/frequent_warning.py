"""A warning whose cause can happen many times per second."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

#: Such a warning is logged at most this often.
LOG_SECONDS = 10.0


class FrequentWarning:
    """Logs a warning at most every ten seconds. Its first argument is how often it was due since the last time."""

    def __init__(self, log: logging.Logger, words: str, now: Callable[[], float] = monotonic) -> None:
        self._log = log
        self._words = words
        self._now = now
        self._logged_at = -LOG_SECONDS
        self._count = 0

    def __call__(self, *arguments: object) -> None:
        self._count += 1
        now = self._now()
        if now - self._logged_at >= LOG_SECONDS:
            self._log.warning(self._words, self._count, *arguments)
            self._logged_at, self._count = now, 0
