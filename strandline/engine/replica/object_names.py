"""The names of the objects of a replica. The part before the term identifies the contents."""

from __future__ import annotations

import xxhash

from strandline.engine.segments.store import Describes
from strandline.engine.state.checkpoints import SegmentEntry

SEGMENTS = "segments"
CHECKPOINTS = "checkpoints"


def segment_key(entry: SegmentEntry | Describes) -> str:
    """Identify the contents of a segment in the names of objects."""
    return f"{SEGMENTS}/{entry.id:08d}-{entry.edges:016x}"


def checkpoint_key(name: str, raw: bytes) -> str:
    """Identify the contents of a checkpoint in the names of objects."""
    return f"{CHECKPOINTS}/{name.partition('.')[0]}-{xxhash.xxh3_64_hexdigest(raw)}"


def key_of(object: str) -> str:
    """Return the part of the name of an object that identifies its contents."""
    return object.rsplit("-", 2)[0]
