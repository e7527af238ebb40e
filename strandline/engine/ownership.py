"""Ownership: who may append to a log and change it, told by its name and its notes.

Protocols mark their logs with notes. Everything that writes to logs asks here: the protocols of a server, programs that
use the engine directly, and Spark and imports that write to a data directory by its path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strandline.engine.record import Config, is_internal

#: The attribute of logs that were created as streams.
STREAMS = "streams"
#: Notes that streams keep with their logs.
CLOSED, GONE, REGISTRY, PROFILE = "closed", "gone", "registry", "profile"
#: The note of a log that is a document of a collection, and of one that has rows of a table.
COLLECTION, TABLE = "collection", "table"

JSON = "application/json"


def media_type(value: str) -> str:
    """A content type without its parameters, for comparing."""
    return value.partition(";")[0].strip().lower()


def media_type_of(config: Config) -> str:
    """What the records of a log are. A log that was not created as a stream holds JSON."""
    traits = config.attributes.get(STREAMS)
    return JSON if traits is None else media_type(traits.get("content_type", JSON))


def owner_of(name: str, notes: Mapping[str, Any]) -> str | None:
    """Who alone may change the log, and how to do it; None: every protocol may."""
    if notes:
        if COLLECTION in notes:
            return "it is a document of a collection: append with POST /push"
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
    if REGISTRY in notes or PROFILE in notes:
        return "it is a stream with a schema or a profile: append with POST /v1/stream"
    return None
