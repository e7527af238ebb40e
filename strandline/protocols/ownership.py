"""What one protocol must know of the logs of another: there is one namespace, and every face shows all it can of it."""

from __future__ import annotations

from strandline.engine import Log

#: The attribute of logs that were made as streams.
STREAMS = "streams"
#: Notes that streams keep with their logs.
CLOSED, GONE, REGISTRY, PROFILE = "closed", "gone", "registry", "profile"
#: The note of a log that is a document of a collection, and of one that has rows of a table.
COLLECTION, TABLE = "collection", "table"


def media_type_of(log: Log) -> str:
    """What the records are. A log that was not made as a stream is JSON."""
    traits = log.config.attributes.get(STREAMS)
    if traits is None:
        return "application/json"
    content_type: str = traits.get("content_type", "application/json")
    return content_type.partition(";")[0].strip().lower()


def is_hidden(log: Log) -> bool:
    """Deleted, and kept only for what was forked from it."""
    return GONE in log.notes


def kept_by(log: Log) -> str | None:
    """Which other protocol has the log to itself, and how to append by it; None: no other."""
    notes = log.notes
    if not notes:
        return None
    if COLLECTION in notes:
        return "it is a document of a collection: append with POST /push"
    if TABLE in notes:
        return "it has rows of a table: append with the endpoints of the table"
    return None


def closed_to_others(log: Log) -> str | None:
    """Why only one protocol may append to the log, or nobody; None: everybody may."""
    notes = log.notes
    if not notes:
        return None
    why = kept_by(log)
    if why is not None:
        return why
    if GONE in notes:
        return "it is a stream that was deleted, and is kept for what was forked from it"
    if CLOSED in notes:
        return "it is a stream that was closed"
    if REGISTRY in notes or PROFILE in notes:
        return "it is a stream with a schema or a profile: append with POST /v1/stream"
    return None
