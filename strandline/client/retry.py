"""Decides whether a failed request is repeated, and how long to wait before.

A request that the server refused because it was busy or not ready was not executed, so it is always repeated, as is one
that was never sent. A request that may have been executed is repeated only if repeating it has no further effect.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
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


#: The client tries each server once.
NO_PATIENCE = Patience(0.0)


class Tries:
    """The attempts of one request. ``failed`` returns the wait before the next attempt, or raises the error.

    With several ``servers``, the request is sent to each of them once before the client waits. If none answers in time,
    the text of the error says what each of them did.
    """

    __slots__ = (
        "_by_server",
        "_clock",
        "_count",
        "_failing_since",
        "_luck",
        "_may_be_done",
        "_patience",
        "_repeatable",
        "_round",
        "_servers",
        "_started",
    )

    def __init__(
        self,
        patience: Patience,
        repeatable: float = ALWAYS,
        clock: Callable[[], float] = monotonic,
        luck: Callable[[], float] = random.random,
        *,
        servers: int = 1,
    ) -> None:
        self._patience = patience
        self._repeatable = repeatable
        self._clock = clock
        self._luck = luck
        self._servers = servers
        self._started = self._failing_since = clock()
        #: The last error of each server.
        self._by_server: dict[str | None, StrandlineError] = {}
        #: The errors since the last wait.
        self._round: list[StrandlineError] = []
        #: Whether an attempt may have been executed.
        self._may_be_done = False
        self._count = 0

    @property
    def count(self) -> int:
        """The number of waits."""
        return self._count

    def succeeded(self) -> None:
        """Reset the count and the clock after a success."""
        self._count = 0
        self._by_server.clear()
        self._round.clear()
        self._may_be_done = False
        self._started = self._clock()

    def failed(self, error: StrandlineError) -> float:
        now = self._clock()
        if not self._count and not self._round:
            self._failing_since = now
        self._by_server.pop(error.server, None)
        self._by_server[error.server] = error
        self._round.append(error)
        self._may_be_done = self._may_be_done or is_outcome_unknown(error)
        asked_all = error.server is None or len(self._round) >= self._servers
        wait = self._wait_of_round() if asked_all else 0.0
        again_at = now + wait
        if not self._may_repeat(error, again_at - self._started):
            raise self._final(error)
        # The client tries each server once in any case.
        if (asked_all or self._count) and again_at - self._failing_since > self._patience.seconds:
            raise self._final(combined(list(self._by_server.values())))
        if asked_all:
            self._round.clear()
        return wait

    def _wait_of_round(self) -> float:
        self._count += 1
        wait = self._patience.wait(self._count, self._luck())
        hints = [error.retry_after for error in self._round if isinstance(error, Refused)]
        return max(wait, min((hint for hint in hints if hint is not None), default=0.0))

    def _may_repeat(self, error: StrandlineError, elapsed: float) -> bool:
        # An earlier attempt may have been executed, even if it is certain that this one was not.
        return may_repeat(error) and (not self._may_be_done or elapsed < self._repeatable)

    def _final(self, error: StrandlineError) -> StrandlineError:
        if isinstance(error, Unreachable):
            error.sent = self._may_be_done
        return error


def is_outcome_unknown(error: StrandlineError) -> bool:
    """Whether the request may have been executed."""
    if isinstance(error, Unreachable):
        return error.sent
    return isinstance(error, Refused) and (error.status in UNCERTAIN or error.code.lower() in UNKNOWN_OUTCOME)


def may_repeat(error: StrandlineError) -> bool:
    """Whether the same request may succeed later. If its outcome is unknown, it also has to be repeatable."""
    return isinstance(error, Unreachable) or (isinstance(error, Refused) and error.status in NOT_DONE | UNCERTAIN)


def combined(errors: Sequence[StrandlineError]) -> StrandlineError:
    """One error for the last errors of several servers: its text names all of them."""
    error = errors[-1]
    if error.server is not None:
        # That a server does not answer says more than that the others wait for their turn.
        error = next((each for each in errors if isinstance(each, Unreachable)), error)
    if len(errors) > 1:
        error.args = ("; ".join(map(_told, errors)),)
    return error


def _told(error: StrandlineError) -> str:
    return str(error) if error.server is None or error.server in str(error) else f"{error.server}: {error}"
