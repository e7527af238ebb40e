"""Which protocol a log belongs to, and which protocols can append to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from strandline.engine import Config, Log
from strandline.engine.record import is_internal
from strandline.service.catalog import (
    CLOSED,
    COLLECTION,
    STREAMS,
    TABLE,
    closed_to_others,
    is_hidden,
    media_type_of,
)
from strandline.service.log_config import kind_of as topic_kind

Kind = Literal["topic", "queue", "stream", "collection", "table"]
Protocol = Literal["topics", "streams", "collections", "tables"]

KINDS: tuple[Kind, ...] = ("topic", "queue", "stream", "collection", "table")


def kind_of(config: Config, notes: Mapping[str, Any]) -> Kind:
    """The kind of a log. Fast enough to call for every log."""
    if notes:
        if COLLECTION in notes:
            return "collection"
        if TABLE in notes:
            return "table"
    if STREAMS in config.attributes:
        return "stream"
    return "queue" if topic_kind(config) == "queue" else "topic"


def writable_by(log: Log) -> list[Protocol]:
    """The protocols that can append to the log."""
    notes = log.notes
    if COLLECTION in notes:
        return ["collections"]
    if TABLE in notes:
        return ["tables"]
    if is_hidden(log) or CLOSED in notes or is_internal(log.name):
        return []
    topics = closed_to_others(log) is None and media_type_of(log) == "application/json"
    return ["topics", "streams"] if topics else ["streams"]


def belongs(log: Log) -> str:
    """A sentence that says what the log belongs to, and how to append to it."""
    if is_internal(log.name):
        return "internal log of the server"
    why = closed_to_others(log)
    if why is not None:
        return why
    kind = kind_of(log.config, log.notes)
    if kind == "stream" and media_type_of(log) != "application/json":
        return f"stream of {media_type_of(log)}: append with POST /v1/stream"
    return f"created as a {kind}; topics and streams can both append to it"


def note_of(log: Log) -> str | None:
    """The name of the collection or table that the log belongs to, if any."""
    owner = log.notes.get(COLLECTION, log.notes.get(TABLE))
    return None if owner is None else str(owner)
