"""Giving memory back to the system."""

from __future__ import annotations

import ctypes
from collections.abc import Callable


def _find_trim() -> Callable[[int], int] | None:
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # pragma: no cover - a C library other than glibc
        return None
    return trim


_trim = _find_trim()


def give_back() -> None:
    """Have the C library give back what was freed: left to itself it keeps nearly all of it.

    Takes some milliseconds per hundred megabytes, and does not hold the interpreter's lock meanwhile.
    """
    if _trim is not None:
        _trim(0)
