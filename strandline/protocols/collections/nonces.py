"""Signed requests that were taken, so that none is taken twice.

A request says when it was signed, and is too old once its time is further away than clocks may differ. Until then its
nonce is remembered: in sets by the minute in which it may be forgotten, so that forgetting is dropping a set. How many
requests one signer makes does not matter; only how many there are of everybody is bounded.

This memory ends with the process. Appends are recognised over a restart by the id of their request, which is stored
with the element (see :meth:`~strandline.protocols.collections.documents.Documents.append`).
"""

from __future__ import annotations

import os
from hashlib import blake2b

from strandline.protocols.collections.settings import SKEW_MS

SLICE_MS = 60_000
#: A digest of 60 bits takes half of the memory that one of 128 would. It depends on a secret of this process, so nobody
#: can look for two that are the same, and by chance it will not happen.
_BITS_DROPPED = 4


class Full(Exception):
    """So many requests are remembered that there is no room for another one."""

    def __init__(self, retry_ms: int) -> None:
        super().__init__("too many signed requests are remembered")
        self.retry_ms = retry_ms


class Nonces:
    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._secret = os.urandom(32)
        self._slices: dict[int, set[int]] = {}
        self._count = 0
        #: Slices before this one were forgotten: what belongs there is too old, even if the clock is turned back.
        self._first = 0

    def __len__(self) -> int:
        return self._count

    def take(self, signer: str, nonce: str, ts: int, now: int) -> bool:
        """Remember a request that was signed at ``ts``; False if it was taken before, or may have been. Raises
        :class:`Full`."""
        self._forget(now)
        place = (ts + SKEW_MS) // SLICE_MS
        if place < self._first:
            return False
        digest = self._digest(signer, nonce)
        for known in self._slices.values():
            if digest in known:
                return False
        if self._count >= self._maximum:
            raise Full(max(1, (min(self._slices) + 1) * SLICE_MS - now))
        self._slices.setdefault(place, set()).add(digest)
        self._count += 1
        return True

    def _forget(self, now: int) -> None:
        for place in [place for place in self._slices if place < now // SLICE_MS]:
            self._count -= len(self._slices.pop(place))
            # Not what the clock says: if it was wrong for a moment, later requests would be refused until it says so.
            self._first = max(self._first, place + 1)

    def _digest(self, signer: str, nonce: str) -> int:
        text = f"{signer}|{nonce}".encode("utf-8", "surrogatepass")
        return int.from_bytes(blake2b(text, digest_size=8, key=self._secret).digest(), "big") >> _BITS_DROPPED
