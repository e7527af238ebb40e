"""What a pull asks for: so much of a document that nobody downloads a whole log by accident."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from strandline.protocols.collections.config import AppendOnly, Collection
from strandline.protocols.collections.problems import (
    bound_required,
    checkpoint_too_old,
    full_not_allowed,
    full_with_bounds,
    invalid,
)

#: A number as one writes it: no sign, no zero in front, nothing else. Any number of digits.
_NUMBER = re.compile(r"0|[1-9][0-9]*", re.ASCII)
#: How long a number may be: more digits than any clock has.
MAX_DIGITS = 400
_TRUE = ("true", "1")
#: How many elements a pull gives that must be bounded and does not say how.
DEFAULT_PAGE = 1000


class Bounds(NamedTuple):
    """What a client says; None where it says nothing."""

    checkpoint: int | None = None
    last: int | None = None
    full: bool = False
    limit: int | None = None

    @property
    def newest(self) -> int | None:
        """How many of the last elements: a limit says the same as ``last``, and comes first."""
        return self.last if self.limit is None else self.limit


class Wanted(NamedTuple):
    """Which elements: those behind the time ``since`` (all, if it is None), and of these the ``newest`` or the
    ``oldest`` so many (all, if both are None)."""

    since: int | None = None
    newest: int | None = None
    oldest: int | None = None


def bounds_of(query: Mapping[str, str]) -> Bounds:
    """The bounds in a query string. Where there is a limit, ``last`` is not looked at."""
    checkpoint = _number(query, "checkpoint")
    limit = _number(query, "limit")
    last = _number(query, "last") if limit is None else None
    return Bounds(checkpoint, last, query.get("full") in _TRUE, limit)


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if len(text) > MAX_DIGITS or _NUMBER.fullmatch(text) is None:
        raise invalid(name)
    return int(text)


def wanted(collection: Collection, rules: AppendOnly, bounds: Bounds, now: int, *, batch: bool = False) -> Wanted:
    """What is given for these bounds; raises Refused for bounds that are not allowed.

    A ``batch`` of a strict collection never gives more elements of a document than :func:`page_of` says: it is what the
    budget of the batch was reckoned with.
    """
    checkpoint, last, full = bounds.checkpoint, bounds.newest, bounds.full
    if checkpoint is None and last is None and not full:
        raise bound_required()
    if full and (checkpoint is not None or last is not None):
        raise full_with_bounds()
    if full and not rules.allow_full:
        raise full_not_allowed()
    age = rules.max_checkpoint_age_ms
    if checkpoint is not None and age is not None and checkpoint < now - age:
        raise checkpoint_too_old()
    # An element of the time 0 is behind no checkpoint, and yet it is not left out of what begins there.
    since = checkpoint or None
    if last is not None:
        most = page_of(rules) if batch and collection.strict else rules.max_pull_limit
        return Wanted(since, newest=last if most is None else min(last, most))
    if not full and collection.strict and (batch or is_paged(rules)):
        return Wanted(since, oldest=page_of(rules))
    return Wanted(since)


def is_paged(rules: AppendOnly) -> bool:
    """Whether nobody is to have all elements at once: then a checkpoint gives a page too."""
    return not rules.allow_full or rules.max_pull_limit is not None


def page_of(rules: AppendOnly) -> int:
    return rules.max_pull_limit or DEFAULT_PAGE
