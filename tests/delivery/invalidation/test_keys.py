from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.delivery.invalidation.keys import (
    ENCODINGS,
    RowKeys,
    hexadecimal,
    key_id,
    parse_hexadecimal,
    table_key,
    template_id,
    template_key,
)

TODOS = "public.todos"


def test_keys_are_the_ones_that_clients_derive() -> None:
    identifier = template_id(TODOS, ["userId", "status", "tenantId"])
    keys, arguments = RowKeys(identifier), b"open\0t1\0u1"
    assert hexadecimal(table_key(TODOS)) == "feadeb84d447fd63"
    assert hexadecimal(identifier) == "ddd2330fdab379da"
    assert hexadecimal(template_key(identifier)) == "5086e055faafe816"
    assert hexadecimal(keys.watch(arguments)) == "39accd125778dc36"
    assert hexadecimal(keys.membership(arguments)) == "eae633979a7ee466"
    assert hexadecimal(keys.field("title", arguments)) == "1ecc53e76a89f0d5"


@pytest.mark.parametrize(
    ("encoding", "value", "argument"),
    [
        ("string", "a", b"a"),
        ("string", 5, b"5"),
        ("string", True, b"true"),
        ("string", False, b"false"),
        ("string", 1.0, b"1"),
        ("string", 0.1, b"0.1"),
        ("string", 1e21, b"1e+21"),
        ("string", 1.2345678901234568e20, b"123456789012345680000"),
        ("string", 1e-7, b"1e-7"),
        ("string", 1.5e-7, b"1.5e-7"),
        ("string", -0.000001, b"-0.000001"),
        ("string", -0.0, b"0"),
        ("string", None, None),
        ("string", [], None),
        ("string", {}, None),
        ("int64", 5, b"5"),
        ("int64", "-5", b"-5"),
        ("int64", "007", b"7"),
        ("int64", 5.0, b"5"),
        ("int64", 5.5, None),
        ("int64", "5.5", None),
        ("int64", "", None),
        ("int64", True, None),
        ("int64", None, None),
        ("bool", True, b"1"),
        ("bool", False, b"0"),
        ("bool", 1, None),
        ("bool", "true", None),
        ("datetime", "2026-03-23T10:30:00Z", b"2026-03-23T10:30:00.000Z"),
        ("datetime", "2026-03-23T12:30:00.1239+02:00", b"2026-03-23T10:30:00.123Z"),
        ("datetime", "2026-03-23 10:30:00+00", b"2026-03-23T10:30:00.000Z"),
        ("datetime", "2026-03-23", b"2026-03-23T00:00:00.000Z"),
        ("datetime", 1000, b"1970-01-01T00:00:01.000Z"),
        ("datetime", "soon", None),
        ("datetime", 1e300, None),
        ("datetime", None, None),
        ("bytes", "AA==", b"AA=="),
        ("bytes", 5, None),
    ],
)
def test_values_become_arguments(encoding: str, value: Any, argument: bytes | None) -> None:
    assert ENCODINGS[encoding](value) == argument


@given(st.sampled_from(sorted(ENCODINGS)), st.recursive(st.none() | st.booleans() | st.integers() | st.text()
       | st.floats(allow_nan=False, allow_infinity=False), lambda inner: st.lists(inner, max_size=2)))  # fmt: skip
def test_no_value_is_too_strange(encoding: str, value: Any) -> None:
    argument = ENCODINGS[encoding](value)
    assert argument is None or isinstance(argument, bytes)


def test_the_id_of_a_key_is_its_lower_half_and_that_of_anything_else_a_hash() -> None:
    assert key_id("feadeb84d447fd63") == 0xD447FD63
    assert key_id("  FEADEB84D447FD63 ") == 0xD447FD63
    assert key_id("todos") == key_id(" TODOS ") != key_id("todo")
    assert 0 <= key_id("todos") < 1 << 32


def test_only_sixteen_digits_are_a_key() -> None:
    assert parse_hexadecimal("00000000000000ff") == 255
    for text in ("ff", "g" * 16, "0" * 17, "FEADEB84D447FD63"):
        assert parse_hexadecimal(text) is None
