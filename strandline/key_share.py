"""Shares of the keys of a log: each key belongs to one of a fixed number of shares, by its hash. The server filters by
shares, and a member of a consumer group recognises the shares of the records that it reads."""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

#: The maximum number of shares. Each share of a consumer group has a consumer, so its members can commit that many.
MAX_SHARES = 256


class KeyShares(NamedTuple):
    """The records of some shares, if the keys are divided into ``of`` shares."""

    of: int
    only: frozenset[int]

    def has(self, key: str | None, seq: int) -> bool:
        return share_of(key, seq, self.of) in self.only


def share_of(key: str | None, seq: int, of: int) -> int:
    """The share of a record, from 0: the CRC-32 of its key, or its seq if it has no key, modulo the number of
    shares."""
    return (seq if key is None else crc32(key.encode())) % of
