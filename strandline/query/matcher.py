"""Filters over single records: whether a record matches a bound query, decoding only the members that the query reads.

Records whose bytes rule out a match are skipped without decoding. A string without escapes appears in JSON as its own
bytes between quotes. If a query requires a keyword to equal a value, the record must contain the value in quotes, or a
backslash. The test runs on many records at a time, because one search through a long text is several times faster than
many searches through short ones.
"""

from __future__ import annotations

import operator
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from strandline.query.bound import AndB, AnyOfB, Bound, EqualB, HasB, NotB, OrB, PrefixB, RangeB, TextB
from strandline.query.config import Field
from strandline.query.pointers import parse_pointer, resolve
from strandline.query.values import canonical_class, converter, items_of, tokens


class Screen:
    """Checks a few records at a time for a possible match."""

    def __init__(self, needles: Sequence[bytes], folded: bool) -> None:
        self.needles = tuple(needle.lower() for needle in needles) if folded else tuple(needles)
        self.folded = folded

    def passes(self, data: Sequence[bytes]) -> bool:
        """Return whether one of the records might match. False is certain."""
        haystack = b"\n".join(data)
        if b"\\" in haystack:
            return True
        if self.folded:
            # Some letters beyond ASCII have an ASCII lower case (the Kelvin sign becomes a k).
            if not haystack.isascii():
                return True
            haystack = haystack.lower()
        return any(needle in haystack for needle in self.needles)


def screen_of(bound: Bound) -> Screen | None:
    """Return the screen of a query; None if records must be decoded to know."""
    clauses = required(bound)
    if clauses is None:
        return None
    try:
        needles = [needle(clause) for clause in clauses]
    except UnicodeEncodeError:
        return None
    return Screen(needles, any(clause.field.normalizer == "lowercase_v1" for clause in clauses))


def required(bound: Bound) -> list[EqualB | PrefixB] | None:
    """Return clauses on keywords of which at least one holds in every matching record."""
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


Place = tuple[str, ...]
#: Returns the value at one place of a decoded record; None if there is none.
Getter = Callable[[Any], Any]

#: Objects are decoded selectively up to this depth; deeper ones are decoded as a whole.
SELECTIVE_DEPTH = 4
#: Keys with characters that JSON escapes cannot be fields of a struct.
ESCAPED_KEY = re.compile(r'["\\\x00-\x1f]')

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Projection(NamedTuple):
    """How to decode a record and how to find the places in it.

    ``decode`` raises one of DECODE_ERRORS if the payload is not a JSON object. It may also raise for an object with an
    unexpected value on the path to a place; WHOLE reads that object.
    """

    decode: Callable[[bytes], Any]
    getter: Callable[[Place], Getter]


def whole_getter(place: Place) -> Getter:
    def get(document: Any) -> Any:
        found = resolve(document, place)
        return None if found is msgspec.UNSET else found

    return get


#: The projection that decodes everything, into dicts.
WHOLE = Projection(msgspec.json.Decoder(dict[str, Any]).decode, whole_getter)


def projection(places: Iterable[Place]) -> Projection:
    """Return the projection that decodes only these places."""
    wanted = set(places)
    if any(ESCAPED_KEY.search(key) for place in wanted for key in place):
        return WHOLE
    struct, getters = select({place for place in wanted if place}, SELECTIVE_DEPTH)
    if () in wanted:
        # The whole record is an object, and an object is not a value.
        getters[()] = lambda row: None
    return Projection(msgspec.json.Decoder(struct).decode, getters.__getitem__)


def select(places: Iterable[Place], depth: int) -> tuple[type[msgspec.Struct], dict[Place, Getter]]:
    """Return a struct type with the first keys of ``places`` as its fields, and a getter for each place."""
    rests: dict[str, set[Place]] = {}
    for place in places:
        rests.setdefault(place[0], set()).add(place[1:])
    fields: list[tuple[str, Any, Any]] = []
    getters: dict[Place, Getter] = {}
    for index, (key, below) in enumerate(rests.items()):
        attribute = f"f{index}"
        get = attrgetter(attribute)
        if () in below or depth == 1:
            fields.append((attribute, Any, None))
            for rest in below:
                getters[(key, *rest)] = whole_within(get, rest) if rest else get
        else:
            inner, inner_getters = select(below, depth - 1)
            fields.append((attribute, inner | list[Any] | str | int | float | bool | None, None))
            for rest, inner_get in inner_getters.items():
                getters[(key, *rest)] = selected_within(get, inner, inner_get, rest)
    rename = {f"f{index}": key for index, key in enumerate(rests)}
    return msgspec.defstruct("Selected", fields, rename=rename, gc=False), getters


def whole_within(get: Getter, rest: Place) -> Getter:
    below = whole_getter(rest)
    return lambda row: below(get(row))


def selected_within(get: Getter, inner: type, inner_get: Getter, rest: Place) -> Getter:
    below = whole_getter(rest)

    def find(row: Any) -> Any:
        found = get(row)
        return inner_get(found) if found.__class__ is inner else below(found)

    return find


#: Returns whether a record matches. Its argument is what the getters of its parts expect.
Test = Callable[[Any], bool]

#: The number of records that are screened together: few enough that one match does not cause many others to be decoded
#: in vain.
SCREENED_TOGETHER = 64
#: The number of cached plans: one per query and schema version in use at the same time.
KEPT_PLANS = 256

#: The operators with their operands swapped: a value is > the limit if the limit is < the value.
TURNED_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.lt,
    ">=": operator.le,
    "<": operator.gt,
    "<=": operator.ge,
}


def matcher(bound: Bound) -> Callable[[object, int], bool]:
    """Return a function that tells whether a decoded record of a schema version matches. Values other than objects
    never match."""
    tests: dict[int, Test] = {}

    def matches(document: object, version: int) -> bool:
        test = tests.get(version)
        if test is None:
            test = tests[version] = test_of(bound, version, WHOLE)
        return isinstance(document, dict) and test(document)

    return matches


def filter_rows(bound: Bound, data: Sequence[bytes], versions: Sequence[int]) -> list[int]:
    """Return the indexes of the matching records. ``versions`` has the schema version of each record and never
    descends.

    A record that is not a JSON object never matches.
    """
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


class MatchPlan:
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
def plan_for(bound: Bound, version: int) -> MatchPlan:
    return MatchPlan(bound, version)


def fields_of(bound: Bound) -> list[Field]:
    if isinstance(bound, AndB | OrB | AnyOfB):
        return [field for child in bound.children for field in fields_of(child)]
    return fields_of(bound.child) if isinstance(bound, NotB) else [bound.field]


def place_of(field: Field, version: int) -> Place | None:
    binding = field.binding(version)
    return None if binding is None else parse_pointer(binding.pointer)


def test_of(bound: Bound, version: int, source: Projection) -> Test:
    """Return the test of a query on records of one schema version, decoded by ``source``."""
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
    """Return a test of whether one of the field's canonical values is accepted."""
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
    """Return the condition of a clause on one canonical value."""
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
