"""Whether a record matches a bound query. A query is made into nested functions once, and these run per record."""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from strandline.query.binding import AndB, AnyOfB, Bound, EqualB, HasB, NotB, OrB, PrefixB, RangeB, TextB
from strandline.query.config import Field
from strandline.query.pointers import parse_pointer
from strandline.query.projecting import DECODE_ERRORS, WHOLE, Getter, Place, Projection, projection
from strandline.query.screening import screen_of
from strandline.query.values import canonical_class, converter, items_of, tokens

#: Whether a record matches; what it takes is what the getters it is made of look into.
Test = Callable[[Any], bool]

#: Records that are screened together: few enough that one match does not make many others be decoded in vain.
SCREENED_TOGETHER = 64
#: Plans kept: one per query and schema version that are in use at the same time.
KEPT_PLANS = 256

#: The operators as the limit of a comparison sees them: a value is > the limit if the limit is < the value.
TURNED_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.lt,
    ">=": operator.le,
    "<": operator.gt,
    "<=": operator.ge,
}


def matcher(bound: Bound) -> Callable[[object, int], bool]:
    """Says of a decoded record and its schema version whether it matches. What is no object never does."""
    tests: dict[int, Test] = {}

    def matches(document: object, version: int) -> bool:
        test = tests.get(version)
        if test is None:
            test = tests[version] = test_of(bound, version, WHOLE)
        return isinstance(document, dict) and test(document)

    return matches


def filter_rows(bound: Bound, data: Sequence[bytes], versions: Sequence[int]) -> list[int]:
    """The indexes of the records that match. ``versions`` has the schema version of each record and never descends.

    A record that is no JSON object never matches, whatever is asked."""
    matching: list[int] = []
    start = 0
    while start < len(data):
        version = versions[start]
        plan = plan_for(bound, version)
        run_end = bisect_right(versions, version, start)
        for begin in range(start, run_end, SCREENED_TOGETHER):
            matching += [
                begin + index for index in plan.matching(data[begin : min(begin + SCREENED_TOGETHER, run_end)])
            ]
        start = run_end
    return matching


class Plan:
    """How to find the records of one schema version that match a query."""

    def __init__(self, bound: Bound, version: int) -> None:
        self.screen = screen_of(bound)
        self.whole_test = test_of(bound, version, WHOLE)
        selective = projection(place for field in fields_of(bound) if (place := place_of(field, version)) is not None)
        self.decode = selective.decode
        self.test = test_of(bound, version, selective)

    def matching(self, data: Sequence[bytes]) -> list[int]:
        if self.screen is not None and not self.screen.passes(data):
            return []
        try:
            rows = list(map(self.decode, data))
        except DECODE_ERRORS:
            return [index for index, payload in enumerate(data) if self.matches(payload)]
        test = self.test
        return [index for index, row in enumerate(rows) if test(row)]

    def matches(self, payload: bytes) -> bool:
        try:
            return self.test(self.decode(payload))
        except DECODE_ERRORS:
            pass
        try:
            return self.whole_test(WHOLE.decode(payload))
        except DECODE_ERRORS:
            return False


@lru_cache(KEPT_PLANS)
def plan_for(bound: Bound, version: int) -> Plan:
    return Plan(bound, version)


def fields_of(bound: Bound) -> list[Field]:
    if isinstance(bound, AndB | OrB | AnyOfB):
        return [field for child in bound.children for field in fields_of(child)]
    return fields_of(bound.child) if isinstance(bound, NotB) else [bound.field]


def place_of(field: Field, version: int) -> Place | None:
    binding = field.binding(version)
    return None if binding is None else parse_pointer(binding.pointer)


def test_of(bound: Bound, version: int, source: Projection) -> Test:
    """The test of a query on records of one schema version, decoded by ``source``."""
    if isinstance(bound, AndB):
        return all_of([test_of(child, version, source) for child in bound.children])
    if isinstance(bound, OrB | AnyOfB):
        return any_of([test_of(child, version, source) for child in bound.children])
    if isinstance(bound, NotB):
        negated = test_of(bound.child, version, source)
        return lambda row: not negated(row)
    place = place_of(bound.field, version)
    if place is None:
        return lambda row: False
    return value_test(bound.field, source.getter(place), acceptance(bound))


def all_of(tests: list[Test]) -> Test:
    if len(tests) == 2:
        first, second = tests
        return lambda row: first(row) and second(row)
    return lambda row: all(test(row) for test in tests)


def any_of(tests: list[Test]) -> Test:
    if len(tests) == 2:
        first, second = tests
        return lambda row: first(row) or second(row)
    return lambda row: any(test(row) for test in tests)


def value_test(field: Field, get: Getter, accepts: Callable[[Any], bool]) -> Test:
    """Whether one of the field's canonical values is accepted."""
    convert, canonical = converter(field), canonical_class(field)

    def test(row: Any) -> bool:
        raw = get(row)
        kind = raw.__class__
        if kind is canonical:
            return accepts(raw)
        if kind is not list:
            value = convert(raw)
            return value is not None and accepts(value)
        for item in items_of(raw):
            value = convert(item)
            if value is not None and accepts(value):
                return True
        return False

    return test


def acceptance(bound: HasB | EqualB | RangeB | PrefixB | TextB) -> Callable[[Any], bool]:
    """What a clause asks of one canonical value."""
    if isinstance(bound, HasB):
        return lambda value: True
    if isinstance(bound, EqualB):
        return partial(operator.eq, bound.value)
    if isinstance(bound, RangeB):
        return partial(TURNED_COMPARISONS[bound.op], bound.value)
    if isinstance(bound, PrefixB):
        beginning = bound.prefix
        return lambda value: bool(value.startswith(beginning))
    return text_acceptance(bound)


def text_acceptance(bound: TextB) -> Callable[[str], bool]:
    *whole, last = bound.tokens
    wanted = frozenset(whole)

    def fits(word: str) -> bool:
        return word.startswith(last) if bound.prefix else word == last

    def has_words(text: str) -> bool:
        words = tokens(text)
        return wanted.issubset(words) and any(map(fits, words))

    def has_phrase(text: str) -> bool:
        words = tokens(text)
        length = len(whole)
        return any(
            words[start : start + length] == whole and fits(words[start + length])
            for start in range(len(words) - length)
        )

    return has_phrase if bound.phrase else has_words
