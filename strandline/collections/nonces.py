"""Nonces of signed requests, so that a request that is sent again is refused.

A request carries the time of its signature, and is too old once that time is further away than clocks may differ. Until
then its nonce is remembered, in a set for the minute in which it can be forgotten: forgetting means dropping a set. The
number of nonces is bounded over all signers, not per signer.

Nonces are lost when the process ends. Appends are recognised after a restart by the id of their request, which is
stored with the element (see :meth:`~strandline.collections.documents.Documents.append`).
"""

from __future__ import annotations

import os
from hashlib import blake2b

from strandline.collections.errors import CollectionError
from strandline.collections.settings import SKEW_MS

#: The time that one set covers: short enough to forget soon, long enough to have only a dozen sets.
SLICE_MS = 60_000
#: A digest of 60 bits takes half of the memory that one of 128 bits would. It is keyed with a secret of this process,
#: so an attacker cannot search for collisions, and by chance they do not happen.
_BITS_DROPPED = 4


class Nonces:
    """At most ``maximum`` nonces."""

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._secret = os.urandom(32)
        self._slices: dict[int, set[int]] = {}
        self._count = 0
        #: Slices before this one were forgotten. Requests that belong there are too old, even if the clock is set back.
        self._first = 0

    def __len__(self) -> int:
        return self._count

    def take(self, signer: str, nonce: str, ts: int, now: int) -> bool:
        """Remember a request that was signed at ``ts``; False if it was seen before, or may have been. Raises
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
                f"the server remembers {self._maximum} signed requests, its maximum",
                retry_after_ms=max(1, (min(self._slices) + 1) * SLICE_MS - now),
            )
        self._slices.setdefault(minute, set()).add(digest)
        self._count += 1
        return True

    def _forget(self, now: int) -> None:
        for minute in [minute for minute in self._slices if minute < now // SLICE_MS]:
            self._count -= len(self._slices.pop(minute))
            # From the sets, not from the clock: a clock that was wrong once must not cause refusals later.
            self._first = max(self._first, minute + 1)

    def _digest(self, signer: str, nonce: str) -> int:
        text = f"{signer}|{nonce}".encode("utf-8", "surrogatepass")
        return int.from_bytes(blake2b(text, digest_size=8, key=self._secret).digest(), "big") >> _BITS_DROPPED
