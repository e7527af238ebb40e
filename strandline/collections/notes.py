"""The notes of documents: the collection that owns the log, its kind of documents, and how elements are searched.

Other protocols and the pipeline do not know the declarations. They learn from the notes of a log what they need.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from strandline.collections.config import Collection
from strandline.collections.paths import PathIndex
from strandline.engine import Engine
from strandline.engine.ownership import COLLECTION, REGISTRY, VERSIONS
from strandline.schema.log_search import text_registry


def notes_of(collection: Collection) -> dict[str, Any]:
    """The notes of a new document."""
    notes: dict[str, Any] = {COLLECTION: collection.name}
    if collection.append_only is None:
        notes[VERSIONS] = True
    registry = _registry(collection)
    if registry is not None:
        notes[REGISTRY] = registry
    return notes


def update_notes(engine: Engine, paths: Iterable[PathIndex]) -> None:
    """Give existing documents the search configuration that their collections are declared with now. Documents of
    collections that are no longer declared keep theirs, so that they can still be searched."""
    declared: dict[str, list[tuple[PathIndex, Collection]]] = {}
    for index in paths:
        for bound in index:
            declared.setdefault(bound.collection.name, []).append((index, bound.collection))
    for name in [book.name for book in list(engine.by_epoch.values()) if book.notes is not None]:
        log = engine.find(name)
        if log is None or COLLECTION not in log.notes:
            continue
        found = declared.get(log.notes[COLLECTION], [])
        # Collections of several namespaces may have the same name.
        owners = [collection for index, collection in found if len(found) == 1 or index.owner_of(name) is collection]
        if owners and log.notes.get(REGISTRY) != _registry(owners[0]):
            log.note({REGISTRY: _registry(owners[0])})


def _registry(collection: Collection) -> bytes | None:
    return text_registry(collection.name, collection.search)
