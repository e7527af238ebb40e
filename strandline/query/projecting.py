"""Decoding only those places of a JSON record that are asked for; everything else is skipped unread.

A filter looks at one or two fields of records that have dozens, and skipping the others makes decoding much faster.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from strandline.query.pointers import resolve

Place = tuple[str, ...]
#: What is at one place of a decoded record; None where there is nothing.
Getter = Callable[[Any], Any]

#: How many objects within objects are decoded selectively; what is deeper is decoded whole.
SELECTIVE_DEPTH = 4
#: Keys with characters that JSON escapes cannot name a field of a struct.
ESCAPED_KEY = re.compile(r'["\\\x00-\x1f]')

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Projection(NamedTuple):
    """How to decode a record and how to find the places in it.

    ``decode`` raises one of DECODE_ERRORS for what is no JSON object. It may also do so for an object that has
    something unexpected on the way to a place; WHOLE reads that one."""

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
    """The projection that decodes these places and nothing else."""
    wanted = set(places)
    if any(ESCAPED_KEY.search(key) for place in wanted for key in place):
        return WHOLE
    struct, getters = select({place for place in wanted if place}, SELECTIVE_DEPTH)
    if () in wanted:
        # The whole record is an object, and an object is no value.
        getters[()] = lambda row: None
    return Projection(msgspec.json.Decoder(struct).decode, getters.__getitem__)


def select(places: Iterable[Place], depth: int) -> tuple[type[msgspec.Struct], dict[Place, Getter]]:
    """A struct with the first keys of ``places`` as its fields, and how to get to each place in one of its kind."""
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
