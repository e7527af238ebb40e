"""Patterns over names: ``*`` is one segment between slashes, ``**`` any number of them, also none.

A star stands for a whole segment. One that is meant literally is written ``%2A``.
"""

from __future__ import annotations

from strandline.delivery.subscriptions.errors import BadPattern

ONE, ANY = "*", "**"
_STAR = "\0"


class Glob:
    """``prefix`` is what every name that matches begins with."""

    __slots__ = ("_parts", "prefix", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._parts = tuple(_part(part) for part in text.split("/"))
        self.prefix = _prefix(self._parts)

    def matches(self, name: str) -> bool:
        """Only the last ``**`` is ever gone back to, so the time is bounded by the product of both lengths."""
        pattern, parts = self._parts, name.split("/")
        at = here = 0
        deep, resume = -1, 0
        while here < len(parts):
            wanted = pattern[at] if at < len(pattern) else ""
            if wanted == ANY:
                deep, resume = at, here
                at += 1
            elif at < len(pattern) and (wanted == ONE or wanted.replace(_STAR, ONE) == parts[here]):
                at += 1
                here += 1
            elif deep >= 0:
                resume += 1
                at, here = deep + 1, resume
            else:
                return False
        return all(part == ANY for part in pattern[at:])


def _part(part: str) -> str:
    if part in (ONE, ANY):
        return part
    if "*" in part or "\0" in part:
        raise BadPattern(f"{part!r}: a star stands for a whole segment; write %2A for the character")
    return part.replace("%2A", _STAR).replace("%2a", _STAR)


def _prefix(parts: tuple[str, ...]) -> str:
    literal: list[str] = []
    for part in parts:
        if part in (ONE, ANY):
            break
        literal.append(part.replace(_STAR, ONE))
    rest = parts[len(literal) :]
    # Where something must follow, the slash is there in any case.
    return "/".join(literal) + ("/" if literal and any(part != ANY for part in rest) else "")
