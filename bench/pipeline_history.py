"""A data directory with history for the pipeline: one stream of requests with a search configuration."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from bench.streams_query import FIELDS, REGISTRY, USERS, WORDS
from strandline.engine import Batch, Config, Engine
from strandline.schema.registry import Registry

LOG = "requests"
#: The average size of a record.
PAYLOAD = 200
BATCH = 1000
FIRST = 1_780_000_000_000
MONTH_MS = 30 * 24 * 3600 * 1000


#: The types of the properties of a record.
PROPERTIES = {
    "at": "integer",
    "service": "string",
    "user": "string",
    "status": "integer",
    "latency": "number",
    "note": "string",
}


def registry(rollups: dict[str, Any] | None = None) -> bytes:
    """The stored registry of the stream. All records have version 1."""
    search = {**REGISTRY["search"], "rollups": rollups or REGISTRY["search"]["rollups"]}  # type: ignore[dict-item]
    schema = {"type": "object", "properties": {name: {"type": kind} for name, kind in PROPERTIES.items()}}
    body = msgspec.json.encode({"schema": schema, "search": search})
    return Registry.empty(LOG).update(body, next_sequence=0).stored()


def documents(records: int, step_ms: int) -> Iterator[list[bytes]]:
    """Batches of documents, one every ``step_ms``."""
    rng = random.Random(records)
    encode = msgspec.json.Encoder().encode
    for first in range(0, records, BATCH):
        yield [
            encode(
                {
                    "at": FIRST + number * step_ms,
                    "service": f"service-{rng.randrange(20)}",
                    "user": f"user-{rng.randrange(USERS)}",
                    "status": rng.choice((200, 200, 200, 404, 503)),
                    "latency": round(rng.expovariate(0.05), 2) + 0.01,
                    "note": " ".join(rng.choices(WORDS, k=16)),
                }
            )
            for number in range(first, min(first + BATCH, records))
        ]


def fill(path: Path, records: int, *, step_ms: int = 10, rollups: dict[str, Any] | None = None) -> int:
    """Create the directory with everything sealed. Returns the bytes of all payloads."""
    size = 0
    with Engine.open(path) as engine:
        traits = {"content_type": "application/json", "created_at": FIRST}
        config = Config(durability="disk", attributes={"streams": traits})
        log = engine.create(LOG, config, notes={"registry": registry(rollups)}).wait()
        keys = [f"user-{number}" for number in range(USERS)]
        rng = random.Random(records)
        for batch in documents(records, step_ms):
            size += sum(map(len, batch))
            log.append(Batch(batch, keys=rng.choices(keys, k=len(batch)))).wait()
        engine.seal()
    return size


__all__ = ["BATCH", "FIELDS", "FIRST", "LOG", "MONTH_MS", "PAYLOAD", "PROPERTIES", "documents", "fill", "registry"]
