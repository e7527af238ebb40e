"""Answers held against the structs that they are declared with."""

from __future__ import annotations

from typing import Any

import msgspec


def decode_strictly(body: bytes, form: Any) -> Any:
    """The answer as a value of ``form``. It fails if a member is missing, of another type, or not declared."""
    answer = msgspec.json.decode(body, type=form)
    assert msgspec.json.decode(msgspec.json.encode(answer)) == msgspec.json.decode(body)
    return answer
