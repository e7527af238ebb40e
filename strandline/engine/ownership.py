"""Ownership: who may append to a log and change it, told by its name and its notes.

Protocols mark their logs with notes. Everything that writes to logs asks here: the protocols of a server, programs that
use the engine directly, and Spark and imports that write to a data directory by its path.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from msgspec import MsgspecError, Raw, Struct, json

from strandline.engine.record import Config, is_internal

#: The attribute of logs that were created as streams.
STREAMS = "streams"
#: Notes that streams keep with their logs.
CLOSED, GONE, REGISTRY, PROFILE = "closed", "gone", "registry", "profile"
#: The note of a log that is a document of a collection, and of one that has rows of a table.
COLLECTION, TABLE = "collection", "table"
#: The part of a table's logs that has its rows; their names have no part.
ROWS = "rows"
#: The additional note of a regular document: its records are versions, and the last one is the document.
VERSIONS = "versions"

JSON = "application/json"


def media_type(value: str) -> str:
    """A content type without its parameters, for comparing."""
    return value.partition(";")[0].strip().lower()


def media_type_of(config: Config) -> str:
    """What the records of a log are. A log that was not created as a stream holds JSON."""
    traits = config.attributes.get(STREAMS)
    return JSON if traits is None else media_type(traits.get("content_type", JSON))


class LogOwner(Struct, frozen=True):
    """The table or the collection that a log belongs to."""

    kind: Literal["table", "collection"]
    name: str
    #: Whether each record replaces the earlier ones, as in a regular document.
    versions: bool = False
    #: What the log of a table holds: ``rows``, ``changes`` or a ``feed``. None for a collection.
    part: str | None = None


def table_part(name: str) -> tuple[str, str]:
    """The table in the name of one of its logs, and what the log holds."""
    table, _, part = name.partition("/")[0].partition("~")
    return table, part or ROWS


def log_owner(name: str, notes: Mapping[str, Any]) -> LogOwner | None:
    if COLLECTION in notes:
        return LogOwner("collection", notes[COLLECTION], VERSIONS in notes)
    if TABLE in notes:
        table, part = table_part(name)
        return LogOwner("table", table, part=part)
    return None


def owner_of(name: str, notes: Mapping[str, Any]) -> str | None:
    """Who alone may change the log, and how to do it; None: every protocol may."""
    if notes:
        if COLLECTION in notes:
            return "it is a document of a collection: change it with POST /push"
        if TABLE in notes:
            return "it has rows of a table: use the endpoints of the table"
    return "it is an internal log of the server" if is_internal(name) else None


def closed_to_others(name: str, notes: Mapping[str, Any]) -> str | None:
    """Why records cannot be appended to the log without knowing its owner or its schema; None: they can."""
    why = owner_of(name, notes)
    if why is not None or not notes:
        return why
    if GONE in notes:
        return "it is a stream that was deleted, and is kept for its forks"
    if CLOSED in notes:
        return "it is a stream that was closed"
    if checks_records(notes):
        return "it is a stream with a schema or a profile: append with POST /v1/stream"
    return None


def checks_records(notes: Mapping[str, Any]) -> bool:
    """Whether records have to pass through the streams protocol, which applies the schema, the routing key and the
    profile of their log. A registry that only declares searchable fields concerns no append."""
    return PROFILE in notes or (REGISTRY in notes and _has_rules(notes[REGISTRY]))


class _RegistryRules(Struct, rename="camel"):
    """The part of a registry that concerns appends."""

    current_version: int = 0
    routing_key: Raw | None = None


@lru_cache(256)
def _has_rules(registry: bytes) -> bool:
    """Whether a registry has a schema or a routing key. Appends ask for it, so the result is cached."""
    try:
        rules = json.decode(registry, type=_RegistryRules)
    except MsgspecError:
        # A damaged registry may have had rules.
        return True
    return rules.current_version != 0 or rules.routing_key is not None
