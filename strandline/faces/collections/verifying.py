"""Signatures of requests that come together are verified beside the event loop, by threads of their own.

One takes more than a tenth of a millisecond, and an append has two of them: longer than everything else about it takes.
On the loop, everybody else would wait for that. The interpreter's lock is free meanwhile, so every processor helps. But
waking a thread takes as long again, so the first request in every turn of the loop is verified there: who is alone is
answered at once, and of many the loop takes its share.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from queue import SimpleQueue
from typing import NamedTuple

from strandline.delivery.hub import Hub
from strandline.faces.turns import Replying, answered_by
from strandline.faces.web import Later
from strandline.signing.keys import verify

#: More than this would rather wait for the interpreter's lock than for each other.
MAX_THREADS = 8


class Claim(NamedTuple):
    """That somebody has signed this."""

    public: str
    signature: str
    message: bytes


class Verified:
    """What is known of the signatures of one request."""

    __slots__ = ("_known",)

    def __init__(self, known: Mapping[Claim, bool]) -> None:
        self._known = known

    def holds(self, claim: Claim) -> bool:
        """Whether it is true; found out at once if it was not before."""
        known = self._known.get(claim)
        return verify(*claim) if known is None else known


#: Of a request whose signatures nobody has looked at before it is answered.
NOTHING_VERIFIED = Verified({})


class _Errand:
    """The claims of one request, and what is to be done on the loop when all of them were looked at."""

    __slots__ = ("act", "known", "size", "turns")

    def __init__(self, size: int, act: Callable[[Verified], None]) -> None:
        self.size = size
        self.act = act
        self.known: dict[Claim, bool] = {}
        self.turns = count(1)

    def check(self, claim: Claim) -> bool:
        """Whether this was the last one."""
        self.known[claim] = verify(*claim)
        return next(self.turns) == self.size


class Verifying:
    """Made on the loop's thread. The threads begin with the first signature."""

    def __init__(self, hub: Hub, threads: int | None = None) -> None:
        self._hub = hub
        self._size = threads or min(MAX_THREADS, max(1, (os.cpu_count() or 1) - 1))
        #: Whether the loop has verified something in this turn.
        self._taken = False
        self._threads: list[threading.Thread] = []
        self._waiting: SimpleQueue[tuple[Claim, _Errand] | None] = SimpleQueue()

    def ahead(self, claimed: Callable[[], Sequence[Claim]], answer: Callable[[Verified], Replying]) -> Replying:
        """The answer, which is made on the loop: at once, if nothing else was verified in this turn of the loop or if
        there are no claims, else when it is known which of them are true."""
        if not self._taken:
            self._taken = True
            self._hub.loop.call_soon(self._turn_over)
            return answer(NOTHING_VERIFIED)
        claims = claimed()
        if not claims:
            return answer(NOTHING_VERIFIED)
        if not self._threads:
            self._start()
        later = Later()
        errand = _Errand(len(claims), lambda verified: answered_by(later, lambda: answer(verified)))
        for claim in claims:
            self._waiting.put((claim, errand))
        return later

    def _turn_over(self) -> None:
        self._taken = False

    def _start(self) -> None:
        for number in range(self._size):
            # One that is still busy when everything ends has nobody left to tell.
            thread = threading.Thread(target=self._work, name=f"strandline-verifier-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while (task := self._waiting.get()) is not None:
            claim, errand = task
            if errand.check(claim):
                self._hub.post(lambda errand=errand: errand.act(Verified(errand.known)))  # type: ignore[misc]

    def close(self) -> None:
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
