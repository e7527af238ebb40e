"""Shares of the keys of a log: each key belongs to one of a fixed number of shares, by its hash. The server filters by
shares, and a member of a consumer group recognises the shares of the records that it reads."""

from __future__ import annotations

import re
from typing import NamedTuple
from zlib import crc32

#: The maximum number of shares. Each share of a consumer group has a consumer, so its members can commit that many.
MAX_SHARES = 256

_CONSUMER = re.compile(r"(?P<group>.+):(?P<number>[0-9]{1,3})-of-(?P<of>[1-9][0-9]{0,2})", re.ASCII)


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


class ShareConsumer(NamedTuple):
    """A share of a consumer group, as the name of its consumer says."""

    group: str
    number: int
    of: int


def share_name(group: str, number: int, of: int) -> str:
    """The name of the consumer that has the position of a share of a group."""
    return f"{group}:{number:0{len(str(of - 1))}}-of-{of}"


def share_consumer(name: str) -> ShareConsumer | None:
    """The share whose position the consumer has. None if its name is not that of a share."""
    found = _CONSUMER.fullmatch(name)
    if found is None:
        return None
    share = ShareConsumer(found["group"], int(found["number"]), int(found["of"]))
    return share if name == share_name(*share) and share.number < share.of <= MAX_SHARES else None
