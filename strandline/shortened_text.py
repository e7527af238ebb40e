"""Shorten a text so that its JSON has a limited size. The client and the server shorten the reasons of failures."""

from __future__ import annotations

from bisect import bisect_right

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
