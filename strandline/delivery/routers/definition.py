"""What a router is told to do."""

from __future__ import annotations

import msgspec


class Filter(msgspec.Struct, frozen=True, gc=False):
    """Which records go on, by their key: one key, or all keys that start with something."""

    key: str | None = None
    prefix: str | None = None

    def accepts(self, key: str) -> bool:
        return key == self.key if self.prefix is None else key.startswith(self.prefix)


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A router: every record that is appended to ``source`` is appended to ``dest`` as well."""

    name: str
    source: str
    dest: str
    keep_keys: bool = True
    keep_nodes: bool = True
    #: None: everything goes on.
    filter: Filter | None = None
    #: Whether the router may close a circle of logs; a record then goes around a bounded number of times.
    allow_cycle: bool = False
    #: Whether each copy says in its meta which record it is a copy of.
    stamped: bool = False
