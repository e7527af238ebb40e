"""What an answer was made of, and what it may lack."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from strandline.query.binding import AndB, AnyOfB, Bound, EqualB, HasB, NotB, OrB, PrefixB, RangeB, TextB


class Coverage(Struct, frozen=True, kw_only=True):
    """Records are given by their seqs, times in milliseconds.

    There is one kind of index here, kept in memory over sealed and unsealed records alike, so some numbers that the
    protocol knows are told in its terms: ``chunks`` are the pieces of the index that were looked at, and ``caught_up``
    the records that were not indexed yet when the question came and were read for it.
    """

    #: The last record when the answer was made. It takes into account what is behind ``after``, up to ``through``.
    head: int
    after: int
    through: int
    #: The latest primary timestamp of what it takes into account.
    primary_timestamp: int | None
    #: When the first record was appended that it does not take into account.
    omitted_ts: int | None
    #: Whether the time was up before everything was looked at.
    timed_out: bool = False
    chunks: int = 0
    caught_up: int = 0
    #: Which of the abilities of the index were used: exact, col, fts.
    families: tuple[str, ...] = ()

    @property
    def missing(self) -> int:
        """How many records, at most, it does not take into account."""
        return self.missing_up_to(self.head)

    def missing_up_to(self, seq: int) -> int:
        """As ``missing``, of the records up to ``seq``."""
        return min(self.after, seq) + max(min(self.head, seq) - self.through, 0)

    @property
    def behind(self) -> bool:
        """Whether records at the end were left out, for want of time."""
        return self.through < self.head

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
