"""What an answer was made of, and what it may lack."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from strandline.query.bound import AndB, AnyOfB, Bound, EqualB, HasB, NotB, OrB, PrefixB, RangeB, TextB


class Coverage(Struct, frozen=True, kw_only=True):
    """Records are given by their seqs, times in milliseconds.

    There are companions, files in which history is indexed, and an index in memory of what they do not cover, over
    sealed and unsealed records alike. ``companions`` and ``chunks`` are the pieces of the one and the other that were
    looked at, and ``caught_up`` the records that were not indexed yet when the question came and were read for it.
    """

    #: The last record when the answer was made. It takes into account what is behind ``after``, up to ``through``,
    #: but for what is in the ``gaps``.
    head: int
    after: int
    through: int
    gaps: tuple[tuple[int, int], ...] = ()
    #: The latest primary timestamp of what it takes into account.
    primary_timestamp: int | None
    #: When the first record was appended that it does not take into account.
    omitted_ts: int | None
    #: Whether the time was up before everything was looked at.
    timed_out: bool = False
    companions: int = 0
    chunks: int = 0
    #: Whether something was taken as it had been added up before.
    used_rollups: bool = False
    caught_up: int = 0
    #: Which of the abilities of the index were used: exact, col, fts, agg.
    families: tuple[str, ...] = ()

    @property
    def missing(self) -> int:
        """How many records, at most, it does not take into account."""
        return self.missing_up_to(self.head)

    def missing_up_to(self, seq: int) -> int:
        """As ``missing``, of the records up to ``seq``."""
        between = sum(max(min(last, seq) - first + 1, 0) for first, last in self.gaps)
        return min(self.after, seq) + between + max(min(self.head, seq) - self.through, 0)

    @property
    def behind(self) -> bool:
        """Whether records were left out for want of time."""
        return self.through < self.head or bool(self.gaps)

    @property
    def mode(self) -> str:
        return "published" if self.missing else "complete"

    @property
    def complete(self) -> bool:
        return not self.missing and not self.timed_out


def families_of(bound: Bound) -> Iterator[str]:
    """What a query asks an index for: "exact" values, values in order or at all ("col"), or words ("fts")."""
    match bound:
        case AndB(children) | OrB(children) | AnyOfB(children):
            for child in children:
                yield from families_of(child)
        case NotB(child):
            yield from families_of(child)
        case EqualB(field=field):
            yield "exact" if field.exact else "col"
        case TextB() | PrefixB():
            yield "fts"
        case HasB(field=field):
            yield "fts" if field.kind == "text" else "exact" if field.exact else "col"
        case RangeB():
            yield "col"
