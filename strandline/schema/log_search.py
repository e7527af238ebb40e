"""The search configuration of a log: one lookup, whatever protocol owns the log.

A log stores its search configuration in its registry note. Topics and streams install it at any time, with or without a
schema; tables and collections install one for the fields that they declare. The protocols, the pipeline and programs
that write index files all ask here.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from strandline.engine import Log
from strandline.engine.ownership import REGISTRY
from strandline.query.config import SearchConfig
from strandline.query.config_parser import NAME, parse_search_config
from strandline.query.index import Versions
from strandline.query.pointers import pointer_to
from strandline.schema.errors import SchemaError
from strandline.schema.registry import Registry
from strandline.schema.updates import check_parts, parse_search

#: Reading a registry takes a third of a millisecond. A server searches few logs at a time, and all logs of a table or a
#: collection have the same registry.
_CACHED = 1024


#: The size of a search configuration as a part of a larger request, which is parsed on the event loop: parsing takes
#: at most about 0.2 s. An update of a registry is parsed on a thread, and may be larger.
MAX_SEARCH_BYTES = 128 << 10


class LogSearch(NamedTuple):
    """The searchable fields of a log, and the first seq of each schema version of its records."""

    config: SearchConfig
    versions: Versions


def log_search(registry: bytes | None) -> LogSearch | None:
    """The search configuration of the log with this registry note, or None if it has no searchable fields. Raises the
    errors of a damaged registry."""
    # Most registries have no search configuration.
    return None if registry is None or b'"search"' not in registry else _load(registry)


def search_of(log: Log) -> LogSearch | None:
    """The search configuration of a log."""
    return log_search(log.notes.get(REGISTRY))


@lru_cache(_CACHED)
def _load(registry: bytes) -> LogSearch | None:
    found = Registry.load(registry)
    if found.search is None or not found.search.fields:
        return None
    return LogSearch(found.search, found.versions)


def checked_search(document: object) -> SearchConfig | None:
    """The search configuration in a request; None if it is null, which removes one. Raises SchemaError."""
    check_parts(document, "search")
    if len(msgspec.json.encode(document)) > MAX_SEARCH_BYTES:
        raise SchemaError(f"search is larger than {MAX_SEARCH_BYTES} bytes; install it with POST /v1/stream/…/_schema")
    return parse_search(document)


def with_search(registry: bytes | None, log: str, search: SearchConfig | None) -> bytes | None:
    """The registry note of a log after its search configuration was replaced, or removed (None)."""
    found = Registry.empty(log) if registry is None else Registry.load(registry)
    return replace(found, search=search).note()


@lru_cache(_CACHED)
def text_registry(owner: str, fields: tuple[str, ...]) -> bytes | None:
    """The registry for logs of a table or a collection: words, prefixes and phrases can be searched in these fields of
    their records. None if there are no fields."""
    declared = {_search_name(name, number): _searched(name) for number, name in enumerate(fields, 1)}
    if not declared:
        return None
    config = parse_search_config({"fields": declared})
    # The owner validates the records itself.
    return Registry.installed(owner, {"type": "object"}, search=config).stored()


def _searched(name: str) -> dict[str, Any]:
    binding = {"version": 1, "jsonPointer": pointer_to((name,))}
    return {"kind": "text", "analyzer": "unicode_word_v1", "prefix": True, "positions": True, "bindings": [binding]}


def _search_name(name: str, number: int) -> str:
    """The name of a field in queries. Payloads may have names that cannot be written in a query."""
    return name if NAME.match(name) else f"field{number}"
