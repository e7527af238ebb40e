"""Buckets: keys by their hash, so that a change of some keys rewrites little more than their rows.

A bucket has all keys whose hash begins with its bits: ``0110``. One that has grown too large is split in two when it is
written the next time. So buckets stay about the same size however large the table becomes, none is ever rewritten for
the sake of the others, and it needs no number of buckets that somebody would have to choose.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

Hashes = npt.NDArray[np.uint64]


def hashes(epochs: Sequence[int], keys: Sequence[str]) -> Hashes:
    """Of keys, each of the log of an epoch. They are the same wherever and whenever they are made."""
    digest = xxhash.xxh3_64_intdigest
    return np.array([digest(key.encode(), epoch) for epoch, key in zip(epochs, keys, strict=True)], np.uint64)


def even(bits: int) -> list[str]:
    """All buckets of so many bits, at least one."""
    return [f"{number:0{bits}b}" for number in range(1 << bits)]


def cover(known: Iterable[str]) -> list[str]:
    """Buckets that have room for every hash, ascending, among them all that are known. Of those that are parts of
    another, only the other one is taken."""
    names = set(known)
    return [*_cover("0", names), *_cover("1", names)]


def _cover(bucket: str, names: set[str]) -> list[str]:
    if bucket in names or not any(name.startswith(bucket) for name in names):
        return [bucket]
    return [*_cover(f"{bucket}0", names), *_cover(f"{bucket}1", names)]


def places(buckets: Sequence[str], of: Hashes) -> Any:
    """For each hash the place of its bucket among those of a cover."""
    starts = np.array([int(bucket, 2) << (64 - len(bucket)) for bucket in buckets], np.uint64)
    return np.searchsorted(starts, of, "right") - 1
