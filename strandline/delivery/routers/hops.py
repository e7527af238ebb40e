"""How often records of a log on a cycle have been forwarded. In memory only: after a restart they count from none."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

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
