"""Errors that an application raises must be such as clients know, otherwise clients cannot be told about them."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.tables import TableError


@pytest.mark.parametrize(
    ("code", "message", "more", "expected"),
    [
        ("TOO_LATE", "no", {}, "unknown code 'TOO_LATE' of an error; expected one of NOT_AUTHENTICATED, VALIDATION"),
        ("FORBIDDEN", ValueError("no"), {}, r"the message of an error must be text, not ValueError\('no'\)"),
        ("FORBIDDEN", "no", {"feilds": []}, "unknown member 'feilds' of an error; did you mean 'fields'?"),
        ("RATE_LIMITED", "no", {"retryAfter": "soon"}, r"invalid member of an error: .*\$.retryAfter"),
        ("VALIDATION_FAILED", "no", {"fields": "text"}, r"invalid member of an error: .*\$.fields"),
    ],
)
def test_an_error_that_clients_do_not_know_is_a_mistake(code: Any, message: Any, more: Any, expected: str) -> None:
    with pytest.raises(TypeError, match=expected):
        TableError(code, message, **more)
    assert TableError("VALIDATION_FAILED", "no", fields=["text"], retryAfter=3).fields == ["text"]
