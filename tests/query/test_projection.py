from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.query.matcher import DECODE_ERRORS, SELECTIVE_DEPTH, WHOLE, Place, projection

#: A busy machine is no failure.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

keys = st.sampled_from(["a", "b", "0", "1", "", "f0", "é", 'q"', "s\\", "/", "\n"])
documents = st.dictionaries(
    keys,
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3)),
        max_leaves=12,
    ),
    max_size=5,
)
some_places = st.sets(st.lists(keys, min_size=1, max_size=SELECTIVE_DEPTH + 2).map(tuple), min_size=1, max_size=4)


def scalar_or_array(found: object) -> object:
    """Objects are no values: what a projection returns for one does not matter."""
    return found if isinstance(found, str | int | float | list) else None


@PATIENT
@given(documents, some_places, st.booleans())
def test_a_projection_finds_what_is_there(document: object, places: set[Place], escaped: bool) -> None:
    payload = json.dumps(document, ensure_ascii=escaped).encode()
    selective = projection(places)
    try:
        row = selective.decode(payload)
    except DECODE_ERRORS:
        row = None
    whole = WHOLE.decode(payload)
    for place in places:
        expected = scalar_or_array(WHOLE.getter(place)(whole))
        if row is not None:
            assert scalar_or_array(selective.getter(place)(row)) == expected


def test_places_within_one_another_are_both_found() -> None:
    selective = projection([("a",), ("a", "b"), ("a", "c", "d")])
    row = selective.decode(b'{"a":{"b":1,"c":{"d":2}}}')
    assert selective.getter(("a", "b"))(row) == 1
    assert selective.getter(("a", "c", "d"))(row) == 2


def test_the_last_of_equal_keys_counts() -> None:
    selective = projection([("a",)])
    assert selective.getter(("a",))(selective.decode(b'{"a":1,"a":2}')) == 2


def test_keys_written_with_escapes_are_the_same_keys() -> None:
    selective = projection([("level",)])
    assert selective.getter(("level",))(selective.decode(rb'{"l\u0065vel":"error"}')) == "error"


def test_the_whole_record_is_no_value() -> None:
    selective = projection([()])
    assert selective.getter(())(selective.decode(b'{"a":1}')) is None


@pytest.mark.parametrize("payload", [b"", b"nope", b"5", b"null", b'"a"', b"[]", b'[{"a":1}]', b'{"a":', b"\xff\xfe"])
def test_what_is_no_object_is_refused(payload: bytes) -> None:
    for source in (WHOLE, projection([("a",)]), projection([()])):
        with pytest.raises(DECODE_ERRORS):
            source.decode(payload)
