"""Checksums of records that can be added up: two sides that hold the same records come to the same sums, however the
records are spread over files, and in whatever order they are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

#: Sums are made over so many seqs: few enough that those which differ are soon found one by one.
RANGE_SEQS = 1 << 14

Digests = npt.NDArray[np.uint64]
#: How many records, and the sum of their digests, by number of the range.
Sums = dict[int, tuple[int, int]]

_NULL = np.uint64(0x9E3779B97F4A7C15)


def digests_of(batch: Any) -> Digests:
    """A digest for each record of a batch, as history has them or as the lake does."""
    digests = _mixed(batch.column("seq").to_numpy().astype(np.uint64))
    times = batch.column("ts").cast(pa.int64()).to_numpy().astype(np.uint64)
    columns = [_hashes_of_few(batch.column(name)) for name in ("key", "node")]
    columns += [_hashes(batch.column("meta")), _hashes(payloads(batch))]
    for column in (times, *columns):
        digests = _mixed(digests + column)
    return digests


def sums_of(seqs: npt.NDArray[np.int64], digests: Digests) -> Sums:
    numbers = seqs // RANGE_SEQS
    found: Sums = {}
    for number in np.unique(numbers).tolist():
        there = numbers == number
        with np.errstate(over="ignore"):
            found[number] = int(there.sum()), int(digests[there].sum(dtype=np.uint64))
    return found


def added(one: Sums, other: Sums) -> Sums:
    result = dict(one)
    for number, (count, total) in other.items():
        before = result.get(number, (0, 0))
        result[number] = before[0] + count, (before[1] + total) & 0xFFFFFFFFFFFFFFFF
    return result


def payloads(batch: Any) -> Any:
    """The payloads, as bytes: the lake has those that are text as such."""
    data = batch.column("data")
    if "bytes" not in batch.schema.names:
        return data
    return pc.coalesce(data.cast(pa.binary()), batch.column("bytes"))


def _hashes(column: Any) -> Digests:
    if column.null_count == len(column):
        return np.full(len(column), _NULL)
    hash_of = xxhash.xxh3_64_intdigest
    values = (int(_NULL) if value is None else hash_of(value) for value in column.to_pylist())
    return np.fromiter(values, np.uint64, len(column))


def _hashes_of_few(column: Any) -> Digests:
    """The same, where values are repeated much."""
    if column.null_count == len(column):
        return np.full(len(column), _NULL)
    encoded = column.dictionary_encode()
    hashes = np.append(_hashes(encoded.dictionary.cast(pa.binary())), _NULL)
    places = encoded.indices.fill_null(len(hashes) - 1).to_numpy()
    return hashes[places]


def _mixed(numbers: Digests) -> Digests:
    """Numbers that are near each other become ones that have nothing in common (the last steps of SplitMix64)."""
    with np.errstate(over="ignore"):
        mixed = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        result: Digests = mixed ^ (mixed >> np.uint64(31))
        return result
