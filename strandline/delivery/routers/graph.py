"""Which log is forwarded into which. A log has one source at most, so going up from it is a single path."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

N = TypeVar("N", bound=Hashable)


def closes_cycle(sources: Mapping[N, N], source: N, dest: N) -> list[N] | None:
    """The cycle that a router from ``source`` to ``dest`` would be part of, from the source back to it; None if
    there is none. ``sources`` has the source of every log that is a destination."""
    path = [source]
    seen = {source}
    at: N | None = source
    while at is not None and at != dest:
        at = sources.get(at)
        if at is None or at in seen:
            return None
        seen.add(at)
        path.append(at)
    # Found going up; told going down.
    return [source, *reversed(path)]


def on_cycles(sources: Mapping[N, N]) -> set[N]:
    """All logs that are forwarded, over however many others, into themselves."""
    found: set[N] = set()
    known: set[N] = set()
    for start in sources:
        path: dict[N, None] = {}
        at: N | None = start
        while at is not None and at not in known and at not in path:
            path[at] = None
            at = sources.get(at)
        if at is not None and at in path:
            way = list(path)
            found.update(way[way.index(at) :])
        known.update(path)
    return found


# --- How often records of a log on a cycle have been forwarded. In memory only: after a restart they count from none

#: A record that has come so far is not forwarded again.
MAX_HOPS = 8


class Hops:
    """The counts of one log's records. Those that were appended to it directly have none."""

    __slots__ = ("_stretches",)

    def __init__(self) -> None:
        #: First seq, last seq, hops; in order.
        self._stretches: deque[tuple[int, int, int]] = deque()

    def __len__(self) -> int:
        return len(self._stretches)

    def of(self, seqs: Sequence[int]) -> list[int]:
        """The counts of these records, which are in order."""
        counts: list[int] = []
        stretches = iter(self._stretches)
        first, last, hops = next(stretches, _END)
        for seq in seqs:
            while seq > last:
                first, last, hops = next(stretches, _END)
            counts.append(hops if seq >= first else 0)
        return counts

    def add(self, first: int, hops: Iterable[int]) -> None:
        """The records from ``first`` on have come so far."""
        stretches = self._stretches
        for seq, count in enumerate(hops, first):
            if stretches and stretches[-1][1:] == (seq - 1, count):
                stretches[-1] = (stretches[-1][0], seq, count)
            else:
                stretches.append((seq, seq, count))

    def forget(self, through: int) -> None:
        """Nobody will ask about these any more."""
        while self._stretches and self._stretches[0][1] <= through:
            self._stretches.popleft()


_END = (1 << 63, 1 << 63, 0)
