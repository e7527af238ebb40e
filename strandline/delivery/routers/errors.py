"""Why a router cannot be made. Whoever gets one of these has changed nothing."""

from __future__ import annotations


class RouterError(Exception):
    """Base of everything that is raised on purpose here."""


class RouterCycle(RouterError):
    """The router would close a circle of logs; ``cycle`` is the way around it, from the source back to the source."""

    def __init__(self, cycle: list[str]) -> None:
        super().__init__(f"the router would close a cycle: {' -> '.join(cycle)}")
        self.cycle = cycle


class RouterFanIn(RouterError):
    """Another log is forwarded into the destination already: the order of two sources cannot be derived again."""

    def __init__(self, dest: str, source: str) -> None:
        super().__init__(f"{dest!r} is the destination of {source!r} already, and can have only one source")
        self.dest = dest
        self.source = source


class RouterRepointed(RouterError):
    """A router of this name leads from or to another log. Remove it first."""

    def __init__(self, name: str, source: str, dest: str) -> None:
        super().__init__(f"router {name!r} leads from {source!r} to {dest!r}, and cannot be pointed elsewhere")
        self.name = name
        self.source = source
        self.dest = dest
