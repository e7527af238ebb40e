from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.schema.transforms import BUILTINS, ByTable, TransformFailed, has_type, text_of


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        (5, "5"),
        (10**30, str(10**30)),
        (1.0, "1"),
        (-0.0, "0"),
        (1.5, "1.5"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (0.00001, "0.00001"),
        (1e-7, "1e-7"),
        (1.5e300, "1.5e+300"),
        (True, "true"),
        (None, "null"),
        ({}, None),
        ([], None),
    ],
)
def test_scalars_have_the_string_form_of_javascript(value: Any, text: str | None) -> None:
    assert text_of(value) == text


def test_a_table_looks_values_up_by_their_string_form() -> None:
    table = ByTable({"1": "one", "true": "yes", "null": "none"})
    assert [table(1), table(1.0), table("1"), table(True), table(None)] == ["one", "one", "one", "yes", "none"]
    with pytest.raises(TransformFailed):
        table("2")


@pytest.mark.parametrize("default", [None, 0, False, ""])
def test_a_falsy_default_of_a_table_is_a_default(default: Any) -> None:
    table = ByTable({}, default)
    assert table.total
    assert table("x") is default
    assert table([]) is default


@pytest.mark.parametrize(
    ("name", "value", "result"),
    [
        ("lowercase", "ÄbC", "äbc"),
        ("uppercase", "äbC", "ÄBC"),
        ("string_to_int", "-12", -12),
        ("string_to_int", "123456789012345678901234567890", 123456789012345678901234567890),
        ("int_to_string", 5.0, "5"),
        ("int_to_string", 10**30, str(10**30)),
        ("rfc3339_to_unix_millis", "1970-01-01T00:00:00Z", 0),
        ("rfc3339_to_unix_millis", "1969-12-31T23:59:59.999Z", -1),
        ("rfc3339_to_unix_millis", "2026-03-01T01:00:00.1239+01:00", 1772323200123),
        ("rfc3339_to_unix_millis", "2024-02-29T00:00:00-00:30", 1709166600000),
        ("unix_millis_to_rfc3339", 0, "1970-01-01T00:00:00.000Z"),
        ("unix_millis_to_rfc3339", -1, "1969-12-31T23:59:59.999Z"),
        ("unix_millis_to_rfc3339", 1.9, "1970-01-01T00:00:00.001Z"),
        ("unix_millis_to_rfc3339", 8_640_000_000_000_000, "+275760-09-13T00:00:00.000Z"),
        ("unix_millis_to_rfc3339", -8_640_000_000_000_000, "-271821-04-20T00:00:00.000Z"),
    ],
)
def test_builtins_convert(name: str, value: Any, result: Any) -> None:
    assert BUILTINS[name](value) == result


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lowercase", 1),
        ("string_to_int", "1.5"),
        ("string_to_int", ""),
        ("string_to_int", "9" * 5000),
        ("int_to_string", 1.5),
        ("int_to_string", True),
        ("rfc3339_to_unix_millis", "2026-02-29T00:00:00Z"),
        ("rfc3339_to_unix_millis", "1900-02-29T00:00:00Z"),
        ("rfc3339_to_unix_millis", "2026-13-01T00:00:00Z"),
        ("rfc3339_to_unix_millis", "2026-01-01T24:00:00Z"),
        ("rfc3339_to_unix_millis", "2026-01-01T00:00:00+24:00"),
        ("rfc3339_to_unix_millis", "2026-01-01"),
        ("unix_millis_to_rfc3339", "0"),
    ],
)
def test_builtins_fail_for_what_they_cannot_convert(name: str, value: Any) -> None:
    with pytest.raises(TransformFailed):
        BUILTINS[name](value)


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)))
def test_times_there_and_back_are_the_same(moment: datetime) -> None:
    exact = moment.replace(microsecond=moment.microsecond // 1000 * 1000, tzinfo=UTC)
    text = BUILTINS["unix_millis_to_rfc3339"](BUILTINS["rfc3339_to_unix_millis"](exact.isoformat("T", "milliseconds")))
    assert datetime.fromisoformat(text) == exact


@given(st.integers(-(10**20), 10**20))
def test_every_number_of_milliseconds_has_a_text(milliseconds: int) -> None:
    assert BUILTINS["unix_millis_to_rfc3339"](milliseconds).endswith("Z")


def test_a_number_without_fraction_is_an_integer() -> None:
    assert has_type(1.0, "integer")
    assert has_type(1, "number")
    assert not has_type(1.5, "integer")
    assert not has_type(True, "integer")
