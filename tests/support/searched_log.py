"""What the tests of search and aggregation share: a log in memory, a configuration, and short ways to ask."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import msgspec

from strandline.engine import Batch, Config, Engine, Log, ManualClock
from strandline.query.config import SearchConfig
from strandline.query.config_parser import parse_search_config
from strandline.query.requests import parse_aggregate_body, read_search
from strandline.query.search import Coverage, SearchResult
from strandline.query.searcher import Searcher

NOW = 1_700_000_000_000
#: More than any test takes.
PATIENCE_SECONDS = 600.0
#: More than any test indexes.
ROOM = 1 << 30


def binding(pointer: str, version: int = 1) -> dict[str, Any]:
    return {"version": version, "jsonPointer": pointer}


def declared(kind: str, pointer: str, **settings: Any) -> dict[str, Any]:
    flags = {"exact": True, "exists": True}
    if kind in ("keyword", "text"):
        flags["prefix"] = True
    if kind == "text":
        flags |= {"positions": True, "analyzer": "unicode_word_v1"}
    else:
        flags |= {"column": True, "sortable": True, "aggregatable": True}
    return {"kind": kind, "bindings": [binding(pointer)], **flags, **settings}


DECLARED: dict[str, Any] = {
    "primaryTimestampField": "at",
    "aliases": {"svc": "service"},
    "defaultFields": [{"field": "note", "boost": 2}, {"field": "service", "boost": 3}],
    "fields": {
        "at": declared("date", "/at"),
        "service": declared("keyword", "/service", normalizer="lowercase_v1"),
        "tag": declared("keyword", "/tags"),
        "status": declared("integer", "/status"),
        "took": declared("float", "/took"),
        "ok": declared("bool", "/ok"),
        "note": declared("text", "/note"),
        "title": declared("text", "/deep/title"),
    },
    "rollups": {
        "requests": {
            "include": "NOT tag:ignored",
            "dimensions": ["service", "ok", "status"],
            "intervals": ["1s", "1m"],
            "measures": {
                "requests": {"kind": "count"},
                "errors": {"kind": "count", "include": "status:>=500"},
                "latency": {"kind": "summary", "field": "took", "histogram": "log2_v1"},
                "codes": {"kind": "summary", "field": "status"},
            },
        },
        "parts": {
            "dimensions": ["service"],
            "intervals": ["1s"],
            "measures": {
                "value": {
                    "kind": "summary_parts",
                    "countJsonPointer": "/p/count",
                    "sumJsonPointer": "/p/sum",
                    "minJsonPointer": "/p/min",
                    "maxJsonPointer": "/p/max",
                    "histogramJsonPointer": "/p/buckets",
                }
            },
        },
    },
}
CONFIG = parse_search_config(DECLARED)


def encode(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode(errors="replace")


class Group(msgspec.Struct):
    key: dict[str, str | None]
    measures: dict[str, dict[str, Any]]


class Bucket(msgspec.Struct):
    start: datetime
    end: datetime
    groups: list[Group]

    @property
    def start_ms(self) -> int:
        return milliseconds(self.start)

    @property
    def end_ms(self) -> int:
        return milliseconds(self.end)


class Aggregated(NamedTuple):
    """The answer to an aggregation, as a client reads it."""

    buckets: list[Bucket]
    coverage: Coverage


def milliseconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


class Bed:
    """A log and a searcher. Offsets are seqs in decimal digits here."""

    def __init__(
        self, engine: Engine, config: SearchConfig = CONFIG, budget: int = ROOM, log: Log | None = None
    ) -> None:
        """``log``: one that is there; a new one if there is none."""
        self.engine = engine
        self.log: Log = log or engine.create("log", Config(durability="memory")).wait()
        self.config = config
        self.searcher = Searcher(budget)
        self.versions: Sequence[tuple[int, int]] = [(1, 1)]

    def append(self, *documents: object) -> None:
        """One append for all of them; none for none."""
        if documents:
            self.log.append(Batch([encode(document) for document in documents])).wait()

    def search(self, query: str, patience: float = PATIENCE_SECONDS, **settings: Any) -> SearchResult:
        request = read_search({"q": query, **settings}, self.config, decode_offset)
        return self.searcher.search(self.log, self.config, request, self.versions, promote, perf_counter() + patience)

    def seqs(self, query: str, **settings: Any) -> list[int]:
        return [hit.seq for hit in self.search(query, **settings).hits]

    def pages(self, query: str, **settings: Any) -> list[int]:
        """All hits, page by page."""
        seqs: list[int] = []
        after = None
        while True:
            result = self.search(query, **settings, **({} if after is None else {"search_after": after}))
            seqs += [hit.seq for hit in result.hits]
            if result.next_after is None:
                return seqs
            after = [
                str(value) if at == len(result.next_after) - 1 else value for at, value in enumerate(result.next_after)
            ]

    def aggregate(self, patience: float = PATIENCE_SECONDS, **body: Any) -> Aggregated:
        request = parse_aggregate_body(msgspec.json.encode(body), self.config)
        result = self.searcher.aggregate(self.log, self.config, request, self.versions, perf_counter() + patience)
        # Python reads integers of any size.
        return Aggregated(msgspec.convert(json.loads(b"".join(result.buckets)), list[Bucket]), result.coverage)


def decode_offset(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def promote(seq: int, data: bytes) -> object:
    return msgspec.json.decode(data)


@contextmanager
def bed(path: Path, config: SearchConfig = CONFIG, budget: int = ROOM) -> Iterator[Bed]:
    with Engine.open(path, clock=ManualClock(NOW), background=False) as engine:
        yield Bed(engine, config, budget)
