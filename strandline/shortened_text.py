"""Shorten a text so that its JSON has a limited size, and measure how deeply JSON is nested. The client and the server
bound the reasons of failures."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

import msgspec

#: Marks the end of a text that was shortened.
ELLIPSIS = "…"

_encode = msgspec.json.encode


def shorten(text: str, most: int) -> str:
    """The text if its JSON has at most ``most`` bytes; otherwise its beginning, and an ellipsis. Characters that UTF-8
    cannot represent become question marks."""
    text = text.encode("utf-8", "replace").decode()
    if len(text) <= most and len(_encode(text)) <= most:
        return text
    text = text[:most]
    room = most - len(ELLIPSIS.encode())
    return text[: bisect_right(range(1, len(text) + 1), room, key=lambda end: len(_encode(text[:end])))] + ELLIPSIS


def is_nested_deeper(encoded: bytes, most: int) -> bool:
    """Whether this JSON has more than ``most`` arrays and objects within each other."""
    if encoded.count(b"[") + encoded.count(b"{") <= most:
        return False
    try:
        level = [msgspec.json.decode(encoded)]
    except RecursionError:
        return True
    for _ in range(most):
        level = [part for value in level for part in _parts(value)]
    return any(isinstance(value, dict | list) for value in level)


def _parts(value: Any) -> Iterable[Any]:
    match value:
        case dict():
            return value.values()
        case list():
            return value
        case _:
            return ()
