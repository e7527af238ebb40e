"""Nonces of signed requests, so that a repeated request is refused.

A request carries the time of its signature and is accepted only while that time is within the allowed difference of
clocks. Until then its nonce is kept, in a set for the minute in which it expires, so that expired nonces are dropped a
set at a time. The number of nonces is limited over all signers, not per signer.

Nonces are lost when the process ends. Repeated appends are still recognised after a restart by the id of their request,
which is stored with the element: they get the first answer again (see
:meth:`~strandline.collections.documents.Documents.append`).
"""

from __future__ import annotations

import os
from hashlib import blake2b

from strandline.collections.errors import CollectionError
from strandline.collections.settings import SKEW_MS

#: The period of one set: short, so that nonces are dropped soon, but long enough to have only a dozen sets.
SLICE_MS = 60_000
#: A digest of 60 bits takes half the memory of one of 128 bits. It is keyed with a secret of this process, so an
#: attacker cannot search for collisions, and accidental ones are negligible.
_BITS_DROPPED = 4


class Nonces:
    """At most ``maximum`` nonces."""

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._secret = os.urandom(32)
        self._slices: dict[int, set[int]] = {}
        self._count = 0
        #: Sets before this one were dropped. Requests that belong there are too old, even if the clock is set back.
        self._first = 0

    def __len__(self) -> int:
        return self._count

    def take(self, signer: str, nonce: str, ts: int, now: int) -> bool:
        """Remember a request that was signed at ``ts``. Returns False if it was, or may have been, seen before. Raises
        CollectionError (``nonces_full``)."""
        self._forget(now)
        minute = (ts + SKEW_MS) // SLICE_MS
        if minute < self._first:
            return False
        digest = self._digest(signer, nonce)
        for known in self._slices.values():
            if digest in known:
                return False
        if self._count >= self._maximum:
            raise CollectionError(
                "nonces_full",
                f"the server has reached its maximum of {self._maximum} recent signed requests; retry later",
                retry_after_ms=max(1, (min(self._slices) + 1) * SLICE_MS - now),
            )
        self._slices.setdefault(minute, set()).add(digest)
        self._count += 1
        return True

    def _forget(self, now: int) -> None:
        for minute in [minute for minute in self._slices if minute < now // SLICE_MS]:
            self._count -= len(self._slices.pop(minute))
            # Based on the sets, not on the clock: a clock that was wrong once must not cause refusals later.
            self._first = max(self._first, minute + 1)

    def _digest(self, signer: str, nonce: str) -> int:
        text = f"{signer}|{nonce}".encode("utf-8", "surrogatepass")
        return int.from_bytes(blake2b(text, digest_size=8, key=self._secret).digest(), "big") >> _BITS_DROPPED
