"""Passing over records without decoding them, where their bytes alone show that a query cannot match.

A string without escapes stands in JSON as its own bytes between quotes. So if a query needs a keyword to equal some
value, the value in quotes must be found in the record, or a backslash must. The test is made on many records at a time,
because one search through a long text is several times as fast as many through short ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from strandline.query.binding import AndB, AnyOfB, Bound, EqualB, OrB, PrefixB


class Screen:
    """Says of a few records at a time whether any of them could match."""

    def __init__(self, needles: Sequence[bytes], folded: bool) -> None:
        self.needles = tuple(needle.lower() for needle in needles) if folded else tuple(needles)
        self.folded = folded

    def passes(self, data: Sequence[bytes]) -> bool:
        """Whether one of the records might match; False is certain."""
        haystack = b"\n".join(data)
        if b"\\" in haystack:
            return True
        if self.folded:
            # Beyond ASCII there are letters whose lower case is an ASCII one (the Kelvin sign is a k).
            if not haystack.isascii():
                return True
            haystack = haystack.lower()
        return any(needle in haystack for needle in self.needles)


def screen_of(bound: Bound) -> Screen | None:
    """The screen of a query, or None where records must be decoded to tell."""
    clauses = required(bound)
    if clauses is None:
        return None
    try:
        needles = [needle(clause) for clause in clauses]
    except UnicodeEncodeError:
        return None
    return Screen(needles, any(clause.field.normalizer == "lowercase_v1" for clause in clauses))


def required(bound: Bound) -> list[EqualB | PrefixB] | None:
    """Clauses on keywords of which at least one holds in every record that matches."""
    if isinstance(bound, EqualB | PrefixB):
        return [bound] if bound.field.kind == "keyword" else None
    if isinstance(bound, AndB):
        candidates = [clauses for child in bound.children if (clauses := required(child)) is not None]
        return min(candidates, key=len, default=None)
    if isinstance(bound, OrB | AnyOfB):
        united: list[EqualB | PrefixB] = []
        for child in bound.children:
            clauses = required(child)
            if clauses is None:
                return None
            united += clauses
        return united
    return None


def needle(clause: EqualB | PrefixB) -> bytes:
    if isinstance(clause, PrefixB):
        return msgspec.json.encode(clause.prefix)[:-1]
    return msgspec.json.encode(clause.value)
