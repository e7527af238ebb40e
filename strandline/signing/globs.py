"""Path patterns: ``**`` matches any text, ``*`` any text without a slash; a leading ``!`` denies.

A pattern comes with the request, so matching takes at most linear time for any pattern: all possible matches are
followed at once, as the bits of one number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

DENIES = "!"
IDENTITY = "{identity}"

_TOKENS = re.compile(r"\*{2,}|\*|[^*]")


def covers(patterns: Sequence[str] | None, path: str, identity: str) -> bool:
    """Return whether one of the patterns allows the path and none denies it or one of its parents.

    Without patterns everything is allowed. ``{identity}`` in a pattern stands for the identity.
    """
    if not patterns:
        return True
    own = [pattern.replace(IDENTITY, identity) for pattern in patterns]
    return allowed(own, path) and not denied(own, path)


def allowed(patterns: Iterable[str], path: str) -> bool:
    return any(matches(pattern, path) for pattern in patterns if not pattern.startswith(DENIES))


def denied(patterns: Iterable[str], path: str) -> bool:
    """Return whether a pattern denies the path or one of its parents."""
    return any(
        matches(pattern[1:], path) or matches(f"{pattern[1:]}/**", path)
        for pattern in patterns
        if pattern.startswith(DENIES)
    )


def matches(pattern: str, path: str) -> bool:
    """Return whether the whole path matches the pattern."""
    if "*" not in pattern:
        return pattern == path
    if pattern.endswith("**") and "*" not in pattern[:-2]:
        return path.startswith(pattern[:-2])
    machine = _machine(pattern)
    state = machine.opened(1)
    for character in path:
        stays = machine.any_text if character == "/" else machine.any_text | machine.any_name
        state = machine.opened((state & stays) | (state & machine.literals.get(character, 0)) << 1)
        if not state:
            return False
    return bool(state & machine.end)


class _Machine(NamedTuple):
    """A pattern as sets of positions in it. The bit of a position is set when everything before it has matched."""

    literals: dict[str, int]
    any_text: int
    any_name: int
    end: int

    def opened(self, state: int) -> int:
        """Return the positions together with those after stars, because a star also matches the empty text."""
        return state | (state & (self.any_text | self.any_name)) << 1


@lru_cache(maxsize=1024)
def _machine(pattern: str) -> _Machine:
    literals: dict[str, int] = {}
    any_text = any_name = 0
    position = 1
    for token in _TOKENS.findall(pattern):
        if len(token) > 1:
            any_text |= position
        elif token == "*":
            any_name |= position
        else:
            literals[token] = literals.get(token, 0) | position
        position <<= 1
    return _Machine(literals, any_text, any_name, position)
