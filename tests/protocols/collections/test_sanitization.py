"""What is not kept of an element."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from strandline.collections.elements import DROPPED, sanitise
from strandline.signing.canonical_json import canonical, parse

NAMES = st.text(max_size=4) | st.sampled_from(sorted(DROPPED))
NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, -(10**309), 10**308, 1e308])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


def text_of(document: Any) -> bytes:
    """JSON that any number can be written in."""
    return json.dumps(document).replace("Infinity", "1e999").replace("NaN", "null").encode()


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_names_go_from_objects_in_objects_and_arrays_stay(document: dict[str, Any]) -> None:
    raw = text_of(document)
    kept, changed = sanitise(parse(raw), raw)
    check(parse(raw), kept)
    assert changed or kept == parse(raw)
    assert changed == (canonical(kept) != canonical(parse(raw)) or has_no_number(parse(raw), everywhere=False))


def check(before: Any, after: Any, *, in_array: bool = False) -> None:
    if isinstance(before, dict):
        names = set(before) if in_array else set(before) - DROPPED
        assert set(after) == names
        for name in names:
            check(before[name], after[name], in_array=in_array)
    elif isinstance(before, list):
        assert len(before) == len(after)
        for one, other in zip(before, after, strict=True):
            check(one, other, in_array=True)
    elif is_no_number(before):
        assert after is None
    else:
        assert after == before


def is_no_number(value: Any) -> bool:
    if isinstance(value, int):
        return value.bit_length() > 1024
    return isinstance(value, float) and not isfinite(value)


def has_no_number(value: Any, *, everywhere: bool) -> bool:
    if isinstance(value, dict):
        kept = [each for name, each in value.items() if everywhere or name not in DROPPED]
        return any(has_no_number(each, everywhere=everywhere) for each in kept)
    if isinstance(value, list):
        return any(has_no_number(each, everywhere=True) for each in value)
    return is_no_number(value)


def test_what_has_nothing_to_lose_is_the_very_same() -> None:
    document = {"a": [{"constructors": 1}], "b": 1e100}
    assert sanitise(document, b'{"a":[{"x":1}],"b":1e10}')[0] is document
