"""Filters on the content of records, whatever it is."""

from __future__ import annotations

import json
from time import process_time
from typing import Any

import pyarrow as pa
import pytest

from strandline.query.content_filter import ContentFilter
from strandline.query.content_language import pattern_size
from strandline.query.errors import BadQuery

RECORDS: list[Any] = [
    {"status": "failed", "amount": 12.5, "user": {"name": "Ann"}, "tags": ["a", "b"], "message": "Card declined"},
    {"status": "paid", "amount": 300, "user": {"name": "bob"}, "items": [{"sku": 5}, {"sku": "x-7"}], "ok": True},
    {"status": "paid", "amount": "300", "user": None, "odd key": 1, "ok": False, "at": "2026-11-15T10:00:00Z"},
    "just text: E1234",
    [1, {"status": "failed"}],
]
DATA = pa.array([*(json.dumps(each).encode() for each in RECORDS), b"no json /a/b", b"\xff binary failed"], pa.binary())


def rows(text: str) -> list[int]:
    return [row for row, found in enumerate(ContentFilter(text).matches(DATA)) if found]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (".status = failed", [0, 4]),
        ('.status="failed"', [0, 4]),
        (".status != failed", [1, 2, 3, 5, 6]),
        (".amount = 300", [1, 2]),
        ('.amount = "300"', [2]),
        (".amount > 12", [0, 1]),
        (".amount<=12.5", [0]),
        (".at >= 2026-11-15", [2]),
        (".user.name = Ann", [0]),
        (".user.name ~ /^A/", [0]),
        (".user.name ~ /^b|^a/i", [0, 1]),
        (".amount ~ 3", [1, 2]),
        (".user = null", [2]),
        (".ok = true", [1]),
        (".ok", [1, 2]),
        (".tags = b", [0]),
        (".tags[0] = b", []),
        (".items.sku = 5", [1]),
        (".items[1].sku = x-7", [1]),
        ('."odd key" = 1', [2]),
        ("[1].status = failed", [4]),
        ("declined", [0]),
        ('"card declined"', [0]),
        ("failed", [0, 4, 6]),
        ("/E[0-9]{4}/", [3]),
        ("/card/", []),
        ("/card/i", [0]),
        (r"/\/a\/b/", [5]),
        (".status = paid and .amount = 300 and not .ok = true", [2]),
        (".status = failed .amount < 100", [0]),
        (".ok = true or declined", [0, 1]),
        ("not (.ok or failed)", [3, 5]),
        ("(.status = paid or .status = failed) .user.name", [0, 1]),
    ],
)
def test_records_are_found_by_what_they_say(text: str, found: list[int]) -> None:
    assert rows(text) == found


def test_a_string_is_found_however_it_is_escaped() -> None:
    data = pa.array([b'{"a":"\\u0062ob"}', '{"a":"Zoë"}'.encode(), b'{"a":"Zo\\u00eb"}', b'{"a":"x\\"y"}'], pa.binary())
    assert list(ContentFilter(".a = bob").matches(data)) == [True, False, False, False]
    assert list(ContentFilter(".a = Zoë").matches(data)) == [False, True, True, False]
    assert list(ContentFilter('.a = "x\\"y"').matches(data)) == [False, False, False, True]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        ("   ", "empty"),
        (".a =", "expected a value after ="),
        ("a = 1", "starts with a dot"),
        ("(.a", r"a \( in the filter has no \)"),
        (".a)", "unexpected"),
        (".a or", "ends where a condition"),
        ("/(/", "is not valid"),
        ("/(?=a)/", "is not valid"),
        ('"open', "cannot read"),
        ("= 1", "unexpected '='"),
        ("x" * 2001, "longer than"),
        (".a " * 100, "more than 30 conditions"),
        ("(" * 50 + "a" + ")" * 50, "nested"),
        ("not " * 50 + "a", "nested"),
        ("/(a|b)*a(a|b){500}c/", "too large"),
        ("/a.{1,990}b.{1,990}!/", "too large"),
        (r"/(\pL{30}){33}/", "too large"),
        (r".a ~ /((((a?){10}){10}){10})/", "too large"),
        ("/a{200}/ /b{200}/ or .a ~ /c{200}/", "too large"),
    ],
)
def test_what_is_not_a_filter_says_why(text: str, told: str) -> None:
    with pytest.raises(BadQuery, match=told):
        ContentFilter(text)


def test_no_pattern_takes_more_than_linear_time() -> None:
    data = pa.array([b"a" * 100_000] * 4, pa.binary())
    before = process_time()
    assert not ContentFilter("/(a+)+$b/").matches(data).any()
    assert not ContentFilter("/(a|aa)*c/").matches(data).any()
    assert process_time() - before < 5


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("time(d )?out", 9),
        ("[0-9a-f]{8}-[0-9a-f]{4}", 13),
        ("(?:x{3,}){4}", 20),
        ("a.{1,10}", 21),
        (r"\{500\}", 5),
        (r"[\]a]{7}", 7),
        ("[[:alpha:]]{7}", 7),
        (r"[^\pL]{2}", 46),
        (r"\Qab\E{3}", 18),
        ("(a+){9}", 9),
        (")(", 0),
    ],
)
def test_the_size_of_a_pattern_has_its_repetitions_written_out(pattern: str, size: int) -> None:
    assert pattern_size(pattern) == size
