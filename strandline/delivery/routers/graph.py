"""Which log is forwarded into which. A log has one source at most, so going up from it is a single path."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

N = TypeVar("N", bound=Hashable)


def closes_cycle(sources: Mapping[N, N], source: N, dest: N) -> list[N] | None:
    """The cycle that a router from ``source`` to ``dest`` would be part of, from the source back to it; None if
    there is none. ``sources`` has the source of every log that is a destination."""
    path = [source]
    seen = {source}
    at: N | None = source
    while at is not None and at != dest:
        at = sources.get(at)
        if at is None or at in seen:
            return None
        seen.add(at)
        path.append(at)
    # Found going up; told going down.
    return [source, *reversed(path)]


def on_cycles(sources: Mapping[N, N]) -> set[N]:
    """All logs that are forwarded, over however many others, into themselves."""
    found: set[N] = set()
    known: set[N] = set()
    for start in sources:
        path: dict[N, None] = {}
        at: N | None = start
        while at is not None and at not in known and at not in path:
            path[at] = None
            at = sources.get(at)
        if at is not None and at in path:
            way = list(path)
            found.update(way[way.index(at) :])
        known.update(path)
    return found
