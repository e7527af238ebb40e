"""The graph of a project's tables: which table reads which, in which order they are built, and cycles.

What a table reads is known once its query was evaluated, and a query is evaluated when the tables that it reads are
known. So the graph is found by following the queries from table to table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from strandline.pipeline.declared.project import BadProject


class Graph:
    """``edges`` are the inputs of every table whose query was evaluated."""

    def __init__(self) -> None:
        self.edges: dict[str, set[str]] = {}
        self._visited: set[str] = set()
        self._open: list[str] = []

    def visit(self, name: str, follow: Callable[[], None]) -> None:
        """Visit a table once. ``follow`` evaluates its query, which reports inputs with ``reads`` and visits them.
        Raises BadProject if the table reads itself, directly or through others."""
        if name in self._open:
            cycle = [*self._open[self._open.index(name) :], name]
            raise BadProject(f"tables read each other in a circle: {' -> '.join(cycle)}; break it with a log")
        if name in self._visited:
            return
        self.edges[name] = set()
        self._open.append(name)
        try:
            follow()
        finally:
            self._open.pop()
        self._visited.add(name)

    def reads(self, name: str) -> None:
        """The query that is being evaluated reads this table or log."""
        if self._open:
            self.edges[self._open[-1]].add(name)

    def forget(self, name: str) -> None:
        """The table is visited again the next time."""
        self._visited.discard(name)


def in_order(edges: Mapping[str, set[str]], names: Iterable[str]) -> list[str]:
    """These tables, every one after those that it reads."""
    wanted, found = list(names), dict[str, None]()

    def add(name: str, above: frozenset[str]) -> None:
        for each in sorted(edges.get(name, ())):
            if each not in above and each not in found:
                add(each, above | {name})
        found[name] = None

    for name in wanted:
        if name not in found:
            add(name, frozenset({name}))
    return [name for name in found if name in wanted]


def downstream(edges: Mapping[str, set[str]], name: str) -> list[str]:
    """The tables that read this one, directly or through others, without the table itself."""
    found: list[str] = []
    waiting = [name]
    while waiting:
        current = waiting.pop(0)
        for each in sorted(edges):
            if current in edges[each] and each not in found and each != name:
                found.append(each)
                waiting.append(each)
    return found
