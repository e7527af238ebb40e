"""Decides whether a failed request is repeated, and how long to wait before.

A request that the server refused because it was busy or not ready was not executed, so it is always repeated, as is one
that was never sent. A request that may have been executed is repeated only if repeating it has no further effect.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from time import monotonic

import msgspec

from strandline.client.calls import ALWAYS
from strandline.client.errors import Refused, StrandlineError, Unreachable

#: With these statuses the request was not executed.
NOT_DONE = frozenset((429, 503))
#: With these statuses the outcome is unknown: an append that was not flushed in time, a proxy that lost the server.
UNCERTAIN = frozenset((408, 502, 504))
#: The codes of a server whose journal failed, and of one whose replica is slow. A write with such an answer may count
#: later.
UNKNOWN_OUTCOME = frozenset(("read_only", "replica_behind"))


class Patience(msgspec.Struct, frozen=True):
    """For how long to retry, counted from the first failure, and the waits in between. Waits double up to
    ``longest_wait``. Each is shortened randomly by up to half, so that clients that failed together do not all return
    together."""

    seconds: float = 20.0
    first_wait: float = 0.05
    longest_wait: float = 3.0

    def wait(self, tries: int, luck: float) -> float:
        """The wait after a number of attempts; ``luck`` is a random number between 0 and 1."""
        whole = min(self.longest_wait, self.first_wait * 2.0 ** min(tries - 1, 30))
        return float(whole * (1.0 - luck / 2))


class Tries:
    """The attempts of one request. ``failed`` returns the wait before the next attempt, or raises the error."""

    __slots__ = ("_clock", "_count", "_failing_since", "_luck", "_patience", "_repeatable", "_started")

    def __init__(
        self,
        patience: Patience,
        repeatable: float = ALWAYS,
        clock: Callable[[], float] = monotonic,
        luck: Callable[[], float] = random.random,
    ) -> None:
        self._patience = patience
        self._repeatable = repeatable
        self._clock = clock
        self._luck = luck
        self._started = self._failing_since = clock()
        self._count = 0

    @property
    def count(self) -> int:
        """The number of failed attempts."""
        return self._count

    def succeeded(self) -> None:
        """Reset the count and the clock after a success."""
        self._count = 0
        self._started = self._clock()

    def failed(self, error: StrandlineError) -> float:
        now = self._clock()
        if not self._count:
            self._failing_since = now
        self._count += 1
        wait = self._patience.wait(self._count, self._luck())
        if isinstance(error, Refused) and error.retry_after is not None:
            wait = max(wait, error.retry_after)
        again_at = now + wait
        if again_at - self._failing_since > self._patience.seconds:
            raise error
        if not may_repeat(error, again_at - self._started, self._repeatable):
            raise error
        return wait


def may_repeat(error: StrandlineError, elapsed: float, repeatable: float) -> bool:
    """Whether a request that failed with this error may be sent again, ``elapsed`` seconds after its first attempt."""
    if isinstance(error, Unreachable):
        return not error.sent or elapsed < repeatable
    if isinstance(error, Refused):
        uncertain = error.status in UNCERTAIN or error.code.lower() in UNKNOWN_OUTCOME
        return elapsed < repeatable if uncertain else error.status in NOT_DONE
    return False
