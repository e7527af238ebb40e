"""Finds the routes of a path.

Most patterns have as many segments as the paths they match. A parameter that spans several segments matches everything
between the segments before and after it in the pattern. Of such patterns, the one with the most segments after the
parameter is tried first, then the one with the most segments before it, so that a specific pattern wins over a general
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

from strandline.service.http import Route

Methods = dict[str, Route]
Params = dict[str, str]


class Paths:
    def __init__(self) -> None:
        self._fixed: dict[int, dict[tuple[str, ...], Methods]] = {}
        #: Paths without parameters that no earlier pattern matches, found with one lookup.
        self._plain: dict[str, Methods] = {}
        self._spanning: list[_Spanning] = []

    def add(self, route: Route) -> None:
        pattern = tuple(route.path.split("/"))
        if not route.spans:
            self._add_fixed(route, pattern)
            return
        at = pattern.index("{" + route.spans + "}")
        front, back = pattern[:at], pattern[at + 1 :]
        alias = tuple(route.alias.split("/")) if route.alias else front
        for known in self._spanning:
            if (known.front, known.alias, known.back, known.name) == (front, alias, back, route.spans):
                known.methods[route.method] = route
                return
        self._spanning.append(_Spanning(front, alias, route.spans, back, {route.method: route}))
        self._spanning.sort(key=lambda spanning: (len(spanning.back), len(spanning.front)), reverse=True)

    def _add_fixed(self, route: Route, pattern: tuple[str, ...]) -> None:
        known = self._fixed.setdefault(len(pattern), {})
        is_plain = "{" not in route.path and all(_match(other, pattern) is None for other in known)
        methods = self._plain.setdefault(route.path, {}) if is_plain else known.setdefault(pattern, {})
        methods[route.method] = route

    def find(self, path: str) -> tuple[Methods, Params] | None:
        """The routes of the path by method, and the values of its parameters; None if no route matches."""
        plain = self._plain.get(path)
        if plain is not None:
            return plain, {}
        parts = path.split("/")
        start = parts[1] if len(parts) > 1 else ""
        for pattern, methods in self._fixed.get(len(parts), {}).items():
            # Few patterns begin like the path, so most need no further look.
            if pattern[1] == start or pattern[1].startswith("{"):
                params = _match(pattern, parts)
                if params is not None:
                    return methods, params
        if self._spanning:
            while len(parts) > 1 and not parts[-1]:
                parts.pop()
            for spanning in self._spanning:
                params = spanning.match(parts)
                if params is not None:
                    return spanning.methods, params
        return None


class _Spanning:
    def __init__(
        self, front: tuple[str, ...], alias: tuple[str, ...], name: str, back: tuple[str, ...], methods: Methods
    ) -> None:
        self.front = front
        self.alias = alias
        self.name = name
        self.back = back
        self.methods = methods
        #: The first segments of the paths that may match; None: any.
        firsts = [segments[1] if len(segments) > 1 else "{" for segments in (front, alias)]
        self._firsts = None if any(first.startswith("{") for first in firsts) else frozenset(firsts)

    def match(self, parts: list[str]) -> Params | None:
        """The values of the parameters; None if the path does not match. The spanning parameter may be empty: the
        handler reports a missing name."""
        start, end = len(self.front), len(parts) - len(self.back)
        if end < start or (self._firsts is not None and parts[1] not in self._firsts):
            return None
        if self.back and self.back[-1] != parts[-1] and not self.back[-1].startswith("{"):
            return None
        beginning = parts[:start]
        before = _match(self.alias if self.alias[-1] == beginning[-1] else self.front, beginning)
        behind = None if before is None else _match(self.back, parts[end:])
        if before is None or behind is None:
            return None
        return {**before, self.name: _decode("/".join(parts[start:end])), **behind}


def _match(pattern: Sequence[str], parts: Sequence[str]) -> Params | None:
    params: Params = {}
    for wanted, part in zip(pattern, parts, strict=True):
        if wanted.startswith("{"):
            if not part:
                return None
            params[wanted[1:-1]] = _decode(part)
        elif wanted != part:
            return None
    return params


def _decode(text: str) -> str:
    return unquote(text) if "%" in text else text
