from __future__ import annotations

import json

import pytest

from strandline.query.bound import AndB, Bound, EqualB, HasB, NotB, OrB, PrefixB, RangeB
from strandline.query.config import Binding, Field
from strandline.query.matcher import screen_of

LEVEL = Field("level", "keyword", (Binding(1, "/level"),), exact=True, prefix=True)
SHOP = Field("shop", "keyword", (Binding(1, "/shop"),), normalizer="lowercase_v1", exact=True)
STATUS = Field("status", "integer", (Binding(1, "/status"),), exact=True, column=True)
ERROR, KIOSK, BROKEN = EqualB(LEVEL, "error"), EqualB(SHOP, "kiosk"), EqualB(STATUS, 500)


def passes(bound: Bound, *payloads: bytes) -> bool:
    screen = screen_of(bound)
    assert screen is not None
    return screen.passes(payloads)


def test_records_without_the_value_do_not_pass() -> None:
    assert not passes(ERROR, b'{"level":"warn"}', b'{"level":"errors"}')
    assert passes(ERROR, b'{"level":"warn"}', b'{"level":"error"}')


def test_a_beginning_is_enough_for_a_prefix() -> None:
    assert passes(PrefixB(LEVEL, "err"), b'{"level":"error"}')
    assert not passes(PrefixB(LEVEL, "err"), b'{"level":"terror"}')


def test_what_is_escaped_might_be_anything() -> None:
    assert passes(ERROR, rb'{"level":"\u0065rror"}')
    assert passes(EqualB(LEVEL, 'a"b'), json.dumps({"level": 'a"b'}).encode())
    assert not passes(EqualB(LEVEL, 'a"b'), b'{"level":"a"}')


def test_values_beyond_ascii_are_found_as_they_are() -> None:
    assert passes(EqualB(LEVEL, "größe"), '{"level":"größe"}'.encode())
    assert not passes(EqualB(LEVEL, "größe"), '{"level":"grösse"}'.encode())


def test_case_does_not_matter_where_it_is_folded() -> None:
    assert passes(KIOSK, b'{"shop":"KiOsK"}')
    assert not passes(KIOSK, b'{"shop":"Kiosks"}')
    assert passes(KIOSK, '{"shop":"\N{KELVIN SIGN}iosk"}'.encode())


def test_one_needed_clause_is_enough_to_screen() -> None:
    assert not passes(AndB((BROKEN, ERROR, NotB(KIOSK))), b'{"level":"warn","status":500}')
    assert not passes(AndB((OrB((ERROR, KIOSK)), HasB(STATUS))), b'{"level":"warn","shop":"x"}')
    assert passes(OrB((ERROR, KIOSK)), b'{"shop":"KIOSK"}')


@pytest.mark.parametrize(
    "bound",
    [
        BROKEN,
        HasB(LEVEL),
        RangeB(STATUS, ">", 5),
        NotB(ERROR),
        OrB((ERROR, BROKEN)),
        OrB((ERROR, NotB(KIOSK))),
        AndB((BROKEN, HasB(LEVEL))),
        EqualB(LEVEL, "\ud800"),
    ],
)
def test_where_no_keyword_is_needed_nothing_is_screened(bound: Bound) -> None:
    assert screen_of(bound) is None
