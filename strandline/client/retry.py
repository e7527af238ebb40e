"""When something is tried again, and how long is waited before: decided here, done elsewhere.

A request that was refused because the server is busy or not ready was not done, so it is always tried again. One that
never left this machine likewise. One that may have been done is tried again only if that changes nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from time import monotonic

import msgspec

from strandline.client.calls import ALWAYS
from strandline.client.errors import Refused, StrandlineError, Unreachable

#: The server says of these that nothing was done.
NOT_DONE = frozenset((429, 503))
#: Of these nobody knows: an append that is not on the disk in time, a proxy that lost the server.
UNCERTAIN = frozenset((408, 502, 504))
#: The code of a server whose journal failed. If it failed over this very write, a restart may bring the write back.
READ_ONLY = "read_only"


class Patience(msgspec.Struct, frozen=True):
    """How long to go on trying, counted from the first failure, and the waits in between. They double, up to the
    longest, and each is cut by up to a half at random: clients that failed together do not come back together."""

    seconds: float = 20.0
    first_wait: float = 0.05
    longest_wait: float = 3.0

    def wait(self, tries: int, luck: float) -> float:
        """How long to wait after so many tries; ``luck`` is between 0 and 1."""
        whole = min(self.longest_wait, self.first_wait * 2.0 ** min(tries - 1, 30))
        return float(whole * (1.0 - luck / 2))


class Tries:
    """The tries of one request. ``failed`` says how long to wait before the next one, or raises the error."""

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
        """How many tries have failed."""
        return self._count

    def succeeded(self) -> None:
        """Begin anew: what was tried has worked, for a while at least."""
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
    """Whether a request that failed like this may be sent again so long after its first try."""
    if isinstance(error, Unreachable):
        return not error.sent or elapsed < repeatable
    if isinstance(error, Refused):
        uncertain = error.status in UNCERTAIN or error.code.lower() == READ_ONLY
        return elapsed < repeatable if uncertain else error.status in NOT_DONE
    return False
