"""Dividing jobs among the claims of a cohort: everybody gets something first, then in proportion to the wishes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def divide(jobs: list[T], wishes: Sequence[int]) -> list[list[T]]:
    """Who gets which of the jobs, which are in the order of handing out."""
    if len(wishes) == 1:
        return [jobs]
    parts: list[list[T]] = [[] for _ in wishes]
    for job, index in zip(jobs, turns(shares(len(jobs), wishes)), strict=True):
        parts[index].append(job)
    return parts


def shares(available: int, wishes: Sequence[int]) -> list[int]:
    """How many each gets. Nobody gets more than they wish, and nobody who wishes for more gets less."""
    total = sum(wishes)
    if available >= total:
        return list(wishes)
    given = [0] * len(wishes)
    asking = [index for index, wish in enumerate(wishes) if wish]
    # With fewer jobs than claims the larger wishes come first, then whoever came first.
    asking.sort(key=lambda index: -wishes[index])
    for index in asking[:available]:
        given[index] = 1
    left = available - len(asking)
    if left <= 0:
        return given
    open_wishes = total - len(asking)
    remainders = []
    for index in asking:
        whole, remainder = divmod(left * (wishes[index] - 1), open_wishes)
        given[index] += whole
        remainders.append((-remainder, -wishes[index], index))
    for _, _, index in sorted(remainders)[: available - sum(given)]:
        given[index] += 1
    return given


def turns(counts: Sequence[int]) -> Iterator[int]:
    """Whose turn it is, job by job: round robin, those with more to get more often, so that all end together."""
    # The k-th of n jobs is due at (2k + 1) / 2n of the way.
    order = sorted(
        ((2 * turn + 1) / (2 * count), turn, index) for index, count in enumerate(counts) for turn in range(count)
    )
    return (index for _, _, index in order)
