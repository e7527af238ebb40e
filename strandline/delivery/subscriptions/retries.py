"""How long to wait before a webhook is tried again."""

from __future__ import annotations

from collections.abc import Callable

FIRST_MS = 1_000
MAX_MS = 60_000
#: Intervals are so much longer or shorter, so that not everybody is tried again at the same moment.
JITTER = 0.2


def retry_delay_ms(failures: int, jitter: Callable[[], float]) -> int:
    """After so many failures in a row. ``jitter`` gives numbers from 0 to 1."""
    delay = min(FIRST_MS << min(failures - 1, 16), MAX_MS)
    return round(delay * (1 + JITTER * (2 * jitter() - 1)))
