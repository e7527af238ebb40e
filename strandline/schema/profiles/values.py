"""Redact sensitive values before they are stored, and read values as clients write them.

A number may be sent as text, and an empty text counts as absent.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

REDACTED = "[REDACTED]"


def holds_secrets(value: Any, is_secret: Callable[[str], bool]) -> bool:
    """Return whether any key in the value, at any depth, is secret. Most records have none and need no copy."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if type(found) is dict:
            for name, inner in found.items():
                if is_secret(name):
                    return True
                if type(inner) is dict or type(inner) is list:
                    waiting.append(inner)
        else:
            waiting.extend(inner for inner in found if type(inner) is dict or type(inner) is list)
    return False


def redact(value: Any, is_secret: Callable[[str], bool], path: str, found: list[str]) -> Any:
    """Return a copy without the values of secret keys. Their dotted paths are added to ``found``."""
    if type(value) is dict:
        copy = {}
        for name, inner in value.items():
            where = f"{path}.{name}" if path else name
            if is_secret(name):
                found.append(where)
                copy[name] = REDACTED
            else:
                copy[name] = redact(inner, is_secret, where, found) if type(inner) in (dict, list) else inner
        return copy
    if type(value) is list:
        return [redact(inner, is_secret, f"{path}.{index}", found) for index, inner in enumerate(value)]
    return value


_WHOLE = re.compile(r"[+-]?[0-9]{1,300}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,300}\.?[0-9]{0,300}|\.[0-9]{1,300})(?:[eE][+-]?[0-9]{1,5})?", re.ASCII)
_INFINITY = float("inf")


def text_of(value: Any) -> str | None:
    """Return a trimmed text; None if it is empty or not a text."""
    return value.strip() or None if type(value) is str else None


def whole_of(value: Any) -> int | None:
    """Return an integer, also if it is written as text or with a fraction of zero. Exact at any size."""
    if type(value) is int:
        return value
    if type(value) is float:
        return int(value) if value.is_integer() else None
    if type(value) is str and _WHOLE.fullmatch(value := value.strip()) is not None:
        return int(value)
    return None


def number_of(value: Any) -> int | float | None:
    """Return a finite number, also if it is written as text. Integers stay integers."""
    if type(value) is int:
        return value
    if type(value) is float:
        return value if -_INFINITY < value < _INFINITY else None
    if type(value) is not str:
        return None
    value = value.strip()
    if _WHOLE.fullmatch(value) is not None:
        return int(value)
    if _NUMBER.fullmatch(value) is None:
        return None
    return number_of(float(value))


def scalar_text(value: Any) -> str | None:
    """Return a text, a number or a boolean as text; None for anything else."""
    if type(value) is str:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int:
        return str(value)
    return _float_text(value) if type(value) is float else None


def _float_text(value: float) -> str:
    """Format a float as JSON clients do: 1, not 1.0, and an exponent only for very large or small numbers."""
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    if 1e-6 <= abs(value) < 1e21:
        return format(Decimal(repr(value)), "f")
    digits, _, exponent = repr(value).partition("e")
    return f"{digits}e{int(exponent):+d}"


@lru_cache(maxsize=1024)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def iso(milliseconds: int) -> str:
    """Format a time as the protocol shows it. Records of one append usually share the same seconds."""
    return f"{_second(milliseconds // 1000)}.{milliseconds % 1000:03d}Z"
