"""Reasons of failures: what is sent of an exception, and how it is shown."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.client import JobFailure
from strandline.client.failures import MAX_REASON_BYTES, fitting, summary_of


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    """The exception after it was raised."""
    try:
        raise error from cause
    except Exception as caught:
        return caught


def size(reason: Any) -> int:
    return len(msgspec.json.encode(reason))


def test_an_exception_is_described_with_its_traceback() -> None:
    reason = fitting(raised(ValueError("not an image"), cause=raised(KeyError("header"))))
    assert (reason["type"], reason["message"]) == ("ValueError", "not an image")
    assert "KeyError: 'header'" in reason["traceback"]
    assert reason["traceback"].splitlines()[-1].strip() == "raise error from cause"
    assert summary_of(reason) == "ValueError: not an image"


def test_the_type_of_an_exception_has_its_module() -> None:
    with pytest.raises(ValueError, match="Expecting") as caught:
        json.loads("{")
    assert fitting(caught.value)["type"] == "json.decoder.JSONDecodeError"


def test_an_exception_that_was_never_raised_has_no_traceback() -> None:
    assert fitting(ValueError()) == {"type": "ValueError", "message": ""}
    assert summary_of(fitting(ValueError())) == "ValueError"


def deep(levels: int) -> None:
    if levels:
        deep(levels - 1)
    raise ValueError("deep")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x" * 100_000),
        ValueError("\x00" * 10_000),
        ValueError("\udc80 half a character"),
        ValueError("€\n" * 5_000),
        type("T" * 5_000, (Exception,), {})("long name"),
        Unprintable(),
        ExceptionGroup("several", [ValueError("a" * 3_000), KeyError("b")]),
    ],
    ids=lambda error: type(error).__name__[:20],
)
def test_no_exception_is_too_much_for_a_reason(error: Exception) -> None:
    reason = fitting(raised(error, cause=raised(ValueError("y" * 9_000))))
    assert size(reason) <= MAX_REASON_BYTES
    assert reason["type"]
    assert reason["traceback"]


def test_the_end_of_a_long_traceback_is_kept() -> None:
    with pytest.raises(ValueError, match="deep") as caught:
        deep(500)
    reason = fitting(caught.value)
    assert size(reason) <= MAX_REASON_BYTES
    assert reason["traceback"].splitlines()[-1].strip() == 'raise ValueError("deep")'


@given(st.text(max_size=50), st.integers(1, 2_000))
def test_a_text_is_cut_to_what_fits(text: str, times: int) -> None:
    reason = fitting(text * times)
    assert size(reason) <= MAX_REASON_BYTES
    # As much as possible is kept: a character has at most six bytes, and the sign of the cut three.
    assert reason == text * times or size(reason) > MAX_REASON_BYTES - 9


def test_json_is_sent_as_it_is_unless_it_is_too_long() -> None:
    assert fitting({"code": 7}) == {"code": 7}
    assert fitting(None) is None
    assert fitting(list(range(5_000))).startswith("[0,1,2,")
    assert size(fitting(list(range(5_000)))) <= MAX_REASON_BYTES
    with pytest.raises(TypeError):
        fitting(object())


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("the lease expired", "the lease expired"),
        ("exit code 3: line 9\nline 8\nline 9", "exit code 3: line 9 …"),
        ("\n one \t line \n", "one line"),
        ("", ""),
        ({"code": 7}, '{"code":7}'),
        ({"type": "ValueError", "message": "no", "traceback": "…"}, "ValueError: no"),
        ({"type": 1, "message": "no"}, '{"type":1,"message":"no"}'),
        (None, "null"),
    ],
)
def test_a_reason_is_shown_in_one_line(reason: Any, shown: str) -> None:
    assert JobFailure(at=1, delivery=1, node="w", reason=reason).summary == shown


@pytest.mark.parametrize(("levels", "is_text"), [(64, False), (65, True), (500, True)])
def test_a_reason_that_the_server_finds_nested_too_deeply_is_sent_as_a_text(levels: int, is_text: bool) -> None:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    assert fitting(value) == (msgspec.json.encode(value).decode() if is_text else value)
