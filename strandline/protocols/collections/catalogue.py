"""Which collection a path belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from strandline.protocols.collections.config import WRITE, Collection
from strandline.protocols.collections.template import Template


class Entry:
    """A collection with its storage path taken apart, in the namespace it belongs to."""

    __slots__ = ("collection", "namespace", "template")

    def __init__(self, collection: Collection, namespace: str = "") -> None:
        self.collection = collection
        self.namespace = namespace
        self.template = Template(collection.storage_path)


class Found(NamedTuple):
    entry: Entry
    params: dict[str, str]


class Catalogue:
    """The collections of one namespace, or those of none. Where two match, the one that was declared first counts."""

    def __init__(self, collections: Sequence[Collection], namespace: str = "") -> None:
        self.namespace = namespace
        self.entries: dict[str, Entry] = {one.name: Entry(one, namespace) for one in collections}
        self._by_length: dict[int, list[tuple[Template, Entry]]] = {}
        self._listable: list[Entry] = []
        for entry in self.entries.values():
            for template in _paths(entry):
                self._by_length.setdefault(template.length, []).append((template, entry))
            if entry.collection.listable:
                self._listable.append(entry)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries.values())

    def find(self, segments: Sequence[str], op: str) -> Found | None:
        """Whose document the (decoded) segments lead to, for somebody who wants to read or to write it."""
        for template, entry in self._by_length.get(len(segments), ()):
            if entry.collection.pull_only if op == WRITE else entry.collection.push_only:
                continue
            params = template.match(segments)
            if params is not None:
                return Found(entry, params)
        return None

    def find_list(self, segments: Sequence[str]) -> Found | None:
        """Whose documents are listed there."""
        for entry in self._listable:
            params = entry.template.match_prefix(segments)
            if params is not None:
                params.pop(entry.template.names[-1])
                return Found(entry, params)
        return None


def _paths(entry: Entry) -> list[Template]:
    bundle = entry.collection.bundle
    if bundle is None:
        return [entry.template]
    # A member of a bundle is pulled with all the others, and pushed by its own name.
    return [entry.template, Template(f"{entry.template.text}/{entry.collection.name}")]
